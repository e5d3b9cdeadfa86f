// @ts-check
/** What stands around every page: the bar with the pages and the count, the theme, and the banners. */

import { h, replace, shownText, visible } from "./dom.js";
import { onState } from "./live.js";
import { askToNotify, canNotify, isNotifying, stopNotifying } from "./notify.js";
import { keep, recall } from "./storage.js";
import { toast } from "./dialog.js";

const THEME = "pml.theme";
const THEMES = ["auto", "light", "dark"];
const NAV = [
  ["/waiting", "Waiting"],
  ["/history", "History"],
  ["/sessions", "Sessions"],
  ["/rules", "Rules"],
  ["/grants", "Session permissions"],
  ["/servers", "Servers"],
  ["/audit", "Audit"],
  ["/trust", "Trusted files"],
];
const GONE = "The hub is gone; what waits is kept. Trying again…";
const TAKEN =
  "Another program answers where the hub was, or a hub that does not know you. It was told nothing: do not " +
  "reload this page, end that program, then start `pml serve` again.";
const LEAVE = "M6.5 3H3.5v10h3M7 8h7M11.5 5.5 14 8l-2.5 2.5";
const STATES = { live: "Live", lost: "Connecting…", gone: "Hub gone", taken: "Not the hub" };

/** @typedef {ReturnType<typeof buildFrame>} Frame */

/**
 * Build the frame. Returns where pages go, and how to tell it what changed.
 * @param {{onLogout: () => void}} doing
 */
export function buildFrame({ onLogout }) {
  const count = h("span", { class: "count", hidden: true, dataset: { waiting: "0" } });
  const links = NAV.map(([path, name]) =>
    h("a", { href: `#${path}`, dataset: { nav: path } }, name, path === "/waiting" && count)
  );
  const root = h("main", { id: "main", tabindex: "-1" });
  const logout = logoutButton(onLogout);
  const banners = new Banners();
  const top = h(
    "header",
    { class: "top" },
    h(
      "div",
      { class: "top-in" },
      h("a", { class: "sr-only", href: "#", onclick: skip(root) }, "Skip to the content"),
      h("a", { class: "brand", href: "#/waiting" }, logo(), "PML"),
      h("nav", { class: "nav", "aria-label": "Pages" }, links),
      h("div", { class: "top-end" }, stateMark(), notifyButton(), themeButton(), logout),
    ),
    banners.node,
  );
  document.body.replaceChildren(top, root);
  const stop = onState((state) => {
    banners.set("gone", state === "gone" ? GONE : null, "bad");
    banners.set("taken", state === "taken" ? TAKEN : null, "bad");
  });
  return {
    root,
    banners,
    stop,
    /** @param {string} name of whoever is logged in */
    setName(name) {
      logout.title = `Log out ${visible(name)}`;
      logout.setAttribute("aria-label", logout.title);
      replace(logout, h("span", { class: "who" }, shownText(name)), icon(LEAVE));
    },
    /** @param {number} waiting */
    setCount(waiting) {
      count.hidden = waiting === 0;
      count.dataset.waiting = String(waiting);
      replace(count, String(waiting), h("span", { class: "sr-only" }, " waiting"));
    },
  };
}

/**
 * Mark a page of the menu as the one that is shown.
 * @param {string} path
 */
export function markPage(path) {
  for (const link of document.querySelectorAll("[data-nav]")) {
    if (link.getAttribute("href") !== `#${path}`) link.removeAttribute("aria-current");
    else {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }
}

class Banners {
  constructor() {
    this.node = h("div", { class: "banners", "aria-live": "polite" });
    /** @type {Map<string, HTMLElement>} */
    this.shown = new Map();
  }

  /**
   * Show a banner, or with null take it away.
   * @param {string} name
   * @param {import("./dom.js").Child} text
   * @param {"bad" | "warn" | "info"} kind
   */
  set(name, text, kind) {
    this.shown.get(name)?.remove();
    this.shown.delete(name);
    if (text === null) return;
    const banner = h("div", { class: `banner ${kind}`, dataset: { banner: name } }, text);
    this.shown.set(name, banner);
    this.node.append(banner);
  }
}

/** Show the theme that was chosen in this browser. */
export function applyTheme() {
  const theme = recall(THEME);
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function logo() {
  return h("img", { src: new URL("./icon.svg", import.meta.url).href, alt: "" });
}

/** @param {HTMLElement} root */
function skip(root) {
  return (/** @type {Event} */ event) => {
    event.preventDefault();
    root.focus();
  };
}

function stateMark() {
  const dot = h("span", { class: "dot" });
  const text = h("span", { class: "state-text" });
  onState((state) => {
    dot.className = `dot ${state}`;
    text.textContent = STATES[state];
  });
  return h("span", { class: "live-state", dataset: { live: "" }, role: "status" }, dot, text);
}

function notifyButton() {
  const button = h("button", { type: "button", class: "quiet", dataset: { action: "notify" } });
  const show = () => {
    button.hidden = !canNotify();
    button.setAttribute("aria-pressed", String(isNotifying()));
    button.title = isNotifying()
      ? "Notifications are on"
      : "Tell me when something waits while I look elsewhere";
    replace(
      button,
      icon("M4 12V7.5a4 4 0 0 1 8 0V12M2.5 12h11M7 14.2h2"),
      isNotifying() ? "On" : "Notify me",
    );
  };
  button.addEventListener("click", async () => {
    if (isNotifying()) stopNotifying();
    else if (!await askToNotify()) toast("The browser does not allow notifications for this page.", "info");
    show();
  });
  show();
  return button;
}

function themeButton() {
  const button = h("button", { type: "button", class: "quiet", dataset: { action: "theme" } });
  const show = () => {
    const theme = recall(THEME) ?? "auto";
    button.title = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}`);
    replace(button, icon("M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12"));
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(recall(THEME) ?? "auto") + 1) % THEMES.length] ??
      "auto";
    keep(THEME, next);
    applyTheme();
    show();
    toast(`Theme: ${next}`);
  });
  show();
  return button;
}

/** @param {() => void} onLogout */
function logoutButton(onLogout) {
  return h(
    "button",
    {
      type: "button",
      class: "quiet",
      title: "Log out",
      "aria-label": "Log out",
      dataset: { action: "logout" },
      onclick: onLogout,
    },
    icon(LEAVE),
  );
}

/**
 * A small drawing of one path in a square of 16.
 * @param {string} path
 */
export function icon(path) {
  return h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: path }));
}
