// @ts-check
/** Adding a rule: what it does, for which tool, in which file; and what waits and is covered by it. */

import { get, post } from "./api.js";
import { h, replace, shownText } from "./dom.js";
import { confirmDialog, openDialog, toast } from "./dialog.js";
import { choice, field, problemNote } from "./page_parts.js";

const SHOWN_COVERED = 20;

/**
 * Ask for a rule and add it. Resolves when the dialog is closed.
 * @param {{workspace: string, path: string}} where
 */
export async function addRule(where) {
  const added = await openDialog({ title: "Add a rule", wide: true, build: (close) => form(where, close) });
  if (added && added.told.covers.length > 0) await offerRelease(added, added.told.covers);
}

/**
 * @param {{workspace: string, path: string}} where
 * @param {(added: {body: any, raw: {entry: string}, told: any} | null) => void} close
 */
function form(where, close) {
  const effect = choice({
    name: "effect",
    legend: "What it does",
    options: [["allow", "Allow: run without asking"], ["ask", "Ask on every call"], [
      "deny",
      "Deny: never run",
    ]],
    value: "allow",
  });
  const file = choice({
    name: "file",
    legend: "Where it counts",
    options: [["workspace", "In this workspace"], ["user", "In every workspace"]],
    value: "workspace",
  });
  const entry = h("textarea", {
    rows: "2",
    class: "mono",
    spellcheck: "false",
    autocomplete: "off",
    dataset: { default: "" },
  });
  const problem = h("div", null);
  const onsubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const body = {
        effect: effect.current(),
        user: file.current() === "user",
        workspace: where.workspace,
      };
      const raw = { entry: entryJson(entry.value) };
      if (body.effect === "allow" && isEverything(raw.entry) && !await isSure(raw.entry)) return;
      const told = await post("/api/rules", body, { raw });
      const counts = told.counts ? "" : " Its file is not trusted, so it does not count yet.";
      const denied = told.denied.length ? ` ${told.denied.length} that waited denied by it.` : "";
      toast(
        (told.added ? "Added." : "It stands there already.") + counts + denied,
        told.counts ? "good" : "info",
      );
      close({ body, raw, told });
    } catch (error) {
      replace(problem, error instanceof SyntaxError ? badJson(error) : problemNote(error));
      entry.focus();
    }
  };
  return h(
    "form",
    { class: "form", onsubmit },
    effect.node,
    field("entry", "Tool, glob, or whole entry as JSON", entry, [
      "Such as ",
      h("code", null, "github:get_*"),
      " or ",
      h("code", null, '{"tool": "fs:read", "args": {"path": {"under": "."}}}'),
    ]),
    file.node,
    h(
      "p",
      { class: "hint" },
      "This workspace's file is ",
      h("span", { class: "mono" }, shownText(where.path)),
    ),
    problem,
    h(
      "div",
      { class: "actions" },
      h("button", { type: "button", onclick: () => close(null) }, "Cancel"),
      h("button", { type: "submit", class: "primary", dataset: { action: "save-rule" } }, "Add rule"),
    ),
  );
}

/**
 * What was typed, as JSON: as it stands if it begins so, else it is the name or glob itself.
 * @param {string} text
 */
function entryJson(text) {
  const given = text.trim();
  if (!/^[{["]/.test(given)) return JSON.stringify(given);
  JSON.parse(given);
  return given;
}

/**
 * Whether an entry names no tool or server: a pattern without any letter fits whatever there is.
 * @param {string} entry as JSON
 */
function isEverything(entry) {
  const given = JSON.parse(entry);
  const tool = typeof given === "string" ? given : given.tool;
  return typeof tool === "string" && tool !== "" && !/[\p{L}\p{N}]/u.test(tool);
}

/** @param {string} entry */
function isSure(entry) {
  return confirmDialog({
    title: "Allow every tool?",
    body: [
      "This names no tool: whatever no other rule denies would run without asking. ",
      h("code", null, shownText(entry)),
    ],
    confirm: "Allow every tool",
    danger: true,
  });
}

/** @param {SyntaxError} error */
function badJson(error) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    "This begins like JSON and cannot be read: ",
    shownText(error.message),
  );
}

/**
 * Show what waits and is allowed by rules now, and let exactly that run if wanted.
 * @param {{body: any, raw: {entry: string}}} added
 * @param {string[]} covers
 */
async function offerRelease(added, covers) {
  const shown = await Promise.all(
    covers.slice(0, SHOWN_COVERED).map((id) => get(`/api/inbox/${id}`).catch(() => null)),
  );
  const cards = shown.filter((each) => each !== null).map((each) => each.card);
  if (cards.length === 0) return;
  await openDialog({
    title: cards.length === 1 ? "This waits, and is allowed now" : "These wait, and are allowed now",
    wide: true,
    build: (close) => [
      h(
        "p",
        { class: "muted" },
        cards.length === 1
          ? "It goes on waiting until you let it run."
          : "They go on waiting until you let them run.",
      ),
      h(
        "ul",
        { class: "list panel" },
        cards.map((card) =>
          h(
            "li",
            { class: "item rule" },
            h(
              "div",
              { class: "item-main" },
              h("div", { class: "entry" }, shownText(card.tool)),
              h(
                "div",
                { class: "about" },
                h("span", null, shownText(card.sentence)),
                h("span", null, shownText(card.session_name)),
              ),
            ),
            h("a", { class: "button", href: `#/card/${card.id}`, onclick: () => close(null) }, "Look"),
          )
        ),
      ),
      covers.length > cards.length &&
      h("p", { class: "muted" }, `${covers.length - cards.length} more wait; the inbox has them.`),
      h(
        "div",
        { class: "actions" },
        h(
          "button",
          { type: "button", onclick: () => close(null) },
          cards.length === 1 ? "Leave it waiting" : "Leave them waiting",
        ),
        h(
          "button",
          {
            type: "button",
            class: "primary",
            dataset: { action: "release" },
            onclick: async () => {
              await release(added, cards.map((card) => card.id));
              close(true);
            },
          },
          cards.length === 1 ? "Let it run" : `Let these ${cards.length} run`,
        ),
      ),
    ],
  });
}

/**
 * @param {{body: any, raw: {entry: string}}} added
 * @param {string[]} ids
 */
async function release({ body, raw }, ids) {
  try {
    const { released, not_covered: left } = await post("/api/rules", { ...body, release: ids }, { raw });
    const rest = left.length ? ` ${left.length} stay as they are: rules do not cover them any more.` : "";
    toast(`${released.length} allowed.${rest}`, "good");
  } catch (error) {
    toast(error instanceof Error ? error.message : "That did not work.", "bad");
  }
}
