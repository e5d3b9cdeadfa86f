// @ts-check
/** What is left of a card once it is over: one line that says what became of it, and by whom. */

import { icon } from "./chrome.js";
import { h, shownText } from "./dom.js";
import { whoText } from "./page_parts.js";
import { ago } from "./time.js";

const NOT = new Set(["denied", "expired", "cancelled"]);
const CHECK = "M3 8.5l3.2 3.2L13 4.8";
const CROSS = "M4 4l8 8M12 4l-8 8";

/**
 * @param {import("./shapes.js").Card} card
 * @param {string} status
 * @param {import("./dom.js").Child} text
 * @param {(() => void) | null} [undo] takes it back, where it can be
 */
export function drawOver(card, status, text, undo = null) {
  const isGood = !NOT.has(status);
  return h(
    "div",
    { class: `over ${isGood ? "good" : "not"}` },
    icon(isGood ? CHECK : CROSS),
    h("strong", { dataset: { outcome: status } }, typeof text === "string" ? shownText(text) : text),
    h("span", { class: "over-what", id: `s-${card.id}` }, card.sentence),
    undo && undoButton(undo),
    h("a", { href: `#/card/${card.id}` }, "Show"),
  );
}

/**
 * What stands for a card while its denial is held.
 * @param {import("./shapes.js").Card} card
 * @param {number} until by the page's own clock
 * @param {() => void} undo
 */
export function drawHeld(card, until, undo) {
  const left = h("span", { class: "hint", dataset: { part: "held" } });
  const tick = () => {
    const seconds = Math.max(0, Math.ceil((until - performance.now()) / 1000));
    left.textContent = seconds ? `sent in ${seconds} s` : "sending…";
  };
  tick();
  const node = h(
    "div",
    { class: "over not held" },
    icon(CROSS),
    h("strong", { role: "status" }, "Denied"),
    left,
    h("span", { class: "over-what", id: `s-${card.id}` }, card.sentence),
    undoButton(undo),
  );
  return { node, tick };
}

/** @param {() => void} onclick */
function undoButton(onclick) {
  return h(
    "button",
    { type: "button", dataset: { action: "undo" }, onclick },
    "Undo",
    h("kbd", { "aria-hidden": "true" }, "u"),
  );
}

/**
 * What became of a card, as its outcome says.
 * @param {import("./shapes.js").Card} card
 */
export function outcomeText(card) {
  const { outcome, status } = card;
  if (!outcome) return status === "pending" ? "It waits still" : sentenceOf(status, null);
  if (status === "cancelled") {
    return `Withdrawn ${ago(outcome.at)}${outcome.reason ? "" : ": the agent left"}`;
  }
  return `${sentenceOf(status, outcome.by)}${outcome.edited ? ", edited," : ""} ${ago(outcome.at)}`;
}

/**
 * What became of it, and by whom; whoever looks is never “you” here, but where this page knows its own answer.
 * @param {string} status
 * @param {import("./shapes.js").Decider | null} by
 */
export function sentenceOf(status, by) {
  if (status === "expired") return "Expired";
  if (status === "cancelled") return "Withdrawn: the agent left";
  const who = by ? whoText(by) : "somebody";
  const begin = who === by?.id ? who : who.charAt(0).toUpperCase() + who.slice(1);
  return status === "denied" ? `${begin} denied it` : `${begin} allowed it`;
}
