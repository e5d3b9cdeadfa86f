// Errors of a program: how they are told, and where in its text they come from.
//
// The program sees its own frames only, by line and column of its own text: those of these scripts and the
// random name that it is loaded by would differ in another process.

import {
  create,
  cut,
  defineProperty,
  execRegExp,
  freeze,
  getPrototypeOf,
  isPrototypeOf,
  mapGet,
  mapSet,
  NativeError,
  startsWith,
  uncurried,
} from "./native.js";

const inspectValue = Deno.inspect;
const ErrorPrototype = Error.prototype;
const SOURCE = /^(?:blob:|\/stripTypeScriptTypes\.ts$)/;
const positions = new WeakMap(); // error → the innermost line and column of the program, as fields

export class ToolError extends Error {}
defineProperty(ToolError.prototype, "name", { value: "ToolError" });
freeze(ToolError.prototype);
freeze(ToolError);

const frame = (() => {
  NativeError.prepareStackTrace = (_, sites) => sites;
  const prototype = getPrototypeOf(new NativeError().stack[0]);
  const methods = create(null);
  for (const name of ["getFileName", "getLineNumber", "getColumnNumber", "getFunctionName"]) {
    methods[name] = uncurried(prototype[name]);
  }
  return freeze(methods);
})();

const prepareStackTrace = (error, sites) => {
  let text = heading(error);
  let isFirst = true;
  for (let i = 0; i < sites.length; i++) {
    const file = frame.getFileName(sites[i]);
    if (typeof file !== "string" || execRegExp(SOURCE, file) === null) continue;
    // One line stands in front of the program; a source map has taken it away already.
    const line = frame.getLineNumber(sites[i]) - (startsWith(file, "blob:") ? 1 : 0);
    const column = frame.getColumnNumber(sites[i]);
    if (line < 1) continue;
    if (isFirst) mapSet(positions, error, `,"line":${line},"column":${column}`);
    isFirst = false;
    const name = frame.getFunctionName(sites[i]);
    const place = `code.ts:${line}:${column}`;
    text += name ? `\n    at ${name} (${place})` : `\n    at ${place}`;
  }
  return text;
};

/** Have all stacks written by the function above, for good. */
export const tameStacks = () =>
  defineProperty(NativeError, "prepareStackTrace", {
    value: prepareStackTrace,
    writable: false,
    configurable: false,
  });

export const asText = (value) => {
  try {
    return typeof value === "string" ? value : `${value}`;
  } catch {
    return "";
  }
};
export const property = (owner, name) => {
  try {
    const value = owner[name];
    return value === undefined ? "" : asText(value);
  } catch {
    return "";
  }
};
/** Return name and message of an error, whatever it makes of being asked for them. */
export const heading = (error) => {
  const name = property(error, "name") || "Error";
  const message = property(error, "message");
  return message ? `${name}: ${message}` : name;
};
export const isError = (value) => {
  try {
    return typeof value === "object" && value !== null && isPrototypeOf(ErrorPrototype, value);
  } catch {
    return false; // a proxy that throws
  }
};
/** Return where the error comes from, as fields of JSON; nothing if that is not known. */
export const position = (error) => {
  property(error, "stack"); // has it written, which notes the position
  return mapGet(positions, error) ?? "";
};
export const shown = (value, most) => {
  try {
    return cut(inspectValue(value, { colors: false, depth: 4, strAbbreviateSize: most }), most);
  } catch {
    return "[a value that cannot be shown]";
  }
};
