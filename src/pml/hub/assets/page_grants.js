// @ts-check
/** What is remembered for sessions: tools that are no longer asked about, until that is revoked. */

import { del, get } from "./api.js";
import { h, replace, shownText } from "./dom.js";
import { toast } from "./dialog.js";
import { emptyState, keepFresh, pageHead, problemNote, redraw, whoText } from "./page_parts.js";
import { tickingTime } from "./time.js";

const KEY = "M5.5 10.5a3 3 0 1 1 2.6-4.5H14v3h-2v2H9.5V9H8.1a3 3 0 0 1-2.6 1.5M5.5 7.5h.01";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/grants",
  title: "Session permissions",
  async render(root, { signal }) {
    const problems = h("div", { class: "problems" });
    const groups = h("div", null);
    const load = async () => {
      const [{ grants }, { sessions }] = await Promise.all([
        get("/api/grants"),
        get("/api/sessions", { limit: 1000 }),
      ]);
      const names = new Map(sessions.map((/** @type {any} */ each) => [each.id, each.name]));
      redraw(groups, grants.length ? bySession(grants).map((group) => section(group, names)) : nothing());
    };
    root.append(
      pageHead(
        "Session permissions",
        "What you allowed for a session: it is not asked again until the session ends.",
      ),
      problems,
      groups,
    );
    const fresh = keepFresh({ types: ["grants.changed", "session.ended"], problems, signal, load });
    await fresh.refresh();
    return fresh.stop;
  },
};

/**
 * @param {any[]} grants
 * @returns {any[][]}
 */
function bySession(grants) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const each of grants) groups.set(each.session, [...groups.get(each.session) ?? [], each]);
  return [...groups.values()];
}

/**
 * @param {any[]} group
 * @param {Map<string, string>} names
 */
function section(group, names) {
  const { session } = group[0];
  const href = `#/sessions?session=${encodeURIComponent(session)}`;
  return h(
    "section",
    null,
    h(
      "div",
      { class: "group-head" },
      h("h2", null, h("a", { href }, shownText(names.get(session) ?? session.slice(0, 8)))),
      h("span", { class: "muted" }, group.length === 1 ? "1 grant" : `${group.length} grants`),
    ),
    h("ul", { class: "list panel" }, group.map(row)),
  );
}

/** @param {any} grant */
function row(grant) {
  const problem = h("div", null);
  const onclick = async () => {
    try {
      await del(`/api/grants/${encodeURIComponent(grant.id)}`);
      toast(`${grant.tool} is asked about again.`, "good");
    } catch (error) {
      replace(problem, problemNote(error));
    }
  };
  return h(
    "li",
    { class: "item rule", dataset: { id: grant.id } },
    h(
      "div",
      { class: "item-main" },
      h("div", { class: "entry" }, shownText(grant.tool)),
      h(
        "div",
        { class: "about" },
        h(
          "span",
          null,
          grant.digest === null ? "with any arguments" : "only with the arguments that were allowed",
        ),
        h("span", null, shownText(whoText(grant.by)), " · ", tickingTime(grant.created_at)),
        grant.approval && h("a", { href: `#/card/${grant.approval}` }, "the question"),
      ),
      problem,
    ),
    h(
      "div",
      { class: "buttons" },
      h(
        "button",
        {
          type: "button",
          class: "danger",
          "aria-label": `Revoke ${grant.tool}`,
          dataset: { action: "revoke", key: grant.id },
          onclick,
        },
        "Revoke",
      ),
    ),
  );
}

function nothing() {
  return emptyState(
    KEY,
    "Nothing is remembered",
    "“Remember for this session” on a card puts its tool here. Permanent rules are on the Rules page.",
    h("a", { class: "button", href: "#/rules" }, "Rules"),
  );
}
