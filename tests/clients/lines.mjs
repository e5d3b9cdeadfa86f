// Drives one MCP client by lines: each line of stdin is a request, each line of stdout its answer.
// The first line says which server to start, or where one is, and how; what it means to a client is `open`'s business.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";

/** Packages are installed beneath `MCP_CLIENTS`, not beside this file. */
export const require = createRequire(`${process.env.MCP_CLIENTS}/package.json`);

/** What was shown since the last answer, what will be answered next, and how long the person reads before. */
const person = { forms: [], answer: null, reads_s: 0 };

export const fill = async (request) => {
  person.forms.push(request.params);
  await setTimeout(person.reads_s * 1000);
  return person.answer ?? new Promise(() => {}); // no answer: the form stays open
};

const failure = (error) => ({
  error: { code: error.code ?? null, message: error.message, data: error.data ?? null },
});

async function perform(client, request) {
  if (request.do === "tools") return await client.tools();
  Object.assign(person, { answer: request.answer, reads_s: request.reads_s });
  return await client.call({ name: request.name, arguments: request.arguments });
}

export async function serve(open) {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
  const client = await open(JSON.parse((await lines.next()).value));
  say({ protocol: client.protocol() });
  for await (const line of lines) {
    const outcome = await perform(client, JSON.parse(line)).then((result) => ({ result }), failure);
    say({ ...outcome, forms: person.forms.splice(0), notifications: client.notifications.splice(0) });
  }
  await client.close();
  process.exit(0); // an unanswered form would keep the process
}
