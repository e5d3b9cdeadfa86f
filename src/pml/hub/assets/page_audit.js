// @ts-check
/** The audit log: what happened, by whom; and whether its chain is whole. */

import { get } from "./api.js";
import { icon } from "./chrome.js";
import { h, jsonView, replace, shownText } from "./dom.js";
import { emptyState, keepFresh, pageHead, problemNote, spaced, whoText } from "./page_parts.js";
import { clockTime } from "./time.js";

const PAGE = 100;
const MOST = 1000; // what the hub gives at once; so many more than were asked for pile up while the page is open
const TYPING_MS = 300;
const TICK = "M3.5 8.5 6.5 11.5 12.5 5";
const CROSS = "M4.5 4.5l7 7M11.5 4.5l-7 7";
const BOOK =
  "M3 3.5h4.2c.5 0 .8.3.8.8v8.2c0-.5-.4-.8-.8-.8H3zM13 3.5H8.8c-.5 0-.8.3-.8.8v8.2c0-.5.4-.8.8-.8H13z";
/** @type {[string, string, string][]} */
const FIELDS = [
  ["session", "Session", "an id"],
  ["tool", "Tool", "github:create_issue"],
  ["decider", "Decided by", "a name, or rule"],
  ["approval", "Question", "an id"],
];
/** @type {Record<string, string>} */
const KINDS = {
  denied: "bad",
  failed: "bad",
  unknown: "bad",
  removed: "warn",
  revoked: "warn",
  allowed: "good",
};

/** @type {import("./router.js").Page} */
export const page = {
  path: "/audit",
  title: "Audit",
  async render(root, { query, signal }) {
    const problems = h("div", { class: "problems" });
    const chain = h("div", null);
    const list = h("ul", { class: "list panel", "aria-label": "Entries, newest first" });
    const foot = h("div", null);
    const older = h("button", { type: "button", dataset: { action: "older" } }, "Older entries");
    older.hidden = true;
    const entries = new Entries(list);
    let shownFor = "";
    let wantsOlder = false;
    let typing = 0;
    const inputs = FIELDS.map(([name, label, placeholder]) => {
      const oninput = () => {
        clearTimeout(typing);
        typing = setTimeout(() => fresh.refresh(), TYPING_MS);
      };
      return h("input", {
        type: "search",
        name,
        "aria-label": label,
        placeholder: `${label}: ${placeholder}`,
        value: query.get(name) ?? "",
        oninput,
      });
    });
    const load = async () => {
      const filters = Object.fromEntries(inputs.map((input) => [input.name, input.value.trim() || null]));
      const isSame = shownFor === JSON.stringify(filters);
      if (!isSame || !await entries.catchUp(filters)) await entries.begin(filters);
      shownFor = JSON.stringify(filters);
      if (wantsOlder) await entries.goBack(filters);
      wantsOlder = false;
      list.hidden = list.childElementCount === 0;
      older.hidden = !entries.hasOlder;
      replace(foot, list.hidden && nothing());
    };
    older.onclick = () => {
      wantsOlder = true;
      fresh.refresh();
    };
    root.append(
      pageHead(
        "Audit",
        "All that was asked, decided and changed. Entries are chained: a change to one shows.",
      ),
      chain,
      h("div", { class: "filters", role: "search" }, inputs),
      problems,
      list,
      h("div", { class: "more" }, older),
      foot,
    );
    const fresh = keepFresh({ types: ["*"], problems, signal, load });
    await Promise.all([fresh.refresh(), verify(chain)]);
    return () => {
      clearTimeout(typing);
      fresh.stop();
    };
  },
};

/** The rows, newest first. A log only grows: what stands is never drawn again. */
class Entries {
  /** @param {HTMLElement} list */
  constructor(list) {
    this.list = list;
    this.room = 0;
    this.hasOlder = false;
  }

  /** @param {Record<string, string | null>} filters */
  async begin(filters) {
    const { entries } = await get("/api/audit", { ...filters, limit: PAGE });
    this.room = PAGE + MOST;
    this.hasOlder = entries.length === PAGE;
    replace(this.list, entries.reverse().map(row));
  }

  /**
   * Put what came since on top. Returns whether that was all of it: after a long sleep it may be too much.
   * @param {Record<string, string | null>} filters
   */
  async catchUp(filters) {
    const after = seqOf(this.list.firstElementChild) ?? 0;
    const { entries } = await get("/api/audit", { ...filters, after, limit: MOST });
    if (entries.length === MOST) return false;
    this.list.prepend(...entries.reverse().map(row));
    while (this.list.childElementCount > this.room) {
      this.list.lastElementChild?.remove();
      this.hasOlder = true;
    }
    return true;
  }

