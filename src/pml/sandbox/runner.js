// Runs one program, turn by turn, and tells of each turn in one line on standard output.
//
// All that the program may touch is in `KEPT`; the rest is gone before the first byte of it is read. Whatever
// it does to the built-in objects afterwards must not matter here: only what was captured at the start is
// called, and nothing is looked up on an object that it could reach. It could harm nobody but itself anyway:
// the host knows it by its pipe, not by what it says.

// ---------------------------------------------------------------- captured before anything can be changed
const { apply, construct, ownKeys, getOwnPropertyDescriptor, defineProperty, getPrototypeOf } = Reflect;
const { create, freeze } = Object;
const uncurried = (method) => (self, ...args) => apply(method, self, args);
const getter = (owner, name) => uncurried(getOwnPropertyDescriptor(owner, name).get);

const NativeDate = Date;
const NativeDateTimeFormat = Intl.DateTimeFormat;
const NativeError = Error;
const NativePromise = Promise;
const NativeProxy = Proxy;
const NativeTypeError = TypeError;
const NativeRangeError = RangeError;
const NativeUint8Array = Uint8Array;
const NativeURL = URL;
const NativeBlob = Blob;
const NativeString = String;
const NativeNumber = Number;

const isArray = Array.isArray;
const isFiniteNumber = Number.isFinite;
const parseJson = JSON.parse;
const quoteJson = JSON.stringify;
const floor = Math.floor;
const inspectValue = Deno.inspect;
const exit = Deno.exit;
const readInput = uncurried(Deno.stdin.readSync);
const writeOutput = uncurried(Deno.stdout.writeSync);
const { stdin, stdout } = Deno;
const later = setImmediate;
const createUrl = URL.createObjectURL;
const revokeUrl = URL.revokeObjectURL;
const decodeText = uncurried(TextDecoder.prototype.decode);
const encodeText = uncurried(TextEncoder.prototype.encode);
const decoder = new TextDecoder();
const encoder = new TextEncoder();
const subarray = uncurried(Uint8Array.prototype.subarray);
const setBytes = uncurried(Uint8Array.prototype.set);
const indexOfByte = uncurried(Uint8Array.prototype.indexOf);
const then = uncurried(Promise.prototype.then);
const slice = uncurried(String.prototype.slice);
const toWellFormed = uncurried(String.prototype.toWellFormed);
const isWellFormed = uncurried(String.prototype.isWellFormed);
const indexOf = uncurried(String.prototype.indexOf);
const startsWith = uncurried(String.prototype.startsWith);
const trim = uncurried(String.prototype.trim);
const execRegExp = uncurried(RegExp.prototype.exec);
const isPrototypeOf = uncurried(Object.prototype.isPrototypeOf);
const isEnumerable = uncurried(Object.prototype.propertyIsEnumerable);
const mapGet = uncurried(WeakMap.prototype.get);
const mapSet = uncurried(WeakMap.prototype.set);
const mapHas = uncurried(WeakMap.prototype.has);
const setAdd = uncurried(WeakSet.prototype.add);
const setHas = uncurried(WeakSet.prototype.has);
const setDelete = uncurried(WeakSet.prototype.delete);
const typedBuffer = getter(getPrototypeOf(Uint8Array.prototype), "buffer");
const typedOffset = getter(getPrototypeOf(Uint8Array.prototype), "byteOffset");
const typedBytes = getter(getPrototypeOf(Uint8Array.prototype), "byteLength");
const typedLength = getter(getPrototypeOf(Uint8Array.prototype), "length");
const typedTag = getter(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag);
const ObjectPrototype = Object.prototype;
const ArrayPrototype = Array.prototype;
const ErrorPrototype = Error.prototype;
const PromisePrototype = Promise.prototype;
const { subtle } = crypto;

