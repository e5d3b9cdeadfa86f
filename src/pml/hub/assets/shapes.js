// @ts-check
/** The shapes that the hub answers with, as far as cards need them: types only. */

/** @typedef {import("./dom.js").Line} Line */
/** @typedef {{mark: "same" | "added" | "removed" | "gap", line: Line, old: number | null, new: number | null}} DiffLine */
/** @typedef {{kind: "facts", rows: {name: string, value: string, alarming: boolean}[]}} Facts */
/** @typedef {{kind: "diff", title: string, note: string | null, lines: DiffLine[], more: number}} Diff */
/** @typedef {{kind: "command", lines: Line[], cwd: string, says: string | null, more: number}} Command */
/** @typedef {{kind: "code", title: string, language: string | null, lines: Line[], more: number}} Code */
/** @typedef {{kind: "arguments", title: string, lines: string[], more: number, raw: boolean}} Arguments */
/** @typedef {Facts | Diff | Command | Code | Arguments} Block */
/** @typedef {{id: string, name: string, is_agent: boolean, has_ended: boolean}} Ancestor */
/** @typedef {{entry: unknown, text: string, file: string, note: string | null}} Always */
/** @typedef {{id: string, tool: string, sentence: string, glimpse?: string}} Covered another that "always" would let run */
/** @typedef {{kind: string, id: string, channel: string}} Decider */
/**
 * @typedef {object} Outcome
 * @property {string} text
 * @property {Decider | null} by
 * @property {string | null} scope
 * @property {string | null} message
 * @property {string | null} reason
 * @property {boolean} edited
 * @property {string} at
 */
/**
 * @typedef {object} Card
 * @property {string} id
 * @property {string} digest
 * @property {string} status
 * @property {string} subject
 * @property {string} tool
 * @property {string} title
 * @property {string} sentence
 * @property {string} verb what allowing it does
 * @property {string | null} chip what marks it in a list, where it is no call
 * @property {string | null} kind what it is, where it is read by itself and never answered with others
 * @property {string | null} server
 * @property {boolean} quoted
 * @property {string | null} touches what a call that is told in a server's words names
 * @property {string[]} warnings
 * @property {Block[]} blocks
 * @property {string} why
 * @property {{verdict: string, entry: string, file: string | null, line: number | null} | null} rule
 * @property {string} session
 * @property {string} session_name
 * @property {Ancestor[]} lineage
 * @property {string} workspace
 * @property {string} created_at
 * @property {string} expires_at
 * @property {number} hidden
 * @property {Record<string, unknown> | null} input
 * @property {any} schema
 * @property {string | null} remember
 * @property {Always | null} always
 * @property {Always | null} always_exactly
 * @property {Covered[]} covers
 * @property {string[]} missing
 * @property {string | null} page
 * @property {string[]} may_allow
 * @property {string | null} run_id
 * @property {Outcome | null} outcome
 * @property {boolean} cut
 */
/** @typedef {{session: string, session_name: string, tool: string, reason: string, count: number, at: string, text: string}} Notice what was refused unasked */
/**
 * @typedef {object} Answer what is sent to decide a card
 * @property {boolean} allow
 * @property {string} digest
 * @property {"once" | "session" | "always"} [scope]
 * @property {boolean} [literal]
 * @property {string} [message]
 * @property {string} [updated_input] as JSON
 * @property {string[]} [release]
 */

export {};
