// @ts-check
/** What the rules make of a call, tried without asking anybody. */

import { post } from "./api.js";
import { h, replace, shortPath, shownText } from "./dom.js";
import { entryText, field, problemNote } from "./page_parts.js";

/** @type {Record<string, [string, string]>} */
const VERDICTS = {
  deny: ["bad", "never runs, and no approval lifts that"],
  allow: ["good", "runs without asking"],
  ask: ["warn", "asks on every call"],
  unlisted: ["", "is decided by no rule, so PML asks"],
};
const LEFT_TO_CLIENT = "is decided by no rule, so the client asks, and PML only where the client cannot";

/**
 * Returns the panel, and what asks anew where the rules may be others now.
 * @param {() => string} workspace
 */
export function tryPanel(workspace) {
  const tool = h("input", {
    type: "text",
    class: "mono",
    placeholder: "github:create_issue",
    autocomplete: "off",
    spellcheck: "false",
  });
  const input = h("textarea", {
    rows: "3",
    class: "mono",
    placeholder: '{"path": "/etc/passwd"}',
    spellcheck: "false",
  });
  const answer = h("div", { "aria-live": "polite" });
  const explain = async () => {
    try {
      const text = input.value.trim() || "{}";
      JSON.parse(text);
      const body = { tool: tool.value.trim(), workspace: workspace() };
      const told = await post("/api/rules/explain", body, { raw: { arguments: text } });
      replace(answer, verdict(body.tool, told));
    } catch (error) {
      const isOurs = error instanceof SyntaxError;
      replace(
        answer,
        isOurs
          ? h(
            "div",
            { class: "notice bad", role: "alert" },
            "The arguments are not JSON: ",
            shownText(error.message),
          )
          : problemNote(error),
      );
    }
  };
  const onsubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    return explain();
  };
  const node = h(
    "details",
    { class: "panel try", dataset: { key: "try" } },
    h("summary", null, "Try a call: what would the rules say?"),
    h(
      "form",
      { class: "form", onsubmit },
      field("try-tool", "Tool", tool),
      field("try-input", "Arguments, as JSON", input, "Empty means none."),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "submit", class: "primary", dataset: { action: "explain" } }, "Explain"),
      ),
      answer,
    ),
  );
  return { node, again: () => answer.hasChildNodes() ? explain() : Promise.resolve() };
}

/**
 * @param {string} tool
 * @param {any} told
 */
function verdict(tool, told) {
  const [kind, usual] = VERDICTS[told.verdict] ?? ["", ""];
  const isLeft = told.verdict === "unlisted" && told.unlisted === "if_client_cannot";
  const unasked = told.runs_unasked && `is decided by no rule, ${told.runs_unasked}`;
  const means = unasked || (isLeft ? LEFT_TO_CLIENT : usual);
  return h(
    "div",
    { class: "verdict", dataset: { verdict: told.verdict } },
    h(
      "div",
      { class: "verdict-line" },
      h("span", { class: `chip ${kind}` }, told.verdict),
      " ",
      h("span", { class: "mono" }, shownText(tool)),
      ` ${means}.`,
    ),
    told.needs_trust &&
      h("div", { class: "notice warn" }, "The workspace's file would allow it, but is not trusted."),
    told.asking_is_off && h("div", { class: "notice bad" }, "Asking is off: it runs without asking."),
    rules(told.verdict === "unlisted" ? "Only the default matches" : "Decided by", told.matched.slice(0, 1)),
    rules("Also matched", told.matched.slice(1)),
    rules("Names the tool, and does not match", told.near),
  );
}

/**
 * @param {string} title
 * @param {any[]} found
 */
function rules(title, found) {
  if (found.length === 0) return null;
  return [
    h("h2", { class: "sub" }, title),
    h(
      "ul",
      null,
      found.map((rule) =>
        h(
          "li",
          null,
          h("span", { class: "chip" }, rule.effect),
          " ",
          h("code", null, shownText(entryText(rule.entry))),
          rule.source &&
            h("span", { class: "muted" }, "  ", shortPath(rule.source.file), `:${rule.source.line}`),
          rule.note && h("div", { class: "hint" }, shownText(rule.note)),
        )
      ),
    ),
  ];
}
