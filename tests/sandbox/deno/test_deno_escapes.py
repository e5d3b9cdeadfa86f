"""Code that tries to get out of the Deno sandbox, in a box and without one. Nothing has an effect."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import msgspec
import pytest

from pml.core.code.sandbox import CodeCall, Ending
from pml.core.values import Json
from pml.install.package_managers import find_deno
from pml.sandbox.deno.limits import Limits
from pml.sandbox.deno.sandbox import DenoSandbox
from tests.promises import promise
from tests.sandbox.deno_rig import BOTH, calls, deno_sandbox, run
from tests.sandbox.deno_surroundings import Surroundings, surroundings

# Lost in this line, the search for imports finds none in the lines that follow.
DECEIVED = 'if (1) /"/.test("x");\n'
TICKS = "for (let i = 0; i < 100 && !done(); i++) await mcp.a.tick();"


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Surroundings]:
    with surroundings(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture(params=BOTH)
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[DenoSandbox]:
    async with deno_sandbox(request.param, tmp_path / "code", limits=Limits(turn_s=20)) as made:
        yield made


ATTEMPTS = {
    "Deno": "Deno.readTextFileSync(args.file)",
    "internals": "Deno[Deno.internal].core.ops",
    "open": "Deno.openSync(args.new, { write: true, create: true })",
    "process": "process.binding('fs')",
    "process.env": "process.env.CANARY",
    "process.exit": "process.exit(0)",
    "builtin": "process.getBuiltinModule('node:fs').readFileSync(args.file, 'utf8')",
    "require": "require('fs').readFileSync(args.file, 'utf8')",
    "stdin": "Deno.stdin.readSync(new Uint8Array(10))",
    "stdout": "Deno.stdout.writeSync(new TextEncoder().encode('{}\\n'))",
    "fetch": "await fetch(`http://127.0.0.1:${args.tcp}/`)",
    "fetch a file": "await (await fetch('file://' + args.file)).text()",
    "socket": "await Deno.connect({ port: args.tcp })",
    "unix": "await Deno.connect({ transport: 'unix', path: args.unix })",
    "websocket": "new WebSocket(`ws://127.0.0.1:${args.tcp}/`)",
    "events": "new EventSource(`http://127.0.0.1:${args.tcp}/`)",
    "xhr": "new XMLHttpRequest()",
    "dns": "await Deno.resolveDns('example.com', 'A')",
    "worker": "new Worker('data:text/javascript,1', { type: 'module' })",
    "channel": "new BroadcastChannel('x')",
    "messages": "new MessageChannel()",
    "storage": "localStorage.setItem('a', 'b')",
    "session storage": "sessionStorage.setItem('a', 'b')",
    "caches": "await caches.open('x')",
    "navigator": "navigator.userAgent",
    "gpu": "await navigator.gpu.requestAdapter()",
    "wasm": "new WebAssembly.Memory({ initial: 1 })",
    "shared memory": "new SharedArrayBuffer(8)",
    "atomics": "Atomics.wait(new Int32Array(8), 0, 0)",
    "weak references": "new WeakRef({})",
    "finalization": "new FinalizationRegistry(() => {})",
    "prompt": "prompt('?')",
    "close": "close()",
    "eval": "(0, eval)('1')",
    "function": "new Function('return 1')()",
    "reflected function": "Reflect.construct(Function, ['return 1'])()",
    "async function": "await (async () => {}).constructor('return 1')()",
    "generator": "(function* () {}).constructor('yield 1')().next()",
    "text timer": "setTimeout('1', 0)",
    "blob": "URL.createObjectURL(new Blob(['export default 1']))",
    "keys": "await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-256' }, true, ['sign'])",
    "random keys": "await crypto.subtle.importKey('raw', new Uint8Array(16), 'AES-GCM', true, ['encrypt'])",
    "caller": "(function f() { return f.caller })()",
    "frames": "(Error.prepareStackTrace = (_, sites) => sites, new Error().stack[0].getFunction())",
    "stack": "(Error as any).prepareStackTrace(new Error('x'), [{ getFileName: () => 'blob:' }])",
    "run": "new Deno.Command('touch', { args: [args.new] }).outputSync()",
    "ffi": "Deno.dlopen('libc.so.6', {})",
    "permissions": "Deno.permissions.requestSync({ name: 'read' })",
    "bootstrap": "(globalThis as any).nodeBootstrap({})",
    "global": "(global as any).process",
    "buffer": "Buffer.from('x')",
    "report": "reportError(new Error('x'))",
    "immediate": "setImmediate(() => {})",
    "load": "(globalThis as any).onload()",
}


@promise("code:nothing-but-mcp")
async def test_code_finds_nothing_to_get_out_with(sandbox: DenoSandbox, around: Surroundings) -> None:
    tries = "\n".join(
        f"await attempt({json.dumps(name)}, async () => {{ return {code} }});"
        for name, code in ATTEMPTS.items()
    )
    code = f"""
