// @ts-check
/** Where links from elsewhere lead: a card that waits, among the others that do; one that is over, by itself. */

import { get } from "./api.js";
import { markPage } from "./chrome.js";
import { drawBlock } from "./card_blocks.js";
import { outcomeText } from "./card_over.js";
import { drawOrigin, drawWarnings, drawWhy } from "./card_parts.js";
import { h, shownText } from "./dom.js";
import { renderWaiting } from "./page_waiting.js";
import { clockTime } from "./time.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/card/:id",
  title: "Request",
  async render(root, context) {
    const { card } = await get(`/api/inbox/${encodeURIComponent(context.params.id ?? "")}`);
    if (context.signal.aborted) return;
    if (card.status === "pending") await renderWaiting(root, context, card.id);
    else {
      markPage("/history");
      root.append(h("div", { class: "waiting" }, drawOverCard(card)));
    }
  },
};

/** @param {import("./shapes.js").Card} card */
function drawOverCard(card) {
  /** @type {import("./card_blocks.js").Fold[]} */
  const folds = [];
  const blocks = card.blocks.map((block) => drawBlock(block, folds));
  for (const fold of folds) fold.open();
  return h(
    "article",
    { class: "card", dataset: { card: card.id, state: "over" } },
    h(
      "header",
      { class: "card-head" },
      h(
        "div",
        { class: "meta" },
        drawOrigin(card),
        h("span", { class: "clock" }, clockTime(card.created_at)),
      ),
      h("h1", { class: "sentence" }, card.sentence),
    ),
    h(
      "div",
      { class: "card-body" },
      h(
        "div",
        { class: "notice" },
        h("strong", null, shownText(outcomeText(card))),
        card.outcome?.message && [": ", shownText(card.outcome.message)],
      ),
      drawWarnings(card),
      blocks,
      drawWhy(card),
    ),
  );
}
