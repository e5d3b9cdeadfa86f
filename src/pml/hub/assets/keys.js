// @ts-check
/**
 * The keys, and what keeps them from answering by accident: they act on the card that has the focus, once all of it
 * was seen, never while a key is held down, and never on a card that has only just got the focus by itself.
 * On a card that is over they move on.
 */

import { openDialog, toast } from "./dialog.js";
import { h } from "./dom.js";

/** @typedef {import("./card.js").CardView} CardView */
/**
 * @typedef {object} Stage
 * @property {() => CardView | null} focused
 * @property {import("./calm.js").Calm} calm
 * @property {(step: 1 | -1) => void} move
 * @property {(view: CardView) => void} go does what the primary button of a card does
 * @property {(view: CardView) => void} deny
 * @property {() => void} undo
 * @property {(allow: boolean) => void} all
 * @property {(view: CardView) => void} showMore
 * @property {(view: CardView) => void} moveOn
 * @property {() => void} search
 * @property {(keeps: boolean) => boolean} leaveSearch goes from the search field to the cards that match, or to all
 */

const KEYS = [
  ["Return", "Allow (also ⌘ Return, Ctrl Return)"],
  ["Esc", "Deny; first closes what is open"],
  ["u", "Undo: a denial is held for four seconds; a remembered answer is taken back"],
  ["Alt Return", "Allow all, after showing what that is"],
  ["Alt Esc", "Deny all, after showing what that is"],
  ["j  k", "Next and previous card (also ↓ ↑)"],
  ["e", "Edit the arguments"],
  ["m", "Deny with a message to the agent"],
  ["s", "Remember for this session"],
  ["/", "Search; then Return goes to what matches, Esc shows all again"],
  ["?", "This help"],
];
const TYPED = "input:not([type=checkbox]), textarea, select, [contenteditable]";
const OWN_RETURN = "button, a, summary, input, select, textarea"; // they know what Return means

let isBound = false;

/**
 * Heed on every page the key for help; a page that has keys of its own decides when it heeds them.
 */
export function bindHelp() {
  addEventListener("keydown", (event) => {
    const isTyped = event.target instanceof Element && event.target.matches(TYPED);
    if (event.key === "?" && !isBound && !isTyped && !isDialogOpen()) showHelp();
  });
}

/**
 * Heed the keys until `signal` is aborted.
 * @param {Stage} stage
 * @param {AbortSignal} signal
 */
export function bindKeys(stage, signal) {
  isBound = true;
  signal.addEventListener("abort", () => isBound = false);
  document.addEventListener("keydown", (event) => onKey(event, stage), { signal, capture: true });
}

/**
 * @param {KeyboardEvent} event
 * @param {Stage} stage
 */
function onKey(event, stage) {
  const target = event.target instanceof Element ? event.target : document.body;
  const decides = event.key === "Enter" || event.key === "Escape";
  if (event.repeat && (decides || event.key === " ")) {
    if (!target.matches(TYPED)) event.preventDefault(); // a held key would press the button that it lands on
    return;
  }
  if (event.isComposing) return;
  if (isDialogOpen()) return stage.calm.beginGrace(); // the key may close it
  if (!target.matches(TYPED) && !stage.calm.heedsKey()) {
    if (decides || event.key === " ") event.preventDefault();
    if (decides) toast("You were still typing: nothing was decided.");
    return;
  }
  const took = decides ? onDeciding(event, target, stage) : !target.matches(TYPED) && onOther(event, stage);
  if (took) event.preventDefault();
}

/**
 * @param {KeyboardEvent} event
 * @param {Element} target
 * @param {Stage} stage
 * @returns {boolean} whether the key meant something
 */
function onDeciding(event, target, stage) {
  if (event.shiftKey) return false;
  const isReturn = event.key === "Enter";
  const view = stage.focused();
  if (event.altKey) {
    if (target.matches(TYPED)) return false;
    stage.all(isReturn);
    return true;
  }
  if (!view) return target instanceof HTMLInputElement && stage.leaveSearch(isReturn);
  const withCommand = event.ctrlKey || event.metaKey;
  if (!isReturn) {
    if (view.closeOpen()) {
      stage.calm.beginGrace(); // who leaves a field presses Escape twice
      return true;
    }
    if (target.matches(TYPED)) {
      view.node.focus({ preventScroll: true }); // it leaves the field, and denies nothing
      stage.calm.beginGrace();
      return true;
    }
    if (!withCommand) answer(stage, view, () => stage.deny(view));
    return true;
  }
  if (target === view.panels.message) {
    if (withCommand) answer(stage, view, () => stage.deny(view));
    return withCommand;
  }
  if (!withCommand && target.matches(OWN_RETURN)) return false;
  if (view.panels.mode === "message") {
    view.tell("A message is open: Ctrl Return denies with it, Esc closes it.");
    view.openMessage();
    return true;
  }
  answer(stage, view, () => stage.go(view));
  return true;
}

/**
 * Answer with a key, if the card may take one.
 * @param {Stage} stage
 * @param {CardView} view
 * @param {() => void} decide
 */
function answer(stage, view, decide) {
  if (view.panels.isFrozen) return;
  if (stage.calm.isFresh) return toast("Too soon: this came up a moment ago. Read it, then press again.");
  if (!view.waits) return stage.moveOn(view);
  if (!view.takesAnswer) return toast("Nothing was decided: an answer is on its way, or its time is over.");
  if (view.isSeen) decide();
  else stage.showMore(view);
}

/**
 * @param {KeyboardEvent} event
 * @param {Stage} stage
 * @returns {boolean}
 */
function onOther(event, stage) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const view = stage.focused();
  switch (event.key) {
    case "j":
    case "ArrowDown":
      stage.move(1);
      return true;
    case "k":
    case "ArrowUp":
      stage.move(-1);
      return true;
    case "/":
      stage.search();
      return true;
    case "?":
      showHelp();
      return true;
    case "e":
      view?.openEditor();
      return view !== null;
    case "m":
      view?.openMessage();
      return view !== null;
    case "u":
      stage.undo();
      return true;
    case "s":
      if (view?.remember.isConnected) view.remember.checked = !view.remember.checked;
      return view !== null;
  }
  return false;
}

function isDialogOpen() {
  return document.querySelector("dialog[open]") !== null;
}

export function showHelp() {
  openDialog({
    title: "Keys",
    build: (close) => [
      h(
        "dl",
        { class: "keys" },
        KEYS.map(([keys = "", what]) => [
          h("dt", null, keys.split(/ +/).map((key) => h("kbd", null, key))),
          h("dd", null, what),
        ]),
      ),
      h(
        "p",
        { class: "hint" },
        "A key answers only the card that has the focus, once all of it was in view. " +
          "If there is more of it, the key shows more.",
      ),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "button", dataset: { default: "" }, onclick: () => close(null) }, "Close"),
      ),
    ],
  });
}