  /** @param {Record<string, string | null>} filters */
  async goBack(filters) {
    const before = seqOf(this.list.lastElementChild);
    const { entries } = await get("/api/audit", { ...filters, before, limit: PAGE });
    this.room += PAGE;
    this.hasOlder = entries.length === PAGE;
    this.list.append(...entries.reverse().map(row));
  }
}

/**
 * @param {Element | null} node a row
 * @returns {string | undefined}
 */
function seqOf(node) {
  return /** @type {HTMLElement | null} */ (node)?.dataset.seq;
}

/**
 * Look at the whole chain, and say how it is.
 * @param {HTMLElement} place
 */
async function verify(place) {
  const again = h(
    "button",
    { type: "button", dataset: { action: "verify" }, onclick: () => verify(place) },
    "Check again",
  );
  replace(place, verdict("busy", BOOK, "Checking the chain…", null, null));
  try {
    const { ok, chains, entries, problems } = await get("/api/audit/verify");
    const size = `${entries} entries in ${chains === 1 ? "1 chain" : `${chains} chains`}`;
    if (ok) {
      return replace(
        place,
        verdict(
          "good",
          TICK,
          "The log is intact",
          `${size}: none was changed, removed or added later.`,
          again,
        ),
      );
    }
    const found = problems.map((/** @type {any} */ each) =>
      h(
        "li",
        null,
        shownText(each.what),
        " ",
        h("span", { class: "muted mono" }, `chain ${each.chain.slice(0, 8)}, entry ${each.n}`),
      )
    );
    const text = [
      `${size}. Somebody changed the log, or its database was put back to an older state:`,
      h("ul", { class: "plain" }, found),
    ];
    replace(place, verdict("bad", CROSS, "The chain is broken", text, again));
  } catch (error) {
    replace(place, problemNote(error));
  }
}

/**
 * @param {string} kind
 * @param {string} drawing
 * @param {string} title
 * @param {import("./dom.js").Child} text
 * @param {import("./dom.js").Child} button
 */
function verdict(kind, drawing, title, text, button) {
  return h(
    "div",
    {
      class: `panel verdict-panel ${kind}`,
      role: kind === "bad" ? "alert" : "status",
      dataset: { chain: kind },
    },
    h("div", { class: "mark" }, icon(drawing)),
    h("div", { class: "grow" }, h("h2", null, title), h("div", { class: "muted" }, text)),
    button,
  );
}

/** @param {any} entry */
function row(entry) {
  const word = entry.kind.split(".")[1] ?? "";
  const hasDetail = Object.keys(entry.detail).length > 0;
  return h(
    "li",
    { class: "item audit-item", dataset: { seq: String(entry.seq) } },
    h("span", { class: "muted" }, clockTime(entry.at)),
    h(
      "div",
      { class: "item-main" },
      h(
        "div",
        { class: "row" },
        h("span", { class: `chip ${KINDS[word] ?? ""}` }, entry.kind),
        entry.tool && h("span", { class: "mono" }, shownText(entry.tool)),
        entry.by && h("span", { class: "muted" }, shownText(`by ${whoText(entry.by)}`)),
      ),
      hasDetail && h(
        "details",
        { class: "detail", dataset: { key: String(entry.seq) } },
        h("summary", { title: "Show all of it" }, shownText(shortDetail(entry.detail))),
        jsonView(JSON.stringify(entry.detail, null, 2).split("\n")),
      ),
    ),
    h(
      "div",
      { class: "row" },
      entry.session && h("a", { href: `#/sessions?session=${encodeURIComponent(entry.session)}` }, "session"),
      entry.approval && h("a", { href: `#/card/${entry.approval}` }, "question"),
      h("span", { class: "muted mono", title: `hash ${entry.hash}` }, `#${entry.seq}`),
    ),
  );
}

/**
 * The detail in one line; of a digest its beginning.
 * @param {unknown} detail
 */
function shortDetail(detail) {
  return spaced(detail).replaceAll(/(sha256:[0-9a-f]{8})[0-9a-f]{56}/g, "$1…");
}

function nothing() {
  return emptyState(BOOK, "No entries", "Nothing fits, or nothing has happened yet.");
}
