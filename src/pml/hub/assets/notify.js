// @ts-check
/**
 * How a person who looks elsewhere learns that something waits: the title, the icon of the tab, a notification. A
 * notification names the tool and the session, never arguments: it is drawn by others, over other windows.
 */

import { keep, recall } from "./storage.js";

const WANTED = "pml.notify";
const SIZE = 32;
/** @type {HTMLImageElement | null} */
let picture = null;
let shownCount = -1;

/**
 * Show in title and icon how many wait.
 * @param {number} count
 * @param {string} title
 */
export function showBadge(count, title) {
  document.title = `${count ? `(${count}) ` : ""}${title ? `${title} · ` : ""}PML`;
  if (count === shownCount) return;
  shownCount = count;
  drawIcon(count);
}

export function canNotify() {
  return "Notification" in globalThis && Notification.permission !== "denied";
}

export function isNotifying() {
  return canNotify() && Notification.permission === "granted" && recall(WANTED) === "yes";
}

/** Ask the browser for permission; only ever after a click. Returns whether there will be notifications. */
export async function askToNotify() {
  const granted = canNotify() && (await Notification.requestPermission()) === "granted";
  keep(WANTED, granted ? "yes" : "no");
  return granted;
}

export function stopNotifying() {
  keep(WANTED, "no");
}

/**
 * Tell of a new question, unless the person is looking at the page.
 * @param {{id: string, tool: string, session: string}} asked
 * @param {() => void} onOpen
 */
export function notify({ id, tool, session }, onOpen) {
  if (!isNotifying() || (document.visibilityState === "visible" && document.hasFocus())) return;
  try {
    const note = new Notification(`${plain(tool)} waits for you`, {
      body: `Session ${plain(session)}`,
      tag: id,
    });
    note.onclick = () => {
      focus();
      note.close();
      onOpen();
    };
  } catch {
    stopNotifying(); // phones have notifications for service workers only
  }
}

/** @param {string} text */
function plain(text) {
  return text.replace(/[^\p{L}\p{N}\p{P}\p{S} ]/gu, "").slice(0, 80);
}

/** @param {number} count */
async function drawIcon(count) {
  const link = /** @type {HTMLLinkElement | null} */ (document.querySelector("link[rel=icon]"));
  if (!link) return;
  const plainIcon = new URL("./icon.svg", import.meta.url).href;
  if (!count) {
    link.href = plainIcon;
    return;
  }
  picture ??= Object.assign(new Image(SIZE, SIZE), { src: plainIcon });
  await picture.decode().catch(() => {});
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIZE;
  const context = canvas.getContext("2d");
  if (!context || count !== shownCount) return;
  context.drawImage(picture, 0, 0, SIZE, SIZE);
  context.fillStyle = "#d92d20";
  context.beginPath();
  context.arc(22, 10, 10, 0, 2 * Math.PI);
  context.fill();
  context.fillStyle = "#fff";
  context.font = "bold 13px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(count > 99 ? "99" : String(count), 22, 10.5);
  link.href = canvas.toDataURL("image/png");
}
