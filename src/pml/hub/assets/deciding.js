// @ts-check
/**
 * Sending an answer, and telling at the card what came of it. An answer names the digest that was shown and has a key
 * of its own, so that one that is sent again after a lost connection counts once. What the hub has answered is done
 * with: the same answer, given again, is another one.
 */

import { get, post } from "./api.js";
import { outcomeText } from "./card_over.js";
import { toast } from "./dialog.js";
import { h, shownText } from "./dom.js";
import { offerUndo } from "./undo.js";

/** @typedef {import("./card.js").CardView} CardView */
/** @typedef {import("./shapes.js").Answer} Answer */

/** @type {Map<string, string>} */
const keys = new Map(); // of answers that the hub has perhaps not heard, by what was sent

/**
 * Decide a card. Returns whether this answer is the one that counts.
 * @param {CardView} view
 * @param {Omit<Answer, "digest">} answer
 * @param {{digest?: string, isLeaving?: boolean}} [how] the digest that was shown, and whether the page is left
 */
export async function decide(view, answer, { digest = view.card.digest, isLeaving = false } = {}) {
  const { updated_input, ...rest } = answer;
  const body = { ...rest, digest };
  /** @type {Record<string, string>} */
  const raw = updated_input === undefined ? {} : { updated_input };
  const path = `/api/approvals/${view.card.id}/decision`;
  const sent = path + JSON.stringify([body, raw]);
  const once = keyFor(sent);
  const send = () => post(path, body, { once, raw, keepalive: isLeaving });
  view.setSending(true);
  view.tell(null);
  try {
    const done = await send().catch((error) => error.status === 0 ? send() : Promise.reject(error));
    keys.delete(sent);
    const willInstall = answer.allow && view.card.subject === "dependency_install";
    view.isLasting = willInstall || (done.remembered !== null && !done.remembered.counts);
    const isTakeable = done.remembered !== null && done.remembered.added && !done.remembered.problem;
    const undo = isTakeable ? offerUndo(view, answer.literal === true) : null;
    view.settle(done.status, whatWasDone(view.card, answer, done.remembered), { isMine: true, undo });
    if (done.released.length) toast(`${done.released.length} more went on with it.`, "good");
    return true;
  } catch (error) {
    const refusal = /** @type {import("./api.js").ApiError} */ (error);
    if (refusal.status !== 0) keys.delete(sent);
    view.setSending(false);
    await tellRefusal(view, refusal);
    return false;
  }
}

/**
 * Say at the card why an answer did not count; a card that is over or changed is shown as it is now.
 * @param {CardView} view
 * @param {{status?: number, code: string, message: string, hint: string | null}} error
 */
export async function tellRefusal(view, error) {
  if (error.code === "conflict" || error.code === "not_found") {
    const now = await get(`/api/inbox/${view.card.id}`).catch(() => null);
    if (now && now.card.status !== "pending") return view.settle(now.card.status, outcomeText(now.card));
    if (now && now.card.digest !== view.card.digest) {
      view.setCard(now.card);
      return view.tell("It changed since it was shown: look again.", "warn");
    }
  }
  if (error.status === 0) {
    const words = error.code === "unreachable"
      ? "No reply from the hub: your answer may not have arrived. Try again."
      : `Your answer may not have arrived: ${error.message} (${error.hint}).`;
    return view.tell(h("span", { dataset: { lost: "" } }, words), "warn");
  }
  view.tell(shownText(error.message + (error.hint ? ` (${error.hint})` : "")), "bad");
}

/** A key that no other request has; also where the page is no secure context. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
}

/** @param {string} sent */
function keyFor(sent) {
  const key = keys.get(sent) ?? newKey();
  keys.set(sent, key);
  return key;
}

/**
 * What an answer did, as the line that is left of its card says it.
 * @param {import("./shapes.js").Card} card
 * @param {Omit<Answer, "digest">} answer
 * @param {{scope: string, counts: boolean, problem: string | null} | null} memory
 * @returns {import("./dom.js").Child}
 */
function whatWasDone(card, answer, memory) {
  if (!answer.allow) return "You denied it";
  const done = answer.updated_input ? "You allowed it, edited" : "You allowed it";
  if (!memory) return done;
  const isAlways = memory.scope === "always";
  if (memory.problem) {
    const rest = isAlways ? "the entry is not in the file yet" : "it is not remembered";
    return `${done}, once; ${rest}: ${memory.problem}`;
  }
  if (memory.counts) return `${done}, ${isAlways ? "always" : "for this session"}`;
  const query = new URLSearchParams({ workspace: card.workspace });
  return [
    `${done}; “always” applies only once the file is trusted. `,
    h("a", { href: `#/trust?${query}` }, "See what it would loosen"),
  ];
}
