"""TypeScript in its sandbox: what code can say, what it gets, and how its errors are told."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.code.sandbox import CodeCall, Ended, Ending, Fault, Reply, Sleep, Turn
from pml.core.values import Json
from pml.sandbox.deno.sandbox import DenoSandbox
from tests.promises import promise
from tests.sandbox.deno_rig import BARE, NOON_MS, calls, deno_sandbox, opened, program, reply_to, run


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncGenerator[DenoSandbox]:
    async with deno_sandbox(BARE, tmp_path / "cache" / "code") as made:
        yield made


async def test_code_awaits_calls_and_returns_what_it_made_of_them(sandbox: DenoSandbox) -> None:
    code = """
type Found = { size: number };
const found = await mcp.files.read({ path: `${args.folder}/notes`, deep: [1, { a: null }] }) as Found;
console.log("size is", found.size);
return { twice: found.size * 2 };
"""
    ran = await run(sandbox, code, args={"folder": "/home"}, answer=lambda _: {"size": 21})
    assert calls(ran.requests) == [("files.read", {"path": "/home/notes", "deep": [1, {"a": None}]})]
    assert (ran.value, ran.logs) == ({"twice": 42}, ["size is 21"])


async def test_calls_made_together_are_told_together_and_answered_in_any_order(sandbox: DenoSandbox) -> None:
    execution = await opened(sandbox, program("return await Promise.all([mcp.a.one(), mcp.a.two({ x: 1 })])"))
    first = await execution.begin()
    one, two = (
        CodeCall(number=0, namespace="a", action="one", arguments={}),
        CodeCall(number=1, namespace="a", action="two", arguments={"x": 1}),
    )
    assert first == Turn(requests=[one, two], logs=[])
    assert await execution.deliver(reply_to(two, "second")) == Turn(requests=[], logs=[])
    last = await execution.deliver(reply_to(one, "first"))
    assert last.ended == Ended(how=Ending.RETURNED, value=b'["first","second"]')
    assert await execution.deliver(reply_to(one, "again")) == Turn()
    await execution.close()


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("", None),
        ("return undefined", None),
        ("return [1, undefined, NaN, -0, 1e21, 'ä\u2028']", [1, None, None, 0, 1e21, "ä\u2028"]),
        ("return { a: undefined, b: new Date(0), [Symbol('c')]: 1 }", {"b": "1970-01-01T00:00:00.000Z"}),
        ("class P { x = 1; get y() { return 2 } } return new P()", {"x": 1}),
        ("return { ['__proto__']: 1, constructor: 2 }", {"__proto__": 1, "constructor": 2}),
        ("enum Color { Red = 3 } return Color.Red", 3),
        ("type T = { a: number }; const t: T = { a: 1 } satisfies T; return t!.a", 1),
    ],
)
async def test_a_result_is_plain_data(sandbox: DenoSandbox, code: str, value: Json) -> None:
    assert (await run(sandbox, code)).value == value


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return { a: [() => 1] }", 'the result is not data: result["a"][0] is a function'),
        ("return Symbol('x')", "the result is not data: result is a symbol"),
        ("return { n: 1n }", 'the result is not data: result["n"] is a BigInt'),
        ("const a: any = {}; a.b = { a }; return a", 'the result is not data: result["b"]["a"] is a cycle'),
        ("return [new Map()]", "the result is not data: result[0] is a Map"),
        (
            "return { r: mcp.a.b() }",
            'the result is not data: result["r"] is a promise: an `await` is missing',
        ),
        ("return new Uint8Array(2)", "the result is not data: result is a typed array"),
        ("return '\\ud800'", "the result is not data: result is text with half of a surrogate pair"),
        ("let a: any = 1; for (let i = 0; i < 999; i++) a = [a]; return a", None),
        ("const a: any = { toJSON() { return this } }; return a", None),
    ],
)
async def test_a_result_that_is_no_data_is_told_by_its_place(
    sandbox: DenoSandbox, code: str, message: str | None
) -> None:
    ended = (await run(sandbox, code)).ended
    assert ended.how is Ending.VALUE
    assert ended.message == message or (message is None and "deeper than 256 levels" in ended.message)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("1", "must be one object"),
        ("[1]", "must be one object"),
        ("null", "must be one object"),
        ("'text'", "must be one object"),
        ("new Date()", "must be one object"),
        ("{ f() {} }", 'args["f"] is a function'),
        ("{ n: 1n }", 'args["n"] is a BigInt'),
        ("(() => { const a: any = {}; a.a = a; return a })()", 'args["a"] is a cycle'),
    ],
)
async def test_arguments_that_are_no_object_of_data_make_a_type_error(
    sandbox: DenoSandbox, given: str, why: str
) -> None:
    ran = await run(sandbox, f"try {{ await mcp.a.b({given} as any) }} catch (e) {{ return `${{e}}` }}")
    assert ran.requests == []
    assert isinstance(ran.value, str)
    assert ran.value.startswith("TypeError: the arguments of mcp.a.b")
    assert why in ran.value


async def test_a_failed_call_is_an_error_that_code_can_catch(sandbox: DenoSandbox) -> None:
    code = """
