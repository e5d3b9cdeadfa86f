// @ts-check
/**
 * Logging in to a remote server for a call that waits: the hub finds the page, the browser goes there, and what it
 * brings back goes to the hub only. Nothing that was given for the login is shown here.
 */

import { get, post } from "./api.js";
import { h, replace, shownText } from "./dom.js";
import { emptyState, field, keepFresh, problemNote } from "./page_parts.js";
import { tickingTime } from "./time.js";

const KEY = "M10 6a3 3 0 1 0-2.8 3L9 11v2h2v-2h2V9l-3-3z";
const NEVER =
  "What the server gives goes to the keyring of this computer, or to a file that only you can read. It never reaches the model, the agent's conversation or the logs.";
const LOOK_MS = 1500; // how soon it shows that a login failed

/** @type {import("./router.js").Page} */
export const page = {
  path: "/server-login/:id",
  title: "Log in to a server",
  async render(root, { params, signal }) {
    const id = params.id ?? "";
    const place = h("div", { class: "slim stack" });
    const problems = h("div", { class: "problems" });
    root.append(problems, place);
    let shown = "";
    const load = async () => {
      const { card } = await get(`/api/inbox/${encodeURIComponent(id)}`);
      if (card.status === shown) return; // a login that is under way stays
      shown = card.status;
      replace(
        place,
        card.status === "pending" && card.page === "server-login" ? form(card, signal) : over(card),
      );
    };
    const fresh = keepFresh({ types: ["approval.*"], problems, signal, load });
    await fresh.refresh();
    return fresh.stop;
  },
};

/**
 * @param {import("./shapes.js").Card} card
 * @param {AbortSignal} signal
 */
function form(card, signal) {
  const path = `/api/approvals/${encodeURIComponent(card.id)}/login`;
  const next = h("div", { class: "stack" });
  const problem = h("div", null);
  const begin = h(
    "button",
    { type: "button", class: "primary", dataset: { action: "begin-login" } },
    "Find the login page",
  );
  begin.addEventListener("click", async () => {
    begin.disabled = true;
    replace(problem);
    try {
      const { url } = await post(path, {});
      replace(next, opened(path, url, problem));
      watch(path, problem, begin, signal);
    } catch (error) {
      replace(problem, problemNote(error));
    }
    begin.disabled = false;
  });
  return [
    h("h1", null, "A login is needed"),
    h(
      "p",
      null,
      "Session ",
      h("strong", null, shownText(card.session_name)),
      " called ",
      h("code", null, shownText(card.tool)),
      ", whose server runs elsewhere and wants you to log in; ",
      tickingTime(card.expires_at, "left"),
      ".",
    ),
    h(
      "div",
      { class: "panel form" },
      h("p", { class: "hint" }, NEVER),
      next,
      problem,
      h(
        "div",
        { class: "actions" },
        h("a", { class: "button", href: `#/card/${card.id}` }, "See the question"),
        begin,
      ),
    ),
  ];
}

/**
 * @param {string} path
 * @param {string} url
 * @param {HTMLElement} problem
 */
function opened(path, url, problem) {
  const target = new URL(url);
  if (target.protocol !== "https:" && target.protocol !== "http:") throw new Error("not a page");
  const address = h("input", { type: "text", name: "address", autocomplete: "off", spellcheck: "false" });
  const onsubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await post(`${path}/address`, { address: address.value });
      address.value = "";
    } catch (error) {
      replace(problem, problemNote(error));
    }
  };
  return [
    h(
      "a",
      {
        class: "button primary",
        href: target.href,
        target: "_blank",
        rel: "noopener noreferrer",
        dataset: { action: "open-login" },
      },
      "Log in at ",
      shownText(target.host),
    ),
    h(
      "details",
      null,
      h("summary", null, "The browser is on another computer?"),
      h(
        "form",
        { onsubmit, autocomplete: "off" },
        field("address", "Paste the address it ends at, also if it shows an error there", address),
        h("button", { type: "submit" }, "Take this address"),
      ),
    ),
  ];
}

/**
 * Tell of a login that failed; one that came about decides the question, which is heard.
 * @param {string} path
 * @param {HTMLElement} problem
 * @param {HTMLElement} begin
 * @param {AbortSignal} signal
 */
async function watch(path, problem, begin, signal) {
  for (let isOpen = true; isOpen && !signal.aborted;) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    const told = await get(path).catch(() => null);
    if (signal.aborted || !told || !begin.isConnected) return;
    isOpen = told.is_open;
    if (told.problem) replace(problem, h("p", { class: "problem", role: "alert" }, shownText(told.problem)));
  }
}

/** @param {import("./shapes.js").Card} card */
function over(card) {
  const text = card.page === "server-login"
    ? card.outcome?.text ?? "It waits no longer."
    : "It asks for no login.";
  return emptyState(
    KEY,
    "No login is waited for",
    shownText(text),
    h("a", { class: "button", href: `#/card/${card.id}` }, "See the question"),
  );
}
