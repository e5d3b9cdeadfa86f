// @ts-check
/**
 * The cards in their order, which of them has the focus, and what of them was in view. Cards are told apart by their
 * ids, never by their places, and none ever takes the focus from another.
 */

import { Calm, GRACE_MS, LOOK_MS } from "./calm.js";
import { CardView } from "./card.js";
import { h } from "./dom.js";

/** @typedef {import("./shapes.js").Card} Card */

const NEAR = "1200px 0px"; // bodies are built this far from what is in view
const PIN_MS = 2000; // what is above a card is drawn by then
const GAP_PX = 8;

export class Feed {
  /** @param {Omit<import("./card.js").Doing, "grew" | "hush" | "disturbed">} doing */
  constructor(doing) {
    this.doing = {
      ...doing,
      grew: () => this.lookSoon(),
      hush: () => this.calm.hush(),
      disturbed: (/** @type {CardView} */ view) => this.disturb(view.node.nextElementSibling),
    };
    /** @type {Map<string, CardView>} */
    this.views = new Map();
    /** @type {WeakMap<Element, CardView>} */
    this.of = new WeakMap();
    /** @type {Set<CardView>} */
    this.nearby = new Set();
    this.search = "";
    this.calm = new Calm();
    this.actedAt = 0; // when the person last moved on
    this.pressedAt = 0;
    /** @type {{view: CardView, until: number} | null} */
    this.pinned = null;
    this.node = h("div", {
      class: "feed",
      role: "feed",
      "aria-label": "What waits for an answer",
      "aria-busy": "false",
    });
    this.near = new IntersectionObserver((seen) => this.comeNear(seen), { rootMargin: NEAR });
    this.looking = new AbortController();
    this.isLooking = false;
    this.heed(["close"], () => this.calm.beginGrace()); // a dialog
    this.bar = new ResizeObserver(() => this.disturb(this.node.firstElementChild)); // a banner moves all of it
    const bar = document.querySelector(".top");
    if (bar) this.bar.observe(bar, { box: "border-box" });
    this.heed(["wheel", "touchmove"], () => this.actedAt = performance.now());
    this.heed(["keydown"], () => this.pressedAt = performance.now());
    this.heed(["wheel", "touchmove", "keydown", "pointerdown"], () => this.pinned = null);
    this.heed(["scroll", "resize", "visibilitychange", "focusin"], () => this.lookSoon());
  }

  /**
   * @param {string[]} types
   * @param {() => void} fn
   */
  heed(types, fn) {
    const { signal } = this.looking;
    for (const type of types) addEventListener(type, fn, { signal, passive: true, capture: true });
  }

  /** Those that wait, and match the search, in their order. */
  get waiting() {
    return [...this.views.values()].filter((view) => view.waits && !view.node.hidden);
  }

  /**
   * These cards have moved, from the one of this node on, though nobody wanted them to.
   * @param {Element | null} first
   */
  disturb(first) {
    const now = performance.now();
    for (let node = first; node; node = node.nextElementSibling) {
      const below = this.of.get(node);
      if (below) below.movedAt = now;
    }
  }

  /** @param {CardView} view */
  hasMoved(view) {
    return performance.now() - view.movedAt < GRACE_MS;
  }

  /** The card that has the focus. */
  focused() {
    const node = document.activeElement?.closest("article.card");
    return node ? this.of.get(node) ?? null : null;
  }

  /**
   * Have these cards, and of those here before only what they still have.
   * @param {Card[]} cards
   */
  add(cards) {
    for (const card of cards.filter((each) => !this.views.has(each.id))) {
      const view = new CardView(card, this.doing);
      this.views.set(card.id, view);
      this.of.set(view.node, view);
      view.node.hidden = !this.matches(view);
      this.place(view);
      this.disturb(view.node.nextElementSibling);
      this.near.observe(view.node);
    }
    this.number();
  }

  /**
   * Put a card where its time wants it: what runs out first comes first.
   * @param {CardView} view
   */
  place(view) {
    const key = (/** @type {CardView} */ { card }) =>
      `${new Date(card.expires_at).toISOString()} ${card.created_at} ${card.id}`;
    let after = this.node.lastElementChild;
    while (after && key(/** @type {CardView} */ (this.of.get(after))) > key(view)) {
      after = after.previousElementSibling;
    }
    if (after) after.after(view.node);
    else this.node.prepend(view.node);
  }

  /** @param {CardView} view */
  remove(view) {
    this.disturb(view.node.nextElementSibling);
    this.near.unobserve(view.node);
    this.nearby.delete(view);
    this.views.delete(view.card.id);
    view.node.remove();
    this.number();
  }

  /** @param {CardView} view */
  isInView(view) {
    const { top, bottom } = screen();
    const box = view.node.getBoundingClientRect();
    return box.bottom > top && box.top < bottom;
  }