try { await mcp.mail.send({}) } catch (e) {
  const kinds = [e instanceof ToolError, e instanceof Error];
  return [...kinds, e.name, e.code, e.message, String(e), e.stack.split("\\n")];
}
"""
    ran = await run(sandbox, code, answer=lambda _: Fault(code="user_denied", message="denied by Ann"))
    assert (
        ran.value
        == [
            *(True, True, "ToolError", "user_denied", "denied by Ann", "ToolError: denied by Ann"),
            ["ToolError: denied by Ann", "    at default (code.ts:2:21)"],
        ]
        or ran.value
    )


async def test_an_uncaught_failed_call_ends_the_run_with_its_code_and_place(sandbox: DenoSandbox) -> None:
    code = "const a = 1;\n  await mcp.mail.send({});"
    ran = await run(sandbox, code, answer=lambda _: Fault(code="TOOL_DENIED", message="no"))
    assert ran.ended == Ended(
        how=Ending.RAISED, message="ToolError: no", line=2, column=18, code="TOOL_DENIED"
    )


@pytest.mark.parametrize(
    ("code", "export", "line", "column", "message"),
    [
        ("null.x", None, 1, 6, "TypeError: Cannot read properties of null (reading 'x')"),
        ("\n\n  throw new RangeError('far')", None, 3, 9, "RangeError: far"),
        ("const f = () => {\n  null.x }\nf()", None, 2, 8, "TypeError: Cannot read properties of null"),
        ("enum E { A }\ninterface I {\n a: E }\n  null.x", None, 4, 8, "TypeError: Cannot read properties"),
        ("interface I {}\nexport function run(a: I) {\n  throw new Error('in') }", "run", 3, 9, "Error: in"),
        ("enum E { A }\nexport function run() {\n  throw new Error('in') }", "run", 3, 9, "Error: in"),
        ("\nthrow new Error('while loading')", "run", 2, 7, "Error: while loading"),
    ],
)
async def test_an_uncaught_error_tells_line_and_column_of_the_code_as_given(
    sandbox: DenoSandbox, code: str, export: str | None, line: int, column: int, message: str
) -> None:
    ended = (await run(sandbox, code, export=export)).ended
    assert (ended.how, ended.line, ended.column) == (Ending.RAISED, line, column)
    assert ended.message.startswith(message)


@pytest.mark.parametrize(
    ("code", "export", "line", "column"),
    [
        ("const a = 1;\nlet b: = 2;", None, 2, 8),
        ("const a = 1;\n  const a = 2;", None, 2, 9),
        ("return 1 }; { ", None, 1, 10),
        ("return 1;", "run", 1, 1),
        ("export function run( {", "run", 1, 23),
        ("import fs from 'node:fs';\nexport function run() {}", "run", 1, 1),
        ("export function run() {\n  return import('data:text/javascript,1') }", "run", 2, 10),
        ("const t = `a ${await import('x')}`", None, 1, 22),
    ],
)
async def test_code_that_cannot_be_understood_is_told_by_its_place(
    sandbox: DenoSandbox, code: str, export: str | None, line: int, column: int
) -> None:
    ended = (await run(sandbox, code, export=export)).ended
    assert ended.how is Ending.SYNTAX, ended
    assert (ended.line, ended.column) == (line, column), ended
    assert ended.message.startswith("SyntaxError: ")


async def test_words_about_imports_are_no_imports(sandbox: DenoSandbox) -> None:
    code = """#!/usr/bin/env -S deno run
