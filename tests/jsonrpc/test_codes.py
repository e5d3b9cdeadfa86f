"""Every error code has one name, and one place."""

import ast
from pathlib import Path

import pml
from pml.jsonrpc import codes

SOURCE = Path(pml.__file__).parent


def codes_in(file: Path) -> set[int]:
    """Return the numbers below -32000 that are written out in the file."""
    negated = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.UnaryOp))
    numbers = (node.operand.value for node in negated if isinstance(node.operand, ast.Constant))
    return {-number for number in numbers if isinstance(number, int) and 32_000 <= number < 33_000}


def test_no_other_module_writes_a_code_out() -> None:
    home = Path(codes.__file__)
    elsewhere = {
        str(file.relative_to(SOURCE)): codes_in(file) for file in SOURCE.rglob("*.py") if file != home
    }

    assert {file: found for file, found in elsewhere.items() if found} == {}


def test_every_code_has_one_name() -> None:
    named = [value for name, value in vars(codes).items() if name.isupper()]

    assert len(named) == len(set(named))
    assert set(named) == codes_in(Path(codes.__file__))
