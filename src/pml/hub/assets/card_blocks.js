// @ts-check
/**
 * What a card shows of the question: facts, diffs, commands, code, arguments. Long ones are folded; whoever draws a
 * card is told what is still folded, because nothing folded has been seen.
 */

import { h, jsonLine, shownLine, shownText } from "./dom.js";

/** @typedef {import("./shapes.js").Block} Block */
/** @typedef {import("./dom.js").Line} Line */
/** @typedef {{open: () => void}} Fold */

const MAX_ROWS = 40;
const ROW_CHARS = 96; // about what a row holds: one line of a megabyte is long too
const SIGNS = { same: " ", added: "+", removed: "−", gap: "⋯" };
const SPOKEN = { same: "", added: "added: ", removed: "removed: ", gap: "unchanged lines left out" };

/**
 * Draw a block. `folds` gets what must be opened for it to be whole.
 * @param {Block} block
 * @param {Fold[]} folds
 * @returns {HTMLElement}
 */
export function drawBlock(block, folds) {
  switch (block.kind) {
    case "facts":
      return drawFacts(block);
    case "diff":
      return drawDiff(block, folds);
    case "command":
      return drawCommand(block, folds);
    case "code":
      return titled(
        block.title,
        block.language,
        "code-block",
        lines(block.lines, block.more, "code", codeLine, folds),
      );
    case "arguments":
      if (block.raw) return drawRaw(block);
      return titled(
        block.title,
        null,
        "arguments",
        lines(block.lines, block.more, "code json", argumentLine, folds),
      );
  }
}

/**
 * The arguments as they are sent: every value of them stands elsewhere on the card, so they need not be opened.
 * @param {import("./shapes.js").Arguments} block
 */
function drawRaw(block) {
  /** @type {Fold[]} */
  const folds = [];
  const content = lines(block.lines, block.more, "code json", argumentLine, folds);
  const details = h(
    "details",
    { class: "unfold raw", dataset: { block: "raw" } },
    h("summary", null, "Raw arguments"),
    content,
  );
  details.addEventListener("toggle", () => {
    for (const fold of folds.splice(0)) fold.open();
  });
  return details;
}

/** @param {import("./shapes.js").Facts} block */
function drawFacts(block) {
  const rows = block.rows.map((row) => [
    h("dt", null, row.name),
    h("dd", { class: row.alarming ? "alarming" : null }, row.alarming && srOnly("Alarming: "), row.value),
  ]);
  return h("dl", { class: "facts block", dataset: { block: "facts" } }, rows);
}

/**
 * @param {import("./shapes.js").Diff} block
 * @param {Fold[]} folds
 */
function drawDiff(block, folds) {
  const added = block.lines.filter((line) => line.mark === "added").length;
  const removed = block.lines.filter((line) => line.mark === "removed").length;
  const isNew = block.lines.every((line) => line.old === null);
  const counts = block.more ? null : h(
    "span",
    { class: "diff-counts" },
    h("span", { class: "plus" }, `+${added}`),
    h("span", { class: "minus" }, `−${removed}`),
  );
  return h(
    "section",
    { class: "block", dataset: { block: "diff" } },
    h("div", { class: "block-head" }, h("span", { class: "mono" }, shownText(block.title)), counts),
    block.note && h("div", { class: "block-note" }, block.note),
    lines(block.lines, block.more, isNew ? "code diff new" : "code diff", diffLine, folds),
  );
}

/** @param {import("./shapes.js").DiffLine} line */
function diffLine(line) {
  return h(
    "div",
    { class: `ln ${line.mark}` },
    h("span", { class: "no", "aria-hidden": "true" }, line.old === null ? "" : String(line.old)),
    h("span", { class: "no", "aria-hidden": "true" }, line.new === null ? "" : String(line.new)),
    h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[line.mark]),
    SPOKEN[line.mark] && srOnly(SPOKEN[line.mark]),
    h("span", { class: "text" }, shownLine(line.line)),
  );
}

/**
 * @param {import("./shapes.js").Command} block
 * @param {Fold[]} folds
 */
function drawCommand(block, folds) {
  return h(
    "section",
    { class: "block terminal", dataset: { block: "command" }, "aria-label": "Command" },
    h("div", { class: "block-head" }, h("span", { class: "cwd" }, srOnly("in "), shownText(block.cwd))),
    lines(block.lines, block.more, "code", commandLine, folds),
    block.says && h("div", { class: "says" }, srOnly("The agent says: "), "# ", shownText(block.says)),
  );
}

/**
 * @param {Line} line
 * @param {number} index
 */
function commandLine(line, index) {
  return h(
    "div",
    { class: "ln" },
    h("span", { class: "prompt", "aria-hidden": "true" }, index === 0 ? "$ " : "  "),
    h("span", { class: "text" }, shownLine(line)),
  );
}

/**
 * @param {Line} line
 * @param {number} index
 */
function codeLine(line, index) {
  return h(
    "div",
    { class: "ln" },
    h("span", { class: "no", "aria-hidden": "true" }, String(index + 1)),
    h("span", { class: "text" }, shownLine(line)),
  );
}

/** @param {string} line */
function argumentLine(line) {
  return h("div", { class: "ln" }, jsonLine(line));
}

/**
 * @param {string} title
 * @param {string | null} language
 * @param {string} kind
 * @param {HTMLElement} content
 */
function titled(title, language, kind, content) {
  return h(
    "section",
    { class: "block", dataset: { block: kind } },
    h(
      "div",
      { class: "block-head" },
      h("span", null, shownText(title)),
      language && h("span", null, language),
    ),
    content,
  );
}

/**
 * Lines, the first of them until the rest is wanted. `more` lines are not here at all: the card must be fetched.
 * @template T
 * @param {T[]} all
 * @param {number} more
 * @param {string} kind
 * @param {(line: T, index: number) => HTMLElement} draw
 * @param {Fold[]} folds
 */
function lines(all, more, kind, draw, folds) {
  const shown = countShown(all);
  const node = h("div", { class: kind }, all.slice(0, shown).map(draw));
  if (shown === all.length && !more) return node;
  const next = all[shown];
  const clipped = next !== undefined && rowsOf(next) > 1 ? draw(next, shown) : null; // its beginning says what it is
  clipped?.classList.add("clipped");
  const button = h(
    "button",
    { type: "button", class: "fold", dataset: { action: "unfold" } },
    label(all.length + more),
  );
  folds.push({
    open() {
      clipped?.remove();
      button.replaceWith(...all.slice(shown).map((line, index) => draw(line, shown + index)));
    },
  });
  if (clipped) node.append(clipped);
  node.append(button);
  return node;
}

/** @param {number} count */
function label(count) {
  return count === 1 ? "Show the whole line" : `Show all ${count.toLocaleString("en")} lines`;
}

/**
 * How many of the lines are shown at first: as many as fill so many rows.
 * @param {unknown[]} all
 */
function countShown(all) {
  let rows = 0;
  for (const [index, line] of all.entries()) {
    rows += rowsOf(line);
    if (rows > MAX_ROWS) return index;
  }
  return all.length;
}

/** @param {unknown} line */
function rowsOf(line) {
  return Math.ceil(JSON.stringify(line).length / ROW_CHARS);
}

/** @param {string} text */
function srOnly(text) {
  return h("span", { class: "sr-only" }, text);
}
