// Values of a program written as JSON, or refused with the place of what is no data.
//
// It writes JSON itself: JSON.stringify would ask every prototype for `toJSON`, and drop functions in silence.

import {
  apply,
  freeze,
  getPrototypeOf,
  isArray,
  isPrototypeOf,
  isWellFormed,
  ownKeys,
  quoteJson,
  TypedArrayPrototype,
  uncurried,
} from "./native.js";
import { run } from "./state.js";

const isFiniteNumber = Number.isFinite;
const isEnumerable = uncurried(Object.prototype.propertyIsEnumerable);
const setAdd = uncurried(WeakSet.prototype.add);
const setHas = uncurried(WeakSet.prototype.has);
const setDelete = uncurried(WeakSet.prototype.delete);
const NativeWeakSet = WeakSet;
const ArrayPrototype = Array.prototype;
const ObjectPrototype = Object.prototype;

const KINDS = freeze({ __proto__: null, function: "a function", symbol: "a symbol", bigint: "a BigInt" });
const REFUSED = [
  [Map.prototype, "a Map"],
  [Set.prototype, "a Set"],
  [WeakMap.prototype, "a WeakMap"],
  [WeakSet.prototype, "a WeakSet"],
  [Promise.prototype, "a promise: an `await` is missing"],
  [Error.prototype, "an Error"],
  [RegExp.prototype, "a regular expression"],
  [ArrayBuffer.prototype, "an ArrayBuffer"],
  [DataView.prototype, "a DataView"],
  [TypedArrayPrototype, "a typed array"],
];

export class NoData {
  path; // as fields, which no setter on a prototype can take
  what;
  constructor(path, what) {
    this.path = path;
    this.what = what;
  }
}
export class TooLarge {}

const refusedKind = (item) => {
  const prototype = getPrototypeOf(item);
  if (prototype === ObjectPrototype || prototype === ArrayPrototype || prototype === null) return null;
  for (let i = 0; i < REFUSED.length; i++) {
    if (isPrototypeOf(REFUSED[i][0], item)) return REFUSED[i][1];
  }
  return null;
};

/** Return `value`, called `what`, as JSON of at most `most` characters. Throws NoData or TooLarge. */
export const toJson = (value, what, most) => {
  const above = new NativeWeakSet();
  let left = most;
  const spend = (text) => {
    left -= text.length;
    if (left < 0) throw new TooLarge();
    return text;
  };
  const member = (path, key) => `${path}[${typeof key === "string" ? quoteJson(key) : key}]`;
  const quoted = (text, path) => {
    if (text.length > left) throw new TooLarge();
    if (!isWellFormed(text)) throw new NoData(path, "text with half of a surrogate pair");
    return spend(quoteJson(text));
  };
  const write = (item, path, depth) => {
    if (item === null || item === undefined) return spend("null");
    if (typeof item === "string") return quoted(item, path);
    if (typeof item === "number") return spend(isFiniteNumber(item) ? `${item}` : "null");
    if (typeof item === "boolean") return spend(item ? "true" : "false");
    if (typeof item !== "object") throw new NoData(path, KINDS[typeof item]);
    if (depth > run.limits.depth) throw new NoData(path, `nested deeper than ${run.limits.depth} levels`);
    if (setHas(above, item)) throw new NoData(path, "a cycle");
    const kind = refusedKind(item);
    if (kind !== null) throw new NoData(path, kind);
    const own = item.toJSON;
    if (typeof own === "function") return write(apply(own, item, [""]), path, depth + 1);
    setAdd(above, item);
    const text = isArray(item) ? writeArray(item, path, depth) : writeObject(item, path, depth);
    setDelete(above, item);
    return text;
  };
  const writeArray = (items, path, depth) => {
    let text = spend("[");
    const length = items.length;
    for (let i = 0; i < length; i++) {
      text += (i === 0 ? "" : spend(",")) + write(items[i], member(path, i), depth + 1);
    }
    return text + spend("]");
  };
  const writeObject = (owner, path, depth) => {
    let text = spend("{");
    let isFirst = true;
    const keys = ownKeys(owner);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      if (typeof key !== "string" || !isEnumerable(owner, key)) continue;
      const item = owner[key];
      if (item === undefined) continue;
      const inner = member(path, key);
      text += `${isFirst ? "" : spend(",")}${quoted(key, inner)}:${write(item, inner, depth + 1)}`;
      isFirst = false;
    }
    return text + spend("}");
  };
  return write(value, what, 1);
};
