// @ts-check
/**
 * Many answers at once: shows exactly which cards it covers, sends these and no others with what was shown of each,
 * and tells of each what came of it. A card that arrives meanwhile is not among them. What is listed to its last
 * character counts as seen, since the list must be read to its end; what is not, and was not read by itself
 * either, is never allowed with the others.
 */

import { post } from "./api.js";
import { newKey, tellRefusal } from "./deciding.js";
import { openDialog, toast } from "./dialog.js";
import { h, shownLine, shownText } from "./dom.js";

/** @typedef {import("./card.js").CardView} CardView */

const AT_ONCE = 500; // the hub takes no more in one batch
/** @type {Record<string, string>} */
const KINDS = { // what is no call like any other
  workspace_trust: "trust",
  dependency_install: "install",
  tool_changed: "changed tool",
  integrity_changed: "changed files",
  api_key_required: "wants a key",
};
const LISTED_CHARS = 1000; // of an input that counts as seen by being listed
const GIST_LINES = 4;
const GIST_CHARS = 320;
const END_PX = 4; // a fraction of a line is not worth a page
const PAGE = 0.9;
const GRACE_MS = 500; // the key that opened the dialog must not answer it

/**
 * Ask about all of these, then answer them.
 * @param {CardView[]} views
 * @param {boolean} allow
 * @param {string} search
 */
export async function decideAll(views, allow, search) {
  const answerable = views.filter((view) => view.takesAnswer);
  const waiting = answerable.filter((view) => !allow || !view.panels.editor);
  const edited = answerable.length - waiting.length;
  if (!answerable.length) return toast("Nothing waits.", "info");
  if (!waiting.length) return toast("Only what you are editing waits: allow it by itself.", "info");
  const listed = allow ? waiting.filter((view) => view.isSeen || listedWhole(view.card)) : waiting;
  const unread = waiting.length - listed.length;
  if (!listed.length) return toast("Nothing was seen whole yet: read each by itself.", "info");
  if (!await confirmAll(listed, { allow, search, edited, unread })) return;
  const covered = listed.filter((view) => view.takesAnswer);
  for (const view of covered) view.setSending(true);
  let done = 0;
  for (let from = 0; from < covered.length; from += AT_ONCE) {
    done += await sendSome(covered.slice(from, from + AT_ONCE), allow);
  }
  const word = allow ? "allowed" : "denied";
  const rest = listed.length - done;
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
  const openedAt = performance.now();
  const count = views.length === 1 ? "1 request" : `${views.length} requests`;
  const verb = allow ? "Allow" : "Deny";
  const list = h(
    "ol",
    { class: "covered", tabindex: 0, "aria-label": "What this answers" },
    unseenFirst(views).map(coveredItem),
  );
  const unfinished = h("p", { class: "hint", role: "status" });
  const reading = allow ? new Reading(list) : null;
  /** @param {(value: boolean | null) => void} close */
  const confirm = (close) => {
    if (performance.now() - openedAt <= GRACE_MS) return;
    if (!reading || reading.isDone) return close(true);
    reading.goOn();
    unfinished.textContent = "There is more: read the list to its end.";
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
        `${unread} more you have not seen whole: not among these, read each by itself.`,
      ),
      edited > 0 &&
      h(
        "div",
        { class: "notice warn" },
        `${edited} that you are editing is not among them: allow it by itself.`,
      ),
      list,
      unfinished,
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
            onclick: () => confirm(close),
          },
          `${verb} ${count}`,
        ),
      ),
    ],
  });
  return done === true;
}

/** How far a list was read: what was jumped over was not. */
class Reading {
  /** @param {HTMLElement} list */
  constructor(list) {
    this.list = list;
    this.to = 0;
    this.width = 0;
    new ResizeObserver(() => this.look()).observe(list);
    list.addEventListener("scroll", () => this.look());
  }

  look() {
    const { scrollTop, clientHeight, clientWidth } = this.list;
    if (clientWidth !== this.width) this.to = 0; // its lines are others now
    this.width = clientWidth;
    if (scrollTop <= this.to + END_PX) this.to = Math.max(this.to, scrollTop + clientHeight);
  }

