// @ts-check
/** What "always" would write and let run, and why it cannot be said while something is written at the card. */

import { h, jsonLine } from "./dom.js";

/** @typedef {import("./shapes.js").Card} Card */

/**
 * What "always" would write, in a disclosure with the buttons for it.
 * @param {Card} card
 * @param {{always: (literal: boolean, release: boolean) => void}} doing
 */
export function drawAlways(card, doing) {
  const wide = card.always;
  if (!wide) return null;
  const release = h("input", { type: "checkbox", dataset: { field: "release" } });
  const button = (/** @type {string} */ action, /** @type {string} */ text, /** @type {boolean} */ literal) =>
    h(
      "button",
      { type: "button", dataset: { action }, onclick: () => doing.always(literal, release.checked) },
      text,
    );
  const covered = card.covers.length > 0 &&
    h(
      "div",
      { class: "covers" },
      h(
        "label",
        { class: "check" },
        release,
        h("span", { dataset: { part: "covered" } }, alsoAllow(card.covers.length)),
      ),
      h("ul", null, card.covers.map(drawCovered)),
    );
  return h(
    "details",
    { class: "always", dataset: { part: "always" } },
    h("summary", null, "Always allow…"),
    h(
      "div",
      { class: "always-in" },
      drawEntry(wide, button("always", "Always", false)),
      card.always_exactly &&
        drawEntry(card.always_exactly, button("always-exactly", "Always, with these arguments only", true)),
      covered,
      h("p", { class: "notice warn", hidden: true, dataset: { part: "no-always" } }),
    ),
  );
}

/** @param {number} count */
function alsoAllow(count) {
  return `Also allow ${count} waiting ${count === 1 ? "request" : "requests"} that this covers`;
}

/**
 * List, of what "always" would cover, only these.
 * @param {HTMLElement} body the card's
 * @param {Set<string>} ids
 */
export function listCovered(body, ids) {
  const list = /** @type {HTMLElement | null} */ (body.querySelector(".covers"));
  const told = list?.querySelector("[data-part=covered]");
  if (!list || !told) return;
  for (const item of /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll("li"))) {
    item.hidden = !ids.has(item.dataset.covered ?? "");
  }
  list.hidden = ids.size === 0;
  const text = alsoAllow(ids.size);
  if (told.textContent !== text) told.textContent = text;
}

/** @param {import("./shapes.js").Covered} covered */
function drawCovered({ id, tool, sentence, glimpse }) {
  return h(
    "li",
    { dataset: { covered: id } },
    h("code", null, tool),
    " ",
    sentence,
    glimpse && h("div", { class: "gist mono" }, glimpse),
  );
}

/**
 * Keep Always from running the call as it was asked while something is written at the card.
 * @param {HTMLElement} body the card's
 * @param {import("./card_foot.js").Mode} mode
 */
export function holdAlways(body, mode) {
  const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (
    body.querySelectorAll("[data-action^=always]")
  );
  for (const button of buttons) button.disabled = mode !== "plain";
  const note = /** @type {HTMLElement | null} */ (body.querySelector("[data-part=no-always]"));
  if (!note) return;
  note.hidden = mode === "plain";
  note.textContent = mode === "edit"
    ? "An edit is open. “Always” runs the call as it was asked: allow the edit, or close it first."
    : "A message is open: deny with it, or close it first.";
}

/**
 * @param {import("./shapes.js").Always} always
 * @param {HTMLElement} button
 */
function drawEntry(always, button) {
  return h(
    "div",
    { class: "entry" },
    h("div", { class: "hint" }, "Would write to ", h("span", { class: "mono" }, always.file)),
    h(
      "div",
      { class: "code json" },
      always.text.split("\n").map((line) => h("div", { class: "ln" }, jsonLine(line))),
    ),
    always.note && h("div", { class: "hint" }, always.note),
    h("div", null, button),
  );
}
