// @ts-check
/**
 * What can still be undone on this page. A denial is held for a moment before it is sent: until then the request waits,
 * anybody else may answer it, and Undo takes the denial back. Leaving the page sends it at once. A remembered answer
 * was sent; its Undo takes back what is remembered.
 */

import { hubNow, post } from "./api.js";
import { drawHeld } from "./card_over.js";
import { toast } from "./dialog.js";

/** @typedef {import("./card.js").CardView} CardView */
/** @typedef {(views: CardView[], isLeaving: boolean) => Promise<unknown>} Send */
/** @typedef {{views: CardView[], send: Send, timer: number}} Group denials that were made as one */

export const HOLD_MS = 4000;
const MAX_HELD = 1500; // ids that a browser still sends for a page that is gone, 64 KiB in all
const MARGIN_MS = 1000; // a request that runs out is denied before, not after

/** @type {Group[]} */
const held = [];
/** @type {{view: CardView, run: () => Promise<void>}[]} */
const remembered = [];

/**
 * Hold these denials, then send those that nobody took back or was faster with. More than leaving the page could still
 * send are sent at once.
 * @param {CardView[]} views
 * @param {Send} send
 */
export function holdDenials(views, send) {
  if (views.length + held.reduce((sum, group) => sum + group.views.length, 0) > MAX_HELD) {
    send(views, false);
    return;
  }
  const ends = Math.min(...views.map((view) => Date.parse(view.card.expires_at))) - MARGIN_MS;
  const ms = Math.max(0, Math.min(HOLD_MS, ends - hubNow()));
  const until = performance.now() + ms;
  /** @type {Group} */
  const group = { views, send, timer: setTimeout(() => sendGroup(group, false), ms) };
  for (const view of views) {
    const takeBack = () => {
      release(group, view);
      view.doing.restored(view);
    };
    view.setAside(drawHeld(view.card, until, takeBack));
  }
  held.push(group);
}

/**
 * Let an answer that is remembered be taken back while its line is there.
 * @param {CardView} view
 * @param {boolean} literal
 */
export function offerUndo(view, literal) {
  const run = () => takeBack(view, literal);
  remembered.push({ view, run });
  return () => {
    const at = remembered.findIndex((each) => each.run === run);
    if (at >= 0) remembered.splice(at, 1);
    run();
  };
}

/**
 * Undo what was done last, if it still can be. Returns the card that waits again, or whether anything was undone.
 * @returns {CardView | boolean}
 */
export function undoLast() {
  const group = held.findLast(({ views }) => views.some((view) => view.state === "held"));
  const back = remembered.findLast(({ view }) => view.node.isConnected);
  if (group && !(back && back.view.overAt > Math.max(...group.views.map((view) => view.asideAt)))) {
    const [first] = [...group.views];
    for (const view of [...group.views]) release(group, view);
    return first ?? true;
  }
  if (!back) return false;
  remembered.splice(remembered.indexOf(back), 1);
  back.run();
  return true;
}

/**
 * Send at once all that is held: whoever leaves, or answers more than one, takes nothing back any more.
 * @param {boolean} [isLeaving]
 */
export function sendHeld(isLeaving = true) {
  return Promise.all([...held].map((group) => sendGroup(group, isLeaving)));
}

/**
 * @param {Group} group
 * @param {CardView} view
 */
function release(group, view) {
  group.views = group.views.filter((each) => each !== view);
  if (!group.views.length) forget(group);
  if (view.state === "held") view.restore();
}

/** @param {Group} group */
function forget(group) {
  clearTimeout(group.timer);
  if (held.includes(group)) held.splice(held.indexOf(group), 1);
}

/**
 * @param {Group} group
 * @param {boolean} isLeaving
 */
async function sendGroup(group, isLeaving) {
  forget(group);
  const views = group.views.filter((view) => view.state === "held");
  if (views.length) await group.send(views, isLeaving);
  const lost = views.filter((view) => !view.node.isConnected && view.node.dataset.status !== "denied");
  if (lost.length) toast("A denial did not arrive, or somebody answered before: see the history.", "bad");
}

/**
 * @param {CardView} view
 * @param {boolean} literal
 */
async function takeBack(view, literal) {
  try {
    const { taken_back, has_run } = await post(`/api/approvals/${view.card.id}/undo`, { literal });
    const what = taken_back ? "Undone: it is asked about again" : "It was no longer remembered";
    view.retell(`${what}. ${has_run ? "This call had already gone ahead." : "This call did not run."}`, true);
  } catch (error) {
    view.retell(`Not undone: ${/** @type {Error} */ (error).message}`, true);
  }
}

addEventListener("pagehide", () => sendHeld());
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") sendHeld(); // a phone gives no later notice
});
