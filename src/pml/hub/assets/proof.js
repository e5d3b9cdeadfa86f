// @ts-check
/**
 * Whether it is the hub that answers at this address. When a hub ends, any program may take its port, and to a browser
 * that is the same origin: so the token is sent only after whoever answers has shown that it knows it.
 */

const TOKEN = /^pml_([0-9A-Za-z]+)_([0-9A-Za-z_-]+)$/;
const WITHIN_MS = 30_000;
const NONCE_BYTES = 32;

/** Another program answers where the hub was, or something between changes what it says. */
export class NotTheHub extends Error {}

/** The hub answers, and does not know the token any more. */
export class Forgotten extends Error {}

let proven = ""; // the token for which it was shown

/** From now on nothing is known of who answers. */
export function doubt() {
  proven = "";
}

/**
 * Have it shown that the hub answers, unless that is known. Without TLS, on another machine, a browser offers no way to
 * check, and whoever is between reads along anyway.
 * @param {string} token
 * @throws {NotTheHub | Forgotten} or what `fetch` throws where nothing answers
 */
export async function beSure(token) {
  const [, id, secret] = TOKEN.exec(token) ?? [];
  if (!id || !secret || token === proven || !crypto.subtle) return;
  const nonce = hex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)));
  const answer = await fetch(`/proof?${new URLSearchParams({ token: id, nonce })}`, {
    signal: AbortSignal.timeout(WITHIN_MS),
    cache: "no-store",
    credentials: "omit",
  });
  if (answer.status === 404) throw new Forgotten();
  const told = await answer.json().catch(() => null);
  if (told?.proof !== await proof(secret, nonce)) throw new NotTheHub();
  proven = token;
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
