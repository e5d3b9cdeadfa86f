// @ts-check
/**
 * Questions in front of the page, and short notes at its edge. Both are told to screen readers. A key that is held
 * answers none of them, and of what is dangerous the default is to leave it.
 */

import { h } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {"info" | "good" | "bad"} Kind */

const NOTE_MS = { info: 5000, good: 4000, bad: 12_000 };
let nextId = 0;

/**
 * Open a dialog. `build` gets how to close it with a value; Escape closes it with null.
 * @template T
 * @param {{title: string, wide?: boolean, build: (close: (value: T | null) => void) => Child}} what
 * @returns {Promise<T | null>}
 */
export function openDialog({ title, wide = false, build }) {
  const id = `dialog-${nextId++}`;
  const before = document.activeElement;
  return new Promise((resolve) => {
    /** @type {T | null} */
    let result = null;
    const dialog = h("dialog", { class: wide ? "dialog wide" : "dialog", "aria-labelledby": id });
    const close = (/** @type {T | null} */ value) => {
      result = value;
      dialog.close();
    };
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
      resolve(result);
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) close(null);
    });
    dialog.addEventListener("keydown", (event) => {
      const presses = event.key === "Enter" || event.key === " ";
      if (event.repeat && presses && !(event.target instanceof HTMLTextAreaElement)) event.preventDefault();
    });
    dialog.append(h("h2", { id }, title), h("div", { class: "dialog-body" }, build(close)));
    document.body.append(dialog);
    dialog.showModal();
    /** @type {HTMLElement | null} */ (dialog.querySelector("[data-default]"))?.focus();
  });
}

/**
 * Ask before something is done. Resolves to whether to go on.
 * @param {{title: string, body?: Child, confirm?: string, danger?: boolean}} what
 * @returns {Promise<boolean>}
 */
export async function confirmDialog({ title, body = null, confirm = "OK", danger = false }) {
  const done = await openDialog({
    title,
    build: (close) => [
      h("div", { class: "dialog-text" }, body),
      h(
        "div",
        { class: "actions" },
        h(
          "button",
          {
            type: "button",
            dataset: { action: "cancel", ...(danger ? { default: "" } : {}) },
            onclick: () => close(null),
          },
          "Cancel",
        ),
        h(
          "button",
          {
            type: "button",
            class: danger ? "danger" : "primary",
            dataset: { action: "confirm", ...(danger ? {} : { default: "" }) },
            onclick: () => close(true),
          },
          confirm,
        ),
      ),
    ],
  });
  return done === true;
}

/**
 * Say something at the edge of the page; it goes by itself.
 * @param {string} text
 * @param {Kind} [kind]
 */
export function toast(text, kind = "info") {
  for (const other of place().children) if (other.firstChild?.textContent === text) other.remove();
  const note = h("div", { class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" }, text);
  note.append(
    h(
      "button",
      { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => note.remove() },
      "×",
    ),
  );
  place().append(note);
  setTimeout(() => note.remove(), NOTE_MS[kind]);
}

function place() {
  const found = document.querySelector(".toasts");
  if (found) return found;
  const made = h("div", { class: "toasts", "aria-live": "polite" });
  document.body.append(made);
  return made;
}
