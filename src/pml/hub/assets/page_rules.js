// @ts-check
/** The rules of both files in the order they are tried: whether each counts, adding, switching, removing. */

import { get, post } from "./api.js";
import { h, replace, shortPath, shownText, visible } from "./dom.js";
import { confirmDialog, toast } from "./dialog.js";
import { emptyState, keepFresh, pageHead, problemNote, redraw, workspaceChooser } from "./page_parts.js";
import { addRule } from "./rule_form.js";
import { tryPanel } from "./rule_try.js";

const LIST = "M6 4h7.5M6 8h7.5M6 12h7.5M2.5 4h.01M2.5 8h.01M2.5 12h.01";
/** @type {[string, string][]} */
const EFFECTS = [
  ["deny", "never run, and no approval lifts that"],
  ["allow", "run without asking"],
  ["ask", "ask on every call"],
];

/** @typedef {{workspace: string, path: string}} Where the workspace, and its file */
/** @typedef {{rules: any, trust: any, where: Where}} Told what the hub says of a workspace */
/** @typedef {{rule: any, where: Where, isAmong: boolean}} Placed a rule, and whether others are listed with its file's */

/** @type {import("./router.js").Page} */
export const page = {
  path: "/rules",
  title: "Rules",
  async render(root, { query, signal }) {
    const problems = h("div", { class: "problems" });
    const notices = h("div", { class: "stack" });
    const groups = h("div", { id: "rules" });
    const search = h("input", {
      type: "search",
      "aria-label": "Find a rule",
      placeholder: "Find a rule",
      value: query.get("search") ?? "",
      oninput: () => show(),
    });
    const workspace = await workspaceChooser(query.get("workspace"), () => fresh.refresh());
    /** @type {Told[]} */
    let told = [];
    const places = () =>
      told.length
        ? told.map(({ where }) => where)
        : workspace.current().map((each) => ({ workspace: each, path: "" }));

    const tried = tryPanel(() => told[0]?.where.workspace ?? "");
    const load = async () => {
      told = await Promise.all(workspace.current().map(read));
      tried.node.hidden = told.length > 1; // a call is made in one of them
      replace(notices, noticesOf(told));
      show();
      if (told.length === 1) await tried.again();
    };
    const show = () => {
      const words = search.value.trim().toLowerCase();
      const found = onceEach(told).filter(({ rule }) => shownEntry(rule).toLowerCase().includes(words));
      const sections = EFFECTS.map(([effect, means]) =>
        section(effect, means, found.filter(({ rule }) => rule.effect === effect))
      );
      const isUnread = told.some(({ rules }) => rules.broken.length > 0); // there may be rules, as the notice tells
      const rest = isUnread ? null : nothing(words !== "", () => addRule(places()));
      redraw(groups, found.length ? sections : rest);
    };
    const add = h(
      "button",
      { type: "button", class: "primary", dataset: { action: "add-rule" }, onclick: () => addRule(places()) },
      "Add a rule",
    );
    root.append(
      pageHead(
        "Rules",
        "Tried in this order: deny, allow, ask. What no rule names is asked about.",
        workspace.node,
        add,
      ),
      tried.node,
      h("div", { class: "toolbar" }, search),
      problems,
      notices,
      groups,
    );
    const fresh = keepFresh({ types: ["rules.changed", "trust.changed"], problems, signal, load });
    await fresh.refresh();
    const onfocus = () => fresh.soon(); // files may have been edited meanwhile, of which no event tells
    addEventListener("focus", onfocus);
    return () => {
      removeEventListener("focus", onfocus);
      fresh.stop();
    };
  },
};

/**
 * @param {string} workspace
 * @returns {Promise<Told>}
 */
async function read(workspace) {
  const [rules, trust] = await Promise.all([
    get("/api/rules", { workspace }),
    get("/api/trust", { workspace }),
  ]);
  return { rules, trust, where: { workspace, path: trust.path } };
}

/**
 * Rules of the user's own file apply in every workspace, and are shown once.
 * @param {Told[]} told
 * @returns {Placed[]}
 */
function onceEach(told) {
  /** @type {Set<string>} */
  const seen = new Set();
  const isAmong = told.length > 1;
  return told.flatMap(({ rules, where }) =>
    rules.rules.filter((/** @type {any} */ rule) => {
      const place = rule.source?.file === where.path || !rule.source ? where.path : "";
      const key = `${rule.effect} ${place} ${rule.source?.line} ${rule.text} ${rule.kept}`;
      return !seen.has(key) && seen.add(key);
    }).map((/** @type {any} */ rule) => ({ rule, where, isAmong }))
  );
}

/** @param {Told[]} told */
function noticesOf(told) {
  const broken = new Set(told.flatMap(({ rules }) => rules.broken));
  const warnings = new Set(told.flatMap(({ rules }) => rules.warnings));
  return [
    [...broken].map((/** @type {string} */ text) =>
      h(
        "div",
        { class: "notice bad" },
        shownText(text),
        h("div", { class: "hint" }, "While a file is broken no file allows anything: fix it."),
      )
    ),
    told.map(({ rules, trust }) => noticesIn(rules, trust)),
    [...warnings].map((/** @type {string} */ text) => h("div", { class: "notice warn" }, shownText(text))),
  ];
}

/**
 * @param {any} rules
 * @param {any} trust
 */
