// @ts-check
/**
 * The hub's JSON API with the token of this browser, and the hub's clock. Errors have one shape, `ApiError`. Knows
 * no page: whoever wants to hear that the token no longer counts says so with `onLogout`.
 */

import { beSure, doubt, NotTheHub } from "./proof.js";
import { keep, recall } from "./storage.js";

const TOKEN = "pml.token";
const WITHIN_MS = 30_000; // the hub answers at once or not at all: nothing here waits for a person

/** What the hub refused, or that it did not answer (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   * @param {string | null} hint
   */
  constructor(status, code, message, hint) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }
}

let offsetMs = 0; // what must be added to the browser's clock to have the hub's
let isExact = false; // whether it was told by a `now`, not by a header of whole seconds
/** @type {Set<(isRefused: boolean) => void>} */
const leaving = new Set();

/** @returns {string | null} */
export function token() {
  return recall(TOKEN);
}

/** @param {string | null} value */
export function keepToken(value) {
  keep(TOKEN, value);
}

/**
 * Call `fn` when the token is forgotten; `isRefused`: because the hub no longer takes it.
 * @param {(isRefused: boolean) => void} fn
 */
export function onLogout(fn) {
  leaving.add(fn);
  return () => leaving.delete(fn);
}

/** Forget the token, and tell those who want to know. */
export function loggedOut(isRefused = false) {
  keepToken(null);
  for (const fn of leaving) fn(isRefused);
}

/** The time by the hub's clock, in milliseconds. */
export function hubNow() {
  return Date.now() + offsetMs;
}

/**
 * @param {string} path
 * @param {Record<string, string | number | boolean | null | undefined>} [params]
 * @returns {Promise<any>}
 */
export function get(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === true) query.set(name, "");
    else if (value !== null && value !== undefined && value !== false) query.set(name, String(value));
  }
  return send("GET", query.size ? `${path}?${query}` : path);
}

/**
 * Post JSON. `once` is an Idempotency-Key: sent again with the same body, it gets the same answer. `raw` are members
 * of the body as JSON text, each one whole value: a number that JavaScript cannot hold arrives as it was written.
 * `keepalive`: it arrives though the page is gone.
 * @param {string} path
 * @param {unknown} body
 * @param {{once?: string, bearer?: string, raw?: Record<string, string>, keepalive?: boolean}} [how]
 * @returns {Promise<any>}
 */
export function post(path, body, how = {}) {
  return send("POST", path, { body, ...how });
}

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export function del(path) {
  return send("DELETE", path);
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, once?: string, bearer?: string, raw?: Record<string, string>, keepalive?: boolean}} [how]
 */
async function send(method, path, { body, once, bearer, raw = {}, keepalive = false } = {}) {
  const kept = token();
  const sent = bearer ?? kept ?? "";
  /** @type {Record<string, string>} */
  const headers = { authorization: `Bearer ${sent}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (once) headers["idempotency-key"] = once;
  const sentAt = Date.now();
  const signal = AbortSignal.timeout(WITHIN_MS);
  /** @type {Response} */
  let answer;
  /** @type {any} */
  let told;
  try {
    const content = body === undefined ? undefined : jsonText(body, raw);
    await beSure(sent);
    answer = await fetch(path, {
      method,
      headers,
      body: content,
      signal,
      keepalive,
      cache: "no-store",
      credentials: "omit",
    });
    told = await answer.json();
  } catch (error) {
    doubt();
    throw unheard(error, bearer !== undefined);
  }
  setClock(told?.now, answer.headers.get("date"), sentAt);
  if (answer.ok) return told;
  if (answer.status === 401 && bearer === undefined && token() === kept) loggedOut(true);
  const { code = "invalid", message = `the hub answered ${answer.status}`, hint = null } = told?.error ?? {};
  throw new ApiError(answer.status, code, message, hint);
}

/**
 * Why the hub did not hear what was to be sent.
 * @param {unknown} error
 * @param {boolean} isGiven whether somebody gave the token just now, and may have mistaken it
 */
function unheard(error, isGiven) {
  if (!(error instanceof NotTheHub)) {
    return new ApiError(0, "unreachable", "the hub does not answer", "is `pml serve` running?");
  }
  if (isGiven && error.says) return new ApiError(401, "unauthorized", "no valid token was sent", null);
  return new ApiError(
    0,
    "not_the_hub",
    "another program answers where the hub was, and was told nothing",
    "do not reload this page; end that program, then start `pml serve`",
  );
}

/**
 * @param {unknown} body
 * @param {Record<string, string>} raw
 */
function jsonText(body, raw) {
  const whole = JSON.stringify(body);
  const more = Object.entries(raw).map(([name, text]) => `${JSON.stringify(name)}:${text}`);
  if (more.length === 0) return whole;
  return `{${[...(whole === "{}" ? [] : [whole.slice(1, -1)]), ...more].join(",")}}`;
}

/**
 * @param {unknown} now
 * @param {string | null} date
 * @param {number} sentAt
 */
function setClock(now, date, sentAt) {
  const middle = (sentAt + Date.now()) / 2;
  if (typeof now === "string" && !Number.isNaN(Date.parse(now))) {
    offsetMs = Date.parse(now) - middle;
    isExact = true;
  } else if (!isExact && date) offsetMs = Date.parse(date) + 500 - middle;
}
