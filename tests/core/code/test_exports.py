"""What code exports, told from its text."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.code.exports import export_for, exports_of
from pml.core.code.sandbox import Language

TS, PY = Language.TYPESCRIPT, Language.PYTHON


TYPESCRIPT: Sequence[tuple[str, set[str] | None]] = [
    ("export function run() {}", {"run"}),
    ("export async function greet(args, { mcp }) {}", {"greet"}),
    ("export async function* greet() {}", {"greet"}),
    ("export const a = 1, b = 2; export let c = () => 1", {"a", "c"}),
    ("export default async (args) => 1", {"default"}),
    ("function a() {} const b = 1; export { a, b as run, }", {"a", "run"}),
    ("export { a as default }", {"default"}),
    ("export {", None),
    ("export interface Args { a: string } export type B = 1", set()),
    ("// export function run() {}\n'export function run() {}'; x.export", set()),
    ("function run() { export function b() {} }", set()),
    ("", set()),
    ("export", set()),
]


@pytest.mark.parametrize(("code", "names"), TYPESCRIPT)
def test_typescript_exports_are_told(code: str, names: set[str] | None) -> None:
    assert exports_of(code, TS) == (None if names is None else frozenset(names))


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("async def run(args, mcp):\n    def inner(): pass\n", {"run"}),
        ("def a(): pass\nb = a\nc: int = 1", {"a", "b"}),
        ("def a(:", None),
    ],
)
def test_python_functions_are_told(code: str, names: set[str] | None) -> None:
    assert exports_of(code, PY) == (None if names is None else frozenset(names))


def test_a_tool_is_served_by_its_own_name_then_run_then_the_default() -> None:
    everything = frozenset({"greet", "run", "default"})
    assert export_for("greet", everything, TS) == "greet"
    assert export_for("other", everything, TS) == "run"
    assert export_for("other", frozenset({"default"}), TS) == "default"
    assert export_for("other", frozenset({"default"}), PY) is None


@given(
    st.lists(st.sampled_from(["export ", "{", "}", ",", "a", " as ", "default ", "function ", "*"])).map(
        "".join
    )
)
def test_any_text_is_answered(code: str) -> None:
    exports_of(code, TS)
    exports_of(code, PY)
