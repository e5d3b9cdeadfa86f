// @ts-check
/**
 * Keeps a feed in step with the hub: every question that waits is in it once, and what is over is told. What was heard
 * to be over never comes back, whatever an answer says that was on its way meanwhile.
 */

import { ApiError, get } from "./api.js";
import { sentenceOf } from "./card_over.js";

/** @typedef {import("./feed.js").Feed} Feed */
/** @typedef {import("./shapes.js").Card} Card */

const ENDS = new Set(["approval.decided", "approval.expired", "approval.cancelled"]);
const PAGE = 100;
const READ_ANEW = 8; // so many new ones at once are read as a list
const SOON_MS = 60;
const AGAIN_MS = 2000; // after the hub did not answer, though its events may come still

export class Supply {
  /**
   * @param {Feed} feed
   * @param {{
   *   signal: AbortSignal,
   *   take: (cards: Card[]) => void,
   *   changed: (arrived: number) => void,
   *   refused: (notices: import("./shapes.js").Notice[]) => void,
   * }} to
   */
  constructor(feed, to) {
    this.feed = feed;
    this.to = to;
    this.hasRead = false;
    this.isReading = false;
    this.readAgain = false;
    this.isTiming = false;
    this.soon = 0;
    this.refusing = 0;
    /** @type {Set<string>} */
    this.arriving = new Set();
    /** @type {Set<string>} */
    this.over = new Set();
  }

  /** Read all that waits, and have exactly that. */
  async read() {
    this.readAgain = this.isReading;
    if (this.isReading) return;
    this.isReading = true;
    this.feed.node.setAttribute("aria-busy", "true");
    try {
      do {
        this.readAgain = false;
        await this.readOnce();
      } while (this.readAgain);
    } catch (error) {
      if (!(error instanceof ApiError) || (error.status > 0 && error.status < 500)) throw error;
      setTimeout(() => this.to.signal.aborted || this.read(), AGAIN_MS);
    } finally {
      this.isReading = false;
      this.feed.node.setAttribute("aria-busy", "false");
    }
  }

  async readOnce() {
    const here = new Set(this.feed.views.keys());
    /** @type {string | null} */
    let after = null;
    do {
      const { cards, next, notices } = await get("/api/inbox", { after, limit: PAGE });
      for (const card of cards) here.delete(card.id);
      if (!after) this.to.refused(notices);
      this.take(cards);
      after = next;
    } while (after);
    for (const id of here) await this.lookAfter(id);
    this.hasRead = true;
    this.to.changed(0);
  }

  /**
   * Something that was here waits no longer: see what became of it.
   * @param {string} id
   */
  async lookAfter(id) {
    const view = this.feed.views.get(id);
    if (!view || view.state !== "waiting") return;
    try {
      const { card } = await get(`/api/inbox/${id}`, { short: true });
      if (card.status !== "pending") {
        view.settle(card.status, sentenceOf(card.status, card.outcome?.by ?? null));
      }
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      view.settle("expired", "It is gone");
    }
  }

  /**
   * The time of these has run out, as the page counts it: the hub is asked what time it is, if it can be.
   * @param {import("./card.js").CardView[]} overdue
   */
  async runOut(overdue) {
    if (this.isTiming) return;
    this.isTiming = true;
    await get("/api/inbox", { limit: 1 }).catch(() => null);
    this.isTiming = false;
    for (const view of overdue) if (view.isOverdue) view.settle("expired", sentenceOf("expired", null));
    this.to.changed(0);
  }

  /** @param {Card[]} cards */
  take(cards) {
    this.to.take(cards.filter((card) => card.status === "pending" && !this.over.has(card.id)));
  }

  /** @param {import("./live.js").HubEvent} event */
  hear(event) {
    if (event.type === "approval.refused") {
      clearTimeout(this.refusing);
      this.refusing = setTimeout(() => this.readRefused(), SOON_MS);
      return;
    }
    const id = event.approval_id;
    if (!id) return;
    if (event.type === "approval.requested") {
      this.arriving.add(id);
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.fetchArrived(), SOON_MS);
      return;
    }
    this.over.add(id);
    this.arriving.delete(id);
    const view = this.feed.views.get(id);
    if (!view) return;
    if (!ENDS.has(event.type)) return void this.lookAfter(id).catch(() => this.read());
    const status = event.type === "approval.decided" ? event.decision : event.type.slice("approval.".length);
    view.hear(status, sentenceOf(status, event.by ?? null));
    this.to.changed(0);
  }

  async readRefused() {
    const found = await get("/api/inbox", { limit: 1 }).catch(() => null);
    if (found) this.to.refused(found.notices);
  }

  async fetchArrived() {
    const ids = [...this.arriving].filter((id) => !this.feed.views.has(id));
    this.arriving.clear();
    if (ids.length > READ_ANEW) await this.read();
    else {
      const got = await Promise.all(
        ids.map((id) => get(`/api/inbox/${id}`, { short: true }).catch(() => null)),
      );
      this.take(got.flatMap((each) => each ? [each.card] : []));
      if (got.includes(null)) await this.read();
    }
    if (ids.length) this.to.changed(ids.length);
  }
}
