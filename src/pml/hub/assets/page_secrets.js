// @ts-check
/**
 * Secrets: the values that a server needs to go on, and the names of those that are kept. A value is taken from its
 * field, sent once, and taken out of the page; it is shown nowhere.
 */

import { del, get, post } from "./api.js";
import { h, replace, shownText, visible } from "./dom.js";
import { confirmDialog, toast } from "./dialog.js";
import { emptyState, field, keepFresh, pageHead, problemNote, redraw } from "./page_parts.js";
import { go } from "./router.js";
import { tickingTime } from "./time.js";

const LOCK = "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5";
const NEVER =
  "The value goes to the keyring of this computer, or to a file that only you can read. It never reaches the model, the agent's conversation or the logs.";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/secrets/:id",
  title: "Secret needed",
  async render(root, { params, signal }) {
    const id = params.id ?? "";
    const place = h("div", { class: "slim stack" });
    const problems = h("div", { class: "problems" });
    root.append(problems, place);
    let shown = "";
    /** @type {Set<string>} */
    const saved = new Set(); // by this page
    const load = async () => {
      const [{ card }, { secrets }] = await Promise.all([
        get(`/api/inbox/${encodeURIComponent(id)}`),
        get("/api/secrets"),
      ]);
      if (card.status === shown) return; // what is being typed stays
      shown = card.status;
      const kept = new Set(secrets.map((/** @type {any} */ each) => each.name));
      replace(
        place,
        card.status === "pending" && card.missing.length ? form(card, kept, saved) : over(card, saved),
      );
      place.querySelector("input")?.focus();
    };
    const fresh = keepFresh({ types: ["approval.*"], problems, signal, load });
    await fresh.refresh();
    return () => {
      fresh.stop();
      replace(place);
    };
  },
};

/** @type {import("./router.js").Page} */
export const listPage = {
  path: "/secrets",
  title: "Secrets",
  async render(root, { signal }) {
    const problems = h("div", { class: "problems" });
    const list = h("div", null);
    const load = async () => {
      const { secrets } = await get("/api/secrets");
      redraw(list, secrets.length ? h("ul", { class: "list panel" }, secrets.map(row)) : nothing());
    };
    root.append(
      pageHead(
        "Secrets",
        "Values that servers need and nobody should see. Only names are shown.",
        h("a", { class: "button", href: "#/servers" }, "Servers"),
      ),
      problems,
      list,
    );
    const fresh = keepFresh({ types: ["secrets.changed"], problems, signal, load });
    await fresh.refresh();
    return fresh.stop;
  },
};

/**
 * @param {import("./shapes.js").Card} card
 * @param {Set<string>} kept
 * @param {Set<string>} saved
 */
