// @ts-check
/** Who works here: sessions as the tree of who started whom, with what each does, says and waits for. */

import { get, post } from "./api.js";
import { h, replace, shortPath, shownText, visible } from "./dom.js";
import { confirmDialog, toast } from "./dialog.js";
import { emptyState, keepFresh, pageHead, problemNote, redraw } from "./page_parts.js";
import { clockTime, tickingTime } from "./time.js";

const PAGE = 100;
const MORE = 300;
const MESSAGES = 1000; // that are shown, and as many as the hub gives at once
const TREE = "M8 3v4M8 7H4v3M8 7h4v3M6.5 1.5h3v2h-3zM2.5 10h3v2.5h-3zM10.5 10h3v2.5h-3z";
const LIVE_TYPES = ["session.*", "approval.*"];
/** @type {Record<string, [string, string]>} */
const WORDS = {
  waiting_for_approval: ["waits for you", "warn"],
  starting: ["starting", "good"],
  running: ["running", "good"],
  connected: ["connected", "good"],
  done: ["done", ""],
  failed: ["failed", "bad"],
  stopped: ["stopped", ""],
  ended: ["ended", ""],
};

/** @typedef {any} Session */

/** @type {import("./router.js").Page} */
export const page = {
  path: "/sessions",
  title: "Sessions",
  async render(root, { query, signal }) {
    const wanted = query.get("session");
    const problems = h("div", { class: "problems" });
    const list = h("ul", { class: "list panel tree", "aria-label": "Sessions" });
    const foot = h("div", { class: "more" });
    const ended = h("input", { type: "checkbox", id: "ended", onchange: () => fresh.refresh() });
    ended.checked = wanted !== null;
    let isFirst = true;
    let wantedCount = PAGE; // of the newest, where those that ended are shown too
    /** @type {Map<string, HTMLElement>} */
    const bodies = new Map(); // kept while the list is drawn anew, so that what is read stays in its place

    const more = h("button", {
      type: "button",
      dataset: { action: "more" },
      onclick: () => {
        wantedCount += MORE;
        fresh.refresh();
      },
    }, "Show more");
    const load = async () => {
      /** @type {{sessions: Session[]}} */
      const { sessions: live } = await get("/api/sessions", { live: true });
      const { sessions: newest, hasMore } = ended.checked ? await latest(wantedCount) : { sessions: [] };
      const sessions = [...new Map([...live, ...newest].map((each) => [each.id, each])).values()];
      if (wanted && ended.checked && !sessions.some((each) => each.id === wanted)) {
        sessions.push(await get(`/api/sessions/${encodeURIComponent(wanted)}`));
      }
      list.hidden = sessions.length === 0;
      redraw(list, ordered(sessions).map(([each, depth]) => row(each, depth, bodies)));
      replace(foot, sessions.length === 0 && nothing(ended), hasMore && more);
      if (isFirst && wanted) open(list, wanted);
      isFirst = false;
    };
    root.append(
      pageHead(
        "Sessions",
        "Agents and clients that use PML, and who started whom.",
        h("label", { class: "row check", for: "ended" }, ended, "Show ended"),
      ),
      problems,
      list,
      foot,
    );
    const fresh = keepFresh({ types: LIVE_TYPES, problems, signal, load });
    await fresh.refresh();
    return fresh.stop;
  },
};

/**
 * The newest sessions, also those that ended.
 * @param {number} count
 */
async function latest(count) {
  /** @type {Session[]} */
  const sessions = [];
  /** @type {string | null} */
  let after = null;
  do {
    const page = await get("/api/sessions", { after, limit: Math.min(MORE, count - sessions.length) });
    sessions.push(...page.sessions);
    after = page.next;
  } while (after && sessions.length < count);
  return { sessions, hasMore: Boolean(after) };
}

/**
 * The tree, from the top: each after the one that started it, the newest first among equals.
 * @param {Session[]} sessions
 * @returns {[Session, number][]}
 */
function ordered(sessions) {
  const known = new Set(sessions.map((each) => each.id));
  const newestFirst = [...sessions].sort((one, other) => other.started_at.localeCompare(one.started_at));
  const below = Map.groupBy(newestFirst, (each) => known.has(each.parent) ? each.parent : null);
  /** @type {[Session, number][]} */
  const found = [];
  const visit = (/** @type {string | null} */ parent, /** @type {number} */ depth) => {
    for (const each of below.get(parent) ?? []) {
      found.push([each, depth]);
      visit(each.id, depth + 1);
    }
  };
  visit(null, 0);
  return found;
}

/**
 * @param {Element} list
 * @param {string} id
 */
function open(list, id) {
  const found = /** @type {NodeListOf<HTMLDetailsElement>} */ (list.querySelectorAll("details[data-key]"));
  for (const details of found) {
    if (details.dataset.key !== id) continue;
    details.open = true;
    details.scrollIntoView({ block: "center" });
  }
}

/**
 * @param {Session} session
 * @param {number} depth
 * @param {Map<string, HTMLElement>} bodies
 */
