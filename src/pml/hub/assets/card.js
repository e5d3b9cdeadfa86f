// @ts-check
/**
 * One question on the page. It knows what of it has been seen, and what its person is about to answer; it does not
 * send anything. Its body is built when it comes near, and a card that came shortened is fetched first.
 */

import { drawAlways, holdAlways } from "./card_always.js";
import { drawBlock } from "./card_blocks.js";
import { drawFoot } from "./card_foot.js";
import { launchForm } from "./card_launch.js";
import {
  drawClock,
  drawKind,
  drawMissing,
  drawOrigin,
  drawRemember,
  drawWarnings,
  drawWhy,
} from "./card_parts.js";
import { Panels } from "./card_panels.js";
import { shownOf, Sight } from "./card_sight.js";
import { hubNow } from "./api.js";
import { h, replace, shownText } from "./dom.js";
import { drawOver } from "./card_over.js";

/** @typedef {import("./shapes.js").Card} Card */
/**
 * @typedef {object} Doing what the buttons of a card do
 * @property {(view: CardView) => void} allow
 * @property {(view: CardView) => void} deny
 * @property {(view: CardView) => void} allowAll
 * @property {(view: CardView, literal: boolean, release: boolean) => void} always
 * @property {(view: CardView) => Promise<void>} fetchWhole
 * @property {(view: CardView) => void} restored that its denial was taken back
 * @property {() => void} grew that there is something new to be seen
 * @property {() => void} hush that a field went away which may be typed into still
 * @property {(view: CardView) => void} disturbed that what is below may have moved
 */

export class CardView {
  /**
   * @param {Card} card
   * @param {Doing} doing
   */
  constructor(card, doing) {
    this.card = card;
    this.doing = doing;
    /** @type {"waiting" | "sending" | "held" | "over"} */
    this.state = "waiting"; // held: denied, and not sent yet
    this.isBuilt = false;
    this.isFetched = false; // by itself, with all that it covers
    this.overAt = 0;
    this.asideAt = 0;
    this.isAside = false; // a line stands in its place
    this.movedAt = -Infinity;
    this.isMine = false; // it was answered here
    this.isLasting = false; // what became of it is to be read
    /** @type {{status: string, text: string} | null} */
    this.heard = null;
    /** @type {import("./card_blocks.js").Fold[]} */
    this.folds = [];
    this.panels = new Panels(card.id);
    /** @type {import("./card_launch.js").LaunchForm | null} */
    this.launch = null; // of a new agent, what it is given
    this.remember = h("input", { type: "checkbox", dataset: { action: "remember" } });
    this.body = h("div", { class: "card-body" });
    this.told = h("div", { class: "told", role: "status" });
    this.node = h("article", {
      class: "card",
      tabindex: 0,
      "aria-labelledby": `s-${card.id}`,
      "aria-describedby": `w-${card.id} d-${card.id}`,
      dataset: { card: card.id, state: "waiting", ...(card.kind ? { alone: card.subject } : {}) },
    });
    this.sight = new Sight(this.node);
    this.drawHead();
  }

  /** Whether its time has run out, though nobody has said so. */
  get isOverdue() {
    return this.state === "waiting" && Date.parse(this.card.expires_at) <= hubNow();
  }

  /** Whether it is still to be answered here. */
  get waits() {
    return this.state === "waiting" || this.state === "sending";
  }

  get takesAnswer() {
    return this.state === "waiting" && !this.isOverdue;
  }

  /** Whether all of it is there to be seen. */
  get isWhole() {
    return this.isBuilt && !this.card.cut && this.folds.length === 0;
  }

  /** Whether all of it was in view. */
  get isSeen() {
    return this.isWhole && this.sight.isWhole;
  }

  /**
   * See what of it is between these edges of the window.
   * @param {number} top
   * @param {number} bottom
   */
  look(top, bottom) {
    if (!this.isBuilt || this.isAside || this.state === "over") return;
    this.sight.look(top, bottom, this.isWhole);
    this.node.dataset.seen = String(this.isSeen);
  }

