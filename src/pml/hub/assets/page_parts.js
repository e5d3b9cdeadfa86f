// @ts-check
/**
 * What the lists beside the inbox share: heads, empty states, errors in place, and staying up to date. Knows no
 * list by name.
 */

import { ApiError, get } from "./api.js";
import { icon } from "./chrome.js";
import { h, replace, shownText, visible } from "./dom.js";
import { listen, onReconnect } from "./live.js";
import { ofTab } from "./storage.js";

/** @typedef {import("./dom.js").Child} Child */

const SETTLE_MS = 200; // many things happen at once: a list is read anew once
const WORKSPACE = "pml.workspace";
const PLAIN_NAME = /^(?!you$)[\p{L}\p{N}._@+-]+$/iu; // it reads as nothing but a name

/**
 * @param {string} title
 * @param {Child} lead a sentence for who comes here first
 * @param {...Child} tools
 */
export function pageHead(title, lead, ...tools) {
  return h(
    "div",
    { class: "page-head" },
    h("div", { class: "grow" }, h("h1", null, title), lead && h("p", { class: "lead" }, lead)),
    h("div", { class: "tools" }, tools),
  );
}

/**
 * What stands where nothing is.
 * @param {string} drawing a path in a square of 16
 * @param {string} title
 * @param {Child} text
 * @param {...Child} more
 */
export function emptyState(drawing, title, text, ...more) {
  return h("div", { class: "empty" }, icon(drawing), h("h2", null, title), h("p", null, text), more);
}

/**
 * An error where it happened, with what to do next.
 * @param {unknown} error
 */
export function problemNote(error) {
  const told = error instanceof ApiError ? error : null;
  if (told === null) console.error(error);
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("div", null, shownText(told?.message ?? "this page has failed")),
    told?.hint && h("div", { class: "hint" }, shownText(told.hint)),
  );
}

/**
 * Give `node` new children; the focus, and what was unfolded, stay with the same things by their `data-key`.
 * @param {Element} node
 * @param {...Child} children
 */
export function redraw(node, ...children) {
  const active = document.activeElement;
  const focused = active instanceof HTMLElement && node.contains(active) ? active.dataset.key : undefined;
  const open = keyed(node, "details[open][data-key]");
  replace(node, ...children);
  for (const details of node.querySelectorAll("details[data-key]")) {
    if (open.has(/** @type {HTMLElement} */ (details).dataset.key)) details.setAttribute("open", "");
  }
  if (focused !== undefined) {
    const again = [...node.querySelectorAll("[data-key]")]
      .find((each) => /** @type {HTMLElement} */ (each).dataset.key === focused);
    /** @type {HTMLElement | undefined} */ (again)?.focus({ preventScroll: true });
  }
}

/**
 * @param {Element} node
 * @param {string} selector
 */
function keyed(node, selector) {
  const found = /** @type {NodeListOf<HTMLElement>} */ (node.querySelectorAll(selector));
  return new Set([...found].map((each) => each.dataset.key));
}

/**
 * Load now, and again whenever events of these types come or the stream begins anew; one load at a time. What goes
 * wrong is shown in `problems`. Returns how to load by hand, and how to stop.
 * @param {{types: string[], problems: Element, signal: AbortSignal, load: () => Promise<void>}} what
 */
export function keepFresh({ types, problems, signal, load }) {
  let timer = 0;
  let isLoading = false;
  let isStale = false;
  const refresh = async () => {
    if (signal.aborted) return;
    if (isLoading) {
      isStale = true;
      return;
    }
    isLoading = true;
    try {
      await load();
      replace(problems);
    } catch (error) {
      if (!signal.aborted) replace(problems, problemNote(error));
    }
    isLoading = false;
    if (isStale) {
      isStale = false;
      await refresh();
    }
  };
  const soon = () => {
    timer ||= setTimeout(() => {
      timer = 0;
      refresh();
    }, SETTLE_MS);
  };
  const stops = [listen(types, soon), onReconnect(soon)];
  return {
    refresh,
    soon,
    stop: () => {
      clearTimeout(timer);
      for (const stop of stops) stop();
    },
  };
}