import type { Tool } from "npm:tools";
// import x from "y"
export function run() { return [/import('x')/.source, "import(1)", `import ${"x"}`, { import: 1 }.import]; }
"""
    ran = await run(sandbox, code, export="run")
    assert ran.value == ["import('x')", "import(1)", "import x", 1]


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("export const read = (args: any, { mcp }: any) => [args.a, typeof mcp]", [1, "object"]),
        ("export const run = () => 'run'; export default () => 'default'", "run"),
        ("export default async () => 'default'", "default"),
        ("export const read = 1; export const run = () => 'run'", "run"),
    ],
)
async def test_an_export_is_found_by_its_name_or_run_or_default(
    sandbox: DenoSandbox, code: str, value: Json
) -> None:
    assert (await run(sandbox, code, export="read", args={"a": 1})).value == value


@pytest.mark.parametrize("code", ["", "export const x = 1", "export default 3", "function read() {}"])
async def test_a_missing_export_is_told_by_its_name(sandbox: DenoSandbox, code: str) -> None:
    ended = (await run(sandbox, code, export="read")).ended
    assert ended == Ended(how=Ending.MISSING, message="Method read not found in capability")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("throw 'text'", "a thrown value that is no Error: text"),
        ("throw { a: 1 }", "a thrown value that is no Error: { a: 1 }"),
        ("throw undefined", "a thrown value that is no Error: undefined"),
        (
            "throw new Proxy({}, { getPrototypeOf() { throw 1 }, get() { throw 2 } })",
            "a thrown value that is no",
        ),
        (
            "const e = new Error('x'); Object.defineProperty(e, 'message', { get() { throw 1 } }); throw e",
            "Error",
        ),
        ("const e = new Error('x'); (e as any).name = { toString() { throw 1 } }; throw e", "Error: x"),
        ("return { get a() { throw new TypeError('in a getter') } }", "TypeError: in a getter"),
        ("return new Proxy({}, { ownKeys() { throw new TypeError('trapped') } })", "TypeError: trapped"),
        ("await new Promise(() => {})", "Error: the code waits for something that can never happen"),
    ],
)
async def test_whatever_is_thrown_is_told(sandbox: DenoSandbox, code: str, message: str) -> None:
    ended = (await run(sandbox, code)).ended
    assert ended.how is Ending.RAISED
    assert ended.message.startswith(message)


async def test_a_message_without_end_is_cut(sandbox: DenoSandbox) -> None:
    ended = (await run(sandbox, "throw new Error('x'.repeat(1e6))")).ended
    assert len(ended.message) <= 4001


async def test_timers_are_sleeps_and_time_stands_still_between_them(sandbox: DenoSandbox) -> None:
    code = """
const start = Date.now();
for (let i = 0; i < 1e5; i++);
const still = Date.now() === start && performance.now() === 0 && new Date().getTime() === start;
const seen: unknown[] = [];
const id = setInterval((x: string) => {
  seen.push([x, Date.now() - start]);
  if (seen.length === 2) clearInterval(id);
}, 10, "tick");
const gone = setTimeout(() => seen.push("never"), 5);
clearTimeout(gone);
await new Promise((done) => setTimeout(done, 2500));
await new Promise((done) => setTimeout(done, 1));
return [still, seen, new Date(start).toISOString(), Date().startsWith("Tue Nov 14 2023"), performance.now()];
"""
    ran = await run(sandbox, code)
    asked = [one.seconds for one in ran.requests if isinstance(one, Sleep)]
    assert asked == [0.01, 0.005, 2.5, 0.01, 0.001]
    assert ran.value == [
        True,
        [["tick", 1000], ["tick", 4000]],
        "2023-11-14T22:13:20.000Z",
        True,
        5000,
    ]


async def test_console_lines_are_kept_in_order_and_formatted(sandbox: DenoSandbox) -> None:
    code = """
console.log("%s is %d of %o%%", "a", 1.5, { b: [1] }, "rest", null);
console.error(new Map([[1, { a: 1 }]]));
console.warn("half \\ud800");
Promise.reject(new Error("nobody waits"));
console.log({ get a() { throw 1 }, toString() { throw 2 } });
"""
    ran = await run(sandbox, code)
    assert ran.logs == [
        "a is 1.5 of { b: [ 1 ] }% rest null",
        "Map(1) { 1 => { a: 1 } }",
        "half \ufffd",
        "{ a: [Getter], toString: [Function: toString] }",
        "unhandled: Error: nobody waits",
    ]


async def test_an_error_in_a_timer_or_a_listener_is_a_line_and_not_the_end(sandbox: DenoSandbox) -> None:
    code = """
