// @ts-check
/**
 * Questions as a list that is answered as one: what each would do, where, and for whom. What is listed to its last
 * character counts as seen, since the list must be read to its end; what has more to it is read by itself. Sends
 * nothing.
 */

import { h, shownLine, shownText } from "./dom.js";
import { wholeArguments } from "./editor.js";

/** @typedef {import("./shapes.js").Card} Card */

const LISTED_CHARS = 1000; // of an input that counts as seen by being listed
const GIST_LINES = 4;
const GIST_CHARS = 320;
const END_PX = 4; // a fraction of a line is not worth a page
const PAGE = 0.9;
const GRACE_MS = 500; // what opened the list must not answer it

/** A list, and how far it was read: what was jumped over was not. */
export class Listing {
  /** @param {HTMLElement[]} items */
  constructor(items) {
    this.openedAt = performance.now();
    this.to = 0;
    this.width = 0;
    this.list = h("ol", { class: "covered", tabindex: 0, "aria-label": "What this answers" }, items);
    this.unfinished = h("p", { class: "hint", role: "status" });
    this.nodes = [this.list, this.unfinished];
    new ResizeObserver(() => this.look()).observe(this.list);
    this.list.addEventListener("scroll", () => this.look());
  }

  look() {
    const { scrollTop, clientHeight, clientWidth } = this.list;
    if (clientWidth !== this.width) this.to = 0; // its lines are others now
    this.width = clientWidth;
    if (scrollTop <= this.to + END_PX) this.to = Math.max(this.to, scrollTop + clientHeight);
  }

  /** Whether it was there before the key or click that answers it; if not, it says so. */
  wasSeen() {
    const isSeen = performance.now() - this.openedAt > GRACE_MS;
    if (!isSeen) this.unfinished.textContent = "Too soon: this list has only just opened. Press again.";
    return isSeen;
  }

  /** Whether it was read to its end; if not, it shows more. */
  readToEnd() {
    if (this.to >= this.list.scrollHeight - END_PX) return true;
    this.list.scrollTop = this.to - (1 - PAGE) * this.list.clientHeight;
    this.unfinished.textContent = "There is more: read the list to its end.";
    return false;
  }
}

/**
 * @param {Card} card
 * @param {boolean} isKnown whether its beginning is enough, since it was read by itself
 */
export function listItem(card, isKnown) {
  return h("li", { dataset: { covers: card.id } }, what(card, isKnown));
}

/**
 * What stands in a list and is not answered with it, with the way to where it is.
 * @param {Card} card
 * @param {() => void} onclick
 */
export function leftItem(card, onclick) {
  const look = h("a", { href: `#/card/${card.id}`, onclick }, "read it by itself");
  return h(
    "li",
    { dataset: { left: card.id } },
    h("div", { class: "hint" }, "Not among these: ", look),
    what(card, true),
  );
}

/**
 * @param {Card} card
 * @param {boolean} isKnown
 */
function what(card, isKnown) {
  const command = card.blocks.find((block) => block.kind === "command");
  const marks = [
    ...card.chip ? [h("span", { class: "chip" }, card.chip)] : [],
    ...card.warnings.length ? [h("span", { class: "chip bad" }, "warning")] : [],
  ];
  return [
    h("div", { class: "covered-what" }, card.sentence),
    isKnown ? gist(card) : whole(card),
    h(
      "div",
      { class: "covered-who hint" },
      marks,
      h("code", null, card.tool),
      h("span", null, shownText(card.session_name)),
      h("span", { class: "mono" }, shownText(command?.cwd ?? card.workspace)),
    ),
  ];
}

/** @param {Card} card */
function inputText(card) {
  const block = wholeArguments(card);
  return block && !block.more ? block.lines.map((line) => line.trim()).join(" ") : null;
}

/**
 * Whether all of it stands in the list: a short call of which a card would show nothing more. A diff tells more than
 * its call, such as the file that a link leads to.
 * @param {Card} card
 */
export function listedWhole(card) {
  const text = inputText(card);
  const isPlain = card.subject === "tool_call" && !card.cut && !card.warnings.length && !card.run_id;
  const isHere = card.blocks.every((block) =>
    block.kind === "arguments" || (block.kind === "command" && block.cwd === card.workspace)
  );
  return isPlain && isHere && text !== null && text.length <= LISTED_CHARS;
}

/** @param {Card} card */
function whole(card) {
  return h("div", { class: "gist mono whole" }, shownText(inputText(card) ?? ""));
}

/**
 * What tells the question from others like it, in a few lines; it says how much there is besides.
 * @param {Card} card
 */
function gist(card) {
  const block = card.blocks[0];
  if (!block) return null;
  if (block.kind === "facts") {
    const alarms = block.rows.filter((row) => row.alarming).map((row) => `${row.name}: ${row.value}`);
    return alarms.length ? h("div", { class: "gist mono bad" }, alarms.join(" · ")) : null;
  }
  /** @type {import("./dom.js").Line[]} */
  const lines = block.kind === "arguments"
    ? [[block.lines.map((line) => line.trim()).join(" ")]]
    : block.kind === "diff"
    ? block.lines.filter((each) => each.mark === "added" || each.mark === "removed").map((each) => [
      each.mark === "added" ? "+ " : "− ",
      ...each.line,
    ])
    : block.lines;
  return h("div", { class: "gist mono" }, glimpse(lines, block.more));
}

/**
 * @param {import("./dom.js").Line[]} lines
 * @param {number} more lines that are not here
 */
function glimpse(lines, more) {
  let room = GIST_CHARS;
  const cut = (/** @type {import("./dom.js").Line} */ line) =>
    line.flatMap((piece) => {
      const part = typeof piece === "string" ? piece.slice(0, Math.max(0, room)) : piece;
      room -= typeof piece === "string" ? piece.length : 1;
      return part === "" ? [] : [part];
    });
  const shown = lines.slice(0, GIST_LINES).flatMap((line) =>
    room > 0 ? [h("div", null, shownLine(cut(line)))] : []
  );
  const rest = lines.length + more - shown.length;
  const told = [
    ...room < 0 ? [`${(-room).toLocaleString("en")} more characters`] : [],
    ...rest > 0 ? [`${rest.toLocaleString("en")} more ${rest === 1 ? "line" : "lines"}`] : [],
  ];
  return [shown, told.length > 0 && h("div", { class: "rest" }, `… ${told.join(", ")}`)];
}
