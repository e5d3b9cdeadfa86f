"""Where calls stand in code, what they are given, and whether anybody waits for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.code.exports import unexported
from pml.core.code.located_calls import located_calls
from pml.core.code.sandbox import Language
from pml.core.code.static_calls import static_calls

TS, PY = Language.TYPESCRIPT, Language.PYTHON


def told(code: str, language: Language) -> list[tuple[str, int, int]]:
    return [(str(call.tool), call.place.line, call.place.column) for call in located_calls(code, language)]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("// mcp.a.b()\nmcp.a.b(); '\\\n mcp.a.b()'", [("a:b", 2, 1)]),
        ("x = `\n${mcp.a.b()} mcp.c.d()`", [("a:b", 2, 3)]),
        ('  ctx.mcp["a-b"].mcp(mcp.mcp["mcp"]())', [("a-b:mcp", 1, 7), ("mcp:mcp", 1, 22)]),
        ("mcp.a.b; mcp.a; $mcp.a.b(); mcp$.a.b(); mcp.a.b(", []),
    ],
)
def test_calls_in_typescript_have_their_places(code: str, found: list[tuple[str, int, int]]) -> None:
    assert told(code, TS) == found


def test_calls_in_python_have_their_places() -> None:
    code = "'é'; mcp.a.b()\r\n# mcp.x.y()\r\nawait c.mcp['a-b'].c(mcp.d.e)\n"
    assert told(code, PY) == [("a:b", 1, 6), ("a-b:c", 3, 7)]
    assert told("mcp.a.b(", PY) == []


@pytest.mark.parametrize(
    "code",
    [
        "mcp.a.b()",
        "x(); mcp.a.b({ c: [1] });",
        "const x = 1\nmcp.a.b()\nconst y = 2",
        "if (x) mcp.a.b(); else y()",
        "() => { ctx.mcp.a.b() }",
        "for (const x of y) { x() }\nmcp.a.b()",
    ],
)
def test_a_statement_that_is_nothing_but_a_call_is_dropped(code: str) -> None:
    assert [call.is_dropped for call in located_calls(code, TS)] == [True]


@pytest.mark.parametrize(
    "code",
    [
        "await mcp.a.b()",
        "return mcp.a.b()",
        "void mcp.a.b()",
        "const x = mcp.a.b();",
        "() => mcp.a.b()",
        "all.push(mcp.a.b())",
        "mcp.a.b().then(x)",
        "mcp.a.b().catch(() => {})",
        "`${mcp.a.b()}`",
        "x = { a: 1, b: mcp.a.b() }",
        "[mcp.a.b()]",
        "mcp.a.b() as any",
    ],
)
def test_a_call_whose_result_goes_somewhere_is_not_dropped(code: str) -> None:
    assert [call.is_dropped for call in located_calls(code, TS)] == [False]


def test_dropped_calls_and_given_names_are_told_in_python() -> None:
    code = (
        "mcp.a.b(x=1)\nawait mcp.a.b({'y': 1})\nmcp.a.b(args)\nz = mcp.a.b(**args)\nawait mcp.a.b({**args})\n"
    )
    calls = located_calls(code, PY)
    assert [call.is_dropped for call in calls] == [True, False, True, False, False]
    assert [call.given for call in calls] == [frozenset("x"), frozenset("y"), None, None, None]


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("// function go() {}\n  async function go() {}", (2, 18)),
        ("const go = 1", (1, 7)),
        ("function* go() {}", (1, 11)),
        ("function x() { const go = 1 }", None),
        ("go(); 'const go'", None),
        ("function go() {", None),
    ],
)
def test_a_function_that_is_not_exported_is_found(code: str, place: tuple[int, int] | None) -> None:
    assert unexported(code, "go") == place


@given(st.text("mcp.ab()[]{}`$'\"/\\\n ;=é", max_size=60), st.sampled_from(Language))
def test_every_call_that_is_located_is_among_the_static_ones(code: str, language: Language) -> None:
    assert {call.tool for call in located_calls(code, language)} <= {*static_calls(code, language).tools}