/**
 * A choice of workspace, which all pages of this browser share; at first all of them.
 * @param {string | null} given what the address names
 * @param {(workspace: string) => void} onChange
 */
export async function workspaceChooser(given, onChange) {
  const me = await get("/api/me");
  /** @type {string[]} */
  const all = me.workspaces;
  if (given !== null && !all.includes(given)) all.push(given);
  const kept = given ?? ofTab(WORKSPACE);
  const chosen = kept !== null && all.includes(kept) ? kept : "";
  const select = h(
    "select",
    {
      id: "workspace",
      onchange: () => {
        ofTab(WORKSPACE, select.value);
        onChange(select.value);
      },
    },
    h("option", { value: "", selected: chosen === "" }, "All workspaces"),
    all.map((each) => h("option", { value: each, selected: each === chosen }, visible(each))),
  );
  const node = h(
    "div",
    { class: "chooser" },
    h("label", { for: "workspace", class: "muted" }, "Workspace"),
    select,
  );
  return { node, current: () => select.value ? [select.value] : all };
}

/**
 * A page about one workspace or all, which its head lets choose; kept fresh.
 * @param {HTMLElement} root
 * @param {{query: URLSearchParams, signal: AbortSignal}} visit
 * @param {object} what
 * @param {string} what.title
 * @param {Child} what.lead
 * @param {Child} [what.tools]
 * @param {HTMLElement} what.place what `load` fills
 * @param {string[]} what.types
 * @param {(workspaces: string[]) => Promise<void>} what.load
 */
export async function workspacePage(root, { query, signal }, { title, lead, tools, place, types, load }) {
  const problems = h("div", { class: "problems" });
  const workspace = await workspaceChooser(query.get("workspace"), () => fresh.refresh());
  root.append(pageHead(title, lead, workspace.node, tools), problems, place);
  const fresh = keepFresh({ types, problems, signal, load: () => load(workspace.current()) });
  await fresh.refresh();
  return fresh;
}

/**
 * A rule's entry as a person writes it.
 * @param {unknown} entry
 */
export function entryText(entry) {
  return typeof entry === "string" ? entry : spaced(entry);
}

/**
 * JSON in one line, with blanks after commas and colons as the files have it.
 * @param {unknown} value
 * @returns {string}
 */
export function spaced(value) {
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    return `{${
      Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${spaced(each)}`).join(", ")
    }}`;
  }
  return JSON.stringify(value);
}

/**
 * Who decided or changed something. Only a person stands there by name alone: a client chooses its own.
 * @param {import("./shapes.js").Decider | null | undefined} by
 */
export function whoText(by) {
  if (!by) return "";
  if (by.kind === "rule") return "a rule";
  if (by.kind === "person" && PLAIN_NAME.test(by.id)) return by.id;
  const what = by.kind === "parent" ? "session" : `the ${by.kind}`;
  return `${what} \`${by.id}\`${by.channel === "model" ? " (its model)" : ""}`;
}

/**
 * A label with its input.
 * @param {string} id
 * @param {string} label
 * @param {HTMLElement} input
 * @param {Child} [hint]
 */
export function field(id, label, input, hint = null) {
  input.id = id;
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    input,
    hint && h("span", { class: "hint" }, hint),
  );
}

/**
 * One of a few, as buttons in a row.
 * @param {{name: string, legend: string, options: [string, string][], value: string, onChange?: () => void}} what
 */
export function choice({ name, legend, options, value, onChange }) {
  const inputs = options.map(([each]) =>
    h("input", { type: "radio", name, value: each, id: `${name}-${each}`, onchange: onChange })
  );
  for (const input of inputs) input.checked = input.value === value;
  const node = h(
    "fieldset",
    { class: "choice" },
    h("legend", null, legend),
    h(
      "div",
      { class: "choice-row" },
      options.map(([each, label], index) => [inputs[index], h("label", { for: `${name}-${each}` }, label)]),
    ),
  );
  return { node, current: () => inputs.find((input) => input.checked)?.value ?? value };
}
