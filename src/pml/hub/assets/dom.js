// @ts-check
/**
 * The DOM, built of elements and text nodes only: nothing here ever reads markup. Text that came from outside is
 * shown with every hidden character as a mark of its own, and its words in the order in which they were written: a
 * word that runs from right to left never moves what stands beside it. Knows no page and no request.
 */

/** @typedef {Node | string | number | null | undefined | false | any[]} Child */
/** @typedef {(string | number)[]} Line pieces of text, and the code points of hidden characters */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "circle", "rect", "line", "polyline"]);
// What is hidden is the same here and in the hub, which marks it in the cards.
const UNSEEN = String
  .raw`\p{C}\p{Z}\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5\u180b-\u180d\u180f\u2800\u{16fe4}\u{1d159}\ufe00-\ufe0f\u{e0100}-\u{e01ef}`;
const MARKS = String
  .raw`[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u06d6-\u06ed\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]`;
const HIDDEN = new RegExp(String.raw`(?! )[${UNSEEN}]|${MARKS}(?<=${MARKS}{4})`, "gu"); // the fourth of a pile on
const RTL = String.raw`\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}`;
const RTL_WORD = new RegExp(String.raw`([${RTL}][${RTL}\p{M}]*)`, "gu");
const AS_IS = new Set(["OPTION", "TEXTAREA"]); // they take text only
const JSON_TOKEN =
  /("(?:[^"\\]|\\.)*"?)(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[{}[\],:]/g;
const SHORT = new Map([[0, "NUL"], [9, "\\t"], [10, "\\n"], [13, "\\r"], [27, "ESC"], [127, "DEL"]]);
const ESCAPES = new Map([[9, "\\t"], [10, "\\n"], [13, "\\r"]]);
const NAMES = new Map([
  [0x00a0, "no-break space"],
  [0x00ad, "soft hyphen"],
  [0x200b, "zero width space"],
  [0x200c, "zero width non-joiner"],
  [0x200d, "zero width joiner"],
  [0x200e, "left-to-right mark"],
  [0x200f, "right-to-left mark"],
  [0x202a, "left-to-right embedding"],
  [0x202b, "right-to-left embedding"],
  [0x202c, "pop directional formatting"],
  [0x202d, "left-to-right override"],
  [0x202e, "right-to-left override"],
  [0x2066, "left-to-right isolate"],
  [0x2067, "right-to-left isolate"],
  [0x2068, "first strong isolate"],
  [0x2069, "pop directional isolate"],
  [0xfeff, "zero width no-break space"],
  [0, "null"],
  [9, "tab"],
  [10, "line feed"],
  [13, "carriage return"],
  [27, "escape"],
  [127, "delete"],
]);

/**
 * Make an element. `props`: `class`, `dataset`, `on<event>` functions, else attributes; null and false leave out.
 * @template {string} K
 * @param {K} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {K extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[K] : HTMLElement}
 */
export function h(tag, props, ...children) {
  const node = /** @type {any} */ (
    SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag)
  );
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "dataset") Object.assign(node.dataset, value);
    else if (typeof value === "function") node.addEventListener(name.slice(2).toLowerCase(), value);
    else if (name === "value" && "value" in node) node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

/**
 * Give `node` these children in place of those it has.
 * @param {Element} node
 * @param {...Child} children
 */
export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
}

/**
 * The nodes that show `text`, with a mark for each hidden character.
 * @param {string} text
 * @returns {Node[]}
 */
export function shownText(text) {
  /** @type {Node[]} */
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    addInOrder(nodes, text.slice(from, found.index));
    nodes.push(hiddenMark(/** @type {number} */ (found[0].codePointAt(0))));
    from = found.index + found[0].length;
  }
  addInOrder(nodes, text.slice(from));
  return inOne(nodes);
}

/**
 * `text` in one line for what takes no elements, such as a label: a hidden character is an escape, a backslash is
 * doubled.
 * @param {string} text
 */
export function visible(text) {
  const escaped = text.replaceAll("\\", "\\\\").replace(HIDDEN, (char) => {
    const code = /** @type {number} */ (char.codePointAt(0));
    return ESCAPES.get(code) ?? `\\u{${code.toString(16)}}`;
  });
  return escaped.replace(RTL_WORD, "\u2068$1\u2069");
}

