// @ts-check
/** What waits for an answer, oldest first, live; and what the buttons and the keys of its cards do. */

import { ApiError, get } from "./api.js";
import { decideAll } from "./batch.js";
import { listCovered } from "./card_always.js";
import { OF_INSTALLS, showInstall } from "./card_install.js";
import { outcomeText } from "./card_over.js";
import { LOOK_MS } from "./calm.js";
import { decide } from "./deciding.js";
import { toast } from "./dialog.js";
import { h, replace } from "./dom.js";
import { Feed } from "./feed.js";
import { bindKeys, showHelp } from "./keys.js";
import { sweep } from "./leaving.js";
import { listen, onReconnect } from "./live.js";
import { Supply } from "./supply.js";
import { go } from "./router.js";
import { onTick } from "./time.js";
import { holdDenials, sendHeld, undoLast } from "./undo.js";
import { nothingFound, nothingWaits, refusedNotice } from "./waiting_parts.js";

/** @typedef {import("./card.js").CardView} CardView */

/** @type {import("./router.js").Page} */
export const page = {
  path: "/waiting",
  title: "Waiting",
  render: (root, context) => renderWaiting(root, context, null),
};

/**
 * Show what waits; the card `id` gets the focus, if one is named.
 * @param {HTMLElement} root
 * @param {import("./router.js").Context} context
 * @param {string | null} id
 */
export async function renderWaiting(root, { signal }, id) {
  const stage = new Waiting(root, id, signal);
  bindKeys(stage, signal);
  const stops = [
    listen(["approval.*"], (event) => stage.supply.hear(event)),
    listen(OF_INSTALLS, (event) => showInstall(stage.feed.views.values(), event)),
    onReconnect(() => stage.comeBack()),
    onTick(() => stage.tick()),
  ];
  signal.addEventListener("abort", () => {
    sendHeld();
    stage.feed.close();
    for (const stop of stops) stop();
  });
  await stage.supply.read();
}

class Waiting {
  /**
   * @param {HTMLElement} root
   * @param {string | null} wanted the card that gets the focus, once it is here
   * @param {AbortSignal} signal
   */
  constructor(root, wanted, signal) {
    this.wanted = wanted;
    this.feed = new Feed({
      allow: (view) => this.press(view, () => this.allow(view)),
      deny: (view) => this.isMeant(view) && this.deny(view),
      allowAll: () => this.all(true),
      always: (view, literal, release) => this.press(view, () => this.always(view, literal, release)),
      restored: (view) => {
        this.feed.focusByItself(view); // the button that was clicked is gone
        this.show();
      },
      fetchWhole: async (view) => {
        await fetchWhole(view);
        this.listCovered();
      },
    });
    this.supply = new Supply(this.feed, {
      signal,
      take: (cards) => this.take(cards),
      changed: (arrived) => this.show(arrived),
      refused: (notices) => replace(this.refused, ...notices.map(refusedNotice)),
    });
    this.refused = h("div", { "aria-live": "polite", dataset: { part: "refused" } });
    this.count = h("span", { class: "muted", dataset: { part: "count" } });
    this.field = h("input", {
      type: "search",
      placeholder: "Search  /",
      "aria-label": "Search what waits",
      dataset: { field: "search" },
      oninput: () => this.filter(),
    });
    this.empty = h("div", null);
    this.arrivals = h("div", { class: "sr-only", "aria-live": "polite", dataset: { part: "arrivals" } });
    root.append(
      h(
        "div",
        { class: "waiting" },
        h(
          "div",
          { class: "page-head" },
          h("h1", null, "Waiting ", this.count),
          h(
            "div",
            { class: "tools" },
            this.field,
            h(
              "button",
              {
                type: "button",
                class: "quiet",
                "aria-label": "Keys",
                dataset: { action: "help" },
                onclick: showHelp,
              },
              h("kbd", null, "?"),
            ),
          ),
        ),
        this.refused,
        this.empty,
        this.feed.node,
        this.arrivals,
      ),
    );
  }

  /** The hub answers again: what was said of its silence is true no longer. */
  comeBack() {
    for (const note of this.feed.node.querySelectorAll("[data-lost]")) note.closest("[data-told]")?.remove();
    this.supply.read();
  }

  focused() {
    return this.feed.focused();
  }

  get calm() {
    return this.feed.calm;
  }

  /** @param {1 | -1} step */
  move(step) {
    this.feed.move(step);
  }

  /** @param {CardView} view */
  showMore(view) {
    this.feed.showMore(view);
  }

  search() {
    this.field.focus();
    this.field.select();
  }

  filter() {
    this.feed.filter(this.field.value);
    this.show();
  }

  /**
   * Go from the search field to the first card that matches, or to the first of all.
   * @param {boolean} keeps whether what was searched for stays
   */
  leaveSearch(keeps) {
    if (!keeps) this.field.value = "";
    this.filter();
    const first = this.feed.waiting[0];
    if (first) this.feed.focusByItself(first);
    else if (!keeps) this.field.blur();
    return true;
  }

  /**
   * Whether a click is for this card: not if the card has only just come beneath the pointer.
   * @param {CardView} view
   */
  isMeant(view) {
    if (this.feed.hasMoved(view)) toast("It had only just moved there: click again.");
    else if (this.calm.isFresh) toast("Something had only just changed: click again.");
    return !this.calm.isFresh && !this.feed.hasMoved(view);
  }

  /**
   * Allow by a button, which is at the end of its card: what is folded must be open all the same.
   * @param {CardView} view
   * @param {() => void} answer
   */
  press(view, answer) {
    if (!this.isMeant(view) || !view.takesAnswer) return;
    if (view.isSeen) answer();
    else this.showMore(view);
  }

