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
      dataset: { field: "message" },
    });
    this.messageField = h(
      "div",
      { class: "message-field field" },
      h("label", { for: `m-${id}` }, "Tell the agent why, or what to do instead"),
      this.message,
    );
  }

  /** @returns {import("./card_foot.js").Mode} */
  get mode() {
    if (this.editor) return "edit";
    return this.messageField.isConnected ? "message" : "plain";
  }

  /** What is to be told with a denial. */
  get words() {
    return this.messageField.isConnected ? this.message.value.trim() : "";
  }

  /**
   * Write another version of the arguments; a message that was begun is kept for later.
   * @param {import("./shapes.js").Card} card
   */
  openEditor(card) {
    this.messageField.remove();
    if (!this.editor) {
      this.editor = buildEditor(editableText(card), this.draft, card.schema, this.id);
      this.node.append(this.editor.node);
    }
    this.editor.focus();
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

  /** Write a message; an edit that was begun is kept for later. */
  openMessage() {
    this.closeEditor();
    if (!this.messageField.isConnected) this.node.append(this.messageField);
    this.message.focus();
  }

  /** Close what is open. Returns whether anything was. */
  close() {
    if (this.messageField.isConnected) this.messageField.remove();
    else if (this.editor) this.closeEditor();
    else return false;
    return true;
  }
}
