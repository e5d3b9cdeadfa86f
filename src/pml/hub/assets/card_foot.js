// @ts-check
/**
 * The buttons of a card. Their boxes stay as they are whatever has the focus: a button that moved between press and
 * release would lose the click. While something is written at the card they say only what becomes of that.
 */

import { allowText } from "./card_parts.js";
import { h } from "./dom.js";

/** @typedef {import("./shapes.js").Card} Card */
/** @typedef {"plain" | "message" | "edit"} Mode what is being written at a card */
/** @typedef {Record<"edit" | "message" | "close" | "deny" | "allow-all" | "allow", () => void>} Acts */

/**
 * The buttons: the answer that is most often right stands where the eye ends.
 * @param {Card} card
 * @param {Mode} mode
 * @param {Acts} acts
 */
export function drawFoot(card, mode, acts) {
  return h("footer", { class: "card-foot", dataset: { mode } }, buttons(card, mode, acts));
}

/**
 * @param {Card} card
 * @param {Mode} mode
 * @param {Acts} acts
 */
function buttons(card, mode, acts) {
  const button = (
    /** @type {keyof Acts} */ action,
    /** @type {string} */ text,
    /** @type {string} */ key,
    /** @type {string} */ kind = "",
  ) =>
    h(
      "button",
      { type: "button", class: kind, dataset: { action }, onclick: single(acts[action]) },
      text,
      key && h("kbd", { "aria-hidden": "true" }, key),
    );
  const cancel = () => button("close", "Cancel", "Esc");
  if (mode === "message") return [gap(), cancel(), button("deny", "Deny with message", "Ctrl ⏎", "danger")];
  if (mode === "edit") return [gap(), cancel(), button("allow", "Allow as edited", "Ctrl ⏎", "primary")];
  const wantsKey = card.missing.length > 0;
  const wantsPage = wantsKey || card.page === "server-login";
  return [
    h(
      "div",
      { class: "foot-start" },
      card.input && button("edit", "Change the arguments", "e", "quiet"),
      button("message", "Deny with a message…", "m", "quiet"),
    ),
    button("deny", "Deny", "Esc"),
    !card.kind && !wantsPage && button("allow-all", "Allow all", "Alt ⏎"),
    wantsPage ? button("allow", allowText(card), "") : button("allow", allowText(card), "⏎", "primary"),
    wantsKey && drawSetKey(card),
    card.page === "server-login" && drawLogIn(card),
  ];
}

function gap() {
  return h("div", { class: "foot-start" });
}

/** @param {Card} card */
function drawSetKey(card) {
  return h(
    "a",
    { class: "button primary", href: `#/secrets/${card.id}`, dataset: { action: "set-secret" } },
    `Set ${card.missing.join(", ")}`,
    h("kbd", { "aria-hidden": "true" }, "⏎"),
  );
}

/** @param {Card} card */
function drawLogIn(card) {
  return h(
    "a",
    { class: "button primary", href: `#/server-login/${card.id}`, dataset: { action: "log-in" } },
    "Log in",
    h("kbd", { "aria-hidden": "true" }, "⏎"),
  );
}

/**
 * Heed a click, but not the second of a double click: the first may have put something else beneath the pointer.
 * @param {() => void} fn
 */
function single(fn) {
  return (/** @type {MouseEvent} */ event) => {
    if (event.detail < 2) fn();
  };
}
