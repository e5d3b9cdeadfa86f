// @ts-check
/** The servers of a workspace: how each stands, what holds it, what it offers, and what it wrote. */

import { get } from "./api.js";
import { h, replace, shortPath, shownText } from "./dom.js";
import { emptyState, problemNote, redraw, spaced, workspacePage } from "./page_parts.js";
import { tickingTime } from "./time.js";

const LINES = 200;
const RACK = "M3 3h10v4H3zM3 9h10v4H3zM5 5h.01M5 11h.01";
/** @type {Record<string, string>} */
const KINDS = {
  ready: "good",
  running: "good",
  starting: "warn",
  failed: "bad",
  refused: "bad",
  "not trusted": "warn",
};

/** @type {import("./router.js").Page} */
export const page = {
  path: "/servers",
  title: "Servers",
  async render(root, visit) {
    const list = h("div", { class: "cards" });
    const fresh = await workspacePage(root, visit, {
      title: "Servers",
      lead: "What PML starts for tools, and what each may reach.",
      tools: h("a", { class: "button", href: "#/secrets" }, "Secrets"),
      place: list,
      types: ["server.changed", "trust.changed", "install.finished", "rules.changed"],
      load: async (workspaces) => {
        const told = await Promise.all(workspaces.map((workspace) => get("/api/servers", { workspace })));
        const found = told.flatMap(({ servers }, index) =>
          servers.map((/** @type {any} */ server) => ({ server, workspace: workspaces[index] ?? "" }))
        );
        const cards = onceEach(found).map(({ server, workspace }) => card(server, workspace));
        redraw(list, cards.length ? cards : nothing());
      },
    });
    return fresh.stop;
  },
};

/**
 * Servers of the user's own file stand in every workspace, and are shown once.
 * @param {{server: any, workspace: string}[]} found
 */
function onceEach(found) {
  /** @type {Set<string>} */
  const seen = new Set();
  return found.filter(({ server: { name, source }, workspace }) => {
    const key = source ? `${name} ${source.file}:${source.line}` : `${name} ${workspace}`;
    return !seen.has(key) && seen.add(key);
  });
}

/**
 * @param {any} server
 * @param {string} workspace
 */
function card(server, workspace) {
  return h(
    "section",
    { class: "panel", dataset: { server: server.name }, "aria-label": `Server ${server.name}` },
    h(
      "div",
      { class: "panel-head panel-title" },
      h("h2", { class: "grow" }, shownText(server.name)),
      h("span", { class: `chip ${KINDS[server.state] ?? ""}` }, server.state),
    ),
    h(
      "div",
      { class: "panel-body stack" },
      server.problem && h("div", { class: "notice bad" }, shownText(server.problem)),
      server.state === "not trusted" && untrusted(workspace),
      h("dl", { class: "facts" }, facts(server, workspace)),
      server.runs.map(run),
      server.tools?.length > 0 && tools(server),
      server.launch && logs(server, workspace),
    ),
  );
}

/**
 * @param {any} server
 * @param {string} workspace
 */
function facts(server, workspace) {
  const { start } = server;
  /** @type {[string, import("./dom.js").Child][]} */
  const rows = [
    ["runs", server.containment.map((/** @type {any} */ held) => h("div", null, shownText(held.told)))],
    ["command", start && h("span", { class: "mono" }, shownText([start.command, ...start.args].join(" ")))],
    ["in", start?.cwd && shownText(start.cwd)],
    ["variables", start?.env_names.length > 0 && shownText(start.env_names.join(", "))],
    ["permitted", start?.permissions && h("span", { class: "mono" }, shownText(spaced(start.permissions)))],
    ["installed", server.installed && shownText(server.installed)],
    ["from", server.source && [shortPath(server.source.file), `:${server.source.line}`]],
    ["for", !server.source && shortPath(workspace)],
  ];
  return rows
    .filter(([, value]) => Array.isArray(value) ? value.length : value)
    .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]);
}

/** @param {any} each a run */
function run(each) {
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row" },
      h("span", { class: `chip ${KINDS[each.state] ?? ""}` }, each.state),
      h("span", { class: "muted" }, "since ", tickingTime(each.since)),
      each.pid && h("span", { class: "muted" }, `process ${each.pid}`),
      h(
        "span",
        { class: each.restarts > 0 ? "chip warn" : "muted" },
        each.restarts === 1 ? "1 restart" : `${each.restarts} restarts`,
      ),
    ),
    each.last_error && h("div", { class: "notice warn" }, "Last error: ", shownText(each.last_error)),
  );
}

/** @param {any} server */
function tools(server) {
  return h(
    "details",
    { class: "unfold", dataset: { key: `tools ${server.name}` } },
    h("summary", null, server.tools.length === 1 ? "1 tool" : `${server.tools.length} tools`),
    h(
      "div",
      { class: "row" },
      server.tools.map((/** @type {string} */ name) => h("span", { class: "chip mono" }, shownText(name))),
    ),
  );
}

/**
 * @param {any} server
 * @param {string} workspace
 */
function logs(server, workspace) {
  const place = h("div", null);
  const details = h(
    "details",
    { class: "unfold", dataset: { key: `logs ${server.name}` }, ontoggle: () => details.open && showLogs() },
    h("summary", { dataset: { action: "logs" } }, "Logs"),
    place,
  );
  const showLogs = async () => {
    try {
      const path = `/api/servers/${encodeURIComponent(server.name)}/logs`;
      /** @type {{lines: string[]}} */
      const { lines } = await get(path, { workspace, limit: LINES });
      const view = h(
        "div",
        { class: "code logs", tabindex: "0", role: "log", "aria-label": `Log of ${server.name}` },
        lines.map((line) => h("div", { class: "ln" }, shownText(line))),
      );
      replace(place, lines.length ? view : h("p", { class: "muted" }, "It has written nothing yet."));
      view.scrollTop = view.scrollHeight;
    } catch (error) {
      replace(place, problemNote(error));
    }
  };
  return details;
}

/** @param {string} workspace */
function untrusted(workspace) {
  const href = `#/trust?workspace=${encodeURIComponent(workspace)}`;
  return h(
    "div",
    { class: "notice warn" },
    "The file that defines it is not trusted, so it is not started. ",
    h("a", { href }, "See what it would do"),
  );
}

function nothing() {
  return emptyState(
    RACK,
    "No servers here",
    "Servers are defined in .pml.json or in your own config.json, or installed from the catalog by a call.",
    h("pre", null, '"mcpServers": {"notes": {"command": "notes-server"}}'),
  );
}