  drawHead() {
    const { card } = this;
    const clock = drawClock(card);
    this.tick = clock.tick;
    const words = card.quoted ? `“${card.sentence}”` : card.sentence;
    const head = h(
      "header",
      { class: "card-head" },
      drawKind(card),
      h("div", { class: "meta", id: `d-${card.id}` }, drawOrigin(card), clock.node),
      h("h2", { class: "sentence", id: `s-${card.id}` }, words),
      card.quoted && h("p", { class: "hint" }, "says the server"),
      card.server && h("p", { class: "server", dataset: { part: "server" } }, card.server),
    );
    replace(this.node, head, this.body);
  }

  /** Draw the body, if it is not there. */
  build() {
    if (this.isBuilt || this.state === "over") return;
    this.isBuilt = true;
    const { card } = this;
    this.folds = [];
    const blocks = card.blocks.map((block) => drawBlock(block, this.folds));
    this.launch = launchForm(card);
    replace(
      this.body,
      drawWarnings(card),
      blocks,
      drawMissing(card),
      drawWhy(card),
      this.launch?.node,
      this.panels.node,
      drawRemember(card, this.remember),
      this.drawAlways(),
      this.told,
      this.drawFoot(),
    );
    holdAlways(this.body, this.panels.mode);
    for (const button of this.body.querySelectorAll("[data-action=unfold]")) {
      button.addEventListener("click", () => this.unfold());
    }
    this.doing.grew();
  }

  drawFoot() {
    return drawFoot(this.card, this.panels.mode, {
      edit: () => this.openEditor(),
      message: () => this.openMessage(),
      close: () => this.closeOpen(),
      deny: () => this.doing.deny(this),
      "allow-all": () => this.doing.allowAll(this),
      allow: () => this.doing.allow(this),
    });
  }

  /** Have the buttons for what is being written now. */
  showMode() {
    this.body.querySelector("footer")?.replaceWith(this.drawFoot());
    holdAlways(this.body, this.panels.mode);
    this.panels.comeIntoView();
  }

  drawAlways() {
    const always = drawAlways(this.card, {
      always: (literal, release) => this.doing.always(this, literal, release),
    });
    always?.addEventListener("toggle", () => {
      if (always.open && !this.isFetched) this.doing.fetchWhole(this).then(() => this.openAlways());
    });
    return always;
  }

  openAlways() {
    const always = this.body.querySelector("details.always");
    if (always instanceof HTMLDetailsElement) always.open = true;
  }

  /** Open all that is folded; a card that came shortened is fetched. */
  async unfold() {
    if (this.card.cut) await this.doing.fetchWhole(this);
    this.build();
    if (this.folds.length) this.sight.forget(this.body.querySelector("[data-action=unfold]"));
    const refocus = this.keepFocus();
    this.openFolds();
    refocus();
  }

  openFolds() {
    for (const fold of this.folds) fold.open();
    this.folds = [];
    this.doing.grew();
  }

  /**
   * Show the card anew: it was fetched whole, or has changed since it was shown.
   * @param {Card} card
   */
  setCard(card) {
    if (this.isAside || this.state === "over") return;
    const isOther = card.digest !== this.card.digest;
    const isChanged = !this.card.cut && shownOf(card) !== shownOf(this.card);
    const wasWhole = this.isWhole;
    if (isOther || isChanged) this.sight.forget(null);
    else if (this.card.cut) this.sight.forget(this.body.querySelector("[data-action=unfold]"));
    this.card = card;
    this.isFetched = true;
    if (isOther && this.panels.forget()) this.doing.hush();
    const refocus = this.keepFocus();
    this.drawHead();
    if (this.isBuilt) {
      this.isBuilt = false;
      this.build();
    }
    if (wasWhole && !isOther) this.openFolds();
    refocus();
    if (isChanged) this.tell("What it would change is no longer what was shown: look again.");
    this.doing.disturbed(this);
  }

  /** Returns what gives the focus back to where it is now, though that be drawn anew. */
  keepFocus() {
    const now = document.activeElement;
    if (!now || !this.node.contains(now)) return () => {};
    const { action } = /** @type {HTMLElement} */ (now).dataset;
    const again = action ? `[data-action="${action}"]` : now.matches("summary") ? "summary" : null;
    return () => {
      const found = now.isConnected ? now : again && this.node.querySelector(again);
      /** @type {HTMLElement} */ (found || this.node).focus({ preventScroll: true });
    };
  }

