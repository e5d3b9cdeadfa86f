// @ts-check
/** All that was ever asked, newest first: found by words, by what became of it, by session and workspace. */

import { get } from "./api.js";
import { h, replace, shortPath, shownText, visible } from "./dom.js";
import { emptyState, keepFresh, pageHead, redraw, spaced, whoText } from "./page_parts.js";
import { go } from "./router.js";
import { tickingTime } from "./time.js";

const PAGE = 50;
const TYPING_MS = 250;
const SHOWN_CHARS = 240; // of the input, in one line
const CLOCK = "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M8 5v3.2l2 1.3";
const MAIN = ["command", "file_path", "notebook_path", "url"]; // of the tools that clients have themselves
/** @type {[string, string, string][]} */
const FILTERS = [
  ["", "All", ""],
  ["pending", "Waiting", "pending"],
  ["allowed", "Allowed", "allowed,executing,completed,failed,unknown"],
  ["denied", "Denied", "denied"],
  ["over", "Not answered", "expired,cancelled"],
  ["trouble", "Failed", "failed,unknown"],
];
/** @type {Record<string, [string, string]>} */
const WORDS = {
  pending: ["waiting", "warn"],
  allowed: ["allowed", "good"],
  executing: ["running", "good"],
  completed: ["allowed", "good"],
  failed: ["allowed, failed", "bad"],
  unknown: ["allowed, end unknown", "bad"],
  denied: ["denied", "bad"],
  expired: ["expired", ""],
  cancelled: ["withdrawn", ""],
};

/** @type {import("./router.js").Page} */
export const page = {
  path: "/history",
  title: "History",
  async render(root, { query, signal }) {
    const problems = h("div", { class: "problems" });
    const list = h("ul", { class: "list panel", "aria-label": "Questions, newest first" });
    const more = h("div", { class: "more" });
    const search = h("input", {
      type: "search",
      "aria-label": "Search tools and arguments",
      placeholder: "Search tools and arguments",
      value: query.get("search") ?? "",
    });
    const states = filterButtons(query.get("state") ?? "", () => change());
    const workspace = await workspaceFilter(query.get("workspace") ?? "", () => change());
    const session = query.get("session");
    let shown = PAGE;
    let typing = 0;
    let below = ""; // what the foot was last drawn from

    const wanted = () => ({
      state: states.current(),
      search: search.value.trim(),
      workspace: workspace.value,
      session: session ?? "",
    });
    const load = async () => {
      const { state, search: words, workspace: where } = wanted();
      const found = FILTERS.find(([key]) => key === state)?.[2] ?? "";
      const told = await get("/api/approvals", {
        newest: true,
        all: !found,
        states: found || null,
        search: words || null,
        workspace: where || null,
        session,
        limit: shown,
      });
      list.hidden = told.approvals.length === 0;
      redraw(list, told.approvals.map(row));
      const isFiltered = Boolean(found || words || where || session);
      const now = JSON.stringify([told.approvals.length, told.next !== null, isFiltered, shown]);
      if (now === below) return; // a button that is being pressed stays: news comes at any moment
      below = now;
      replace(more, foot(told.approvals.length, told.next !== null, isFiltered));
    };
    /**
     * @param {number} count
     * @param {boolean} hasMore
     * @param {boolean} isFiltered
     */
    const foot = (count, hasMore, isFiltered) => {
      if (count === 0) return nothing(isFiltered);
      if (!hasMore) return h("p", { class: "muted" }, count > 10 ? "That is all." : "");
      const onclick = () => {
        shown = Math.min(1000, shown + 2 * PAGE);
        fresh.refresh();
      };
      if (shown === 1000) return h("p", { class: "muted" }, "Search to find what is older.");
      return h("button", { type: "button", dataset: { action: "more" }, onclick }, "Show more");
    };
    const change = () => {
      shown = PAGE;
      const params = new URLSearchParams(Object.entries(wanted()).filter(([, value]) => value));
      history.replaceState(null, "", params.size ? `#/history?${params}` : "#/history");
      fresh.refresh();
    };
    search.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(change, TYPING_MS);
    });
    root.append(
      pageHead(
        "History",
        "Every question, and what became of it.",
        workspace.options.length > 2 && workspace,
      ),
      h("div", { class: "toolbar" }, states.node, search),
      session ? sessionNote(session) : "",
      problems,
      list,
      more,
    );
    const fresh = keepFresh({ types: ["approval.*", "approvals.cleaned"], problems, signal, load });
    await fresh.refresh();
    return () => {
      clearTimeout(typing);
      fresh.stop();
    };
  },
};

