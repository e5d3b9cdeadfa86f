// @ts-check
/** Trust: what a workspace's file would loosen, its content, and trusting exactly that. */

import { ApiError, get, post } from "./api.js";
import { h, jsonView, replace, shownText } from "./dom.js";
import { confirmDialog, toast } from "./dialog.js";
import { emptyState, problemNote, redraw, spaced, workspacePage } from "./page_parts.js";

const LOOK_MS = 1500; // a file that changed under the cursor is not trusted by a click meant for the one before
/** @type {Record<string, string>} */
const UNLISTED = {
  every_call: "Tools without a rule: PML asks.",
  if_client_cannot: "Tools without a rule: the client asks, PML does not.",
};
const COMES_AND_GOES = ["focus", "blur", "visibilitychange"];
const SHIELD = "M8 2l5 1.8v4c0 3.2-2.1 5.3-5 6.2-2.9-.9-5-3-5-6.2v-4z";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/trust",
  title: "Trusted files",
  async render(root, visit) {
    const place = h("div", { class: "stack" });
    const sight = new Sight(() => place.querySelector("[data-action=trust]")?.removeAttribute("disabled"));
    const fresh = await workspacePage(root, visit, {
      title: "Trusted files",
      lead: "Until you trust this file it can only make rules stricter. Any change ends the trust.",
      place,
      types: ["trust.changed", "rules.changed"],
      load: async (workspaces) => {
        const all = await Promise.all(workspaces.map((workspace) => get("/api/trust", { workspace })));
        const [told] = all;
        if (all.length > 1 || !told) return redraw(place, listed(all));
        sight.take(told);
        redraw(place, told.exists ? shown(told, sight, () => fresh.refresh()) : nothing(told));
      },
    });
    const onfocus = () => fresh.soon(); // the file may have been edited meanwhile, of which no event tells
    addEventListener("focus", onfocus);
    return () => {
      removeEventListener("focus", onfocus);
      sight.stop();
      fresh.stop();
    };
  },
};

/**
 * The files of all workspaces; those that wait for trust first.
 * @param {any[]} all
 */
function listed(all) {
  const files = all.filter((told) => told.exists || told.keeps.length);
  if (!files.length) {
    return emptyState(SHIELD, "Nothing to trust", "No workspace of a running session has a file of its own.");
  }
  const weight = (/** @type {any} */ told) => told.broken ? 0 : told.needed ? 1 : 2;
  files.sort((a, b) => weight(a) - weight(b) || (a.path < b.path ? -1 : 1));
  return h("ul", { class: "list panel" }, files.map(fileRow));
}

/** @param {any} told */
function fileRow(told) {
  const counts = [
    told.allows.length && `allows ${told.allows.length}`,
    told.launches.length && `starts ${told.launches.length}`,
    told.tightens.length && `denies or asks about ${told.tightens.length}`,
  ].filter(Boolean);
  const href = `#/trust?workspace=${encodeURIComponent(told.workspace)}`;
  return h(
    "li",
    { class: "item", dataset: { workspace: told.workspace } },
    h(
      "div",
      { class: "item-main" },
      h("div", { class: "mono" }, shownText(told.path)),
      h(
        "div",
        { class: "about" },
        counts.length
          ? counts.join(" · ")
          : told.needed
          ? "allows and starts nothing; ends what was trusted before"
          : "allows and starts nothing",
      ),
    ),
    state(told),
    h("a", { class: "button", href }, told.needed ? "Look at it" : "Show"),
  );
}

/**
 * What the person has before them. Content that takes the place of another is looked at only once it was there for a
 * while with the page in front of them, however often it is drawn meanwhile.
 */
class Sight {
  /** @param {() => void} onLooked */
  constructor(onLooked) {
    this.onLooked = onLooked;
    this.workspace = "";
    this.digest = "";
    this.hasChanged = false; // since the person came to it, or trusted it
    this.isTrusted = false;
    this.isLooked = true;
    this.timer = 0;
    this.look = this.look.bind(this);
    for (const type of COMES_AND_GOES) addEventListener(type, this.look);
  }

  /**
   * Take what is drawn now.
   * @param {any} told
   */
  take(told) {
    const isHere = told.workspace === this.workspace;
    const isOther = isHere && told.digest !== this.digest;
    const isFreed = isHere && this.isTrusted && !told.trusted; // where "stop" stood, "trust" does
    this.hasChanged = isHere && !told.trusted && (this.hasChanged || isOther);
    this.workspace = told.workspace;
    this.digest = told.digest;
    this.isTrusted = told.trusted;
    if (isHere && !isOther && !isFreed) return;
    this.isLooked = !isHere;
    this.look();
  }

  /** Let the time begin anew, or stop it while the page is not in front. */
  look() {
    clearTimeout(this.timer);
    if (this.isLooked || document.visibilityState !== "visible" || !document.hasFocus()) return;
    this.timer = setTimeout(() => {
      this.isLooked = true;
      this.onLooked();
    }, LOOK_MS);
  }

  stop() {
    clearTimeout(this.timer);
    for (const type of COMES_AND_GOES) removeEventListener(type, this.look);
  }
}

/**
 * @param {any} told
 * @param {Sight} sight
 * @param {() => void} refresh
 */
