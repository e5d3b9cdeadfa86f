// @ts-check
/**
 * What happens in the hub, as it happens: one stream of events for the whole page, read with `fetch` because an
 * EventSource cannot send a bearer token. It comes back by itself, from the place where it was.
 */

import { loggedOut, token } from "./api.js";
import { beSure, doubt, NotTheHub, rely } from "./proof.js";

/** @typedef {{type: string, at: string, id?: number, session?: string, approval_id?: string} & Record<string, any>} HubEvent */
/**
 * `lost`: coming back; `gone`: several tries failed; `taken`: another program answers there.
 * @typedef {"live" | "lost" | "gone" | "taken"} State
 */

const SILENCE_MS = 40_000; // the hub's heartbeat comes every 15 s
const FIRST_MS = 500;
const LONGEST_MS = 15_000;
const TRIES_UNTIL_GONE = 2;

/** @type {Set<{types: string[], onEvent: (event: HubEvent) => void}>} */
const listeners = new Set();
/** @type {Set<(state: State) => void>} */
const watchers = new Set();
/** @type {Set<() => void>} */
const returners = new Set();
/** @type {State} */
let state = "lost";
let lastId = "";
let failures = 0;
let isTaken = false;
/** @type {AbortController | null} */
let current = null;
/** @type {(() => void) | null} */
let wake = null;

/**
 * Hear events of these types (`approval.*` is a family). Returns how to stop.
 * @param {string[]} types
 * @param {(event: HubEvent) => void} onEvent
 */
export function listen(types, onEvent) {
  const entry = { types, onEvent };
  listeners.add(entry);
  return () => listeners.delete(entry);
}

/**
 * Hear how the connection stands, beginning with how it stands now.
 * @param {(state: State) => void} fn
 */
export function onState(fn) {
  watchers.add(fn);
  fn(state);
  return () => watchers.delete(fn);
}

/**
 * Hear that the stream has begun, again or at last: read again what events would have told meanwhile.
 * @param {() => void} fn
 */
export function onReconnect(fn) {
  returners.add(fn);
  return () => returners.delete(fn);
}

/** Keep a stream open for as long as there is a token. */
export async function startLive() {
  if (current) return;
  current = new AbortController();
  const stopped = current.signal;
  while (!stopped.aborted && token()) {
    const began = await follow(stopped);
    if (stopped.aborted) break;
    failures = began ? 1 : failures + 1;
    setState(isTaken ? "taken" : failures > TRIES_UNTIL_GONE ? "gone" : "lost");
    await pause(began ? FIRST_MS : Math.min(LONGEST_MS, FIRST_MS * 2 ** failures));
  }
}

/** End the stream: who listens stays, and hears again after `startLive`. */
export function stopLive() {
  current?.abort();
  current = null;
  wake?.();
}

/**
 * Read one stream to its end. Returns whether it had begun.
 * @param {AbortSignal} stopped
 */
async function follow(stopped) {
  const ended = new AbortController();
  const signal = AbortSignal.any([stopped, ended.signal]);
  let watchdog = setTimeout(() => ended.abort(), SILENCE_MS);
  let began = false;
  try {
    const kept = token() ?? "";
    await beSure(kept);
    rely(kept);
    isTaken = false;
    /** @type {Record<string, string>} */
    const headers = { authorization: `Bearer ${kept}`, accept: "text/event-stream" };
    if (lastId) headers["last-event-id"] = lastId;
    const answer = await fetch("/events", { headers, signal, cache: "no-store", credentials: "omit" });
    if (answer.status === 401) loggedOut(true);
    if (!answer.ok || !answer.body) return false;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return began;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => ended.abort(), SILENCE_MS);
      if (!began) {
        began = true;
        failures = 0;
        setState("live");
        for (const fn of returners) fn();
      }
      const parts = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = parts.pop() ?? "";
      parts.forEach(take);
    }
  } catch (error) {
    isTaken = error instanceof NotTheHub;
    return began;
  } finally {
    doubt();
    clearTimeout(watchdog);
    ended.abort();
  }
}

/** @param {string} part */
function take(part) {
  let data = "";
  for (const line of part.split("\n")) {
    if (line.startsWith("id:")) lastId = line.slice(3).trim();
    else if (line.startsWith("data:")) data += line.slice(5).trimStart();
  }
  if (!data) return;
  const event = /** @type {HubEvent} */ (JSON.parse(data));
  for (const { types, onEvent } of [...listeners]) {
    if (types.some((type) => fits(type, event.type))) onEvent(event);
  }
}

/**
 * @param {string} type
 * @param {string} given
 */
function fits(type, given) {
  return type === "*" || type === given || (type.endsWith(".*") && given.startsWith(type.slice(0, -1)));
}

/** @param {State} next */
function setState(next) {
  if (next === state) return;
  state = next;
  for (const fn of watchers) fn(state);
}

/**
 * Wait about so long: pages that lost one hub do not come back all at once. Ends early when there is reason to try.
 * @param {number} ms
 * @returns {Promise<void>}
 */
function pause(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms * (0.5 + Math.random() / 2));
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

addEventListener("online", () => wake?.());
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") wake?.();
});
