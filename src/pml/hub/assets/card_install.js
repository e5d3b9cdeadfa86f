// @ts-check
/** The progress of an install that was allowed: the line that is left of its card tells it, to its end. */

/** @typedef {import("./card.js").CardView} CardView */

/** The events that tell of an install. */
export const OF_INSTALLS = ["install.progress", "approval.finished"];

/**
 * Tell what `event` says at the cards that it is about.
 * @param {Iterable<CardView>} views
 * @param {import("./live.js").HubEvent} event
 */
export function showInstall(views, event) {
  for (const view of views) {
    if (view.card.subject !== "dependency_install" || view.node.dataset.status !== "allowed") continue;
    if (event.type === "install.progress" && isOf(view.card, event)) view.retell(progressText(event), true);
    if (event.approval_id === view.card.id) view.retell(endText(event), event.outcome !== "completed");
  }
}

/**
 * @param {import("./shapes.js").Card} card
 * @param {import("./live.js").HubEvent} event
 */
function isOf(card, event) {
  return event.session === card.session && event.name === card.tool.split(":")[0];
}

/** @param {import("./live.js").HubEvent} event */
function progressText({ message, done, total }) {
  const isCounted = total > 1 && done < total;
  return `Installing: ${message}${isCounted ? ` (${done} of ${total})` : ""}`;
}

/** @param {import("./live.js").HubEvent} event */
function endText({ outcome, message }) {
  if (outcome === "completed") return "Installed";
  return message ? `Not installed: ${message}` : "Nobody knows whether it was installed";
}
