"""Positions come back to the code as given, and what is rewritten means the same."""

import ast

import pytest

from pml.sandbox.monty.source import NotAtTopLevel, PythonSource, executed, exported

_HEAD = executed("").text.count("\n")


def user_lines(source: PythonSource) -> list[str]:
    return source.text.split("\n")[_HEAD : _HEAD + len(source.lines)]


@pytest.mark.parametrize(
    ("code", "fed"),
    [
        ("1 + 1", "await __pml_result((1 + 1))"),
        ("return 1, 2", "return await __pml_result((1, 2))"),
        ("return", "return"),
        ("x = 1", "x = 1"),
        ("é = 'é'; é", "é = 'é'; await __pml_result((é))"),
        ("if x:\n    return (1)", "if x:\n    return (await __pml_result((1)))"),
        ("try:\n  pass\nexcept E:\n  return 1", "try:\n  pass\nexcept E:\n  return await __pml_result((1))"),
        ("match x:\n  case 1:\n    return 1", "match x:\n  case 1:\n    return await __pml_result((1))"),
        ("def f():\n    return 1", "def f():\n    return 1"),
        ('x = mcp["a-b"]', 'x = getattr(mcp, "a-b")'),
        ('x = mcp["a"]["b"](y=1)', 'x = getattr(getattr(mcp, "a"), "b")(y=1)'),
        ('x = mcp.a["b"]()', 'x = getattr(mcp.a, "b")()'),
        ('x = (await mcp.a.b())["c"]', 'x = (await mcp.a.b())["c"]'),
        ('mcp = {"a": 1}\nx = mcp["a"]', 'mcp = {"a": 1}\nx = mcp["a"]'),
        ("x = mcp.a.b[0]", "x = mcp.a.b[0]"),
        ('return mcp["a"].b()', 'return await __pml_result((getattr(mcp, "a").b()))'),
    ],
)
def test_results_and_subscripts_of_mcp_are_written_otherwise_and_nothing_else(code: str, fed: str) -> None:
    source = executed(code)
    assert user_lines(source) == fed.split("\n")
    ast.parse(source.text)
    assert source.is_packed


def test_each_character_that_is_the_users_is_told_by_its_own_place() -> None:
    code = 'x = "é"; y = """\n  text\n"""; mcp["a"]["b"](\n  é=mcp.c["d"]); (x,\n   y)'
    source = executed(code)
    fed = source.text.split("\n")
    for number, line in enumerate(code.split("\n"), start=1):
        told = [source.place(number + _HEAD, at + 1) for at in range(len(fed[number + _HEAD - 1]))]
        columns = [place[1] for place in told if place is not None]
        assert len(columns) == len(told)
        assert columns == sorted(columns)
        assert set(columns) >= {at + 1 for at, letter in enumerate(line) if letter not in '[]"'}
        assert max(columns, default=1) <= len(line) + 1


def test_a_place_before_or_after_the_code_is_nowhere_in_it() -> None:
    source = exported("async def run(args, mcp):\n    pass", "run")
    assert source.place(1, 1) is None
    assert source.place(_HEAD + 1, 7) == (1, 7)
    assert source.place(_HEAD + 3, 1) is None


def test_line_ends_of_other_systems_count_as_one_line() -> None:
    assert executed("a = 1\r\nb = 2\rb").lines == ["a = 1", "b = 2", "b"]


@pytest.mark.parametrize("code", ["x = (", "x = 1\n  y", "\0", "(" * 1000, "-" * 50_000 + "1"])
def test_code_that_cannot_be_parsed_is_passed_on_as_it_is(code: str) -> None:
    source = executed(code)
    assert user_lines(source) == code.split("\n")
    assert not source.is_packed


def test_a_return_outside_of_functions_is_refused_where_functions_are_to_be_defined() -> None:
    with pytest.raises(NotAtTopLevel) as refused:
        exported("if True:\n    é = 1; return é", "run")
    assert (refused.value.line, refused.value.column) == (2, 12)


@pytest.mark.parametrize("export", ["do-it", "class", "1a", ""])
def test_a_name_that_no_function_can_have_is_not_looked_up(export: str) -> None:
    assert "try:" not in exported("", export).text[exported("", export).tail_at :]
