// @ts-check
/**
 * When a key or a click can be meant: not right after things moved by themselves, nor while somebody types on into a
 * field that has gone.
 */

export const GRACE_MS = 500; // nobody has seen yet what came or moved so lately
export const LOOK_MS = 1000; // nor has somebody who was not at it seen what came by then
const PAUSE_MS = 1000; // whoever types on does not pause so long

export class Calm {
  constructor() {
    this.graceEnd = 0;
    this.hushEnd = 0;
  }

  get isFresh() {
    return performance.now() < this.graceEnd;
  }

  /** From now on for a moment no answer counts: things have moved. */
  beginGrace(ms = GRACE_MS) {
    this.graceEnd = Math.max(this.graceEnd, performance.now() + ms);
  }

  /** Heed no key until there was a pause. */
  hush() {
    this.hushEnd = performance.now() + PAUSE_MS;
  }

  /** Whether a key that is pressed now is meant for the cards. */
  heedsKey() {
    const isMeant = performance.now() >= this.hushEnd;
    if (!isMeant) this.hush();
    return isMeant;
  }
}