  /**
   * The card after this one that waits; where there is none, the one before.
   * @param {CardView} view
   */
  neighbour(view) {
    const all = [...this.node.children].map((node) => /** @type {CardView} */ (this.of.get(node)));
    const at = all.indexOf(view);
    const waits = (/** @type {CardView} */ each) => each.waits && !each.node.hidden;
    return all.slice(at + 1).find(waits) ?? all.slice(0, at).findLast(waits) ?? null;
  }

  /**
   * Move the focus as a person wants it.
   * @param {1 | -1} step
   */
  move(step) {
    const shown = [...this.node.children].filter((node) => !(/** @type {HTMLElement} */ (node).hidden));
    const from = this.focused();
    const at = from ? shown.indexOf(from.node) : step > 0 ? -1 : shown.length;
    const next = shown[Math.max(0, Math.min(shown.length - 1, at + step))];
    if (!next) return;
    this.actedAt = performance.now();
    /** @type {HTMLElement} */ (next).focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
    this.showWhole(/** @type {CardView} */ (this.of.get(next)));
  }

  /**
   * Give a card the focus that nobody asked for: it takes no answer for a moment.
   * @param {CardView} view
   * @param {number} [graceMs]
   */
  focusByItself(view, graceMs = GRACE_MS) {
    this.calm.beginGrace(graceMs);
    view.node.focus({ preventScroll: true });
    view.node.scrollIntoView({ block: "nearest" });
    this.showWhole(view);
  }

  /**
   * Show a card from its top, and keep it there while what is above it is drawn.
   * @param {CardView} view
   */
  pin(view) {
    this.pinned = { view, until: performance.now() + PIN_MS };
    this.focusByItself(view, LOOK_MS);
    this.look();
  }

  /** @param {CardView} view */
  showWhole(view) {
    view.build();
    if (view.card.cut) this.doing.fetchWhole(view);
  }

  /** @param {string} search */
  filter(search) {
    this.search = search.trim().toLowerCase();
    for (const view of this.views.values()) view.node.hidden = !this.matches(view);
    this.number();
  }

  /** @param {CardView} view */
  matches(view) {
    if (!this.search) return true;
    const { tool, sentence, session_name, workspace, lineage, input, why } = view.card;
    const text = [
      tool,
      sentence,
      session_name,
      workspace,
      why,
      ...lineage.map((each) => each.name),
      JSON.stringify(input),
    ];
    return this.search.split(/\s+/).every((word) => text.some((each) => each.toLowerCase().includes(word)));
  }

  /** Tell screen readers which of how many each is. */
  number() {
    const shown = [...this.views.values()].filter((view) => !view.node.hidden);
    for (const [index, view] of shown.entries()) {
      view.node.setAttribute("aria-posinset", String(index + 1));
      view.node.setAttribute("aria-setsize", String(shown.length));
    }
  }

  /**
   * Answer a card that was not seen whole by showing more of it, and say so.
   * @param {CardView} view
   */
  async showMore(view) {
    this.calm.beginGrace();
    if (!view.isWhole) {
      await view.unfold();
      return view.tell(
        "There is more of it than was shown. Now all of it is here: read to its end, then answer.",
      );
    }
    this.look();
    if (view.isSeen) return view.tell("It has only just come into view: press again.");
    view.tell("Scroll to the end first, then press again.");
    const { top, bottom } = screen();
    const box = view.node.getBoundingClientRect();
    if (box.height + GAP_PX <= bottom - top) {
      const below = box.bottom + GAP_PX - bottom;
      return scrollBy({ top: box.top < top ? box.top - top - GAP_PX : Math.max(0, below) });
    }
    const hidden = box.top + view.sight.to;
    scrollBy({ top: hidden - top < 0 || hidden > bottom ? hidden - top : (bottom - top) * 0.85 });
  }

  /** @param {IntersectionObserverEntry[]} seen */
  comeNear(seen) {
    for (const entry of seen) {
      const view = this.of.get(entry.target);
      if (!view) continue;
      if (entry.isIntersecting) this.nearby.add(view);
      else this.nearby.delete(view);
      if (entry.isIntersecting) view.build();
    }
    this.lookSoon();
  }

  /** See with the next picture what of the cards is in view. */
  lookSoon() {
    if (this.isLooking) return;
    this.isLooking = true;
    requestAnimationFrame(() => {
      this.isLooking = false;
      this.look();
    });
  }

  look() {
    if (document.visibilityState !== "visible") return;
    const { top, bottom } = screen();
    if (this.pinned && performance.now() < this.pinned.until) {
      scrollBy({ top: this.pinned.view.node.getBoundingClientRect().top - top - GAP_PX });
    }
    for (const view of this.nearby) view.look(top, bottom);
  }

  close() {
    this.near.disconnect();
    this.bar.disconnect();
    this.looking.abort();
  }
}

/** What of the window is not beneath the bar. */
function screen() {
  return { top: document.querySelector(".top")?.getBoundingClientRect().bottom ?? 0, bottom: innerHeight };
}