/** @param {any} each an approval */
function row(each) {
  const [word, kind] = WORDS[each.status] ?? [each.status, ""];
  const isCall = each.subject === "tool_call";
  const given = isCall ? glimpse(each) : each.tool;
  return h(
    "li",
    { class: "item history", dataset: { id: each.id, status: each.status } },
    h(
      "div",
      { class: "item-main" },
      h(
        "a",
        { class: isCall ? "cover mono" : "cover", href: `#/card/${each.id}`, dataset: { key: each.id } },
        shownText(isCall ? each.tool : each.title),
      ),
      h(
        "div",
        { class: "clip mono muted" },
        inOneLine(given.length > SHOWN_CHARS ? `${given.slice(0, SHOWN_CHARS)}…` : given),
      ),
    ),
    h(
      "div",
      { class: "item-state" },
      h("span", { class: `chip ${kind}` }, word),
      each.updated_input && h("span", { class: "chip" }, "edited"),
    ),
    h(
      "div",
      { class: "item-side muted" },
      h(
        "div",
        null,
        tickingTime(each.created_at),
        each.session_name && [" · ", shownText(each.session_name)],
      ),
      h(
        "div",
        { class: "clip" },
        each.decided_by ? shownText(whoText(each.decided_by)) : shortPath(each.workspace ?? ""),
      ),
    ),
  );
}

/**
 * What tells a call from others of its tool: of a client's own tools its main argument, else all as JSON.
 * @param {any} each an approval
 * @returns {string}
 */
function glimpse(each) {
  const input = each.updated_input ?? each.input;
  const main = each.tool.includes(":") ? undefined : MAIN.map((name) => input[name]).find(Boolean);
  return typeof main === "string" ? main : spaced(input);
}

/**
 * A text in one line, its line breaks as quiet marks.
 * @param {string} text
 */
function inOneLine(text) {
  return text.split("\n").map((line, index) => [
    index > 0 && h("span", { class: "break", title: "line break" }, "⏎"),
    shownText(line),
  ]);
}

/** @param {boolean} isFiltered */
function nothing(isFiltered) {
  if (!isFiltered) {
    return emptyState(
      CLOCK,
      "Nothing was asked yet",
      "What agents ask for, and what became of it, is kept here.",
    );
  }
  return emptyState(
    CLOCK,
    "Nothing found",
    "No question fits these filters.",
    h("button", { type: "button", onclick: () => go("/history") }, "Show all"),
  );
}

/**
 * @param {string} value
 * @param {() => void} onChange
 */
function filterButtons(value, onChange) {
  let current = value;
  const buttons = FILTERS.map(([key, label]) => {
    const onclick = () => {
      current = key;
      show();
      onChange();
    };
    return h("button", { type: "button", dataset: { filter: key }, onclick }, label);
  });
  const show = () =>
    buttons.forEach((button) =>
      button.setAttribute("aria-pressed", String(button.dataset.filter === current))
    );
  show();
  const node = h("div", { class: "segments", role: "group", "aria-label": "What became of it" }, buttons);
  return { node, current: () => current };
}

/**
 * @param {string} value
 * @param {() => void} onChange
 */
async function workspaceFilter(value, onChange) {
  /** @type {string[]} */
  const all = (await get("/api/me")).workspaces;
  if (value && !all.includes(value)) all.push(value);
  return h(
    "select",
    { "aria-label": "Workspace", onchange: onChange },
    h("option", { value: "" }, "All workspaces"),
    all.map((each) => h("option", { value: each, selected: each === value }, visible(each))),
  );
}

/** @param {string} session */
function sessionNote(session) {
  return h(
    "div",
    { class: "notice row" },
    h(
      "span",
      { class: "grow" },
      "Only what session ",
      h("span", { class: "mono" }, session.slice(0, 8)),
      " asked",
    ),
    h("a", { href: "#/history" }, "Show all"),
  );
}
