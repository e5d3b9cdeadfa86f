// @ts-check
/** The parts of a card around the question itself: who asks, why, how long still, and what an answer would do. */

import { icon } from "./chrome.js";
import { h, shortPath } from "./dom.js";
import { hubNow } from "./api.js";
import { tickingTime } from "./time.js";

/** @typedef {import("./shapes.js").Card} Card */

const URGENT_S = 30;
const FOLDER = "M2 4.5h4l1.5 1.5H14v7H2z";
const SHIELD = "M8 2l5 1.8v4c0 3.2-2.1 5.3-5 6.2-2.9-.9-5-3-5-6.2v-4z";
const TRIANGLE = "M8 2.2 14.4 13.4H1.6zM8 6.6v3M8 11.4v.1";

/**
 * The tool, and the sessions from the one that nobody started down to the one that asks.
 * @param {Card} card
 */
export function drawOrigin(card) {
  const line = card.lineage.map((each, index) => [
    index > 0 && h("span", { class: "sep", "aria-hidden": "true" }, "›"),
    index > 0 && h("span", { class: "sr-only" }, " started "),
    h(
      "a",
      { href: `#/sessions?session=${encodeURIComponent(each.id)}`, class: each.has_ended ? "ended" : null },
      each.name,
    ),
  ]);
  return h(
    "div",
    { class: "origin" },
    h("span", { class: "tool", dataset: { tool: card.tool } }, card.tool),
    h("span", { class: "lineage" }, h("span", { class: "sr-only" }, "asked by "), line),
    h(
      "span",
      { class: "workspace", dataset: { part: "workspace" } },
      h("span", { class: "sr-only" }, "in "),
      icon(FOLDER),
      shortPath(card.workspace),
    ),
  );
}

/**
 * What it is, where it is no call like others.
 * @param {Card} card
 */
export function drawKind(card) {
  if (!card.kind) return null;
  return h(
    "div",
    { class: "kind", dataset: { part: "kind" } },
    icon(SHIELD),
    card.kind,
    h("span", null, "answered separately"),
  );
}

/**
 * How long it waits and how long it still can, as words and as a ring that empties.
 * @param {Card} card
 */
export function drawClock(card) {
  const arc = h("circle", {
    class: "arc",
    cx: 8,
    cy: 8,
    r: 6,
    pathLength: 100,
    transform: "rotate(-90 8 8)",
  });
  const ring = h(
    "svg",
    { class: "ring", viewBox: "0 0 16 16", "aria-hidden": "true" },
    h("circle", { class: "track", cx: 8, cy: 8, r: 6 }),
    arc,
  );
  const left = tickingTime(card.expires_at, "left");
  const node = h(
    "div",
    { class: "clock" },
    h(
      "span",
      { class: "age" },
      h("span", { class: "sr-only" }, "asked "),
      tickingTime(card.created_at, "ago"),
    ),
    h("span", { class: "left" }, left, ring),
  );
  const begin = Date.parse(card.created_at);
  const end = Date.parse(card.expires_at);
  const tick = () => {
    const share = Math.max(0, Math.min(1, (end - hubNow()) / Math.max(1, end - begin)));
    arc.setAttribute("stroke-dasharray", `${(share * 100).toFixed(1)} 100`);
    node.classList.toggle("urgent", end - hubNow() < URGENT_S * 1000);
  };
  tick();
  return { node, tick };
}

/**
 * Why it asks, with the rule that made it ask.
 * @param {Card} card
 */
export function drawWhy(card) {
  const { rule } = card;
  const query = new URLSearchParams({ search: rule ? toolOf(rule.entry) : "", workspace: card.workspace });
  return h(
    "p",
    { class: "why" },
    h("span", { class: "label" }, "Asked because"),
    h("span", { class: "reason" }, card.why),
    card.subject === "tool_call" && rule?.file &&
      h("a", { href: `#/rules?${query}`, title: rule.file }, "Show the rule"),
  );
}

/**
 * The tool that a rule's entry names; none where the entry is no rule but what is wrong with its file.
 * @param {string} entry as JSON
 * @returns {string}
 */
function toolOf(entry) {
  try {
    const rule = JSON.parse(entry);
    return String(typeof rule === "string" ? rule : rule.tool ?? "");
  } catch {
    return "";
  }
}

/** @param {Card} card */
export function drawWarnings(card) {
  if (!card.warnings.length) return null;
  return h(
    "ul",
    { class: "warnings", id: `w-${card.id}`, "aria-label": "Warnings" },
    card.warnings.map((text) =>
      h("li", null, icon(TRIANGLE), h("span", null, h("span", { class: "sr-only" }, "Warning: "), text))
    ),
  );
}

/** @param {Card} card */
export function allowText(card) {
  return card.verb;
}

/**
 * @param {Card} card
 * @param {HTMLInputElement} box
 */
export function drawRemember(card, box) {
  if (card.remember === null) return null;
  return h(
    "label",
    { class: "check remember", title: card.remember },
    box,
    h("span", null, "Remember for this session ", h("kbd", null, "s")),
    h("span", { class: "hint" }, card.remember),
  );
}

/**
 * What becomes of a key that a server wants.
 * @param {Card} card
 */
export function drawMissing(card) {
  if (!card.missing.length) return null;
  return h("p", { class: "hint" }, "A key goes to the server only: neither the agent nor any log sees it.");
}
