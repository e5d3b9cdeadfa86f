// @ts-check
/** The page as a whole: comes in, keeps the frame right, and shows the page that the address names. */

import { ApiError, get, keepToken, loggedOut, onLogout, post, token } from "./api.js";
import { applyTheme, buildFrame, markPage } from "./chrome.js";
import { h, replace } from "./dom.js";
import { bindHelp } from "./keys.js";
import { listen, onReconnect, startLive, stopLive } from "./live.js";
import {
  heedLinks,
  logIn,
  noteUnheard,
  refusal,
  showLogin,
  startOver,
  takeLoginToken,
  takeRefusal,
} from "./login.js";
import { notify, showBadge } from "./notify.js";
import { page as audit } from "./page_audit.js";
import { page as card } from "./page_card.js";
import { page as grants } from "./page_grants.js";
import { page as historyPage } from "./page_history.js";
import { page as rules } from "./page_rules.js";
import { listPage as secretNames, page as secrets } from "./page_secrets.js";
import { page as serverLogin } from "./page_server_login.js";
import { page as servers } from "./page_servers.js";
import { page as sessions } from "./page_sessions.js";
import { page as trust } from "./page_trust.js";
import { page as waiting } from "./page_waiting.js";
import { isForgotten } from "./proof.js";
import { go, startRouter } from "./router.js";
import { startTicking } from "./time.js";
import { sendHeld } from "./undo.js";

const PAGES = [
  waiting,
  card,
  historyPage,
  sessions,
  rules,
  grants,
  servers,
  audit,
  trust,
  secrets,
  secretNames,
  serverLogin,
];
/** @type {Record<string, string>} */
const OF = {
  "/card/:id": "/waiting",
  "/secrets": "/servers",
  "/secrets/:id": "/servers",
  "/server-login/:id": "/servers",
}; // in the menu
const COUNT_AFTER_MS = 150; // many things happen at once: they are counted once
const ASSETS = new URL("./", import.meta.url).pathname.split("/").at(-2); // the hash that this page came with

const linked = takeLoginToken(); // before all else: nothing that fails may leave it in the address
applyTheme();
startTicking();
heedLinks();
await comeIn(linked);
run();

/**
 * Have a token that may count, by the link in the address or by asking.
 * @param {string | null} given the link's
 */
async function comeIn(given) {
  /** @type {ApiError | null} */
  let problem = takeRefusal();
  if (given !== null) {
    try {
      return await logIn(given);
    } catch (error) {
      if (token()) return; // a link that was used before does not end a login that counts
      problem = /** @type {ApiError} */ (error);
    }
  }
  const kept = token();
  if (kept && await isForgotten(kept)) {
    keepToken(null);
    problem = refusal();
  }
  if (!token()) await askForLogin(problem);
}

/** @param {ApiError | null} problem */
async function askForLogin(problem) {
  showBadge(0, "Log in");
  const place = h("main", null);
  document.body.replaceChildren(place);
  await showLogin(place, problem);
}

function run() {
  const frame = buildFrame({ onLogout: leave });
  let title = "";
  let count = 0;
  const show = startRouter(PAGES, frame.root, {
    onPage(page) {
      title = page.title;
      markPage(OF[page.path] ?? page.path);
      showBadge(count, title);
    },
    onError: showProblem,
  });
  let timer = 0;
  const recount = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      count = (await get("/api/inbox", { limit: 1 }).catch(() => ({ waiting: count }))).waiting;
      frame.setCount(count);
      showBadge(count, title);
    }, COUNT_AFTER_MS);
  };
  listen(["approval.*"], (event) => {
    recount();
    if (event.type === "approval.requested") {
      const { approval_id: id = "", tool_name: tool, session_name: session } = event;
      notify({ id, tool, session }, () => go(`/card/${id}`));
    }
  });
  onReconnect(() => {
    recount();
    checkHub(frame);
  });
  bindHelp();
  onLogout(startOver);
  show();
  startLive();
}

/**
 * See whether the hub still asks at all, and whether this page is still its page.
 * @param {import("./chrome.js").Frame} frame
 */
async function checkHub(frame) {
  const me = await get("/api/me").catch(() => null);
  if (!me) return;
  frame.setName(me.name);
  frame.banners.set("asking", me.asking, "warn");
  const see = h("a", { href: `#/trust?workspace=${encodeURIComponent(me.workspace)}` }, "See them");
  frame.banners.set("kept", me.kept && [`${me.kept}. `, see], "warn");
  const reload = h("button", { type: "button", class: "link", onclick: () => location.reload() }, "Reload");
  frame.banners.set("updated", me.assets === ASSETS ? null : ["PML was updated.", reload], "info");
}

/** Log out: the token is no longer valid anywhere; if the hub was not told, its person is. */
async function leave() {
  await sendHeld();
  stopLive();
  const kept = token();
  try {
    await post("/api/logout", {});
    loggedOut();
  } catch {
    if (kept === null || !token()) return; // the hub has refused it, so it counts no longer
    noteUnheard(kept);
    keepToken(null);
    await askForLogin(takeRefusal()); // here: there is perhaps no hub to load it from
    location.reload();
  }
}

/**
 * @param {HTMLElement} root
 * @param {unknown} error
 */
function showProblem(root, error) {
  const told = error instanceof ApiError
    ? error
    : new ApiError(0, "internal", "the page has failed", String(error));
  replace(
    root,
    h(
      "div",
      { class: "empty" },
      h("h2", null, told.status === 404 ? "Not there" : "This did not work"),
      h("p", null, told.message),
      told.hint && h("p", { class: "muted" }, told.hint),
      h("a", { class: "button", href: "#/waiting" }, "What waits"),
    ),
  );
}
