// @ts-check
/**
 * Whether edited arguments fit a tool's schema, as far as helps while typing: required, types, enum, unknown. The hub
 * and the server judge again; what this does not know of a schema, or is malformed there, it lets pass.
 */

const TYPES = new Set(["array", "boolean", "integer", "null", "number", "object", "string"]);

/**
 * What is wrong with `value`, each with its place; nothing if it fits.
 * @param {any} schema
 * @param {unknown} value
 * @param {string} [place]
 * @returns {string[]}
 */
export function misfits(schema, value, place = "") {
  if (schema === null || typeof schema !== "object") return [];
  const where = place || "the arguments";
  const types = [schema.type ?? []].flat();
  if (types.length && types.every((type) => TYPES.has(type)) && !types.some((type) => isOf(type, value))) {
    return [`${where} must be ${types.map(article).join(" or ")}, not ${article(typeOf(value))}`];
  }
  if (Array.isArray(schema.enum) && !schema.enum.some((/** @type {unknown} */ each) => same(each, value))) {
    return [
      `${where} must be one of ${
        schema.enum.map((/** @type {unknown} */ each) => JSON.stringify(each)).join(", ")
      }`,
    ];
  }
  if ("const" in schema && !same(schema.const, value)) {
    return [`${where} must be ${JSON.stringify(schema.const)}`];
  }
  if (Array.isArray(value)) {
    return value.flatMap((each, index) => misfits(schema.items, each, `${place}[${index}]`));
  }
  if (typeOf(value) === "object") {
    return memberMisfits(schema, /** @type {Record<string, unknown>} */ (value), place);
  }
  return [];
}

/**
 * @param {any} schema
 * @param {Record<string, unknown>} value
 * @param {string} place
 */
function memberMisfits(schema, value, place) {
  const known = typeOf(schema.properties) === "object" ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required : [];
  const isClosed = schema.additionalProperties === false && !("patternProperties" in schema) &&
    known === (schema.properties ?? known);
  const at = (/** @type {string} */ name) => place ? `${place}.${name}` : name;
  const missing = required.filter((/** @type {unknown} */ name) =>
    typeof name === "string" && !Object.hasOwn(value, name)
  );
  const problems = missing.map((/** @type {string} */ name) => `${at(name)} is required`);
  for (const [name, member] of Object.entries(value)) {
    if (Object.hasOwn(known, name)) problems.push(...misfits(known[name], member, at(name)));
    else if (isClosed) problems.push(`${at(name)} is unknown to the tool`);
  }
  return problems;
}

/** @param {unknown} value */
function typeOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value;
}

/**
 * @param {string} type
 * @param {unknown} value
 */
function isOf(type, value) {
  return type === "integer" ? Number.isInteger(value) : type === typeOf(value);
}

/** @param {string} type */
function article(type) {
  if (type === "null") return type;
  return `${/^[aeiou]/.test(type) ? "an" : "a"} ${type}`;
}

/**
 * @param {unknown} one
 * @param {unknown} other
 */
function same(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}
