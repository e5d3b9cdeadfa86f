// @ts-check
/**
 * Many answers at once: shows exactly which cards it covers, sends these and no others with what was shown of each,
 * and tells of each what came of it. A card that arrives meanwhile is not among them. What is neither listed whole nor
 * was read by itself is never allowed with the others.
 */

import { post } from "./api.js";
import { newKey, tellRefusal } from "./deciding.js";
import { openDialog, toast } from "./dialog.js";
import { h } from "./dom.js";
import { listedWhole, Listing, listItem } from "./listing.js";
import { holdDenials, sendHeld } from "./undo.js";

/** @typedef {import("./card.js").CardView} CardView */

const AT_ONCE = 500; // the hub takes no more in one batch

/**
 * Ask about all of these, then answer them.
 * @param {CardView[]} views
 * @param {boolean} allow
 * @param {string} search
 */
export async function decideAll(views, allow, search) {
  const answerable = views.filter((view) => view.takesAnswer && !view.card.kind);
  const alone = views.filter((view) => view.takesAnswer && view.card.kind).length;
  const waiting = answerable.filter((view) => view.panels.mode === "plain");
  const edited = answerable.length - waiting.length;
  if (!answerable.length) {
    return toast(alone ? "What waits is decided one by one: open each." : "Nothing waits.", "info");
  }
  if (!waiting.length) return toast("Only what you are writing at waits: answer it by itself.", "info");
  const listed = allow ? waiting.filter((view) => view.isSeen || listedWhole(view.card)) : waiting;
  const unread = waiting.length - listed.length;
  if (!listed.length) return toast("All of these are longer: open each to decide.", "info");
  if (!await confirmAll(listed, { allow, search, edited, unread: unread + alone })) return;
  const covered = listed.filter((view) => view.takesAnswer);
  if (!allow) return holdDenials(covered, (held, isLeaving) => sendAll(held, false, isLeaving));
  await sendHeld(false);
  await sendAll(covered.filter((view) => view.takesAnswer), true, false);
}

/**
 * Send these answers and say how many counted.
 * @param {CardView[]} covered
 * @param {boolean} allow
 * @param {boolean} isLeaving
 */
async function sendAll(covered, allow, isLeaving) {
  for (const view of covered) view.setSending(true);
  const starts = Array.from({ length: Math.ceil(covered.length / AT_ONCE) }, (_, at) => at * AT_ONCE);
  /** @param {number} from */
  const send = (from) => sendSome(covered.slice(from, from + AT_ONCE), allow, isLeaving);
  let done = 0;
  if (isLeaving) { // a page that goes does nothing after its first wait: all of it is sent before
    for (const count of await Promise.all(starts.map(send))) done += count;
  } else {
    for (const from of starts) done += await send(from);
  }
  const word = allow ? "allowed" : "denied";
  const rest = covered.length - done;
  if (rest === 0) toast(`${done} ${word}.`, "good");
  else toast(`${done} ${word}; ${rest} not: each says why.`, "bad");
}

/**
 * @param {CardView[]} views
 * @param {boolean} allow
 * @param {boolean} isLeaving
 * @returns {Promise<number>} how many were decided by this
 */
async function sendSome(views, allow, isLeaving) {
  const decisions = views.map((view) => ({ id: view.card.id, allow, digest: view.card.digest }));
  const isBrief = isLeaving && !allow; // a browser sends little for a page that is gone: ids are enough to deny
  const body = isBrief ? { deny: views.map((view) => view.card.id) } : { decisions };
  const once = newKey();
  const send = () => post("/api/approvals/decisions", body, { once, keepalive: isLeaving });
  /** @type {any[]} */
  let results;
  try {
    results = (await send().catch((error) => error.status === 0 ? send() : Promise.reject(error))).results;
  } catch (error) {
    for (const view of views) {
      view.setSending(false);
      await tellRefusal(view, /** @type {import("./api.js").ApiError} */ (error));
    }
    return 0;
  }
  let done = 0;
  for (const [index, result] of results.entries()) {
    const view = /** @type {CardView} */ (views[index]);
    if (result.error) {
      view.setSending(false);
      await tellRefusal(view, result.error);
    } else {
      done += 1;
      view.settle(result.status, `You ${allow ? "allowed" : "denied"} it`, { isMine: true });
    }
  }
  views[0]?.doing.disturbed(views[0]); // what is left has come up, perhaps beneath the pointer
  return done;
}

/**
 * @param {CardView[]} views
 * @param {{allow: boolean, search: string, edited: number, unread: number}} how how many are left out, being edited or
 * not seen whole
 */
async function confirmAll(views, { allow, search, edited, unread }) {
  const count = views.length === 1 ? "1 request" : `${views.length} requests`;
  const verb = allow ? "Allow" : "Deny";
  const listing = new Listing(unseenFirst(views).map((view) => listItem(view.card, view.isSeen)));
  /** @param {(value: boolean | null) => void} close */
  const confirm = (close) => {
    if (listing.wasSeen() && (!allow || listing.readToEnd())) close(true);
  };
  const done = await openDialog({
    title: `${verb} ${count}?`,
    wide: true,
    build: (close) => [
      search && h("p", { class: "hint" }, `Those that match the search “${search}”.`),
      unread > 0 &&
      h(
        "div",
        { class: "notice warn", dataset: { part: "unread" } },
        leftOut(unread),
      ),
      edited > 0 &&
      h(
        "div",
        { class: "notice warn" },
        `${edited} that you are writing at is not among them: answer it by itself.`,
      ),
      listing.nodes,
      h("p", { class: "hint" }, "Only these; new requests are not included."),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "button", dataset: { action: "cancel" }, onclick: () => close(null) }, "Cancel"),
        h(
          "button",
          {
            type: "button",
            class: allow ? "primary" : "danger",
            dataset: { action: "confirm", default: "" },
            onclick: () => confirm(close),
          },
          `${verb} ${count}`,
        ),
      ),
    ],
  });
  return done === true;
}

/** @param {CardView[]} views */
function unseenFirst(views) {
  return [...views.filter((view) => !view.isSeen), ...views.filter((view) => view.isSeen)];
}

/** @param {number} count */
function leftOut(count) {
  return count === 1 ? "1 is left out: open it to decide." : `${count} are left out: open each to decide.`;
}
