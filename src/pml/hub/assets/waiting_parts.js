// @ts-check
/** What stands above the cards, and where they would be when there are none. */

import { icon } from "./chrome.js";
import { h } from "./dom.js";

const INBOX = "M2 9h3.4l1 2h3.2l1-2H14M2 9l2-5.5h8L14 9v3.5H2z";

export function nothingWaits() {
  return h(
    "div",
    { class: "empty", dataset: { part: "empty" } },
    icon(INBOX),
    h("h2", null, "Nothing waits for you"),
    h("p", null, "When an agent wants to do something that no rule allows, it appears here at once. Try it:"),
    h("pre", null, "pml launch --loopback -- claude -p 'tidy the notes'"),
    h("p", { class: "hint" }, "What was answered is in the ", h("a", { href: "#/history" }, "history"), "."),
  );
}

/** @param {() => void} onAll shows all again */
export function nothingFound(onAll) {
  return h(
    "div",
    { class: "empty" },
    h("h2", null, "Nothing that waits matches the search"),
    h("button", { type: "button", dataset: { action: "show-all" }, onclick: onAll }, "Show all"),
  );
}

/**
 * What was refused before anybody was asked: it may be why an agent does not go on.
 * @param {import("./shapes.js").Notice} notice
 */
export function refusedNotice(notice) {
  return h("p", { class: "notice warn", dataset: { session: notice.session } }, notice.text);
}
