// The console of a program: its lines are kept for the host, up to a number of characters in all.

import { cut, execRegExp, NativeNumber, nothing, quoteJson, slice, toWellFormed } from "./native.js";
import { asText, heading, isError, shown } from "./errors.js";
import { run } from "./state.js";

const floor = Math.floor;
const PLACEHOLDER = /%([sdifjoOc%])/;
let lines = ""; // as JSON, since the last turn
let printed = 0; // in the whole run

export const log = (text) => {
  const most = run.limits.logs;
  if (printed >= most) return;
  const line = toWellFormed(cut(text, most - printed));
  printed += line.length + 1;
  lines += `${lines === "" ? "" : ","}${quoteJson(line)}`;
  if (printed >= most) lines += `,${quoteJson(`the rest was cut: more than ${most} bytes were printed`)}`;
};
/** Return the lines since the last time, as JSON. */
export const takeLines = () => {
  const taken = lines;
  lines = "";
  return taken;
};
/** Note an error that nobody caught. */
export const unhandled = (error) => {
  if (run.limits === null) return;
  log(`unhandled: ${isError(error) ? heading(error) : shown(error, run.limits.message)}`);
};

const one = (value, letter) => {
  if (letter === "d" || letter === "f") {
    return typeof value === "symbol" ? "NaN" : asText(NativeNumber(value));
  }
  if (letter === "i") return typeof value === "number" ? asText(floor(value)) : asText(NativeNumber(value));
  return typeof value === "string" && letter !== "o" && letter !== "O"
    ? value
    : shown(value, run.limits.logs);
};
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
      else text += one(args[next++], found[1]);
      if (text.length > run.limits.logs) break;
    }
    text += rest;
  }
  for (; next < args.length; next++) text += `${next > 0 ? " " : ""}${one(args[next], "s")}`;
  return text;
};
const print = (...args) => {
  if (printed >= run.limits.logs) return;
  try {
    log(format(args));
  } catch {
    log("[a value that cannot be shown]");
  }
};

export const makeConsole = () => {
  const own = {};
  const printing = "log info debug warn error trace dir dirxml table group groupCollapsed";
  for (const name of printing.split(" ")) own[name] = print;
  for (const name of "groupEnd time timeEnd timeLog count countReset clear".split(" ")) own[name] = nothing;
  own.assert = (isTrue, ...args) => isTrue || print("Assertion failed:", args);
  return own;
};