// ---------------------------------------------------------------- the run
let phase = "loading"; // then "running", then "ended"
let limits = null;
let now = 0;
let began = 0;
let requests = "";
let logs = "";
let made = 0; // requests in the whole run
let open = 0; // requests without a reply
let logged = 0;
let working = 0; // operations of the system under way: a turn lasts until they are done
let ended = null; // JSON text
let patience = 50; // rounds that a module with a timer of its own is given to be loaded
const pending = create(null);

const end = (how, fields) => {
  if (phase === "ended") return;
  phase = "ended";
  ended = `{"how":${quoteJson(how)}${fields}}`;
};
const fail = (how, message) => end(how, `,"message":${quoteText(message)}`);
const cut = (text, most) => (text.length > most ? slice(text, 0, most) + "…" : text);
const quoteText = (text) => quoteJson(toWellFormed(cut(text, limits.message)));

// ---------------------------------------------------------------- values as data
class NoData {
  path; // as fields, which no setter on a prototype can take
  what;
  constructor(path, what) {
    this.path = path;
    this.what = what;
  }
}
class TooLarge {}

const REFUSED = [
  [Map.prototype, "a Map"],
  [Set.prototype, "a Set"],
  [WeakMap.prototype, "a WeakMap"],
  [WeakSet.prototype, "a WeakSet"],
  [PromisePrototype, "a promise: an `await` is missing"],
  [ErrorPrototype, "an Error"],
  [RegExp.prototype, "a regular expression"],
  [ArrayBuffer.prototype, "an ArrayBuffer"],
  [DataView.prototype, "a DataView"],
  [getPrototypeOf(Uint8Array.prototype), "a typed array"],
];
const refusedKind = (item) => {
  const prototype = getPrototypeOf(item);
  if (prototype === ObjectPrototype || prototype === ArrayPrototype || prototype === null) return null;
  for (let i = 0; i < REFUSED.length; i++) {
    if (isPrototypeOf(REFUSED[i][0], item)) return REFUSED[i][1];
  }
  return null;
};
const KINDS = freeze({ __proto__: null, function: "a function", symbol: "a symbol", bigint: "a BigInt" });

