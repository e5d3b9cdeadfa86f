// @ts-check
/** What this browser keeps for the page. Where it keeps nothing, things last as long as the page does. */

/** @type {Map<string, string>} */
const lasting = new Map();

/**
 * @param {string} name
 * @returns {string | null}
 */
export function recall(name) {
  try {
    return localStorage.getItem(name) ?? lasting.get(name) ?? null;
  } catch {
    return lasting.get(name) ?? null;
  }
}

/**
 * Keep a value, or with null forget it. Returns whether the browser keeps it.
 * @param {string} name
 * @param {string | null} value
 */
export function keep(name, value) {
  lasting.delete(name);
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
    return true;
  } catch {
    if (value !== null) lasting.set(name, value);
    return false;
  }
}

/** Whether the browser keeps anything at all. */
export function isKeeping() {
  const kept = keep("pml.probe", "x".repeat(512)); // longer than a token
  keep("pml.probe", null);
  return kept;
}

/**
 * The same for this tab only: of a name, what was kept; with a value, keep that.
 * @param {string} name
 * @param {string | null} [value]
 * @returns {string | null}
 */
export function ofTab(name, value) {
  try {
    if (value === undefined) return sessionStorage.getItem(name);
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, value);
  } catch {
    // it is only for comfort
  }
  return value ?? null;
}