  /**
   * Do what is most often right: where a key is wanted, nothing can go on without one.
   * @param {CardView} view
   */
  go(view) {
    if (view.card.missing.length) go(`/secrets/${view.card.id}`);
    else if (view.card.page === "server-login") go(`/server-login/${view.card.id}`);
    else this.allow(view);
  }

  /** @param {CardView} view */
  allow(view) {
    const { editor } = view.panels;
    const edited = editor ? editor.value() : view.launch?.changed();
    if (editor && !edited) return editor.focus();
    const scope = view.remember.checked ? "session" : "once";
    this.send(view, { allow: true, scope, ...(edited ? { updated_input: edited } : {}) });
  }

  /** @param {CardView} view */
  deny(view) {
    if (!view.takesAnswer) return;
    const message = view.panels.words;
    const { digest } = view.card;
    const answer = { allow: false, ...(message ? { message } : {}) };
    const hadFocus = view.node.contains(document.activeElement);
    holdDenials([view], async (_, isLeaving) => {
      const hadLine = view.node.contains(document.activeElement);
      await decide(view, answer, { digest, isLeaving });
      if (hadLine) this.moveOn(view);
      this.show();
    });
    this.calm.beginGrace();
    if (hadFocus) this.moveOn(view);
    this.show();
  }

  /** Undo what was done last, if it still can be. */
  undo() {
    const back = undoLast();
    if (!back) return toast("There is nothing to undo.");
    if (back !== true) this.feed.focusByItself(back);
    this.show();
  }

  /**
   * @param {CardView} view
   * @param {boolean} literal
   * @param {boolean} release
   */
  async always(view, literal, release) {
    const released = release ? this.covered(view) : [];
    if (released.length) await sendHeld(false);
    await this.send(view, { allow: true, scope: "always", literal, release: released });
  }

  /**
   * What "always" would let go on besides; not what was denied here, though that is not sent yet.
   * @param {CardView} view
   */
  covered(view) {
    const ids = view.card.covers.map((each) => each.id);
    return ids.filter((id) => (this.feed.views.get(id)?.state ?? "waiting") === "waiting");
  }

  listCovered() {
    for (const view of this.feed.views.values()) {
      if (view.isBuilt && view.card.covers.length) listCovered(view.body, new Set(this.covered(view)));
    }
  }

  /** @param {boolean} allow */
  async all(allow) {
    const before = this.feed.focused();
    await decideAll(this.feed.waiting, allow, this.field.value.trim());
    if (before) this.moveOn(before);
    this.show();
  }

  /**
   * @param {CardView} view
   * @param {Omit<import("./shapes.js").Answer, "digest">} answer
   */
  async send(view, answer) {
    if (!view.takesAnswer) return;
    const hadFocus = view.node.contains(document.activeElement);
    await decide(view, answer);
    this.calm.beginGrace();
    if (hadFocus) this.moveOn(view);
    this.show();
  }

  /**
   * After an answer, or a key on what is over, the next card has the focus, if nothing else has got it meanwhile.
   * @param {CardView} view
   */
  moveOn(view) {
    const isElsewhere = document.activeElement !== document.body &&
      !view.node.contains(document.activeElement);
    if (view.waits || isElsewhere) return;
    const next = this.feed.neighbour(view);
    if (next) this.feed.focusByItself(next);
    else view.node.focus({ preventScroll: true });
  }

  /**
   * Have these cards too; the first that waits gets the focus where nothing has it.
   * @param {import("./shapes.js").Card[]} cards
   */
  take(cards) {
    const wasEmpty = this.feed.waiting.length === 0;
    this.feed.add(cards);
    const wanted = this.wanted && this.feed.views.get(this.wanted);
    const first = wanted || (!this.wanted && wasEmpty && this.feed.waiting[0]);
    if (first && this.isFocusFree()) {
      this.wanted = null;
      if (wanted) this.feed.pin(wanted);
      else this.feed.focusByItself(first, LOOK_MS);
    }
    this.show();
  }

  /** Whether nothing has the focus, or the bar above still has it from before this page. */
  isFocusFree() {
    const now = document.activeElement;
    return now === document.body || (!this.supply.hasRead && now?.closest(".top"));
  }

  tick() {
    this.listCovered();
    const views = [...this.feed.views.values()];
    for (const view of views) if ((view.isBuilt || view.isAside) && view.state !== "over") view.tick?.();
    const overdue = views.filter((view) => view.isOverdue);
    if (overdue.length) this.supply.runOut(overdue);
    if (sweep(this.feed)) this.show();
  }

  /**
   * Show how many wait, and what to do when none does.
   * @param {number} [arrived] how many are new
   */
  show(arrived = 0) {
    this.listCovered();
    const count = this.feed.waiting.length;
    const all = [...this.feed.views.values()].filter((view) => view.waits).length;
    this.count.textContent = !all ? "" : count === all ? String(all) : `${count} of ${all}`;
    const together = this.feed.waiting.filter(({ card }) => !card.kind && !card.page);
    this.feed.node.dataset.together = String(together.length > 1);
    if (arrived) this.arrivals.textContent = `${arrived} new, ${count} waiting`;
    const shown = [...this.feed.views.values()].some((view) => !view.node.hidden);
    replace(
      this.empty,
      !shown && this.supply.hasRead &&
        (this.feed.search ? nothingFound(() => this.leaveSearch(false)) : nothingWaits()),
    );
  }
}

/** @param {CardView} view */
async function fetchWhole(view) {
  try {
    const { card } = await get(`/api/inbox/${view.card.id}`);
    if (card.status === "pending") view.setCard(card);
    else view.settle(card.status, outcomeText(card));
  } catch (error) {
    const why = error instanceof ApiError ? error.message : String(error);
    view.tell(`The rest of it could not be read: ${why}.`, "bad");
  }
}