function noticesIn(rules, trust) {
  return [
    rules.kept &&
    h("div", { class: "notice warn", dataset: { notice: "kept" } }, shownText(`${rules.kept}.`)),
    trust.needed && h(
      "div",
      { class: "notice warn" },
      shortPath(trust.path),
      " is not trusted, so what it allows does not apply. ",
      h(
        "a",
        { href: `#/trust?workspace=${encodeURIComponent(trust.workspace)}` },
        "See what it would loosen",
      ),
    ),
  ];
}

/**
 * @param {string} effect
 * @param {string} means
 * @param {Placed[]} rules
 */
function section(effect, means, rules) {
  if (rules.length === 0) return null;
  return h(
    "section",
    { dataset: { effect } },
    h("div", { class: "group-head" }, h("h2", null, effect), h("span", { class: "muted" }, means)),
    h("ol", { class: "list panel" }, rules.map(row)),
  );
}

/** @param {Placed} placed */
function row({ rule, where, isAmong }) {
  const text = shownEntry(rule);
  const isDefault = rule.effect === "ask" && rule.entry === "*";
  const isOff = rule.note === "disabled";
  const isUsers = rule.source?.file !== where.path;
  const key = `${rule.effect} ${rule.source?.file}:${rule.source?.line} ${text}`;
  const problem = h("div", null);
  const body = { effect: rule.effect, user: isUsers, workspace: where.workspace };
  const act = async (/** @type {() => Promise<void>} */ work) => {
    try {
      await work();
    } catch (error) {
      replace(problem, problemNote(error));
    }
  };
  return h(
    "li",
    {
      class: `item rule${isOff ? " is-disabled" : rule.counts ? "" : " is-off"}`,
      dataset: { rule: text, counts: String(rule.counts), kept: String(rule.kept) },
    },
    h(
      "div",
      { class: "item-main" },
      h("div", { class: "entry" }, shownText(text)),
      h(
        "div",
        { class: "about" },
        isDefault && h("span", null, "the default: what no other rule names"),
        rule.note && h("span", { class: "why" }, shownText(rule.note)),
        rule.expires_at && rule.counts && h("span", null, `until ${rule.expires_at}`),
        rule.source && !rule.kept && h(
          "span",
          null,
          isUsers ? "your file, every workspace · " : isAmong ? "" : "this workspace · ",
          shortPath(rule.source.file),
          `:${rule.source.line}`,
        ),
      ),
      problem,
    ),
    !rule.kept && h(
      "div",
      { class: "buttons" },
      !isDefault &&
        ruleButton(
          isOff ? "Enable" : "Disable",
          text,
          `switch ${key}`,
          () => act(() => switchRule(body, rule, isOff)),
        ),
      ruleButton("Remove", text, `remove ${key}`, () => act(() => removeRule(body, rule))),
    ),
  );
}

/**
 * @param {string} label
 * @param {string} text
 * @param {string} key
 * @param {() => void} onclick
 */
function ruleButton(label, text, key, onclick) {
  return h(
    "button",
    {
      type: "button",
      class: label === "Remove" ? "danger" : "",
      "aria-label": `${label} ${visible(text)}`,
      dataset: { action: label.toLowerCase(), key },
      onclick,
    },
    label,
  );
}

/**
 * A rule as a person writes it; of one that is only switched off, what it is about.
 * @param {any} rule
 * @returns {string}
 */
function shownEntry(rule) {
  const { entry, text } = rule;
  if (typeof entry === "string") return entry;
  return Object.keys(entry).every((key) => key === "tool" || key === "enabled") ? entry.tool : text;
}

/**
 * @param {any} body
 * @param {any} rule
 * @param {boolean} enabled
 */
async function switchRule(body, rule, enabled) {
  if (!enabled && body.effect !== "allow") {
    const isSure = await confirmDialog({
      title: `Disable this ${body.effect}?`,
      body: [
        body.effect === "deny"
          ? "What it denies may then be asked for, or be allowed by another rule: "
          : "What it asks about may then be allowed by another rule: ",
        code(rule),
      ],
      confirm: "Disable",
      danger: true,
    });
    if (!isSure) return;
  }
  const { denied } = await post("/api/rules/switch", { ...body, enabled }, { raw: { entry: rule.text } });
  const also = denied.length
    ? ` ${denied.length} that waited ${denied.length === 1 ? "was" : "were"} denied by it.`
    : "";
  toast(`${enabled ? "Enabled" : "Disabled"}.${also}`, "good");
}

/**
 * @param {any} body
 * @param {any} rule
 */
async function removeRule(body, rule) {
  const isSure = await confirmDialog({
    title: "Remove this rule?",
    body: [
      code(rule),
      h("p", null, body.user ? "It applies in every workspace." : "It applies in this workspace."),
    ],
    confirm: "Remove",
    danger: true,
  });
  if (!isSure) return;
  await post("/api/rules/remove", body, { raw: { entry: rule.text } });
  toast(`Removed ${visible(shownEntry(rule))}.`, "good");
}

/** @param {any} rule */
function code(rule) {
  return h("code", null, shownText(shownEntry(rule)));
}

/**
 * @param {boolean} isFiltered
 * @param {() => void} add
 */
function nothing(isFiltered, add) {
  if (isFiltered) return emptyState(LIST, "No such rule", "No entry of either file has these words.");
  return emptyState(
    LIST,
    "No rules yet",
    "Without rules PML asks about everything. “Always” on a card writes one, or add one here.",
    h("button", { type: "button", class: "primary", onclick: add }, "Add a rule"),
  );
}
