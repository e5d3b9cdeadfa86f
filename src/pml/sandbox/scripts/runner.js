// Runs one program, turn by turn, and tells the host of each turn in one line.
//
// A turn is all that the program does until it waits for the host. A program could harm nobody but itself by
// what it does to this process: the host knows it by its pipe, not by what it says.

import { NoData, toJson, TooLarge } from "./data.js";
import { heading, isError, position, property, shown } from "./errors.js";
import { seed } from "./chance.js";
import { lockDown } from "./globals.js";
import { readBytes, readHeader, readText, send } from "./host.js";
import { apply, cut, execRegExp, quoteJson, then, toWellFormed, uncurried } from "./native.js";
import { takeLines, unhandled } from "./printing.js";
import { codeOf, isWaiting, mcp, onLimit, settle, takeRequests } from "./requests.js";
import { run } from "./state.js";

const NativeBlob = Blob;
const parseJson = JSON.parse;
const trim = uncurried(String.prototype.trim);
const { createObjectURL, revokeObjectURL } = URL;
const later = setImmediate;

const REFUSED = /^(.*?) at \S*?:(\d+):(\d+)$/s; // how Deno tells that a module cannot be loaded
let patience = 50; // rounds that a module with a timer of its own is given to be loaded
let ended = ""; // how, as JSON

// ---------------------------------------------------------------- how it ends
const end = (how, fields) => {
  if (run.phase === "ended") return;
  run.phase = "ended";
  ended = `,"ended":{"how":${quoteJson(how)}${fields}}`;
};
const quoteText = (text) => quoteJson(toWellFormed(cut(text, run.limits.message)));
const fail = (how, message) => end(how, `,"message":${quoteText(message)}`);
onLimit((message) => fail("limit", message));

const raise = (error) => {
  if (!isError(error)) {
    const text = typeof error === "string" ? error : shown(error, run.limits.message);
    return fail("raised", `a thrown value that is no Error: ${text}`);
  }
  const code = codeOf(error);
  const coded = code === undefined ? "" : `,"code":${quoteText(code)}`;
  end("raised", `,"message":${quoteText(heading(error))}${position(error)}${coded}`);
};
const finish = (value) => {
  if (run.phase === "ended") return;
  try {
    end("returned", `,"value":${toJson(value, "result", run.limits.result)}`);
  } catch (error) {
    if (error instanceof NoData) fail("value", `the result is not data: ${error.path} is ${error.what}`);
    else if (error instanceof TooLarge) fail("limit", `the result is larger than ${run.limits.result} bytes`);
    else raise(error);
  }
};
const refuseCode = (error) => {
  if (run.phase !== "loading") return;
  const found = isError(error) ? execRegExp(REFUSED, property(error, "message")) : null;
  if (found === null) return raise(error);
  const line = found[2] - 1; // one stands in front of the program
  const place = line > 0 ? `,"line":${line},"column":${found[3]}` : "";
  end("syntax", `,"message":${quoteText(`SyntaxError: ${trim(found[1])}`)}${place}`);
};

// ---------------------------------------------------------------- how it begins
const begin = () => {
  const header = readHeader();
  run.limits = header.limits;
  run.began = run.now = header.at_ms;
  seed(header.seed);
  const args = parseJson(readText(header.args));
  const url = createObjectURL(new NativeBlob([readBytes(header.code)], { type: "application/javascript" }));
  const done = (next) => (loaded) => {
    revokeObjectURL(url);
    next(loaded);
  };
  // Only so is what it imports itself subject to the permissions of this process, of which there are none.
  then(import(url), done((loaded) => start(loaded, header.export, args)), done(refuseCode));
};
const start = (loaded, name, args) => {
  if (run.phase !== "loading") return;
  run.phase = "running";
  if (name === null) return perform(loaded.default, [args, mcp]);
  let method = loaded.default;
  if (typeof loaded[name] === "function") method = loaded[name];
  else if (typeof loaded.run === "function") method = loaded.run;
  if (typeof method !== "function") return fail("missing", `Method ${name} not found in capability`);
  perform(method, [args, { mcp }]);
};
const perform = async (method, args) => {
  let value;
  try {
    value = await apply(method, undefined, args);
  } catch (error) {
    return raise(error);
  }
  finish(value);
};

// ---------------------------------------------------------------- turn by turn
const deliver = () => {
  const reply = readHeader();
  const text = readText(reply.size);
  run.now = reply.at_ms;
  try {
    settle(reply, text);
  } catch (error) {
    unhandled(error);
  }
};
const isBusy = () => run.working > 0 || (run.phase === "loading" && (!isWaiting() || patience-- > 0));

// A turn ends when nothing is left to do: microtasks come before `later`, work of the system is counted.
const step = () => {
  if (isBusy()) return later(step);
  if (run.phase === "running" && !isWaiting()) {
    fail("raised", "Error: the code waits for something that can never happen");
  }
  send(`{"requests":[${takeRequests()}],"logs":[${takeLines()}]${ended}}\n`);
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
