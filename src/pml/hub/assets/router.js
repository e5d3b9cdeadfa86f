// @ts-check
/** Which page is shown: `#/card/ID?search=x` is the page with the path `/card/:id`. Knows no page by name. */

/**
 * @typedef {{params: Record<string, string>, query: URLSearchParams, signal: AbortSignal}} Context
 * `signal` is aborted when the page is left.
 */
/**
 * @typedef {object} Page
 * @property {string} path
 * @property {string} title
 * @property {(root: HTMLElement, context: Context) => Promise<(() => void) | void>} render returns what ends the page
 */

/**
 * Go to a page: `go("/history?search=x")`.
 * @param {string} path
 */
export function go(path) {
  location.hash = `#${path}`;
}

/**
 * Show the page that the address names, now and whenever it changes. Where no path fits, the first page is shown.
 * @param {Page[]} pages
 * @param {HTMLElement} root
 * @param {{onPage: (page: Page) => void, onError: (root: HTMLElement, error: unknown) => void}} tell
 * @returns {() => Promise<void>} shows the page anew
 */
export function startRouter(pages, root, { onPage, onError }) {
  let leave = () => {};

  async function show() {
    const [path = "", query = ""] = location.hash.slice(1).split(/\?(.*)/s);
    const [page, params] = findPage(pages, path);
    leave();
    const left = new AbortController();
    /** @type {(() => void) | void} */
    let end;
    leave = () => {
      left.abort();
      end?.();
      for (const dialog of document.querySelectorAll("dialog")) dialog.close(); // it asked about what was there
    };
    const place = document.createElement("div");
    place.className = "page";
    root.replaceChildren(place);
    onPage(page);
    scrollTo(0, 0);
    try {
      const cleanup = await page.render(place, {
        params,
        query: new URLSearchParams(query),
        signal: left.signal,
      });
      if (left.signal.aborted) cleanup?.();
      else end = cleanup;
    } catch (error) {
      if (!left.signal.aborted) onError(place, error);
    }
  }

  addEventListener("hashchange", show);
  return show;
}

/**
 * @param {Page[]} pages
 * @param {string} path
 * @returns {[Page, Record<string, string>]}
 */
function findPage(pages, path) {
  for (const page of pages) {
    const params = fit(page.path.split("/"), path.split("/"));
    if (params) return [page, params];
  }
  return [/** @type {Page} */ (pages[0]), {}];
}

/**
 * @param {string[]} pattern
 * @param {string[]} given
 */
function fit(pattern, given) {
  if (pattern.length !== given.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [index, part] of pattern.entries()) {
    const piece = given[index] ?? "";
    if (part.startsWith(":")) params[part.slice(1)] = readPart(piece);
    else if (part !== piece) return null;
  }
  return params;
}

/** @param {string} piece */
function readPart(piece) {
  try {
    return decodeURIComponent(piece);
  } catch {
    return piece;
  }
}