setTimeout(() => { throw new Error("in a timer") }, 1);
queueMicrotask(() => { throw new Error("in a microtask") });
const target = new EventTarget();
target.addEventListener("x", () => { throw new Error("in a listener") });
target.dispatchEvent(new Event("x"));
await new Promise((done) => setTimeout(done, 2));
return 1;
"""
    ran = await run(sandbox, code)
    assert ran.value == 1
    assert sorted(ran.logs) == [
        "unhandled: Error: in a listener",
        "unhandled: Error: in a microtask",
        "unhandled: Error: in a timer",
    ]


SHUFFLED = """
const hmac = { name: "HMAC", hash: "SHA-256" };
const key = await crypto.subtle.importKey("raw", new Uint8Array(4), hmac, false, ["sign"]);
const [sum, mac, small] = await Promise.all([
  crypto.subtle.digest("SHA-512", new Uint8Array(3_000_000)),
  crypto.subtle.sign("HMAC", key, new Uint8Array(2)),
  crypto.subtle.digest("SHA-1", new Uint8Array(1)),
]).then((all) => all.map((bytes) => Array.from(new Uint8Array(bytes)).slice(0, 4)));
const order: string[] = [];
await Promise.all([
  crypto.subtle.digest("SHA-512", new Uint8Array(3_000_000)).then(() => order.push("large")),
  crypto.subtle.digest("SHA-1", new Uint8Array(1)).then(() => order.push("small")),
  mcp.a.b().then(() => order.push("call")),
  new Promise((done) => setTimeout(done, Math.random() * 10)).then(() => order.push("timer")),
]);
const numbers = crypto.getRandomValues(new Uint16Array(5));
console.log(new Intl.DateTimeFormat("en", { dateStyle: "full", timeStyle: "full" }).format());
console.log(Temporal.Now.plainDateTimeISO().toString(), Temporal.Now.instant().epochMilliseconds);
console.log(new Event("x").timeStamp, new Date(0).constructor.now(), import.meta.url, new Error("x").stack);
return [sum, mac, small, order, Array.from(numbers), crypto.randomUUID(), Math.random()];
"""


@promise("code:replays-exactly")
async def test_the_same_seed_and_replies_make_the_same_run_in_another_process(tmp_path: Path) -> None:
    runs: list[list[Turn]] = []
    for _ in range(3):
        async with deno_sandbox(BARE, tmp_path / "code") as sandbox:
            ran = await run(sandbox, SHUFFLED, answer=lambda _: {"ok": True})
            assert isinstance(ran.value, list)
            assert ran.value[3] == ["large", "small", "call", "timer"]
            runs.append(ran.turns)
    assert runs[0] == runs[1] == runs[2]
    async with deno_sandbox(BARE, tmp_path / "code") as sandbox:
        other = await run(sandbox, SHUFFLED, seed=bytes(32))
    assert other.ended != runs[0][-1].ended


async def test_randomness_is_chacha20_with_the_seed_as_key(sandbox: DenoSandbox) -> None:
    code = "return crypto.getRandomValues(new Uint8Array(8)).toHex()"
    assert (await run(sandbox, code, seed=bytes(32))).value == "76b8e0ada0f13d90"  # RFC 8439, A.1


async def test_nothing_is_dumped_or_loaded(sandbox: DenoSandbox) -> None:
    what = program("await mcp.a.b()")
    execution = await opened(sandbox, what)
    await execution.begin()
    assert await execution.dump() is None
    assert await sandbox.load(what, b"x") is None
    await execution.close()
    assert await execution.deliver(Reply(number=0, at_ms=NOON_MS)) == Turn()


async def test_a_result_of_a_call_that_is_no_json_is_an_error_of_that_call(sandbox: DenoSandbox) -> None:
    execution = await opened(sandbox, program("return await mcp.a.b().catch((e) => e.code)"))
    await execution.begin()
    turn = await execution.deliver(Reply(number=0, value=b'{"a":\n', at_ms=NOON_MS))
    assert turn.ended == Ended(how=Ending.RETURNED, value=b'"invalid"')
