"""Every promise in `tests/promises.py` is kept by a test, and every mark names a promise."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises import PROMISES

TESTS = Path(__file__).parent


def promises_kept(source: str) -> set[str]:
    """Return the ids in `@promise("id")` on tests of `source`. Raises: ValueError if one is not literal."""
    return {
        _literal_id(mark)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for mark in _promise_marks(node)
    }


def test_every_promise_is_kept_by_a_test_and_every_mark_names_a_promise() -> None:
    kept: set[str] = set()
    for path in TESTS.rglob("*.py"):
        kept |= promises_kept(path.read_text(encoding="utf-8"))
    assert kept == PROMISES.keys()


def test_every_promise_is_said_in_one_sentence() -> None:
    assert [text for text in PROMISES.values() if "\n" in text or not text.strip()] == []


def test_only_marks_on_tests_count() -> None:
    source = """
@promise("a:one")
def test_one(): ...
@other
@promise("a:two")
async def test_two(): ...
@promise("a:three")
def no_test(): ...
promise("a:four")
"""
    assert promises_kept(source) == {"a:one", "a:two"}


def test_a_mark_whose_id_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        promises_kept("\n@promise(NAME)\ndef test_one(): ...")


def _promise_marks(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "promise":
            yield mark


def _literal_id(mark: ast.Call) -> str:
    match mark.args:
        case [ast.Constant(value=str(promise_id))]:
            return promise_id
        case _:
            raise ValueError(f"line {mark.lineno}: a promise's id is written out")
