// @ts-check
/** How far down a card was in view, from its top and with nothing skipped: what was jumped over was not seen. */

const SLACK_PX = 24; // the padding at its edges

export class Sight {
  /** @param {HTMLElement} node the card's */
  constructor(node) {
    this.node = node;
    this.to = 0; // in pixels from its top
    this.width = 0;
    this.isWhole = false;
  }

  /**
   * See what of it is between these edges of the window.
   * @param {number} top
   * @param {number} bottom
   * @param {boolean} isAll whether all of it is there to be seen
   */
  look(top, bottom, isAll) {
    const box = this.node.getBoundingClientRect();
    if (Math.abs(box.width - this.width) > 1) this.to = 0; // its lines are others now
    this.width = box.width;
    const isSkipped = top - box.top > this.to + SLACK_PX;
    if (!isSkipped) this.to = Math.max(this.to, bottom - box.top);
    if (isAll && this.to >= box.height - SLACK_PX) this.isWhole = true;
  }

  /** Count as seen no more than what comes before `part`. */
  forget(/** @type {Element | null} */ part) {
    this.isWhole = false;
    const start = part ? part.getBoundingClientRect().top - this.node.getBoundingClientRect().top : 0;
    this.to = Math.min(this.to, start);
  }
}

/**
 * What a person has seen of a card, to tell it from what is there now: a diff is against a file that changes.
 * @param {import("./shapes.js").Card} card
 */
export function shownOf({ sentence, warnings, blocks }) {
  return JSON.stringify([sentence, warnings, blocks]);
}
