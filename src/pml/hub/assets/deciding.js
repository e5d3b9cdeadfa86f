// @ts-check
/**
 * Sending an answer, and telling at the card what came of it. An answer names the digest that was shown and has a key
 * of its own, so that one that is sent again after a lost connection counts once.
 */

import { get, post } from "./api.js";
import { outcomeText } from "./card_over.js";
import { toast } from "./dialog.js";

/** @typedef {import("./card.js").CardView} CardView */
/** @typedef {import("./shapes.js").Answer} Answer */

/** @type {Map<string, string>} */
const keys = new Map(); // of answers that were sent, by what was sent

/**
 * Decide a card. Returns whether this answer is the one that counts.
 * @param {CardView} view
 * @param {Omit<Answer, "digest">} answer
 */
export async function decide(view, answer) {
  const { updated_input, ...rest } = answer;
  const body = { ...rest, digest: view.card.digest };
  /** @type {Record<string, string>} */
  const raw = updated_input === undefined ? {} : { updated_input };
  const path = `/api/approvals/${view.card.id}/decision`;
  const once = keyFor(path + JSON.stringify([body, raw]));
  const send = () => post(path, body, { once, raw });
  view.setSending(true);
  view.tell(null);
  try {
    const done = await send().catch((error) => error.status === 0 ? send() : Promise.reject(error));
    view.settle(done.status, `You ${answer.allow ? "allowed" : "denied"} it${suffix(answer)}`);
    tellMemory(done.remembered, done.released.length);
    return true;
  } catch (error) {
    view.setSending(false);
    await tellRefusal(view, /** @type {import("./api.js").ApiError} */ (error));
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
    return view.tell("The hub does not answer, so nothing is sure yet. Try again.", "warn");
  }
  view.tell([error.message, error.hint && ` (${error.hint})`], "bad");
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

/** @param {Omit<Answer, "digest">} answer */
function suffix(answer) {
  if (answer.updated_input) return ", edited";
  if (answer.scope === "session") return " for this session";
  return answer.scope === "always" ? " always" : "";
}

/**
 * @param {{scope: string, entry: unknown, counts: boolean, problem: string | null} | null} memory
 * @param {number} released
 */
function tellMemory(memory, released) {
  const others = released ? ` ${released} more went on with it.` : "";
  if (!memory) return;
  if (memory.problem) toast(`It was allowed once, but not remembered: ${memory.problem}`, "bad");
  else if (!memory.counts) toast("It was written, but does not count here: another rule is stronger.", "bad");
  else if (memory.scope === "always") toast(`From now on this is always allowed.${others}`, "good");
  else if (others) toast(others.trim(), "good");
}