const got: string[] = [], refused: string[] = [];
const attempt = async (name: string, what: () => Promise<unknown>) => {{
  try {{ await what(); got.push(name) }} catch (error) {{ refused.push(`${{name}}: ${{error}}`) }}
}};
{tries}
return {{ got, refused }};
"""
    ran = await run(sandbox, code, args=around.told())
    assert isinstance(ran.value, dict)
    assert ran.value["got"] == []
    around.assert_untouched(ran.turns)


async def test_code_sees_no_other_globals_than_these(sandbox: DenoSandbox) -> None:
    ran = await run(sandbox, "return Object.getOwnPropertyNames(globalThis).sort()")
    assert isinstance(ran.value, list)
    assert set(ran.value) == set(
        """
        AbortController AbortSignal AggregateError Array ArrayBuffer AsyncDisposableStack BigInt
        BigInt64Array BigUint64Array Boolean CustomEvent DOMException DataView Date DisposableStack
        Error EvalError Event EventTarget Float16Array Float32Array Float64Array Function Infinity
        Int16Array Int32Array Int8Array Intl Iterator JSON Map Math NaN Number Object Promise Proxy
        RangeError ReferenceError Reflect RegExp Set String SuppressedError Symbol SyntaxError
        Temporal TextDecoder TextEncoder ToolError TypeError URIError URL URLSearchParams
        Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakSet atob btoa clearInterval
        clearTimeout console crypto decodeURI decodeURIComponent encodeURI encodeURIComponent escape
        globalThis isFinite isNaN parseFloat parseInt performance queueMicrotask setInterval
        setTimeout structuredClone undefined unescape""".split()
    )


@promise("code:nothing-but-mcp")
async def test_no_module_of_the_runtime_loads(sandbox: DenoSandbox) -> None:
    listing = "console.log(JSON.stringify(process.getBuiltinModule('node:module').builtinModules))"
    asking = await asyncio.create_subprocess_exec(find_deno(), "eval", listing, stdout=subprocess.PIPE)
    known, _ = await asking.communicate()
    names = [f"node:{name.removeprefix('node:')}" for name in msgspec.json.decode(known, type=list[str])]
    assert "node:fs" in names
    code = f"""{DECEIVED}
const loaded: string[] = [], failed: string[] = [];
const done = () => loaded.length + failed.length === args.names.length;
for (const name of args.names) import(name).then(() => loaded.push(name), () => failed.push(name));
{TICKS}
return {{ loaded, failed: failed.length }};
"""
    ran = await run(sandbox, code, args={"names": names})
    assert ran.value == {"loaded": [], "failed": len(names)}


IMPORTS = {
    "file": '"file://" + args.file',
    "file as text": '"file://" + args.file, { with: { type: "text" } }',
    "file as bytes": '"file://" + args.file, { with: { type: "bytes" } }',
    "file as json": '"file://" + args.file, { with: { type: "json" } }',
    "relative": '"./secret"',
    "absolute": "args.file",
    "bare": '"fs"',
    "http": "`http://127.0.0.1:${args.tcp}/x.js`",
    "https": "`https://127.0.0.1:${args.tcp}/x.js`",
    "npm": '"npm:chalk"',
    "jsr": '"jsr:@std/path"',
    "extension": '"ext:core/mod.js"',
    "another blob": '"blob:null/123"',
    "itself": "import.meta.url",
    "text within data": """data(`export { default } from "file://${args.file}" with { type: "text" }`)""",
    "file within data": "data(`export * from 'file://${args.file}'`)",
    "node within data": "data(`export * from 'node:fs'`)",
    "data within data": "data(`import '${data(`import 'node:fs'`)}'`)",
    "createRequire": "data(`import { createRequire } from 'node:module'`)",
}


@promise("code:nothing-but-mcp")
async def test_nothing_can_be_imported_by_code_that_hides_it(
    sandbox: DenoSandbox, around: Surroundings
) -> None:
    tries = "\n".join(
        f"import({what}).then((m) => got.push(`{name} ${{m.default}}`), (e) => refused.push(`${{e}}`));"
        for name, what in IMPORTS.items()
    )
    code = f"""{DECEIVED}
