// @ts-check
/**
 * Whether it is the hub that answers at this address. When a hub ends, any program may take its port, and to a browser
 * that is the same origin: so the token is sent only after whoever answers has shown that it knows it.
 */

const TOKEN = /^pml_([0-9A-Za-z]+)_([0-9A-Za-z_-]+)$/;
const WITHIN_MS = 30_000;
const NONCE_BYTES = 32;

/** Whoever answers does not know the token: another program, or another hub. `says`: it says so itself. */
export class NotTheHub extends Error {
  /** @param {boolean} says */
  constructor(says) {
    super();
    this.says = says;
  }
}

let proven = ""; // the token for which it was shown

/** From now on nothing is known of who answers. */
export function doubt() {
  proven = "";
}

/**
 * Have it shown that the hub answers, unless that is known. Without TLS, on another machine, a browser offers no way to
 * check, and whoever is between reads along anyway.
 * @param {string} token
 * @throws {NotTheHub} or another error, where nothing answers or the hub is too busy to
 */
export async function beSure(token) {
  const [, id, secret] = TOKEN.exec(token) ?? [];
  if (!id || !secret || token === proven || !crypto.subtle) return;
  const nonce = hex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)));
  const answer = await fetch(`/proof?${new URLSearchParams({ token: id, nonce, host: location.host })}`, {
    signal: AbortSignal.timeout(WITHIN_MS),
    cache: "no-store",
    credentials: "omit",
  });
  if (answer.status >= 500) throw new Error("the hub is busy, or something else answered in its place");
  const told = await answer.json().catch(() => null);
  if (told?.proof !== await proof(secret, nonce)) throw new NotTheHub(answer.status === 404);
}

/**
 * Take it for shown until `doubt`: for whoever holds a connection open, and hears when its other end is gone.
 * @param {string} token
 */
export function rely(token) {
  proven = token;
}

/**
 * Whether the hub says that it does not know the token. For a page that has only just come from whoever says it: later
 * it may be anybody, and to begin anew would be to load their page.
 * @param {string} token
 */
export function isForgotten(token) {
  return beSure(token).then(() => false, (error) => error instanceof NotTheHub && error.says);
}

/**
 * @param {string} secret
 * @param {string} nonce
 */
async function proof(secret, nonce) {
  const kept = hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes(secret))));
  const how = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes(kept), how, false, ["sign"]);
  return hex(new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes(`${nonce}\n${location.host}`))));
}

/** @param {string} text */
function bytes(text) {
  return new TextEncoder().encode(text);
}

/** @param {Uint8Array} data */
function hex(data) {
  return [...data].map((each) => each.toString(16).padStart(2, "0")).join("");
}
