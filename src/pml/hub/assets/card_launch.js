// @ts-check
/** What a new agent would be given, to be narrowed before it is started: its tools, and what its parent may answer. */

import { h } from "./dom.js";
import { field } from "./page_parts.js";

/** @typedef {import("./shapes.js").Card} Card */

const LAUNCH = "pml:session_launch";
/** @type {[string, string][]} */
const ANSWERS = [ // each gives more than the one before
  ["nothing", "People only"],
  ["listed", "The parent, for what your settings list"],
  ["unlisted", "The parent, for what no rule names, commands included"],
  ["all", "The parent, for all that no rule denies"],
];

/** @param {Card} card */
export function launchForm(card) {
  return card.tool === LAUNCH && card.input ? new LaunchForm(card) : null;
}

export class LaunchForm {
  /** @param {Card} card */
  constructor(card) {
    this.input = card.input ?? {};
    const { allowed_tools: given, parent_may_decide: may } = this.input;
    /** @type {string[] | null} */
    this.asked = Array.isArray(given) ? given.map(String) : null;
    this.tools = h("input", {
      type: "text",
      class: "mono",
      value: this.asked?.join(", ") ?? "",
      placeholder: this.asked ? "no tool" : "every tool",
      spellcheck: "false",
      autocomplete: "off",
      dataset: { field: "launch-tools" },
    });
    const widest = ANSWERS.findIndex(([name]) => name === may);
    this.answers = h(
      "select",
      { dataset: { field: "launch-answers" } },
      ANSWERS.slice(0, widest + 1).map(([name, text]) =>
        h("option", { value: name, selected: name === may }, text)
      ),
    );
    this.node = h(
      "div",
      { class: "launch", dataset: { part: "launch" } },
      field(`tools-${card.id}`, "Tools it may use", this.tools, "Names or globs, such as Read, github:get_*"),
      widest > 0 && field(`answers-${card.id}`, "Who may answer for it", this.answers),
    );
  }

  /** The arguments with what was narrowed, as JSON; null where it starts as it was asked. */
  changed() {
    const names = this.tools.value.split(",").map((name) => name.trim()).filter(Boolean);
    const isEmpty = names.length === 0 && this.asked === null;
    const tools = isEmpty ? {} : { allowed_tools: names };
    const may = this.answers.value ? { parent_may_decide: this.answers.value } : {};
    const edited = JSON.stringify({ ...this.input, ...tools, ...may });
    return edited === JSON.stringify(this.input) ? null : edited;
  }
}