/**
 * The nodes that show a line in which a number is a hidden character.
 * @param {Line} line
 * @returns {Node[]}
 */
export function shownLine(line) {
  return line.flatMap((piece) => typeof piece === "number" ? [hiddenMark(piece)] : shownText(piece));
}

/**
 * A text of JSON in which hidden characters of its strings are escapes; the line breaks of its layout stay.
 * @param {string} json
 */
export function escapeHidden(json) {
  const escaped = (/** @type {string} */ char) =>
    [...Array(char.length).keys()].map((at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, "0")}`)
      .join("");
  return json.replace(HIDDEN, (char) => char === "\n" ? char : escaped(char));
}

/**
 * Lines of JSON, coloured.
 * @param {string[]} lines
 * @returns {HTMLElement}
 */
export function jsonView(lines) {
  return h("div", { class: "code json" }, lines.map((line) => h("div", { class: "ln" }, jsonLine(line))));
}

/**
 * One line of JSON as coloured nodes.
 * @param {string} line
 * @returns {Child[]}
 */
export function jsonLine(line) {
  /** @type {Child[]} */
  const nodes = [];
  let from = 0;
  for (const found of line.matchAll(JSON_TOKEN)) {
    if (found.index > from) nodes.push(shownText(line.slice(from, found.index)));
    const [whole, text, colon] = found;
    if (text === undefined) nodes.push(h("span", { class: tokenClass(whole) }, whole));
    else {
      nodes.push(h("span", { class: colon ? "j-key" : "j-text" }, escapes(text)));
      if (colon) nodes.push(shownText(colon));
    }
    from = found.index + whole.length;
  }
  if (from < line.length) nodes.push(shownText(line.slice(from)));
  return nodes;
}

/**
 * A string of JSON, in which an escape of a hidden character stands out.
 * @param {string} text
 * @returns {Child[]}
 */
function escapes(text) {
  return text.split(/(\\u[0-9a-fA-F]{4})/).map((piece, index) => {
    if (index % 2 === 0) return shownText(piece);
    return h("span", { class: "hidden-char", title: nameOf(parseInt(piece.slice(2), 16)) }, piece);
  });
}

/** @param {string} token */
function tokenClass(token) {
  if (/^[{}[\],:]$/.test(token)) return "j-mark";
  return /^[tfn]/.test(token) ? "j-word" : "j-number";
}

/** @param {number} code */
function hiddenMark(code) {
  return h("span", { class: "hidden-char", title: nameOf(code) }, SHORT.get(code) ?? hex(code));
}

/** @param {number} code */
function hex(code) {
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** @param {number} code */
function nameOf(code) {
  return `${hex(code)} ${NAMES.get(code) ?? "a character that cannot be seen"}`;
}

/**
 * @param {Element} node
 * @param {Child[]} children
 */
function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else if (typeof child === "string" && !AS_IS.has(node.tagName)) {
      /** @type {Node[]} */
      const nodes = [];
      addInOrder(nodes, child);
      append(node, inOne(nodes));
    } else node.append(typeof child === "number" ? String(child) : child);
  }
}

/**
 * Add the nodes of a text, each word that runs from right to left by itself: a row of them stays in its order.
 * @param {Node[]} nodes
 * @param {string} text
 */
function addInOrder(nodes, text) {
  text.split(RTL_WORD).forEach((piece, index) => {
    if (!piece) return;
    const node = document.createTextNode(piece);
    if (index % 2 === 0) nodes.push(node);
    else {
      const word = document.createElement("bdi");
      word.append(node);
      nodes.push(word);
    }
  });
}

/**
 * Nodes that stay one text, also where each child of an element is laid out by itself.
 * @param {Node[]} nodes
 */
function inOne(nodes) {
  return nodes.length > 1 ? [h("span", null, nodes)] : nodes;
}

/**
 * The end of a path, with all of it on hovering.
 * @param {string} path
 */
export function shortPath(path) {
  const parts = path.split(/[\\/]/).filter(Boolean);
  const shown = parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : path;
  return h("span", { class: "path", title: visible(path) }, shownText(shown));
}