function shown(told, sight, refresh) {
  const problem = h("div", null);
  const button = trustButton(told, problem, refresh);
  if (button?.dataset.action === "trust") button.disabled = !sight.isLooked;
  return [
    h(
      "section",
      { class: "panel" },
      h(
        "div",
        { class: "panel-head panel-title" },
        h("h2", { class: "grow mono" }, shownText(told.path)),
        state(told),
      ),
      h(
        "div",
        { class: "panel-body stack" },
        told.broken &&
          h(
            "div",
            { class: "notice bad" },
            shownText(told.broken),
            h(
              "div",
              { class: "hint" },
              "While it is broken nothing it allows applies, and it cannot be trusted.",
            ),
          ),
        sight.hasChanged &&
          h(
            "div",
            { class: "notice warn", role: "status" },
            "The file has just changed: this is its new content.",
          ),
        told.kept &&
          h("div", { class: "notice warn", dataset: { notice: "kept" } }, shownText(`${told.kept}.`)),
        loosens(told),
        tightens(told),
        keeps(told),
        problem,
        h("div", { class: "actions" }, button),
      ),
    ),
    content(told),
  ];
}

/** @param {any} told */
function state(told) {
  if (told.broken) return h("span", { class: "chip bad" }, "broken");
  if (told.trusted) return h("span", { class: "chip good" }, "trusted");
  return told.needed
    ? h("span", { class: "chip warn" }, "not trusted")
    : h("span", { class: "chip" }, "only tightens: needs no trust");
}

/** @param {any} told */
function loosens(told) {
  const verb = told.trusted ? "It" : "Trusted, it would";
  const s = told.trusted ? "s" : "";
  /** @type {[string, string[]][]} */
  const parts = [
    [`${verb} end these rules, kept from the content that was trusted last`, told.drops],
    [`${verb} allow${s} these calls without asking`, told.allows],
    [`${verb} start${s} these commands`, told.starts],
    [
      `${verb} change${s} these settings`,
      Object.entries(told.settings).map(([name, value]) => `${name}: ${spaced(value)}`),
    ],
  ];
  return parts.filter(([, lines]) => lines.length).map(([title, lines]) =>
    h(
      "div",
      { class: "loosens" },
      h("h3", null, title),
      lines.map((line) => h("div", { class: "ln" }, shownText(line))),
      lines === told.starts &&
        h("p", { class: "hint" }, UNLISTED[told.unlisted]),
    )
  );
}

/** @param {any} told */
function tightens(told) {
  if (told.tightens.length === 0) return null;
  return h(
    "div",
    { class: "loosens tight" },
    h("h3", null, "These apply whether it is trusted or not"),
    told.tightens.map((/** @type {any} */ each) =>
      h("div", { class: "ln" }, `${each.effect.padEnd(5)}`, shownText(each.entry))
    ),
  );
}

/** @param {any} told */
function keeps(told) {
  if (told.keeps.length === 0) return null;
  return h(
    "div",
    { class: "loosens tight" },
    h("h3", null, "These are kept from the content that was trusted last"),
    told.keeps.map((/** @type {any} */ each) =>
      h("div", { class: "ln" }, `${each.effect.padEnd(5)}`, shownText(each.entry))
    ),
  );
}

/**
 * @param {any} told
 * @param {HTMLElement} problem
 * @param {() => void} refresh
 */
function trustButton(told, problem, refresh) {
  const act = async (/** @type {string} */ path, /** @type {object} */ body, /** @type {string} */ done) => {
    try {
      const { answered } = await post(path, { workspace: told.workspace, ...body });
      const also = answered?.length
        ? ` ${answered.length} waiting question${answered.length === 1 ? "" : "s"} answered.`
        : "";
      toast(done + also, "good");
    } catch (error) {
      if (error instanceof ApiError && error.code === "conflict") refresh(); // it says what has changed
      else replace(problem, problemNote(error));
    }
  };
  const untrust = async () => {
    const isSure = await confirmDialog({
      title: "Stop trusting this file?",
      body: "What it allows, starts and sets no longer applies. Its deny and ask rules still do.",
      confirm: "Stop trusting",
      danger: true,
    });
    if (isSure) await act("/api/trust/remove", {}, "No longer trusted.");
  };
  if (told.trusted) {
    return h(
      "button",
      { type: "button", class: "danger", dataset: { action: "untrust", key: "untrust" }, onclick: untrust },
      "Stop trusting",
    );
  }
  const forget = async () => {
    const isSure = await confirmDialog({
      title: "Keep these rules no longer?",
      body: "What the content that was trusted last denied, and asked about, is forgotten at once.",
      confirm: "Forget them",
      danger: true,
    });
    if (isSure) await act("/api/trust/remove", { forget: true }, "Forgotten.");
  };
  if (told.keeps.length && (!told.exists || told.broken)) {
    return h(
      "button",
      { type: "button", class: "danger", dataset: { action: "forget", key: "forget" }, onclick: forget },
      "Forget the kept rules",
    );
  }
  if (!told.needed || told.broken) return null;
  return h(
    "button",
    {
      type: "button",
      class: "primary",
      dataset: { action: "trust", key: "trust" },
      onclick: () => act("/api/trust", { digest: told.digest }, "Trusted, exactly as shown."),
    },
    "Trust this content",
  );
}

/** @param {any} told */
function content(told) {
  return h(
    "section",
    { class: "panel" },
    h(
      "div",
      { class: "panel-head panel-title" },
      h("h2", { class: "grow" }, "Content"),
      told.digest && h("span", { class: "muted mono clip", title: told.digest }, told.digest.slice(0, 19)),
    ),
    told.content === null
      ? h(
        "p",
        { class: "panel-body muted" },
        "It is not text, or too long to be shown here. Look at it in an editor before you trust it.",
      )
      : jsonView(told.content.split("\n")),
  );
}

/** @param {any} told */
function nothing(told) {
  return emptyState(
    SHIELD,
    "Nothing to trust here",
    [
      "This workspace has no ",
      h("span", { class: "mono" }, ".pml.json"),
      ". Only your own rules apply here.",
    ],
    h("pre", null, "cd ", shownText(told.workspace), "\npml init"),
  );
}