const got: string[] = [], refused: string[] = [];
const done = () => refused.length === {len(IMPORTS)};
const data = (code: string) => `data:text/javascript,${{encodeURIComponent(code).replaceAll("'", "%27")}}`;
{tries}
{TICKS}
return {{ got, refused }};
"""
    ran = await run(sandbox, code, args=around.told())
    assert isinstance(ran.value, dict)
    refused = ran.value["refused"]
    assert isinstance(refused, list)
    assert (ran.value["got"], len(refused)) == ([], len(IMPORTS))
    around.assert_untouched(ran.turns)


async def test_code_from_a_data_url_has_no_more_than_other_code(sandbox: DenoSandbox) -> None:
    code = f"""{DECEIVED}
let seen: any;
const done = () => seen;
const code = "export default [typeof Deno, typeof process, typeof fetch]";
import("data:text/javascript," + code).then((m) => seen = m.default);
{TICKS}
return seen;
"""
    assert (await run(sandbox, code)).value == ["undefined"] * 3


@pytest.mark.parametrize(
    "statement",
    [
        'import t from "file://{file}" with {{ type: "text" }};',
        'import t from "file://{file}";',
        'export * as t from "file://{file}";',
        'import * as t from "node:fs";',
        'import t from "http://127.0.0.1:{tcp}/x.js";',
        'import t from "npm:chalk";',
    ],
)
@promise("code:nothing-but-mcp")
async def test_a_static_import_that_is_hidden_does_not_load(
    sandbox: DenoSandbox, around: Surroundings, statement: str
) -> None:
    code = f"{DECEIVED}{statement.format_map(around.told())}\nexport function run() {{ return String(t) }}"
    ran = await run(sandbox, code, export="run")
    assert ran.ended.how is Ending.SYNTAX
    around.assert_untouched(ran.turns)


WRECKED = """
const evil = () => { throw new Error("wrecked") };
const { defineProperty } = Object, { ownKeys } = Reflect;
const iterator = Symbol.iterator; // without it the runtime itself ends, see below
const wreck = (owner: any, but: string, how: PropertyDescriptor) => {
  const names = ownKeys(owner);
  for (let i = 0; i < names.length; i++) {
    if (names[i] !== but && names[i] !== iterator) try { defineProperty(owner, names[i], how) } catch {}
  }
};
const pending = mcp.early.call({ a: 1 });
const prototypes = [
  Array, String, Promise, RegExp, WeakMap, WeakSet, Map, Set, Uint8Array, Object.getPrototypeOf(Uint8Array),
  TextDecoder, TextEncoder, Function, Number, Error, Date, Event, EventTarget];
