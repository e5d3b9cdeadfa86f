// The host at the other end of the pipes. It says one thing at a time: a line of JSON, and the bytes whose
// number the line tells. It hears one line for it.

import { getter, NativeUint8Array, TypedArrayPrototype, uncurried } from "./native.js";

const { exit, stdin, stdout } = Deno;
const parseJson = JSON.parse;
const readInput = uncurried(stdin.readSync);
const writeOutput = uncurried(stdout.writeSync);
const decoder = new TextDecoder();
const encoder = new TextEncoder();
const decodeText = uncurried(TextDecoder.prototype.decode);
const encodeText = uncurried(TextEncoder.prototype.encode);
const indexOf = uncurried(TypedArrayPrototype.indexOf);
const setBytes = uncurried(TypedArrayPrototype.set);
const lengthOf = getter(TypedArrayPrototype, "length");
const bufferOf = getter(TypedArrayPrototype, "buffer");

const input = new Uint8Array(65536);
let filled = 0;
let taken = 0;

const part = (bytes, from, to) => new NativeUint8Array(bufferOf(bytes), from, to - from);

const receive = () => {
  const count = readInput(stdin, input);
  if (count === null || count === 0) exit(0); // the host has gone
  filled = count;
  taken = 0;
};

export const readHeader = () => {
  let text = "";
  for (;;) {
    const rest = part(input, taken, filled);
    const stop = indexOf(rest, 10);
    const size = stop === -1 ? filled - taken : stop;
    text += decodeText(decoder, part(input, taken, taken + size), { __proto__: null, stream: stop === -1 });
    taken += size;
    if (stop !== -1) {
      taken += 1;
      return parseJson(text);
    }
    receive();
  }
};
export const readBytes = (size) => {
  const bytes = new NativeUint8Array(size);
  for (let done = 0; done < size;) {
    if (taken === filled) receive();
    const count = filled - taken < size - done ? filled - taken : size - done;
    setBytes(bytes, part(input, taken, taken + count), done);
    done += count;
    taken += count;
  }
  return bytes;
};
export const readText = (size) => decodeText(decoder, readBytes(size));
export const send = (text) => {
  const bytes = encodeText(encoder, text);
  const size = lengthOf(bytes);
  for (let done = 0; done < size;) done += writeOutput(stdout, part(bytes, done, size));
};