  openEditor() {
    if (!this.card.input || this.state !== "waiting") return;
    if (this.card.cut) {
      this.doing.fetchWhole(this).then(() => !this.card.cut && this.openEditor());
      return;
    }
    this.panels.openEditor(this.card);
    this.showMode();
  }

  openMessage() {
    if (this.state !== "waiting") return;
    this.panels.openMessage();
    this.showMode();
  }

  /** Close what is open over the card: the message, the editor, the disclosure. Returns whether anything was. */
  closeOpen() {
    const always = this.body.querySelector("details.always[open]");
    if (this.panels.close()) this.showMode();
    else if (always) always.removeAttribute("open");
    else return false;
    this.node.focus({ preventScroll: true });
    return true;
  }

  /**
   * Say something at the card.
   * @param {import("./dom.js").Child} text
   * @param {"info" | "warn" | "bad"} kind
   */
  tell(text, kind = "warn") {
    replace(this.told, text && h("div", { class: `notice ${kind}`, dataset: { told: kind } }, text));
  }

  /**
   * Put a line in its place for a while.
   * @param {{node: HTMLElement, tick: () => void}} line
   */
  setAside({ node, tick }) {
    const hadFocus = this.node.contains(document.activeElement);
    this.state = "held";
    this.node.dataset.state = "held";
    this.isAside = true;
    this.asideAt = performance.now();
    this.tick = tick;
    replace(this.node, node);
    if (hadFocus) this.node.focus({ preventScroll: true });
    this.doing.disturbed(this);
  }

  /** Have the card back, with what was written at it. */
  restore() {
    this.state = "waiting";
    this.node.dataset.state = "waiting";
    this.isAside = false;
    this.drawHead();
    this.build();
    this.doing.disturbed(this);
  }

  /** @param {boolean} isSending */
  setSending(isSending) {
    if (this.state === "over") return;
    if (!isSending && this.isAside) this.restore();
    this.state = isSending ? "sending" : "waiting";
    this.node.dataset.state = this.state;
    this.node.setAttribute("aria-busy", String(isSending));
    if (!isSending && this.heard) this.settle(this.heard.status, this.heard.text);
  }

  /**
   * Somebody's answer was told of. While an answer is sent from here, its own answer says more, if that arrives.
   * @param {string} status
   * @param {string} text
   */
  hear(status, text) {
    if (this.state === "sending") this.heard ??= { status, text };
    else this.settle(status, this.state === "held" ? `${text} before your denial was sent` : text);
  }

  /**
   * It is over: a line is left of it, in the place that it had, so that nothing comes beneath a pointer by itself. A
   * field that is typed into stays: the letters that follow would be keys.
   * @param {string} status
   * @param {import("./dom.js").Child} text
   * @param {{isMine?: boolean, undo?: (() => void) | null}} [how] `isMine`: it was answered here, so the place may
   * close; `undo`: takes the answer back
   */
  settle(status, text, { isMine = false, undo = null } = {}) {
    if (this.state === "over") return;
    const { height } = this.node.getBoundingClientRect();
    const hadFocus = this.node.contains(document.activeElement);
    this.state = "over";
    this.isMine = isMine;
    this.overAt = performance.now();
    this.node.dataset.state = "over";
    this.node.dataset.status = status;
    this.node.removeAttribute("aria-busy");
    const line = drawOver(this.card, status, text, undo);
    if (!isMine && (this.panels.isTyped || this.panels.words)) {
      if (this.isAside) replace(this.node, line, this.body);
      else this.node.firstElementChild?.replaceWith(line); // the field keeps the focus
      for (const part of [...this.body.children]) if (part !== this.panels.node) part.remove();
      this.panels.freeze();
    } else {
      replace(this.node, line);
      if (hadFocus) this.node.focus({ preventScroll: true });
    }
    if (!isMine) this.node.style.minHeight = `${height}px`;
  }

  /**
   * Say what became of it since it was answered.
   * @param {string} text
   * @param {boolean} isLasting whether it is to be read, or more will follow
   */
  retell(text, isLasting) {
    const line = this.node.querySelector("[data-outcome]");
    if (line) replace(/** @type {HTMLElement} */ (line), shownText(text));
    this.node.querySelector("[data-action=undo]")?.remove();
    this.overAt = performance.now();
    this.isLasting = isLasting;
  }
}