function form(card, kept, saved) {
  const server = card.input?.server ?? card.tool.split(":")[0];
  const problem = h("div", null);
  const inputs = card.missing.map((name) =>
    h("input", {
      type: "password",
      name,
      class: "mono",
      autocomplete: "one-time-code", // a browser offers to keep passwords that are "off", too
      "data-1p-ignore": true,
      "data-lpignore": "true",
      spellcheck: "false",
      required: !kept.has(name),
    })
  );
  const save = h(
    "button",
    { type: "submit", class: "primary", dataset: { action: "save-secrets" } },
    "Save and continue",
  );
  const deny = h("button", { type: "button", class: "danger", dataset: { action: "deny" } }, "Deny");
  const act = async (/** @type {() => Promise<void>} */ work) => {
    save.disabled = deny.disabled = true;
    try {
      await work();
    } catch (error) {
      replace(problem, problemNote(error));
      save.disabled = deny.disabled = false;
    }
  };
  const onsubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    act(async () => {
      for (const input of inputs) await store(input, saved);
      await decide(card, true);
      toast(`Saved. ${card.tool} continues.`, "good");
      go(`/card/${card.id}`);
    });
  };
  deny.addEventListener("click", () =>
    act(async () => {
      await decide(card, false);
      go(`/card/${card.id}`);
    }));
  return [
    h(
      "h1",
      null,
      card.missing.length === 1 ? "A secret is needed" : `${card.missing.length} secrets are needed`,
    ),
    h(
      "p",
      null,
      "Server ",
      h("strong", null, shownText(String(server))),
      " cannot work without ",
      card.missing.map((name, index) => [index > 0 && ", ", h("code", null, shownText(name))]),
      ". Session ",
      h("strong", null, shownText(card.session_name)),
      " called ",
      h("code", null, shownText(card.tool)),
      " and waits; ",
      tickingTime(card.expires_at, "left"),
      ".",
    ),
    h(
      "form",
      { class: "panel form secrets", onsubmit, autocomplete: "off" },
      card.missing.map((name, index) =>
        field(
          `secret-${index}`,
          name,
          /** @type {HTMLInputElement} */ (inputs[index]),
          kept.has(name) && "A value is kept already; leave this empty to keep it.",
        )
      ),
      h("p", { class: "hint" }, NEVER),
      problem,
      h(
        "div",
        { class: "actions" },
        h("a", { class: "button", href: `#/card/${card.id}` }, "See the question"),
        deny,
        save,
      ),
    ),
  ];
}

/**
 * Send the value of a field, and forget it.
 * @param {HTMLInputElement} input
 * @param {Set<string>} saved
 */
async function store(input, saved) {
  if (!input.value) return;
  await post("/api/secrets", { name: input.name, value: input.value });
  saved.add(input.name);
  input.value = "";
  input.required = false;
}

/**
 * @param {import("./shapes.js").Card} card
 * @param {boolean} allow
 */
function decide(card, allow) {
  return post(`/api/approvals/${card.id}/decision`, { allow, digest: card.digest });
}

/**
 * @param {import("./shapes.js").Card} card
 * @param {Set<string>} saved
 */
function over(card, saved) {
  const text = card.missing.length ? card.outcome?.text ?? "It waits no longer." : "It asks for no secret.";
  const also = saved.size ? `${[...saved].join(", ")} ${saved.size === 1 ? "is" : "are"} kept. ` : "";
  return emptyState(
    LOCK,
    "Nothing to enter here",
    shownText(also + text),
    h("a", { class: "button", href: `#/card/${card.id}` }, "See the question"),
  );
}

/** @param {any} secret */
function row(secret) {
  const problem = h("div", null);
  const onclick = async () => {
    const isSure = await confirmDialog({
      title: `Remove ${visible(secret.name)}?`,
      body: "Servers that need it will ask for it again. The value cannot be shown or restored.",
      confirm: "Remove",
      danger: true,
    });
    if (!isSure) return;
    try {
      const told = await del(`/api/secrets/${encodeURIComponent(secret.name)}`);
      toast(
        told.problem ? `Removed, but its value may still be in the keyring: ${told.problem}` : "Removed.",
        told.problem ? "bad" : "good",
      );
    } catch (error) {
      replace(problem, problemNote(error));
    }
  };
  return h(
    "li",
    { class: "item rule", dataset: { secret: secret.name } },
    h(
      "div",
      { class: "item-main" },
      h("div", { class: "entry" }, shownText(secret.name)),
      h(
        "div",
        { class: "about" },
        secret.stored_in === "keyring" ? "in the keyring" : "in a file that only you can read",
      ),
      problem,
    ),
    h(
      "div",
      { class: "buttons" },
      h("button", {
        type: "button",
        class: "danger",
        "aria-label": `Remove ${visible(secret.name)}`,
        dataset: { action: "remove", key: secret.name },
        onclick,
      }, "Remove"),
    ),
  );
}

function nothing() {
  return emptyState(
    LOCK,
    "No secrets yet",
    "When a server needs a key, its question leads to a page that takes it. In a terminal:",
    h("pre", null, "pml secrets set GITHUB_TOKEN"),
  );
}
