// The little that a program may touch. All else is gone before its first byte is read.

import { makeCrypto, random } from "./chance.js";
import { makeDate, makePerformance, tameTime } from "./clock.js";
import { tameStacks, ToolError } from "./errors.js";
import { defineProperty, hidden, NativePromise, NativeTypeError, ownKeys, then } from "./native.js";
import { makeConsole } from "./printing.js";
import { clearTimer, setInterval, setTimeout } from "./requests.js";

const KEPT = `
  AbortController AbortSignal AggregateError Array ArrayBuffer AsyncDisposableStack BigInt BigInt64Array
  BigUint64Array Boolean CustomEvent DOMException DataView DisposableStack Error EvalError Event EventTarget
  Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array Intl Iterator JSON
  Map Math NaN Number Object Promise Proxy RangeError ReferenceError Reflect RegExp Set String SuppressedError
  Symbol SyntaxError Temporal TextDecoder TextEncoder TypeError URIError URL URLSearchParams Uint16Array
  Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakSet atob btoa decodeURI decodeURIComponent encodeURI
  encodeURIComponent escape globalThis isFinite isNaN parseFloat parseInt structuredClone undefined unescape
`;

const resolved = NativePromise.resolve();
const queueMicrotask = (callback) => {
  if (typeof callback !== "function") throw new NativeTypeError("a microtask needs a function");
  then(resolved, () => callback());
};

export const lockDown = () => {
  const kept = new Set(KEPT.trim().split(/\s+/));
  for (const key of ownKeys(globalThis)) {
    if (typeof key === "string" && !kept.has(key)) delete globalThis[key];
  }
  delete URL.createObjectURL;
  delete URL.revokeObjectURL;
  delete AbortSignal.timeout;
  tameTime();
  tameStacks();
  defineProperty(Math, "random", hidden(random));
  const given = {
    Date: makeDate(),
    ToolError,
    clearInterval: clearTimer,
    clearTimeout: clearTimer,
    console: makeConsole(),
    crypto: makeCrypto(),
    performance: makePerformance(),
    queueMicrotask,
    setInterval,
    setTimeout,
  };
  for (const name of ownKeys(given)) defineProperty(globalThis, name, hidden(given[name]));
};