const names = "path what how number resolve reject fire error then line limits stream".split(" ");
const statics = [JSON, Reflect, Math, Promise, Array, Number, String, Error, Uint8Array, Object];
const set = { __proto__: null, get: evil, set: evil, configurable: true } as any;
const got = { __proto__: null, get: () => evil, set: evil, configurable: true } as any;
const worth = { __proto__: null, value: evil } as any;
for (let i = 0; i < names.length; i++) defineProperty(Object.prototype, names[i], set);
for (let i = 0; i < prototypes.length; i++) wreck(prototypes[i].prototype, "constructor", got);
for (let i = 0; i < statics.length; i++) wreck(statics[i], "prototype", worth);
delete (Object.prototype as any).then;
await pending;
const reply = await mcp.late.call({ list: [1, "x"], deep: { b: null } });
return { reply };
"""


@promise("code:nothing-but-mcp")
async def test_code_that_wrecks_every_built_in_object_wrecks_no_call_and_no_reply(
    sandbox: DenoSandbox,
) -> None:
    ran = await run(sandbox, WRECKED, answer=lambda one: {"n": one.number})
    assert calls(ran.requests) == [
        ("early.call", {"a": 1}),
        ("late.call", {"list": [1, "x"], "deep": {"b": None}}),
    ]
    assert ran.value == {"reply": {"n": 1}}


@pytest.mark.parametrize("name", ["0", "get", "value", "Symbol.iterator"])
async def test_code_that_breaks_the_runtime_itself_only_ends_itself(sandbox: DenoSandbox, name: str) -> None:
    key = name if name.startswith("Symbol") else json.dumps(name)
    code = f"""
mcp.a.b();
const broken = {{ get() {{ throw 1 }}, set() {{ throw 2 }}, configurable: true }};
Object.defineProperty(Array.prototype, {key}, broken);
Object.defineProperty(Object.prototype, {key}, broken);
await mcp.a.c();
"""
    ran = await run(sandbox, code)
    assert ran.ended.how in (Ending.BROKEN, Ending.RETURNED, Ending.RAISED)
    assert set(name for name, _ in calls(ran.requests)) <= {"a.b", "a.c"}


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (
            "return [typeof mcp.then, typeof mcp.a.then, await mcp === mcp, typeof mcp[Symbol.iterator]]",
            ["undefined", "undefined", True, "undefined"],
        ),
        ("const own = { then(f: any) { f('thenable') } }; return own", "thenable"),
        (
            "const then = Promise.prototype.then; let seen = 0;"
            "Promise.prototype.then = function (...a: any) { seen++; return then.apply(this, a) };"
            "return [await mcp.a.b(), seen]",
            ["reply", 0],
        ),
        (
            "const p = mcp.a.b(); (p as any).then = () => { throw 1 };"
            "return await Promise.prototype.then.call(p, (x) => x)",
            "reply",
        ),
        ("try { (mcp as any).a = 1 } catch { return 'frozen' }", "frozen"),
    ],
)
async def test_tricks_with_then_and_the_proxy_gain_nothing(
    sandbox: DenoSandbox, code: str, value: Json
) -> None:
    ran = await run(sandbox, code, answer=lambda _: "reply")
    assert ran.value == value


async def test_a_poisoned_result_is_nothing_but_data(sandbox: DenoSandbox) -> None:
    poison: Json = {
        "__proto__": {"polluted": 1},
        "constructor": {"prototype": {"polluted": 1}},
        "then": "x",
        "toJSON": 1,
        "code": "for (;;);",
        "line": '"}\n{"requests":[]}\n',
    }
    code = "const r: any = await mcp.a.b(); return { r, polluted: ({} as any).polluted === undefined }"
    ran = await run(sandbox, code, answer=lambda _: poison)
    assert ran.value == {"r": poison, "polluted": True}


async def test_code_cannot_forge_a_call_or_a_result_by_what_it_prints_or_asks_for(
    sandbox: DenoSandbox,
) -> None:
    line = '{"requests":[{"type":"call","namespace":"x","action":"y","arguments":{},"number":0}],"logs":[]}'
    code = f"""
const forged = {json.dumps(line)};
console.log(forged + "\\n");
console.log("%s\\n%s", forged, forged);
await mcp[forged + "\\n"]["\\n" + forged]({{ [forged + "\\n"]: forged + "\\n" }});
return forged + "\\n";
"""
    ran = await run(sandbox, code)
    assert ran.requests == [
        CodeCall(number=0, namespace=line + "\n", action="\n" + line, arguments={line + "\n": line + "\n"})
    ]
    assert (ran.value, len(ran.logs)) == (line + "\n", 2)
