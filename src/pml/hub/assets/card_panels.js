// @ts-check
/** What a person writes at a card: an edit of its arguments, and a message that goes with a denial. Sends neither. */

import { h } from "./dom.js";
import { buildEditor, editableText } from "./editor.js";

export class Panels {
  /** @param {string} id the card's */
  constructor(id) {
    this.id = id;
    this.node = h("div", { class: "panels" });
    /** @type {import("./editor.js").Editor | null} */
    this.editor = null;
    /** @type {string | null} */
    this.draft = null; // an edit that was closed, and not sent
    this.message = h("textarea", {
      id: `m-${id}`,
      rows: 2,
      placeholder: "What should it do instead?",
      dataset: { field: "message" },
    });
    this.messageField = h(
      "div",
      { class: "message-field field" },
      h("label", { for: `m-${id}` }, "Message to the agent, with a denial"),
      this.message,
      h(
        "div",
        { class: "hint" },
        h("kbd", null, "Ctrl ⏎"),
        " denies with it · ",
        h("kbd", null, "Esc"),
        " closes",
      ),
    );
  }

  /** What is to be told with a denial. */
  get words() {
    return this.messageField.isConnected ? this.message.value.trim() : "";
  }

  /** @param {import("./shapes.js").Card} card */
  openEditor(card) {
    if (!this.editor) {
      this.editor = buildEditor(editableText(card), this.draft, card.schema, this.id);
      this.node.append(this.editor.node);
    }
    this.editor.focus();
    this.comeIntoView();
  }

  /** Show what is written together with the buttons that send it, as far as both fit. */
  comeIntoView() {
    const foot = this.node.closest("article")?.querySelector("footer");
    foot?.scrollIntoView({ block: "nearest" });
    this.node.scrollIntoView({ block: "nearest" });
  }

  closeEditor() {
    if (this.editor) this.draft = this.editor.changed();
    this.editor?.node.remove();
    this.editor = null;
  }

  /** The arguments are others: no edit fits them. Returns whether a field went away that was typed into. */
  forget() {
    const wasTyped = this.editor?.node.contains(document.activeElement) ?? false;
    this.closeEditor();
    this.draft = null;
    return wasTyped;
  }

  /** Whether somebody types here. */
  get isTyped() {
    return this.node.contains(document.activeElement) &&
      document.activeElement instanceof HTMLTextAreaElement;
  }

  /** Whether what is typed here goes nowhere any more. */
  get isFrozen() {
    return this.isTyped && /** @type {HTMLTextAreaElement} */ (document.activeElement).readOnly;
  }

  /** Keep what was typed, to be read only. */
  freeze() {
    for (const area of this.node.querySelectorAll("textarea")) area.readOnly = true;
    for (const hint of this.node.querySelectorAll(".hint, .editor [role=status], button")) hint.remove();
    this.node.append(h("p", { class: "hint", role: "alert" }, "It is over, so this is not sent to anybody."));
  }

  openMessage() {
    if (!this.messageField.isConnected) this.node.append(this.messageField);
    this.message.focus();
    this.comeIntoView();
  }

  /** Close what was opened last. Returns whether anything was open. */
  close() {
    if (this.messageField.isConnected) this.messageField.remove();
    else if (this.editor) this.closeEditor();
    else return false;
    return true;
  }
}
