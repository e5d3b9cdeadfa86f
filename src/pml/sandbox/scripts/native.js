// What scripts of this folder need of the built-in objects, taken before a program can change them.
//
// Whatever a program does to those objects must not matter here: after it has begun, only what was taken at
// the start is called, and nothing is looked up on an object that it could reach. So there is no `for … of`,
// no spreading and no destructuring of arrays in what runs by then: all of them ask the array's prototype.

export const { apply, construct, ownKeys, getOwnPropertyDescriptor, defineProperty, getPrototypeOf } =
  Reflect;
export const { create, freeze } = Object;

/** Return `method` as a function of what it is called on, and its arguments. */
export const uncurried = (method) => (self, ...args) => apply(method, self, args);
export const getter = (owner, name) => uncurried(getOwnPropertyDescriptor(owner, name).get);

export const NativeError = Error;
export const NativeNumber = Number;
export const NativePromise = Promise;
export const NativeRangeError = RangeError;
export const NativeTypeError = TypeError;
export const NativeUint8Array = Uint8Array;
export const TypedArrayPrototype = getPrototypeOf(Uint8Array.prototype);

export const isArray = Array.isArray;
export const quoteJson = JSON.stringify;
export const execRegExp = uncurried(RegExp.prototype.exec);
export const isPrototypeOf = uncurried(Object.prototype.isPrototypeOf);
export const isWellFormed = uncurried(String.prototype.isWellFormed);
export const slice = uncurried(String.prototype.slice);
export const startsWith = uncurried(String.prototype.startsWith);
export const then = uncurried(Promise.prototype.then);
export const toWellFormed = uncurried(String.prototype.toWellFormed);
export const mapGet = uncurried(WeakMap.prototype.get);
export const mapSet = uncurried(WeakMap.prototype.set);

export const nothing = () => {};
export const hidden = (value) => ({
  __proto__: null,
  value,
  writable: true,
  enumerable: false,
  configurable: true,
});
export const cut = (text, most) => text.length > most ? slice(text, 0, most) + "…" : text;
