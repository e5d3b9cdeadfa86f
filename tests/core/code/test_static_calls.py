"""What can be told of the calls of code without running it: plain calls are all found, all else is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.code.sandbox import Language
from pml.core.code.static_calls import StaticCalls, static_calls
from pml.core.names import ToolName, code_of
from pml.core.text import has_hidden

TS, PY = Language.TYPESCRIPT, Language.PYTHON

words = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
actions = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="*?"), min_size=1, max_size=20
).filter(lambda text: not has_hidden(text))
tools = st.builds(ToolName, namespace=words, action=actions)


def told(code: str, language: Language) -> tuple[list[str], bool]:
    found = static_calls(code, language)
    return [str(tool) for tool in found.tools], found.dynamic


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("return await mcp.fs.read({ path: 'x' })", ["fs:read"]),
        ("mcp.b.x(); mcp.a.y(); mcp.b.x()", ["b:x", "a:y"]),
        ('mcp["a-b"]["c/d"]({})', ["a-b:c/d"]),
        ("mcp['a'].b({}); mcp.c[`d`]()", ["a:b", "c:d"]),
        ("mcp\n  // here\n  .fs /* and here */\n  .read\n  ()", ["fs:read"]),
        ("mcp?.fs?.read?.({}); mcp!.fs!.write!()", ["fs:read", "fs:write"]),
        ('mcp?.["fs"]?.["read"]()', ["fs:read"]),
        ("export async function run(args, { mcp }) { return mcp.fs.read(args) }", ["fs:read"]),
        ("export const run = async (a: A, { mcp }: { mcp: Mcp }) => mcp.fs.read(a)", ["fs:read"]),
        ("export default async (args, ctx) => await ctx.mcp.fs.read(args)", ["fs:read"]),
        ("await Promise.all(xs.map((x) => mcp.fs.read({ x })))", ["fs:read"]),
        ("helper({ args, mcp }); mcp.fs.read()", ["fs:read"]),
        ("`a ${mcp.fs.read(`b ${await mcp.fs.stat()}`)} c`", ["fs:read", "fs:stat"]),
        ('if (x) /mc"p/.test(y); mcp.fs.read()', ["fs:read"]),
        ("while (x) { } /'/.test(y); mcp.fs.read()", ["fs:read"]),
        ('for await (const a of b) /[/"]/.test(a); mcp.fs.read()', ["fs:read"]),
        ("const a = b / c; const d = '/'; mcp.fs.read()", ["fs:read"]),
        ("const a = (b) / 2 + mcp.fs.read() / 3", ["fs:read"]),
        ("const a = x[1] / mcp.fs.read() / 3; const b = {} / mcp.fs.stat() / 1", ["fs:read", "fs:stat"]),
        ("i++ / mcp.fs.read() / x! / mcp.fs.stat() / 2", ["fs:read", "fs:stat"]),
        ("a.return / mcp.fs.read() / 2", ["fs:read"]),
        ("return /[`]/.test(x) ? mcp.fs.read() : 1", ["fs:read"]),
        ("x = a ? .5 : 1e+3; y = a?.5:mcp.fs.read()", ["fs:read"]),
        ("const s = 'it\\'s'; mcp.fs.read()", ["fs:read"]),
        ("const s = 'two \\\nlines'; mcp.fs.read()", ["fs:read"]),
        ("#!/usr/bin/env deno's\nmcp.fs.read()", ["fs:read"]),
        ("class A { #mcp = 1; static {} } mcp.fs.read()", ["fs:read"]),
        ("", []),
        ("// mcp.fs.read()\n/* mcp.fs.write()\n */ 1", []),
        ("'mcp.fs.read()' + \"mcp.fs.read()\" + `mcp.fs.read()`", []),
        ("const mcpx = 1; xmcp.fs.read(); $mcp.a.b()", []),
    ],
)
def test_typescript_that_calls_plainly_is_known_whole(code: str, found: list[str]) -> None:
    assert told(code, TS) == (found, False)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("const m = mcp; m.fs.read()", []),
        ("helper(mcp); mcp.fs.read()", ["fs:read"]),
        ("helper(1, mcp)", []),
        ("[1, mcp]", []),
        ("mcp[name].read()", []),
        ("mcp.fs[name]()", []),
        ("mcp.fs['re' + 'ad']()", []),
        ("mcp[`f${x}`].read()", []),
        ("mcp['f\\x73'].read()", []),
        ("const { fs } = mcp", []),
        ("async function run(args, { mcp: tools }) {}", []),
        ("async function run(args, { mcp: { fs } }) {}", []),
        ("const fs = mcp.fs; fs.read()", []),
        ("ctx['mcp'].fs.read()", []),
        ("m\\u0063p.fs.read()", []),
        ("eval(x)", []),
        ("arguments[1].x.y()", []),
        ("mcp.$a.b()", []),
        ("mcp.fs['a b']()", []),
        ("xs.map(mcp.fs.read)", ["fs:read"]),
        ("mcp.fs.read<string>({})", ["fs:read"]),
        ("mcp.fs.read.call(null, {})", ["fs:read"]),
    ],
)
def test_typescript_that_uses_mcp_otherwise_is_said_to_call_others(code: str, found: list[str]) -> None:
    assert told(code, TS) == (found, True)


@pytest.mark.parametrize(
    "broken",
    ["'", '"\\', "`", "`${", "`${'}`", "/*", "(", "]", "{)", "x = /", "(/[", "} mcp.a.b(", "`${`${`"],
)
def test_what_is_no_typescript_hides_no_call(broken: str) -> None:
    assert told(f"// mcp.x.y()\n{broken} mcp.fs.read()", TS) == (
        ["x:y", *(["a:b"] * ("mcp" in broken)), "fs:read"],
        True,
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("return await mcp.fs.read(path='x')", ["fs:read"]),
        ("mcp.b.x()\nmcp.a.y({'z': mcp.a.z()})\nmcp.b.x()", ["b:x", "a:y", "a:z"]),
        ("(await mcp.b.x()) + mcp.a.y()", ["b:x", "a:y"]),
        ("mcp['a-b']['c/d']({})\nmcp['a'].b()", ["a-b:c/d", "a:b"]),
        ("async def run(args, mcp):\n    return await mcp.fs.read(args)", ["fs:read"]),
        ("f'{await mcp.fs.read()}'", ["fs:read"]),
        ("# mcp.fs.read()\n'mcp.fs.write()'", []),
        ("x = '\\d'", []),
        ("", []),
    ],
)
def test_python_that_calls_plainly_is_known_whole(code: str, found: list[str]) -> None:
    assert told(code, PY) == (found, False)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("m = mcp\nm.fs.read()", []),
        ("helper(mcp)\nmcp.fs.read()", ["fs:read"]),
        ("mcp[name].read()", []),
        ("mcp.fs[name]()", []),
        ("getattr(mcp, 'fs').read()", []),
        ("mcp['a b'].c()", []),
        ("import mcp", []),
        ("import x as mcp", []),
        ("async def run(args, tools):\n    return await tools.fs.read(args)", []),
        ("async def run(*all):\n    pass", []),
        ("asyncio.gather(*map(mcp.fs.read, xs))", ["fs:read"]),
        ("def broken(:", []),
        ("\0", []),
        ("(" * 10_000, []),
        ("x" + ".a" * 50_000, []),
    ],
)
def test_python_that_uses_mcp_otherwise_is_said_to_call_others(code: str, found: list[str]) -> None:
    assert told(code, PY) == (found, True)


@given(tools)
def test_a_call_written_as_code_of_has_it_is_found(tool: ToolName) -> None:
    expected = StaticCalls(tools=(tool,), dynamic=False)
    assert static_calls(f"await {code_of(tool)}({{}})", TS) == expected
    assert static_calls(f"await {code_of(tool)}({{}})", PY) == expected


pieces = st.lists(
    st.sampled_from(
        [
            *"'\"`/\\()[]{}<>\n.,;:!?#$*= 0",
            "mcp",
            ".fs",
            ".read(",
            "${",
            "/*",
            "*/",
            "//",
            "return ",
            "if (",
            "é",
        ]
    ),
    max_size=60,
).map("".join)


@given(st.text() | pieces)
def test_any_text_is_answered(code: str) -> None:
    for language in Language:
        assert isinstance(static_calls(code, language), StaticCalls)


@given(pieces, st.sampled_from(["\n", ";\n", " "]))
def test_a_plain_call_before_whatever_comes_is_never_missed(code: str, gap: str) -> None:
    found, _ = told(f"await mcp.first.one({{}}){gap}{code}", TS)
    assert "first:one" in found


@pytest.mark.parametrize(
    "piece",
    [
        "(/[",
        "/*",
        "'",
        '"\\',
        "`${",
        "mcp.",
        "mcp\n",
        "(",
        "a/",
        "/\\",
        "[",
        "x=/(",
        "é",
        "mcp['",
        "$",
        "<!--",
    ],
)
def test_much_of_anything_is_answered(piece: str) -> None:
    assert isinstance(static_calls(piece * (100_000 // len(piece)), TS), StaticCalls)


def test_a_megabyte_of_code_is_scanned() -> None:
    line = 'const a = `x ${await mcp.fs.read({ path: "p" })}` / 2; // and so on\n'
    assert told(line * (1_000_000 // len(line)), TS) == (["fs:read"], False)
