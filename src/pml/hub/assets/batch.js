// @ts-check
/**
 * Many answers at once: shows exactly which cards it covers, sends these and no others with what was shown of each,
 * and tells of each what came of it. A card that arrives meanwhile is not among them.
 */

import { post } from "./api.js";
import { newKey, tellRefusal } from "./deciding.js";
import { openDialog, toast } from "./dialog.js";
import { h, shownLine } from "./dom.js";

/** @typedef {import("./card.js").CardView} CardView */

const AT_ONCE = 500; // the hub takes no more in one batch
const GRACE_MS = 500; // the key that opened the dialog must not answer it

/**
 * Ask about all of these, then answer them.
 * @param {CardView[]} views
 * @param {boolean} allow
 * @param {string} search
 */
export async function decideAll(views, allow, search) {
  const waiting = views.filter((view) => view.state === "waiting");
  if (!waiting.length) return toast("Nothing waits.", "info");
  if (!await confirmAll(waiting, allow, search)) return;
  const covered = waiting.filter((view) => view.state === "waiting");
  for (const view of covered) view.setSending(true);
  let done = 0;
  for (let from = 0; from < covered.length; from += AT_ONCE) {
    done += await sendSome(covered.slice(from, from + AT_ONCE), allow);
  }
  const word = allow ? "allowed" : "denied";
  const rest = waiting.length - done;
  if (rest === 0) toast(`${done} ${word}.`, "good");
  else toast(`${done} ${word}; ${rest} not: each says why.`, "bad");
}

/**
 * @param {CardView[]} views
 * @param {boolean} allow
 * @returns {Promise<number>} how many were decided by this
 */
async function sendSome(views, allow) {
  const decisions = views.map((view) => ({ id: view.card.id, allow, digest: view.card.digest }));
  const once = newKey();
  const send = () => post("/api/approvals/decisions", { decisions }, { once });
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
    view.setSending(false);
    if (result.error) await tellRefusal(view, result.error);
    else {
      done += 1;
      view.settle(result.status, `You ${allow ? "allowed" : "denied"} it`);
    }
  }
  return done;
}

/**
 * @param {CardView[]} views
 * @param {boolean} allow
 * @param {string} search
 */
async function confirmAll(views, allow, search) {
  const openedAt = performance.now();
  const count = views.length === 1 ? "1 request" : `${views.length} requests`;
  const unseen = views.filter((view) => !view.isSeen).length;
  const verb = allow ? "Allow" : "Deny";
  const done = await openDialog({
    title: `${verb} ${count}?`,
    wide: true,
    build: (close) => [
      search && h("p", { class: "hint" }, `Those that match the search “${search}”.`),
      allow && unseen > 0 &&
      h("div", { class: "notice warn" }, `${unseen} of them you have not seen whole.`),
      h("ol", { class: "covered" }, views.map(coveredItem)),
      h("p", { class: "hint" }, "Exactly these. What arrives from now on is not among them."),
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
            onclick: () => performance.now() - openedAt > GRACE_MS && close(true),
          },
          `${verb} ${count}`,
        ),
      ),
    ],
  });
  return done === true;
}

/** @param {CardView} view */
function coveredItem(view) {
  const { card } = view;
  const marks = [
    ...card.warnings.length ? [h("span", { class: "chip bad" }, "warning")] : [],
    ...view.isSeen ? [] : [h("span", { class: "chip warn" }, "not seen whole")],
  ];
  return h(
    "li",
    { dataset: { covers: card.id } },
    h("div", { class: "covered-what" }, card.sentence),
    gist(card),
    h("div", { class: "row hint" }, h("code", null, card.tool), h("span", null, card.session_name), marks),
  );
}

/**
 * What tells the call from others like it, in a line.
 * @param {import("./shapes.js").Card} card
 */
function gist(card) {
  const block = card.blocks[0];
  if (block?.kind === "command") {
    return h("div", { class: "gist mono" }, block.lines.slice(0, 3).flatMap(shownLine));
  }
  if (block?.kind !== "arguments") return null;
  return h(
    "div",
    { class: "gist mono" },
    block.lines.slice(1, -1).map((line) => line.trim()).join(" ").slice(0, 300),
  );
}
