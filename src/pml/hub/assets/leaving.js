// @ts-check
/**
 * How what is over leaves the page: first the place that it kept folds, then its line goes. Neither happens soon beneath
 * a pointer or while somebody types, and a line that has the focus stays until the person moves on.
 */

/** @typedef {import("./card.js").CardView} CardView */
/** @typedef {import("./feed.js").Feed} Feed */

const FOLD_MS = 2000; // so that the eye finds what was there
const RESTING_MS = 10_000; // a hand that rests so long is not about to click; what moved takes no click at first
const STUB_MS = 6000;
const UNDO_MS = 15_000; // what can be taken back
const LASTING_MS = 60_000; // what must be read
const UNDO = "[data-action=undo]";
const TYPED = "textarea, input:not([type=checkbox])";
const NO_HOVER = matchMedia("(hover: none)"); // a finger gives no notice of where it will be

/**
 * Fold and take away what may go. Returns whether anything went.
 * @param {Feed} feed
 */
export function sweep(feed) {
  const over = [...feed.views.values()].filter((view) => view.state === "over");
  const going = over.filter((view) => mayGo(feed, view));
  const folding = over.filter((view) => !going.includes(view) && mayFold(feed, view));
  if (going.length + folding.length === 0) return false;
  const held = feed.focused()?.node ?? null;
  const before = held?.getBoundingClientRect().top ?? 0;
  for (const view of folding) {
    view.node.style.removeProperty("min-height");
    feed.disturb(view.node.nextElementSibling);
  }
  for (const view of going) feed.remove(view);
  if (held?.isConnected) scrollBy({ top: held.getBoundingClientRect().top - before, behavior: "instant" });
  return going.length > 0;
}

/**
 * Whether somebody is about to click or types, so that nothing may move.
 * @param {Feed} feed
 */
function isHandNear(feed) {
  return feed.node.matches(":hover") || NO_HOVER.matches || Boolean(document.activeElement?.matches(TYPED));
}

/**
 * @param {Feed} feed
 * @param {CardView} view
 */
function mayFold(feed, view) {
  const isTall = view.node.style.minHeight !== "";
  const overFor = performance.now() - view.overAt;
  const isTyping = Boolean(document.activeElement?.matches(TYPED));
  return isTall && overFor >= FOLD_MS && (!isHandNear(feed) || (overFor >= RESTING_MS && !isTyping));
}

/**
 * Whether the line may go: not while its field is typed into, nor while what would move up is looked at by somebody
 * who has not moved on since.
 * @param {Feed} feed
 * @param {CardView} view
 */
function mayGo(feed, view) {
  const lasts = view.isLasting ? LASTING_MS : view.node.querySelector(UNDO) ? UNDO_MS : STUB_MS;
  const since = performance.now() - lasts + STUB_MS;
  if (since - view.overAt < STUB_MS || view.panels.isTyped) return false;
  const isLast = !feed.neighbour(view);
  if (view.node.contains(document.activeElement)) return isLast && since - feed.pressedAt >= STUB_MS;
  return isLast || view.isMine || feed.actedAt > view.overAt || !feed.isInView(view) || !isHandNear(feed);
}