  get isDone() {
    return this.to >= this.list.scrollHeight - END_PX;
  }

  goOn() {
    this.list.scrollTop = this.to - (1 - PAGE) * this.list.clientHeight;
  }
}

/** @param {CardView[]} views */
function unseenFirst(views) {
  return [...views.filter((view) => !view.isSeen), ...views.filter((view) => view.isSeen)];
}

/** @param {CardView} view */
function coveredItem(view) {
  const { card } = view;
  const kind = KINDS[card.subject];
  const marks = [
    ...kind ? [h("span", { class: "chip" }, kind)] : [],
    ...card.warnings.length ? [h("span", { class: "chip bad" }, "warning")] : [],
  ];
  return h(
    "li",
    { dataset: { covers: card.id } },
    h("div", { class: "covered-what" }, card.sentence),
    view.isSeen ? gist(card) : whole(card),
    h(
      "div",
      { class: "covered-who hint" },
      marks,
      h("code", null, card.tool),
      h("span", null, card.session_name),
    ),
  );
}

/** @param {import("./shapes.js").Card} card */
function inputText(card) {
  const block = card.blocks.find((each) => each.kind === "arguments");
  return block?.kind === "arguments" && !block.more ? block.lines.map((line) => line.trim()).join(" ") : null;
}

/**
 * Whether all of it stands in the list: a short call of which nothing needs a warning.
 * @param {import("./shapes.js").Card} card
 */
function listedWhole(card) {
  const text = inputText(card);
  const isPlain = card.subject === "tool_call" && !card.cut && !card.warnings.length && !card.run_id;
  const isHere = card.blocks.every((block) =>
    block.kind !== "facts" && (block.kind !== "command" || block.cwd === card.workspace)
  );
  return isPlain && isHere && text !== null && text.length <= LISTED_CHARS;
}

/** @param {import("./shapes.js").Card} card */
function whole(card) {
  return h("div", { class: "gist mono whole" }, shownText(inputText(card) ?? ""));
}

/**
 * What tells the question from others like it, in a few lines; it says how much there is besides.
 * @param {import("./shapes.js").Card} card
 */
function gist(card) {
  const block = card.blocks[0];
  if (!block) return null;
  if (block.kind === "facts") {
    const alarms = block.rows.filter((row) => row.alarming).map((row) => `${row.name}: ${row.value}`);
    return alarms.length ? h("div", { class: "gist mono bad" }, alarms.join(" · ")) : null;
  }
  /** @type {import("./dom.js").Line[]} */
  const lines = block.kind === "arguments"
    ? [[block.lines.map((line) => line.trim()).join(" ")]]
    : block.kind === "diff"
    ? block.lines.filter((each) => each.mark === "added" || each.mark === "removed").map((each) => [
      each.mark === "added" ? "+ " : "− ",
      ...each.line,
    ])
    : block.lines;
  return h("div", { class: "gist mono" }, glimpse(lines, block.more));
}

/**
 * @param {import("./dom.js").Line[]} lines
 * @param {number} more lines that are not here
 */
function glimpse(lines, more) {
  let room = GIST_CHARS;
  const cut = (/** @type {import("./dom.js").Line} */ line) =>
    line.flatMap((piece) => {
      const part = typeof piece === "string" ? piece.slice(0, Math.max(0, room)) : piece;
      room -= typeof piece === "string" ? piece.length : 1;
      return part === "" ? [] : [part];
    });
  const shown = lines.slice(0, GIST_LINES).flatMap((line) =>
    room > 0 ? [h("div", null, shownLine(cut(line)))] : []
  );
  const rest = lines.length + more - shown.length;
  const told = [
    ...room < 0 ? [`${(-room).toLocaleString("en")} more characters`] : [],
    ...rest > 0 ? [`${rest.toLocaleString("en")} more ${rest === 1 ? "line" : "lines"}`] : [],
  ];
  return [shown, told.length > 0 && h("div", { class: "rest" }, `… ${told.join(", ")}`)];
}