// Writes JSON itself: JSON.stringify would ask `toJSON` of every prototype, and drop functions in silence.
const toJson = (value, what, most) => {
  const above = new WeakSet();
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
    if (depth > limits.depth) throw new NoData(path, `nested deeper than ${limits.depth} levels`);
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
    const { length } = items;
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

// ---------------------------------------------------------------- errors and where they come from
const positions = new WeakMap(); // error → the innermost line and column of the program, as fields
const toolErrors = new WeakMap(); // error → its code
const SOURCE = /^(?:blob:|\/stripTypeScriptTypes\.ts$)/;

const CallSite = (() => {
  const found = create(null);
  const before = NativeError.prepareStackTrace;
  NativeError.prepareStackTrace = (_, sites) => sites;
  const [site] = new NativeError().stack;
  NativeError.prepareStackTrace = before;
  const prototype = getPrototypeOf(site);
  const names = ["getFileName", "getLineNumber", "getColumnNumber", "getFunctionName"];
  for (const name of names) found[name] = uncurried(prototype[name]);
  return freeze(found);
})();

// The program sees its own frames only, by line and column of its own text: those of this file and the random
// name it is loaded by would differ in another process.
const prepareStackTrace = (error, sites) => {
  let text = heading(error);
  let isFirst = true;
  for (let i = 0; i < sites.length; i++) {
    const file = CallSite.getFileName(sites[i]);
    if (typeof file !== "string" || execRegExp(SOURCE, file) === null) continue;
    // One line stands in front of the program; a source map has taken it away already.
    const line = CallSite.getLineNumber(sites[i]) - (startsWith(file, "blob:") ? 1 : 0);
    const column = CallSite.getColumnNumber(sites[i]);
    if (line < 1) continue;
    if (isFirst && typeof error === "object" && error !== null) {
      mapSet(positions, error, `,"line":${line},"column":${column}`);
    }
    isFirst = false;
    const name = CallSite.getFunctionName(sites[i]);
    text += name ? `\n    at ${name} (code.ts:${line}:${column})` : `\n    at code.ts:${line}:${column}`;
  }
  return text;
};

const asText = (value) => {
  try {
    return typeof value === "string" ? value : `${value}`;
  } catch {
    return "";
  }
};
const property = (owner, name) => {
  try {
    const value = owner[name];
    return value === undefined ? "" : asText(value);
  } catch {
    return "";
  }
};
const heading = (error) => {
  const name = property(error, "name") || "Error";
  const message = property(error, "message");
  return message ? `${name}: ${message}` : name;
};
const isError = (value) => {
  try {
    return typeof value === "object" && value !== null && isPrototypeOf(ErrorPrototype, value);
  } catch {
    return false; // a proxy that throws
  }
};
const shown = (value, most) => {
  try {
    return cut(inspectValue(value, { colors: false, depth: 4, strAbbreviateSize: most }), most);
  } catch {
    return "[a value that cannot be shown]";
  }
};

const raise = (error) => {
  if (!isError(error)) {
    const text = typeof error === "string" ? error : shown(error, limits.message);
    return fail("raised", `a thrown value that is no Error: ${text}`);
  }
  property(error, "stack"); // notes the position
  const code = mapGet(toolErrors, error);
  const coded = code === undefined ? "" : `,"code":${quoteText(code)}`;
  end("raised", `,"message":${quoteText(heading(error))}${mapGet(positions, error) ?? ""}${coded}`);
};

class ToolError extends Error {}
defineProperty(ToolError.prototype, "name", { value: "ToolError" });
freeze(ToolError.prototype);
freeze(ToolError);

// ---------------------------------------------------------------- requests: calls and timers
const nothing = () => {};
const refuse = (message) => {
  requests = "";
  fail("limit", message);
  return new NativeError(message);
};
const request = (text) => {
  if (phase === "ended") throw new NativeError("the code has ended");
  if (open >= limits.open) throw refuse(`more than ${limits.open} calls and timers are open at once`);
  if (made >= limits.requests) throw refuse(`more than ${limits.requests} calls and timers in one run`);
  if (requests.length + text.length > limits.line) {
    throw refuse(`the calls of one turn are larger than ${limits.line} bytes`);
  }
  requests += `${requests === "" ? "" : ","}${text},"number":${made}}`;
  open += 1;
  return made++;
};

const readArguments = (value, name) => {
  if (value === undefined) return "{}";
  if (typeof value !== "object" || value === null || isArray(value)) {
    throw new NativeTypeError(`the arguments of ${name} must be one object`);
  }
  try {
    const text = toJson(value, "args", limits.line);
    if (text[0] !== "{") throw new NativeTypeError(`the arguments of ${name} must be one object`);
    return text;
  } catch (error) {
    if (error instanceof NoData) {
      throw new NativeTypeError(`the arguments of ${name} are no data: ${error.path} is ${error.what}`);
    }
    if (error instanceof TooLarge) {
      throw refuse(`the arguments of ${name} are larger than ${limits.line} bytes`);
    }
    throw error;
  }
};

const call = (namespace, action, value) => {
  if (phase === "ended") return new NativePromise(nothing); // it leads nowhere any more
  const error = new ToolError(); // here, so that it tells where the call was made
  return new NativePromise((resolve, reject) => {
    const name = `mcp.${namespace}.${action}`;
    if (!isWellFormed(namespace) || !isWellFormed(action)) {
      throw new NativeTypeError(`${toWellFormed(name)} is no name`);
    }
    const text = readArguments(value, cut(name, 200));
    const number = request(
      `{"type":"call","namespace":${quoteJson(namespace)},"action":${quoteJson(action)},"arguments":${text}`,
    );
    pending[number] = { __proto__: null, resolve, reject, error, fire: null };
  });
};

const sealed = {
  __proto__: null,
  set: () => false,
  defineProperty: () => false,
  deleteProperty: () => false,
  setPrototypeOf: () => false,
};
const named = (make) =>
  new NativeProxy(freeze(create(null)), {
    ...sealed,
    __proto__: null,
    get: (_, name) => (typeof name !== "string" || name === "then" ? undefined : make(name)),
  });
const mcp = named((namespace) => named((action) => (value) => call(namespace, action, value)));

const timers = create(null); // id → the timer, until it is cleared or has fired
let timed = 0;
const arm = (id, timer) => {
  const number = request(`{"type":"sleep","seconds":${timer.seconds}`);
  pending[number] = {
    __proto__: null,
    fire: () => {
      if (timers[id] !== timer) return;
      if (!timer.again) delete timers[id];
      try {
        apply(timer.callback, undefined, timer.args);
      } finally {
        if (timers[id] === timer) arm(id, timer);
      }
    },
  };
};
const timerOf = (again) => (callback, delay, ...args) => {
  if (typeof callback !== "function") throw new NativeTypeError("a timer needs a function");
  const milliseconds = NativeNumber(delay);
  const seconds = milliseconds > 0 ? milliseconds / 1000 : 0;
  if (seconds > limits.sleep) throw new NativeRangeError(`a timer lasts at most ${limits.sleep} s`);
  const timer = { __proto__: null, callback, args, again, seconds };
  const id = ++timed;
  timers[id] = timer;
  arm(id, timer);
  return id;
};
const clearTimer = (id) => {
  if (typeof id === "number") delete timers[id];
};

// ---------------------------------------------------------------- what is printed
const log = (text) => {
  if (logged >= limits.logs) return;
  const line = toWellFormed(cut(text, limits.logs - logged));
  logged += line.length + 1;
  logs += `${logs === "" ? "" : ","}${quoteJson(line)}`;
  if (logged >= limits.logs) {
    logs += `,${quoteJson(`the rest was cut: more than ${limits.logs} bytes were printed`)}`;
  }
};
const PLACEHOLDER = /%([sdifjoOc%])/;
const format = (args) => {
  let text = "";
  let next = 0;
  if (typeof args[0] === "string") {
    let rest = args[next++];
    for (let found; (found = execRegExp(PLACEHOLDER, rest)) !== null;) {
      text += slice(rest, 0, found.index);
      rest = slice(rest, found.index + 2);
      if (found[1] === "%") text += "%";
      else if (next >= args.length) text += found[0];
      else if (found[1] === "c") next++;
      else text += printed(args[next++], found[1]);
      if (text.length > limits.logs) break;
    }
    text += rest;
  }
  for (; next < args.length; next++) text += `${next > 0 ? " " : ""}${printed(args[next], "s")}`;
  return text;
};
const printed = (value, letter) => {
  if (letter === "d" || letter === "f") {
    return typeof value === "symbol" ? "NaN" : asText(NativeNumber(value));
  }
  if (letter === "i") return typeof value === "number" ? asText(floor(value)) : asText(NativeNumber(value));
  return typeof value === "string" && letter !== "o" && letter !== "O" ? value : shown(value, limits.logs);
};
const print = (...args) => {
  if (logged >= limits.logs) return;
  try {
    log(format(args));
  } catch {
    log("[a value that cannot be shown]");
  }
};
const makeConsole = () => {
  const own = {};
  for (const name of ["log", "info", "debug", "warn", "error", "trace", "dir", "table"]) own[name] = print;
  own.dirxml = own.group = own.groupCollapsed = print;
  own.assert = (isTrue, ...args) => isTrue || print("Assertion failed:", args);
  for (const name of ["groupEnd", "time", "timeEnd", "timeLog", "count", "countReset", "clear"]) {
    own[name] = nothing;
  }
  return own;
};

// ---------------------------------------------------------------- chance: ChaCha20 with the run's seed as key
const state = new Uint32Array(16);
const block = new Uint32Array(16);
const blockBytes = new Uint8Array(block.buffer);
let used = 64;

const seed = (hex) => {
  setWords(state, [0x61707865, 0x3320646e, 0x79622d32, 0x6b206574]);
  for (let i = 0; i < 8; i++) {
    let word = 0;
    for (let j = 3; j >= 0; j--) {
      word = word * 256 + NativeNumber(`0x${slice(hex, (4 * i + j) * 2, (4 * i + j) * 2 + 2)}`);
    }
    state[4 + i] = word;
  }
};
const setWords = (target, words) => {
  for (let i = 0; i < words.length; i++) target[i] = words[i];
};
const quarter = (a, b, c, d) => {
  block[a] += block[b];
  turn(d, a, 16);
  block[c] += block[d];
  turn(b, c, 12);
  block[a] += block[b];
  turn(d, a, 8);
  block[c] += block[d];
  turn(b, c, 7);
};
const turn = (target, other, bits) => {
  const word = block[target] ^ block[other];
  block[target] = (word << bits) | (word >>> (32 - bits));
};
const refill = () => {
  for (let i = 0; i < 16; i++) block[i] = state[i];
  for (let round = 0; round < 10; round++) {
    quarter(0, 4, 8, 12);
    quarter(1, 5, 9, 13);
    quarter(2, 6, 10, 14);
    quarter(3, 7, 11, 15);
    quarter(0, 5, 10, 15);
    quarter(1, 6, 11, 12);
    quarter(2, 7, 8, 13);
    quarter(3, 4, 9, 14);
  }
  for (let i = 0; i < 16; i++) block[i] += state[i];
  if (++state[12] === 0) state[13]++;
  used = 0;
};
const randomByte = () => {
  if (used === 64) refill();
  return blockBytes[used++];
};
const random = () => {
  let value = randomByte() >>> 3; // 53 bits in all
  for (let i = 0; i < 6; i++) value = value * 256 + randomByte();
  return value / 2 ** 53;
};
const INTEGERS = /^(?:Big)?(?:Int|Uint)\d+(?:Clamped)?Array$/;
const getRandomValues = (array) => {
  const tag = typeof array === "object" && array !== null ? typedTag(array) : undefined;
  if (tag === undefined || execRegExp(INTEGERS, tag) === null) {
    throw new NativeTypeError("an integer typed array is needed");
  }
  const size = typedBytes(array);
  if (size > 65536) throw new NativeRangeError("at most 65536 random bytes at once");
  const bytes = new NativeUint8Array(typedBuffer(array), typedOffset(array), size);
  for (let i = 0; i < size; i++) bytes[i] = randomByte();
  return array;
};
const HEX = "0123456789abcdef";
const randomUUID = () => {
  let text = "";
  for (let i = 0; i < 16; i++) {
    let byte = randomByte();
    if (i === 6) byte = (byte & 0x0f) | 0x40;
    if (i === 8) byte = (byte & 0x3f) | 0x80;
    if (i === 4 || i === 6 || i === 8 || i === 10) text += "-";
    text += HEX[byte >> 4] + HEX[byte & 15];
  }
  return text;
};

// Operations that the system does on another thread: one after the other, so that their order is always the same.
const queue = create(null);
let queued = 0;
let served = 0;
const serve = () => {
  const job = queue[served];
  const next = () => {
    delete queue[served++];
    working -= 1;
    if (working > 0) serve();
  };
  const answer = (give) => (value) => {
    give(value);
    next();
  };
  try {
    then(apply(job.method, subtle, job.args), answer(job.resolve), answer(job.reject));
  } catch (error) {
    answer(job.reject)(error);
  }
};
const oneByOne = (method) => (...args) =>
  new NativePromise((resolve, reject) => {
    queue[queued++] = { __proto__: null, method, args, resolve, reject };
    working += 1;
    if (working === 1) serve();
  });
// Keys are not made here, nor signatures that draw on the system's randomness.
const hmacOnly = (method, position) => (...args) => {
  const given = args[position];
  const name = typeof given === "string" ? given : property(given, "name");
  if (execRegExp(/^hmac$/i, name) === null) {
    return NativePromise.reject(new NativeTypeError("only HMAC is offered here"));
  }
  return apply(method, undefined, args);
};
const makeCrypto = () => ({
  getRandomValues,
  randomUUID,
  subtle: {
    digest: oneByOne(subtle.digest),
    importKey: hmacOnly(oneByOne(subtle.importKey), 2),
    sign: hmacOnly(oneByOne(subtle.sign), 0),
    verify: hmacOnly(oneByOne(subtle.verify), 0),
  },
});

// ---------------------------------------------------------------- time: it stands still during a turn
const dateText = uncurried(Date.prototype.toString);
const makeDate = () => {
  function Date(...args) {
    if (new.target === undefined) return dateText(new NativeDate(now));
    return construct(NativeDate, args.length === 0 ? [now] : args, new.target);
  }
  const fixed = {
    prototype: NativeDate.prototype,
    now: () => now,
    parse: NativeDate.parse,
    UTC: NativeDate.UTC,
  };
  for (const name of ownKeys(fixed)) {
    defineProperty(Date, name, {
      value: fixed[name],
      writable: name !== "prototype",
      enumerable: false,
      configurable: name !== "prototype",
    });
  }
  defineProperty(Date, "length", { value: 7 });
  defineProperty(NativeDate.prototype, "constructor", {
    value: Date,
    writable: true,
    configurable: true,
    enumerable: false,
  });
  return Date;
};
const tameTime = () => {
  const { prototype } = NativeDateTimeFormat;
  const formatOf = getter(prototype, "format");
  const partsOf = uncurried(prototype.formatToParts);
  defineProperty(prototype, "format", {
    get() {
      const native = formatOf(this);
      return (date) => native(date === undefined ? now : date);
    },
    configurable: true,
  });
  defineProperty(prototype, "formatToParts", {
    value: function formatToParts(date) {
      return partsOf(this, date === undefined ? now : date);
    },
    writable: true,
    configurable: true,
  });
  defineProperty(Event.prototype, "timeStamp", {
    get: () => now - began,
    configurable: true,
    enumerable: true,
  });
  if (typeof Temporal === "object") tameTemporal();
};
const tameTemporal = () => {
  const { Instant, ZonedDateTime, Now } = Temporal;
  const from = Instant.fromEpochMilliseconds;
  const zoned = uncurried(Instant.prototype.toZonedDateTimeISO);
  const here = (zone = "UTC") => zoned(from(now), zone);
  const parts = {
    plainDateTimeISO: "toPlainDateTime",
    plainDateISO: "toPlainDate",
    plainTimeISO: "toPlainTime",
  };
  for (const name of ownKeys(Now)) if (typeof name === "string") delete Now[name];
  Now.instant = () => from(now);
  Now.timeZoneId = () => "UTC";
  Now.zonedDateTimeISO = here;
  for (const name of ownKeys(parts)) {
    const part = uncurried(ZonedDateTime.prototype[parts[name]]);
    Now[name] = (zone) => part(here(zone));
  }
};

// ---------------------------------------------------------------- the little that the program may touch
const KEPT = [
  "Object",
  "Function",
  "Array",
  "Number",
  "parseFloat",
  "parseInt",
  "Infinity",
  "NaN",
  "undefined",
  "Boolean",
  "String",
  "Symbol",
  "Promise",
  "RegExp",
  "Error",
  "AggregateError",
  "EvalError",
  "RangeError",
  "ReferenceError",
  "SyntaxError",
  "TypeError",
  "URIError",
  "SuppressedError",
  "globalThis",
  "JSON",
  "Math",
  "Intl",
  "Temporal",
  "ArrayBuffer",
  "DataView",
  "Uint8Array",
  "Int8Array",
  "Uint16Array",
  "Int16Array",
  "Uint32Array",
  "Int32Array",
  "BigUint64Array",
  "BigInt64Array",
  "Uint8ClampedArray",
  "Float16Array",
  "Float32Array",
  "Float64Array",
  "Map",
  "BigInt",
  "Set",
  "Iterator",
  "WeakMap",
  "WeakSet",
  "Proxy",
  "Reflect",
  "DisposableStack",
  "AsyncDisposableStack",
  "decodeURI",
  "decodeURIComponent",
  "encodeURI",
  "encodeURIComponent",
  "escape",
  "unescape",
  "isFinite",
  "isNaN",
  "AbortController",
  "AbortSignal",
  "CustomEvent",
  "DOMException",
  "Event",
  "EventTarget",
  "TextDecoder",
  "TextEncoder",
  "URL",
  "URLSearchParams",
  "atob",
  "btoa",
  "structuredClone",
];
const hidden = (value) => ({ value, writable: true, enumerable: false, configurable: true });

const lockDown = () => {
  const kept = new Set(KEPT);
  for (const key of ownKeys(globalThis)) {
    if (typeof key === "string" && !kept.has(key)) delete globalThis[key];
  }
  delete URL.createObjectURL;
  delete URL.revokeObjectURL;
  delete AbortSignal.timeout;
  tameTime();
  defineProperty(Math, "random", hidden(random));
  const resolved = NativePromise.resolve();
  const given = {
    Date: makeDate(),
    ToolError,
    console: makeConsole(),
    crypto: makeCrypto(),
    performance: {
      now: () => now - began,
      get timeOrigin() {
        return began;
      },
    },
    queueMicrotask: (callback) => {
      if (typeof callback !== "function") throw new NativeTypeError("a microtask needs a function");
      then(resolved, () => callback());
    },
    setTimeout: timerOf(false),
    setInterval: timerOf(true),
    clearTimeout: clearTimer,
    clearInterval: clearTimer,
  };
  for (const name of ownKeys(given)) defineProperty(globalThis, name, hidden(given[name]));
  defineProperty(NativeError, "prepareStackTrace", {
    value: prepareStackTrace,
    writable: false,
    configurable: false,
  });
};

// ---------------------------------------------------------------- the host
const input = new Uint8Array(65536);
let filled = 0;
let taken = 0;

const receive = () => {
  const count = readInput(stdin, input);
  if (count === null || count === 0) exit(0); // the host has gone
  filled = count;
  taken = 0;
};
const readHeader = () => {
  let text = "";
  for (;;) {
    const stop = indexOfByte(subarray(input, taken, filled), 10);
    const to = stop === -1 ? filled : taken + stop;
    text += decodeText(decoder, subarray(input, taken, to), { stream: stop === -1 });
    taken = stop === -1 ? to : to + 1;
    if (stop !== -1) return parseJson(text);
    receive();
  }
};
const readBytes = (size) => {
  const bytes = new NativeUint8Array(size);
  for (let done = 0; done < size;) {
    if (taken === filled) receive();
    const to = taken + (filled - taken < size - done ? filled - taken : size - done);
    setBytes(bytes, subarray(input, taken, to), done);
    done += to - taken;
    taken = to;
  }
  return bytes;
};
const readText = (size) => decodeText(decoder, readBytes(size));
const send = (text) => {
  const bytes = encodeText(encoder, text);
  const size = typedLength(bytes);
  for (let done = 0; done < size;) done += writeOutput(stdout, subarray(bytes, done));
};
const tell = () => {
  const said = ended === null ? "" : `,"ended":${ended}`;
  send(`{"requests":[${requests}],"logs":[${logs}]${said}}\n`);
  requests = "";
  logs = "";
  ended = null;
};

const begin = () => {
  const header = readHeader();
  limits = header.limits;
  began = now = header.at_ms;
  seed(header.seed);
  const args = parseJson(readText(header.args));
  const url = createUrl(new NativeBlob([readBytes(header.code)], { type: "application/javascript" }));
  const done = (next) => (loaded) => {
    revokeUrl(url);
    next(loaded);
  };
  then(import(url), done((loaded) => start(loaded, header.export, args)), done(refuseCode));
};

const LOADING = /^(.*?) at \S*?:(\d+):(\d+)$/s;
const refuseCode = (error) => {
  if (phase !== "loading") return;
  const found = isError(error) ? execRegExp(LOADING, property(error, "message")) : null;
  if (found === null) return raise(error);
  const line = found[2] - 1;
  end(
    "syntax",
    `,"message":${quoteText(`SyntaxError: ${trim(found[1])}`)}${
      line > 0 ? `,"line":${line},"column":${found[3]}` : ""
    }`,
  );
};

const start = (loaded, name, args) => {
  if (phase !== "loading") return;
  phase = "running";
  let method = loaded.default;
  if (name !== null) {
    if (typeof loaded[name] === "function") method = loaded[name];
    else if (typeof loaded.run === "function") method = loaded.run;
    if (typeof method !== "function") return fail("missing", `Method ${name} not found in capability`);
  }
  const given = name === null ? [args, mcp] : [args, { mcp }];
  settle(method, given);
};

const settle = async (method, given) => {
  let value;
  try {
    value = await apply(method, undefined, given);
  } catch (error) {
    return raise(error);
  }
  finish(value);
};

const finish = (value) => {
  if (phase === "ended") return;
  try {
    end("returned", `,"value":${toJson(value, "result", limits.result)}`);
  } catch (error) {
    if (error instanceof NoData) fail("value", `the result is no data: ${error.path} is ${error.what}`);
    else if (error instanceof TooLarge) fail("limit", `the result is larger than ${limits.result} bytes`);
    else raise(error);
  }
};

const deliver = () => {
  const reply = readHeader();
  const text = readText(reply.size);
  now = reply.at_ms;
  const waiting = pending[reply.number];
  if (waiting === undefined) return;
  delete pending[reply.number];
  open -= 1;
  if (waiting.fire !== null) return fire(waiting.fire);
  if (reply.fault !== null) return reject(waiting, reply.fault.code, reply.fault.message);
  let value;
  try {
    value = parseJson(text);
  } catch {
    return reject(waiting, "invalid", "the result of the call is not JSON");
  }
  waiting.resolve(value);
};
const reject = (waiting, code, message) => {
  mapSet(toolErrors, waiting.error, code);
  describe(waiting.error, "code", code);
  describe(waiting.error, "message", message);
  waiting.reject(waiting.error);
};
const describe = (error, name, value) =>
  defineProperty(error, name, {
    __proto__: null,
    value,
    writable: true,
    configurable: true,
    enumerable: false,
  });
const fire = (callback) => {
  try {
    callback();
  } catch (error) {
    unhandled(error);
  }
};
const unhandled = (error) => {
  if (limits !== null) log(`unhandled: ${isError(error) ? heading(error) : shown(error, limits.message)}`);
};

// A turn ends when nothing is left to do: microtasks come before `later`, work of the system is counted.
const step = () => {
  if (working > 0 || (phase === "loading" && (open === 0 || patience-- > 0))) return later(step);
  if (phase === "running" && open === 0) {
    fail("raised", "Error: the code waits for something that can never happen");
  }
  tell();
  deliver();
  later(step);
};

for (const kind of ["unhandledrejection", "error"]) {
  globalThis.addEventListener(kind, (event) => {
    event.preventDefault();
    unhandled(kind === "error" ? event.error : event.reason);
  });
}
lockDown();
later(() => {
  send('{"ready":true}\n');
  begin();
  later(step);
});
