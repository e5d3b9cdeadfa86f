// Randomness of a program: ChaCha20 with the seed of the run as its key, so that a replay draws the same.
//
// What the system offers besides is kept to what needs no chance. It works on other threads, so it is done
// one by one: else the order in which it is finished would differ from run to run.

import {
  apply,
  create,
  execRegExp,
  getter,
  NativeNumber,
  NativePromise,
  NativeRangeError,
  NativeTypeError,
  NativeUint8Array,
  slice,
  then,
  TypedArrayPrototype,
} from "./native.js";
import { property } from "./errors.js";
import { run } from "./state.js";

const typedBuffer = getter(TypedArrayPrototype, "buffer");
const typedOffset = getter(TypedArrayPrototype, "byteOffset");
const typedBytes = getter(TypedArrayPrototype, "byteLength");
const typedTag = getter(TypedArrayPrototype, Symbol.toStringTag);
const rejected = Promise.reject.bind(Promise);
const { subtle } = crypto;

const INTEGERS = /^(?:Big)?(?:Int|Uint)\d+(?:Clamped)?Array$/;
const HEX = "0123456789abcdef";
const MOST_BYTES = 65536; // as the standard has it

const state = new Uint32Array(16);
const block = new Uint32Array(16);
const bytes = new Uint8Array(block.buffer);
let used = 64; // of the bytes of the block

/** Begin with this seed, 32 bytes in hexadecimal digits. */
export const seed = (hex) => {
  state.set([0x61707865, 0x3320646e, 0x79622d32, 0x6b206574]);
  for (let i = 0; i < 8; i++) {
    let word = 0;
    for (let j = 3; j >= 0; j--) {
      const at = (4 * i + j) * 2;
      word = word * 256 + NativeNumber(`0x${slice(hex, at, at + 2)}`);
    }
    state[4 + i] = word;
  }
};
const mix = (target, other, bits) => {
  const word = block[target] ^ block[other];
  block[target] = (word << bits) | (word >>> (32 - bits));
};
const quarter = (a, b, c, d) => {
  block[a] += block[b];
  mix(d, a, 16);
  block[c] += block[d];
  mix(b, c, 12);
  block[a] += block[b];
  mix(d, a, 8);
  block[c] += block[d];
  mix(b, c, 7);
};
const refill = () => {
  for (let i = 0; i < 16; i++) block[i] = state[i];
  for (let round = 0; round < 10; round++) {
    for (let i = 0; i < 4; i++) quarter(i, 4 + i, 8 + i, 12 + i);
    for (let i = 0; i < 4; i++) quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
  }
  for (let i = 0; i < 16; i++) block[i] += state[i];
  if (++state[12] === 0) state[13]++;
  used = 0;
};
const randomByte = () => {
  if (used === 64) refill();
  return bytes[used++];
};

export const random = () => {
  let value = randomByte() >>> 3; // 53 bits in all
  for (let i = 0; i < 6; i++) value = value * 256 + randomByte();
  return value / 2 ** 53;
};
const getRandomValues = (array) => {
  const tag = typeof array === "object" && array !== null ? typedTag(array) : undefined;
  if (tag === undefined || execRegExp(INTEGERS, tag) === null) {
    throw new NativeTypeError("an integer typed array is needed");
  }
  const size = typedBytes(array);
  if (size > MOST_BYTES) throw new NativeRangeError(`at most ${MOST_BYTES} random bytes at once`);
  const target = new NativeUint8Array(typedBuffer(array), typedOffset(array), size);
  for (let i = 0; i < size; i++) target[i] = randomByte();
  return array;
};
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

const queue = create(null);
let queued = 0;
let served = 0;
const serve = () => {
  const job = queue[served];
  const answer = (give) => (value) => {
    give(value);
    delete queue[served++];
    run.working -= 1;
    if (run.working > 0) serve();
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
    run.working += 1;
    if (run.working === 1) serve();
  });
// Keys are not made here, nor signatures that draw on the system's randomness.
const hmacOnly = (method, position) => (...args) => {
  const given = args[position];
  const name = typeof given === "string" ? given : property(given, "name");
  if (execRegExp(/^hmac$/i, name) === null) return rejected(new NativeTypeError("only HMAC is offered here"));
  return apply(method, undefined, args);
};

export const makeCrypto = () => ({
  getRandomValues,
  randomUUID,
  subtle: {
    digest: oneByOne(subtle.digest),
    importKey: hmacOnly(oneByOne(subtle.importKey), 2),
    sign: hmacOnly(oneByOne(subtle.sign), 0),
    verify: hmacOnly(oneByOne(subtle.verify), 0),
  },
});
