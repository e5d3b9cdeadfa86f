// The one run of this process, as far as several scripts share it.

export const run = {
  __proto__: null,
  limits: null, // as the host says them
  phase: "loading", // then "running", then "ended"
  began: 0,
  now: 0, // the time that the program sees: it stands still during a turn
  working: 0, // operations of the system under way: a turn lasts until they are done
};