function row(session, depth, bodies) {
  const [word, kind] = WORDS[session.state] ?? [session.state, ""];
  const body = bodies.get(session.id) ?? h("div", { class: "item-body" });
  bodies.set(session.id, body);
  const ontoggle = () => details.open && showBody(body, session);
  const details = h(
    "details",
    { dataset: { key: session.id }, ontoggle },
    h(
      "summary",
      { class: "item", dataset: { key: `summary ${session.id}` } },
      h(
        "div",
        { class: "item-main" },
        h("strong", null, shownText(session.name)),
        h(
          "div",
          { class: "clip muted" },
          session.run ? shownText(session.run.prompt ?? "") : about(session),
        ),
      ),
      h(
        "div",
        { class: "item-state row" },
        h(
          "span",
          { class: `chip ${kind}` },
          session.waiting > 1 ? `${session.waiting} questions wait` : word,
        ),
      ),
      h(
        "div",
        { class: "item-side muted" },
        h("div", null, tickingTime(session.started_at)),
        h("div", { class: "clip" }, shortPath(session.workspace)),
      ),
    ),
    body,
  );
  return h(
    "li",
    {
      class: session.ended_at === null
        ? `depth-${Math.min(depth, 4)}`
        : `depth-${Math.min(depth, 4)} is-over`,
    },
    details,
  );
}

/** @param {Session} session */
function about(session) {
  const isHub = session.is_agent && session.name === "hub" && session.parent === null;
  const client = session.pid === null ? "connected over HTTP" : "a client";
  const kind = isHub ? "this hub" : session.is_agent ? client : "a terminal";
  const pid = session.pid === null ? "" : ` (process ${session.pid})`;
  return kind + pid;
}

/**
 * @param {HTMLElement} body
 * @param {Session} session
 */
async function showBody(body, session) {
  const { run } = session;
  const id = encodeURIComponent(session.id);
  const said = run && await messagesOf(session.id);
  redraw(
    body,
    h(
      "div",
      { class: "row end" },
      h("a", { class: "button", href: `#/history?session=${id}` }, "What it asked"),
      h("a", { class: "button", href: `#/audit?session=${id}` }, "Audit"),
      run && run.ended_at === null && stopButton(session),
    ),
    h("dl", { class: "facts" }, facts(session)),
    said,
  );
}

/** @param {Session} session */
function facts(session) {
  const { run } = session;
  /** @type {[string, import("./dom.js").Child][]} */
  const rows = [
    ["session", h("span", { class: "mono" }, session.id)],
    ["workspace", shownText(session.workspace)],
    ["process", session.pid === null ? null : String(session.pid)],
    ["started", clockTime(session.started_at)],
    ["ended", session.ended_at && clockTime(session.ended_at)],
    ["prompt", run && shownText(run.prompt ?? "")],
    ["works in", run?.cwd && shownText(run.cwd)],
    ["model", run?.model && shownText(run.model)],
    ["tools", run?.allowed_tools && shownText(run.allowed_tools.join(", "))],
    ["turns", run && String(run.turns)],
    ["cost", run && `$${run.cost_usd.toFixed(4)}`],
    ["result", run?.result && shownText(run.result)],
  ];
  return rows.filter(([, value]) => value).map((
    [name, value],
  ) => [h("dt", null, name), h("dd", null, value)]);
}

/** @param {Session} session */
function stopButton(session) {
  const onclick = async () => {
    const isSure = await confirmDialog({
      title: `Stop ${visible(session.name)}?`,
      body: "The agent ends at once, with all that it started. What it has done stays done.",
      confirm: "Stop it",
      danger: true,
    });
    if (!isSure) return;
    try {
      await post(`/api/sessions/${encodeURIComponent(session.id)}/stop`, {});
      toast(`Stopped ${visible(session.name)}.`, "good");
    } catch (error) {
      button.after(problemNote(error));
    }
  };
  const button = h(
    "button",
    { type: "button", class: "danger", dataset: { action: "stop", key: `stop ${session.id}` }, onclick },
    "Stop",
  );
  return button;
}

/** @param {string} id */
async function messagesOf(id) {
  try {
    const messages = await latestMessages(id);
    return h(
      "div",
      { class: "messages" },
      h("h3", null, heading(messages.length)),
      messages.map(message),
    );
  } catch (error) {
    return problemNote(error);
  }
}

/**
 * @param {string} id
 * @returns {Promise<any[]>}
 */
async function latestMessages(id) {
  /** @type {any[]} */
  let latest = [];
  /** @type {any[]} */
  let found;
  do {
    const after = latest.at(-1)?.seq ?? 0;
    const path = `/api/sessions/${encodeURIComponent(id)}/messages`;
    ({ messages: found } = await get(path, { after, limit: MESSAGES }));
    latest = [...latest, ...found].slice(-MESSAGES);
  } while (found.length === MESSAGES);
  return latest;
}

/** @param {number} count */
function heading(count) {
  if (count === 0) return "It has said nothing yet";
  return count < MESSAGES ? "Messages" : `The latest ${MESSAGES} messages`;
}

/** @param {any} each */
function message(each) {
  return h(
    "div",
    { class: `message ${each.kind}` },
    h("span", { class: "muted" }, `${each.kind} · `, tickingTime(each.at)),
    h("div", { class: "message-text" }, shownText(each.text)),
  );
}

/** @param {HTMLInputElement} ended */
function nothing(ended) {
  return emptyState(
    TREE,
    "Nobody is here",
    "A client that uses PML, or an agent that you launch, shows up here as soon as it begins.",
    !ended.checked && h("button", { type: "button", onclick: () => ended.click() }, "Show those that ended"),
    h("pre", null, "pml launch --loopback -- claude -p 'tidy the notes'"),
  );
}
