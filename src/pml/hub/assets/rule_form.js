// @ts-check
/** Adding a rule: what it does, for which tool, in which file; and what waits and is covered by it. */

import { get, post } from "./api.js";
import { h, replace, shownText, visible } from "./dom.js";
import { confirmDialog, openDialog, toast } from "./dialog.js";
import { leftItem, listedWhole, Listing, listItem } from "./listing.js";
import { choice, field, problemNote } from "./page_parts.js";

const LISTED = 500; // nobody reads more
const PAGE = 100;

/** @typedef {{workspace: string, path: string}} Where the workspace, and its file */

/**
 * Ask for a rule and add it. Resolves when the dialog is closed.
 * @param {Where[]} places where it can be added
 */
export async function addRule(places) {
  const added = await openDialog({ title: "Add a rule", wide: true, build: (close) => form(places, close) });
  if (added && added.told.covers.length > 0) await offerRelease(added, added.told.covers).catch(sayProblem);
}

/**
 * @param {Where[]} places
 * @param {(added: {body: any, raw: {entry: string}, told: any} | null) => void} close
 */
function form(places, close) {
  const where = h(
    "select",
    { onchange: () => path.textContent = whereNow().path },
    places.map((place, index) => h("option", { value: String(index) }, visible(place.workspace))),
  );
  const whereNow = () => /** @type {Where} */ (places[Number(where.value || 0)]);
  const path = h("span", { class: "mono" }, visible(places[0]?.path ?? ""));
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
    legend: "Where it applies",
    options: [["workspace", places.length > 1 ? "In one workspace" : "In this workspace"], [
      "user",
      "In every workspace",
    ]],
    value: places.length > 1 ? "user" : "workspace",
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
        workspace: whereNow().workspace,
      };
      const raw = { entry: entryJson(entry.value) };
      if (body.effect === "allow" && isEverything(raw.entry) && !await isSure(raw.entry)) return;
      const told = await post("/api/rules", body, { raw });
      const counts = told.counts ? "" : " Its file is not trusted, so the rule does not apply yet.";
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
    places.length > 1 && field("where", "Workspace", where),
    h("p", { class: "hint" }, "That workspace's file is ", path),
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
 * Show what waits and is allowed by rules now, and let run what is listed whole, if wanted.
 * @param {{body: any, raw: {entry: string}}} added
 * @param {string[]} covers
 */
async function offerRelease(added, covers) {
  const cards = await waitingAmong(covers.slice(0, LISTED));
  const ready = cards.filter(listedWhole);
  if (cards.length === 0) return;
  await openDialog({
    title: cards.length === 1 ? "This waits, and is allowed now" : "These wait, and are allowed now",
    wide: true,
    build: (close) => {
      const left = cards.filter((card) => !ready.includes(card));
      const listing = new Listing([
        ...ready.map((card) => listItem(card, false)),
        ...left.map((card) => leftItem(card, () => close(null))),
      ]);
      const go = async () => {
        if (!listing.wasSeen() || !listing.readToEnd()) return;
        close(true);
        await release(added, ready.map((card) => card.id));
      };
      return [
        h(
          "p",
          { class: "muted" },
          cards.length === 1
            ? "It keeps waiting until you let it run."
            : "They keep waiting until you let them run.",
        ),
        listing.nodes,
        covers.length > cards.length &&
        h("p", { class: "muted" }, `${covers.length - cards.length} more wait; the inbox has them.`),
        h(
          "div",
          { class: "actions" },
          h(
            "button",
            { type: "button", dataset: { action: "leave", default: "" }, onclick: () => close(null) },
            cards.length === 1 ? "Leave it waiting" : "Leave them waiting",
          ),
          ready.length > 0 && h(
            "button",
            { type: "button", class: "primary", dataset: { action: "release" }, onclick: go },
            cards.length === 1
              ? "Let it run"
              : ready.length === 1
              ? "Let the first run"
              : `Let these ${ready.length} run`,
          ),
        ),
      ];
    },
  });
}

/**
 * Those of these that wait still, oldest first.
 * @param {string[]} ids
 */
async function waitingAmong(ids) {
  const wanted = new Set(ids);
  /** @type {import("./shapes.js").Card[]} */
  const found = [];
  /** @type {string | null} */
  let after = null;
  do {
    const { cards, next } = await get("/api/inbox", { after, limit: PAGE });
    found.push(...cards.filter((/** @type {import("./shapes.js").Card} */ card) => wanted.has(card.id)));
    after = next;
  } while (after && found.length < wanted.size);
  return found;
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
    sayProblem(error);
  }
}

/** @param {unknown} error */
function sayProblem(error) {
  toast(error instanceof Error ? error.message : "That did not work.", "bad");
}
