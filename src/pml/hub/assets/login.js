// @ts-check
/**
 * Coming in: a one-time link becomes a token that this browser keeps. The link's token leaves the address bar before
 * it is sent, so neither history nor a screenshot has it.
 */

import { ApiError, get, keepToken, post } from "./api.js";
import { h, replace } from "./dom.js";
import { isKeeping, ofTab } from "./storage.js";

const LINK = "#login=";
const REFUSED = "pml.refused"; // in this tab: the hub has refused the token that was here
const UNHEARD = "pml.unheard"; // in this tab: the id of a token that was given up while the hub did not answer
const TOKEN = /^pml_[0-9A-Za-z]+_[0-9A-Za-z_-]+$/;

/** Take the login token out of the address, if there is one. */
export function takeLoginToken() {
  if (!location.hash.startsWith(LINK)) return null;
  const given = location.hash.slice(LINK.length);
  history.replaceState(null, "", `${location.pathname}#/waiting`);
  return given;
}

/** Begin anew when a link is opened in a tab that shows the page already. */
export function heedLinks() {
  addEventListener("hashchange", (event) => {
    if (!location.hash.startsWith(LINK)) return;
    event.stopImmediatePropagation();
    location.reload();
  });
}

/**
 * Begin anew without a token, which the hub has refused or the person has given up.
 * @param {boolean} isRefused
 */
export function startOver(isRefused) {
  if (isRefused) ofTab(REFUSED, "yes");
  location.reload();
}

/**
 * Keep in mind that the hub did not hear of a logout, until somebody logs in.
 * @param {string} given the token that was given up
 */
export function noteUnheard(given) {
  ofTab(UNHEARD, given.split("_")[1] ?? null);
}

/** Why this tab has to log in again, if it has to. */
export function takeRefusal() {
  const unheard = ofTab(UNHEARD);
  if (unheard !== null) {
    return new ApiError(
      0,
      "unheard",
      "the hub did not hear that you logged out: this browser has forgotten its token, which is still valid",
      `end it with \`pml token revoke ${unheard}\``,
    );
  }
  const wasRefused = ofTab(REFUSED) !== null;
  ofTab(REFUSED, null);
  return wasRefused ? refusal() : null;
}

/** That the hub does not take the token of this browser any more. */
export function refusal() {
  return new ApiError(0, "refused", "the login of this browser is over, or was revoked", null);
}

/**
 * Make this browser's own token of a login token.
 * @param {string} given
 */
export async function logIn(given) {
  if (!isKeeping()) {
    throw new ApiError(
      0,
      "storage",
      "this browser keeps nothing for this page (its storage is blocked or full), so it cannot log in",
      "let it keep data for this address, then open the link again",
    );
  }
  const answer = await post("/api/login", {}, { bearer: given });
  keepToken(answer.token);
  ofTab(UNHEARD, null);
}

/**
 * Show how to come in; resolves once somebody has.
 * @param {HTMLElement} root
 * @param {ApiError | null} problem why it did not work
 * @returns {Promise<void>}
 */
export function showLogin(root, problem) {
  return new Promise((resolve) => {
    const told = h("div", { role: "alert" }, problem && notice(problem));
    const input = h("input", {
      id: "login-paste",
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "http://127.0.0.1:4445/#login=…",
      dataset: { field: "login" },
    });
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      try {
        await enter(input.value.trim());
        resolve();
      } catch (error) {
        replace(told, notice(/** @type {ApiError} */ (error)));
        input.focus();
      }
    };
    replace(
      root,
      h(
        "div",
        { class: "login" },
        h("img", { class: "mark", src: new URL("./icon.svg", import.meta.url).href, alt: "" }),
        h(
          "div",
          null,
          h("h1", null, headline(problem)),
          h("p", { class: "muted" }, "Your agents wait here for your answers. Only you can give them."),
        ),
        told,
        h(
          "div",
          { class: "panel" },
          h("p", null, "Run this in a terminal, and open the link it prints:"),
          h("pre", null, "pml inbox --link"),
          h(
            "form",
            { class: "field", onsubmit: submit },
            h("label", { for: "login-paste" }, "Or paste the link or a token"),
            h("div", { class: "row" }, h("div", { class: "grow" }, input), loginButton()),
          ),
        ),
      ),
    );
  });
}

/** @param {ApiError | null} problem */
function headline(problem) {
  if (problem?.code === "storage") return "This browser cannot log in";
  return problem ? "Log in again" : "Log in to PML";
}

function loginButton() {
  return h("button", { type: "submit", class: "primary", dataset: { action: "login" } }, "Log in");
}

/**
 * Come in with whatever was pasted: a link, a login token, or a person's token.
 * @param {string} pasted
 */
async function enter(pasted) {
  const given = pasted.includes(LINK) ? pasted.slice(pasted.indexOf(LINK) + LINK.length) : pasted;
  if (!TOKEN.test(given)) {
    throw new ApiError(
      400,
      "invalid",
      "this is neither a link nor a token",
      "run `pml inbox --link` for a link",
    );
  }
  try {
    await logIn(given);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 403) throw error;
    await keepPersons(given, error);
  }
}

/**
 * Keep a token that is no login's, if it is a person's.
 * @param {string} given
 * @param {ApiError} refused
 */
async function keepPersons(given, refused) {
  keepToken(given);
  try {
    await get("/api/me");
    ofTab(UNHEARD, null);
  } catch {
    keepToken(null);
    throw refused;
  }
}

/** @param {ApiError} problem */
function notice(problem) {
  const text = problem.status === 401
    ? "This link is not valid: wrong, revoked or expired."
    : problem.message;
  return h(
    "div",
    { class: "notice warn" },
    h("div", null, text.charAt(0).toUpperCase() + text.slice(1)),
    problem.hint && problem.status !== 401 && h("div", null, problem.hint),
  );
}
