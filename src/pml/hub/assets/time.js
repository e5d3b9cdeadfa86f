// @ts-check
/** Instants as people read them, by the hub's clock, and the one timer that keeps all of them right. */

import { hubNow } from "./api.js";
import { h } from "./dom.js";

const STEPS = /** @type {const} */ ([[86_400, "d"], [3600, "h"], [60, "min"]]);
/** @type {Set<() => void>} */
const ticking = new Set();

/**
 * How long ago: `just now`, `42 s ago`, `3 min ago`, `2 h ago`, `5 d ago`.
 * @param {string} iso
 */
export function ago(iso) {
  const seconds = Math.max(0, Math.round((hubNow() - Date.parse(iso)) / 1000));
  if (seconds < 2) return "just now";
  return `${amount(seconds)} ago`;
}

/**
 * How long still: `4:12 left`, `2 h left`, `over`.
 * @param {string} iso
 */
export function left(iso) {
  const rest = Date.parse(iso) - hubNow();
  if (rest <= 0) return "over";
  const seconds = Math.max(1, Math.floor(rest / 1000));
  if (seconds >= 3600) return `${amount(seconds)} left`;
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`;
}

/**
 * The time of day in this browser's zone, with the date unless it is today.
 * @param {string} iso
 */
export function clockTime(iso) {
  const at = new Date(iso);
  const time = at.toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hour12: false,
  });
  if (at.toDateString() === new Date().toDateString()) return time;
  return `${at.toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" })}, ${time}`;
}

/**
 * A `<time>` that stays right while it is on the page.
 * @param {string} iso
 * @param {"ago" | "left"} kind
 */
export function tickingTime(iso, kind = "ago") {
  const show = kind === "ago" ? ago : left;
  return h("time", { datetime: iso, title: clockTime(iso), dataset: { tick: kind } }, show(iso));
}

/**
 * Call `fn` every second, after the times were brought up to date.
 * @param {() => void} fn
 */
export function onTick(fn) {
  ticking.add(fn);
  return () => ticking.delete(fn);
}

/** Begin to keep the times of the page right. */
export function startTicking() {
  setInterval(tick, 1000);
}

function tick() {
  for (const node of document.querySelectorAll("time[data-tick]")) {
    const time = /** @type {HTMLTimeElement} */ (node);
    const text = (time.dataset.tick === "ago" ? ago : left)(time.dateTime);
    if (time.textContent !== text) time.textContent = text;
  }
  for (const fn of ticking) fn();
}

/** @param {number} seconds */
function amount(seconds) {
  for (const [size, unit] of STEPS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${seconds} s`;
}
