// The time that a program sees: that of the last reply. It stands still while the program works.

import { construct, defineProperty, getter, hidden, ownKeys, uncurried } from "./native.js";
import { run } from "./state.js";

const NativeDate = Date;
const dateText = uncurried(Date.prototype.toString);

export const makeDate = () => {
  function Date(...args) {
    if (new.target === undefined) return dateText(new NativeDate(run.now));
    return construct(NativeDate, args.length === 0 ? [run.now] : args, new.target);
  }
  defineProperty(Date, "prototype", { value: NativeDate.prototype, writable: false });
  defineProperty(Date, "length", { value: NativeDate.length });
  defineProperty(Date, "now", hidden(() => run.now));
  for (const name of ["parse", "UTC"]) defineProperty(Date, name, hidden(NativeDate[name]));
  defineProperty(NativeDate.prototype, "constructor", hidden(Date));
  return Date;
};

export const makePerformance = () => ({
  now: () => run.now - run.began,
  get timeOrigin() {
    return run.began;
  },
});

/** Have all else that tells the time tell this one. */
export const tameTime = () => {
  const { prototype } = Intl.DateTimeFormat;
  const formatOf = getter(prototype, "format");
  const partsOf = uncurried(prototype.formatToParts);
  defineProperty(prototype, "format", {
    get() {
      const native = formatOf(this);
      return (date) => native(date === undefined ? run.now : date);
    },
    configurable: true,
  });
  const formatToParts = function (date) {
    return partsOf(this, date === undefined ? run.now : date);
  };
  defineProperty(prototype, "formatToParts", hidden(formatToParts));
  if (typeof Temporal === "object") tameTemporal();
};
const tameTemporal = () => {
  const { Instant, ZonedDateTime, Now } = Temporal;
  const fromEpochMilliseconds = Instant.fromEpochMilliseconds;
  const toZoned = uncurried(Instant.prototype.toZonedDateTimeISO);
  const here = (zone = "UTC") => toZoned(fromEpochMilliseconds(run.now), zone);
  const parts = {
    plainDateTimeISO: "toPlainDateTime",
    plainDateISO: "toPlainDate",
    plainTimeISO: "toPlainTime",
  };
  for (const name of ownKeys(Now)) if (typeof name === "string") delete Now[name];
  defineProperty(Now, "instant", hidden(() => fromEpochMilliseconds(run.now)));
  defineProperty(Now, "timeZoneId", hidden(() => "UTC"));
  defineProperty(Now, "zonedDateTimeISO", hidden(here));
  for (const name of ownKeys(parts)) {
    const part = uncurried(ZonedDateTime.prototype[parts[name]]);
    defineProperty(Now, name, hidden((zone) => part(here(zone))));
  }
};
