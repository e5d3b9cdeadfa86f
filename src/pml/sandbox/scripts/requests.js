// What a program asks of the host: calls through `mcp`, and timers. Each is numbered and answered once.

import { NoData, toJson, TooLarge } from "./data.js";
import { ToolError } from "./errors.js";
import {
  apply,
  create,
  cut,
  defineProperty,
  freeze,
  hidden,
  isArray,
  isWellFormed,
  mapGet,
  mapSet,
  NativeError,
  NativeNumber,
  NativePromise,
  NativeRangeError,
  NativeTypeError,
  nothing,
  quoteJson,
  toWellFormed,
} from "./native.js";
import { run } from "./state.js";

const NativeProxy = Proxy;
const parseJson = JSON.parse;
const NAME_CHARS = 200; // of a name in a message

const codes = new WeakMap(); // error → the code of the fault that it is
const pending = create(null); // number → who waits for the reply
let asked = ""; // since the last turn, as JSON
let made = 0; // in the whole run
let open = 0; // without a reply
let endWith = null;

/** Have `limit` called with the reason when a program asks for too much. */
export const onLimit = (limit) => {
  endWith = limit;
};
export const isWaiting = () => open > 0;
export const codeOf = (error) => mapGet(codes, error);
/** Return the requests since the last time, as JSON. */
export const takeRequests = () => {
  const taken = asked;
  asked = "";
  return taken;
};

// Nothing of a turn that asks for too much is told.
const refuse = (message) => {
  asked = "";
  endWith(message);
  return new NativeError(message);
};
const request = (text) => {
  const { limits } = run;
  if (run.phase === "ended") throw new NativeError("the code has ended");
  if (open >= limits.open) throw refuse(`more than ${limits.open} calls and timers are open at once`);
  if (made >= limits.requests) throw refuse(`more than ${limits.requests} calls and timers in one run`);
  if (asked.length + text.length > limits.line) {
    throw refuse(`the calls of one turn are larger than ${limits.line} bytes`);
  }
  asked += `${asked === "" ? "" : ","}${text},"number":${made}}`;
  open += 1;
  return made++;
};

// ---------------------------------------------------------------- calls
const readArguments = (value, name) => {
  const noObject = `the arguments of ${name} must be one object`;
  if (value === undefined) return "{}";
  if (typeof value !== "object" || value === null || isArray(value)) throw new NativeTypeError(noObject);
  try {
    const text = toJson(value, "args", run.limits.line);
    if (text[0] !== "{") throw new NativeTypeError(noObject);
    return text;
  } catch (error) {
    if (error instanceof TooLarge) {
      throw refuse(`the arguments of ${name} are larger than ${run.limits.line} bytes`);
    }
    if (!(error instanceof NoData)) throw error;
    throw new NativeTypeError(`the arguments of ${name} are no data: ${error.path} is ${error.what}`);
  }
};
const call = (namespace, action, value) => {
  if (run.phase === "ended") return new NativePromise(nothing); // it leads nowhere any more
  const error = new ToolError(); // here, so that it tells where the call was made
  return new NativePromise((resolve, reject) => {
    const name = toWellFormed(`mcp.${namespace}.${action}`);
    if (!isWellFormed(namespace) || !isWellFormed(action)) throw new NativeTypeError(`${name} is no name`);
    const text = readArguments(value, cut(name, NAME_CHARS));
    const called = `"namespace":${quoteJson(namespace)},"action":${quoteJson(action)}`;
    const number = request(`{"type":"call",${called},"arguments":${text}`);
    pending[number] = { __proto__: null, resolve, reject, error, fire: null };
  });
};

// It is no promise: who awaits it gets it back, and nothing is called.
const names = (make) =>
  new NativeProxy(freeze(create(null)), {
    __proto__: null,
    get: (_, name) => typeof name !== "string" || name === "then" ? undefined : make(name),
  });
export const mcp = names((namespace) => names((action) => (value) => call(namespace, action, value)));

// ---------------------------------------------------------------- timers
const timers = create(null); // id → the timer, until it is cleared or has fired
let timed = 0;

const arm = (id, timer) => {
  const number = request(`{"type":"sleep","seconds":${timer.seconds}`);
  const fire = () => {
    if (timers[id] !== timer) return;
    if (!timer.again) delete timers[id];
    try {
      apply(timer.callback, undefined, timer.args);
    } finally {
      if (timers[id] === timer) arm(id, timer);
    }
  };
  pending[number] = { __proto__: null, fire };
};
const timerOf = (again) => (callback, delay, ...args) => {
  if (typeof callback !== "function") throw new NativeTypeError("a timer needs a function");
  const milliseconds = NativeNumber(delay);
  const seconds = milliseconds > 0 ? milliseconds / 1000 : 0;
  if (seconds > run.limits.sleep) throw new NativeRangeError(`a timer lasts at most ${run.limits.sleep} s`);
  const timer = { __proto__: null, callback, args, again, seconds };
  const id = ++timed;
  timers[id] = timer;
  arm(id, timer);
  return id;
};
export const setTimeout = timerOf(false);
export const setInterval = timerOf(true);
export const clearTimer = (id) => {
  if (typeof id === "number") delete timers[id];
};

// ---------------------------------------------------------------- replies
/** Give the program the reply to one of its requests; throws what a timer throws. */
export const settle = ({ number, fault }, text) => {
  const waiting = pending[number];
  if (waiting === undefined) return;
  delete pending[number];
  open -= 1;
  if (waiting.fire !== null) return waiting.fire();
  if (fault !== null) return reject(waiting, fault.code, fault.message);
  let value;
  try {
    value = parseJson(text);
  } catch {
    return reject(waiting, "invalid", "the result of the call is not JSON");
  }
  waiting.resolve(value);
};
const reject = (waiting, code, message) => {
  mapSet(codes, waiting.error, code);
  defineProperty(waiting.error, "code", hidden(code));
  defineProperty(waiting.error, "message", hidden(message));
  waiting.reject(waiting.error);
};
