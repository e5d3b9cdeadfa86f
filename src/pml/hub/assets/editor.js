// @ts-check
/**
 * The arguments of a call as JSON to edit: with line numbers, and with what is wrong while it is typed. They stay text
 * from the hub and back: a script's numbers cannot hold all that JSON's can.
 */

import { escapeHidden, h, replace } from "./dom.js";
import { misfits } from "./schema.js";

/**
 * @typedef {object} Editor
 * @property {HTMLElement} node
 * @property {() => void} focus
 * @property {() => string | null} value the edited arguments as JSON; null while they are wrong
 * @property {() => string | null} changed what was typed; null where that is what it began with
 */

/**
 * The block that has all arguments of a call.
 * @param {import("./shapes.js").Card} card
 */
export function wholeArguments(card) {
  const found = card.blocks.filter((block) => block.kind === "arguments");
  return found.find((block) => block.raw) ?? found[0];
}

/**
 * What an edit begins with: the arguments as the hub wrote them, where they are shown.
 * @param {import("./shapes.js").Card} card
 */
export function editableText(card) {
  const text = wholeArguments(card)?.lines.join("\n") ?? "";
  try {
    if (JSON.stringify(JSON.parse(text)) === JSON.stringify(card.input)) return text;
  } catch {
    // what is shown are not these arguments alone
  }
  return escapeHidden(JSON.stringify(card.input, null, 2));
}

/**
 * @param {string} text the arguments as they are
 * @param {string | null} draft what was made of them before
 * @param {any} schema
 * @param {string} id
 * @returns {Editor}
 */
export function buildEditor(text, draft, schema, id) {
  const numbers = h("div", { class: "numbers", "aria-hidden": "true" });
  const problems = h("ul", { class: "misfits", id: `${id}-problems` });
  const area = h("textarea", {
    class: "mono",
    rows: Math.min(24, text.split("\n").length + 1),
    spellcheck: "false",
    autocapitalize: "off",
    wrap: "off",
    "aria-label": "Arguments as JSON",
    "aria-describedby": `${id}-problems`,
    dataset: { field: "edit" },
    value: draft ?? text,
  });
  const restore = h(
    "button",
    {
      type: "button",
      class: "link",
      dataset: { action: "restore" },
      onclick: () => {
        area.value = text;
        check();
        area.focus();
      },
    },
    "Restore the original",
  );
  const fine = schema ? "Valid" : "Valid JSON";
  const check = () => {
    const count = area.value.split("\n").length;
    if (numbers.childElementCount !== count) {
      replace(numbers, Array.from({ length: count }, (_, index) => h("div", null, index + 1)));
    }
    const wrong = whatIsWrong(area.value, schema);
    area.setAttribute("aria-invalid", String(wrong.length > 0));
    restore.hidden = area.value === text;
    replace(
      problems,
      wrong.length ? wrong.map((each) => h("li", null, each)) : h("li", { class: "fine" }, fine),
    );
    return wrong.length === 0;
  };
  area.addEventListener("input", check);
  area.addEventListener("scroll", () => numbers.scrollTop = area.scrollTop);
  check();
  return {
    node: h(
      "div",
      { class: "editor" },
      h("div", { class: "editor-in" }, numbers, area),
      h("div", { class: "editor-foot" }, h("div", { role: "status" }, problems), restore),
    ),
    focus: () => area.focus(),
    value: () => check() ? area.value : null,
    changed: () => area.value === text ? null : area.value,
  };
}

/**
 * @param {string} text
 * @param {any} schema
 * @returns {string[]}
 */
function whatIsWrong(text, schema) {
  /** @type {unknown} */
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return [`This is not JSON: ${/** @type {Error} */ (error).message}`];
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    return ["The arguments are an object."];
  }
  return misfits(schema, value);
}
