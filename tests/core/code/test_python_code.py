"""Python code as a tree, in every thread."""

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest

from pml.core.code.python import parse_python


@pytest.mark.parametrize("code", ["def f(:", "\0", "(" * 5000, "-" * 100_000 + "1"])
def test_code_that_cannot_be_parsed_has_no_tree(code: str) -> None:
    assert parse_python(code) is None


def test_many_threads_parse_at_once() -> None:
    code = "x = [1, (2, {3: [4, 5]})]\n" * 200
    with ThreadPoolExecutor(max_workers=8) as threads:
        trees = list(threads.map(parse_python, [code] * 64))
    assert all(isinstance(tree, ast.Module) and len(tree.body) == 200 for tree in trees)
