"""Type-checking code without running it for real: Deno checks TypeScript, Monty's own checker Python.

Python is loaded as well, which defines its functions: what cannot be loaded is told beside what has wrong
types. Nothing is fetched, and nothing is left behind. Places are told as they are in the author's file.
"""

import asyncio
import re
import tempfile
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pml.core.code.sandbox import Ending, Language
from pml.core.errors import Unavailable
from pml.core.names import FALLBACK_EXPORT

if TYPE_CHECKING:
    from pydantic_monty import MontyError

    from pml.sandbox.monty.source import PythonSource

DECLARATIONS: Final = "mcp.d.ts"
_DENO_S: Final = 60.0  # 2 s for a page of code on a slow machine
_PYTHON_S: Final = 2.0  # for what a module does when it is loaded: it defines functions
_PYTHON_BYTES: Final = 64 * 1024 * 1024
_MAX_PROBLEMS: Final = 50
_MAX_QUOTED: Final = 60  # characters of a type that a message quotes
# What the sandbox has, and no more: no files, no network, no `Deno`, no `process`.
_CONFIG: Final = """{"compilerOptions": {"strict": true, "noImplicitAny": false,
"types": ["./globals.d.ts", "./mcp.d.ts"],
"lib": ["esnext", "deno.web", "deno.url", "deno.console", "deno.crypto"]}}"""
_GLOBALS: Final = """\
declare const console: Console;
declare const performance: { now(): number; readonly timeOrigin: number };
declare function setTimeout(callback: (...args: any[]) => void, ms?: number, ...args: any[]): number;
declare function setInterval(callback: (...args: any[]) => void, ms?: number, ...args: any[]): number;
declare function clearTimeout(id?: number): void;
declare function clearInterval(id?: number): void;
"""
_NO_IMPORTS: Final = "code cannot import modules, only types: `import type`"
_TYPE_IMPORT: Final = re.compile(r"""^\s*import\s+type\b[^;'"]*["'][^'"\n]*["'];?""", re.MULTILINE)
_ADVICE: Final = re.compile(r" Do you need to (?:change your target library|install type definitions).*")
_QUOTED: Final = re.compile(r"'[^']*'")
_DENO: Final = re.compile(
    r"^(?:(?P<rule>TS\d+) \[ERROR\]|error): (?:SyntaxError: )?(?P<message>.+)\n(?:(?!TS\d+ |error: ).*\n)*?"
    r"\s+at file://\S+?:(?P<line>\d+):(?P<column>\d+)$",
    re.MULTILINE,
)
_CONCISE: Final = re.compile(
    r"^[^\n]*?:(?P<line>\d+):(?P<column>\d+): error\[(?P<rule>[\w-]+)\] (?P<message>.+)$", re.MULTILINE
)
# TypeScript's errors from 1000 to 1999 are of the grammar, but for these, which are of types.
_GRAMMAR: Final = re.compile(r"TS1(?!055|058|062|064|196|320)\d{3}")
_NO_PYTHON: Final = frozenset({"invalid-syntax", "unresolved-import"})


class Weight(StrEnum):
    """How bad it is: it cannot run anywhere, it goes wrong when it comes to that, or it may be meant so."""

    BROKEN = "broken"
    WRONG = "wrong"
    DOUBTFUL = "doubtful"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and where in the code: lines and columns count from 1."""

    message: str
    line: int | None = None
    column: int | None = None
    weight: Weight = Weight.WRONG


async def type_check(code: str, language: Language, *, declared: str) -> list[Problem]:
    """Return what the type checker says of `code`; `declared` is the text of its `mcp.d.ts`.

    Raises: Unavailable if it cannot be checked.
    """
    if language is Language.PYTHON:
        return await asyncio.to_thread(_check_python, code)
    return await _check_typescript(code, declared)


async def _check_typescript(code: str, declared: str) -> list[Problem]:
    from pml.install.package_managers import find_deno, run_tool
    from pml.sandbox.deno.imports import find_import

    if (place := find_import(_TYPE_IMPORT.sub(_blank, code))) is not None:
        return [Problem(message=_NO_IMPORTS, line=place[0], column=place[1], weight=Weight.BROKEN)]
    with tempfile.TemporaryDirectory(prefix="pml-check-") as name:
        place = Path(name)
        (place / "code.ts").write_text(code, encoding="utf-8", newline="")
        (place / DECLARATIONS).write_text(declared, encoding="utf-8")
        (place / "globals.d.ts").write_text(_GLOBALS, encoding="utf-8")
        (place / "deno.json").write_text(_CONFIG, encoding="utf-8")
        options = ["--no-remote", "--no-npm", "--no-lock", "--quiet", "--config", "deno.json"]
        env = {
            "DENO_DIR": str(place / "cache"),
            "DENO_NO_UPDATE_CHECK": "1",
            "HOME": name,
            "NO_COLOR": "1",
        }
        ran = await run_tool(
            [find_deno(), "check", *options, "code.ts"], cwd=place, env=env, timeout_s=_DENO_S
        )
    if ran.code == 0:
        return []
    said = ran.errors.replace(f"file://{name}/", "file:///").replace(f"{name}/", "")
    found = [_from_deno(each) for each in islice(_DENO.finditer(said), _MAX_PROBLEMS)]
    if not found:
        raise Unavailable(f"the code could not be type-checked: {said.strip()[:500] or 'deno said nothing'}")
    return found


def _from_deno(found: re.Match[str]) -> Problem:
    is_broken = found["rule"] is None or _GRAMMAR.fullmatch(found["rule"]) is not None
    return Problem(
        message=_QUOTED.sub(_shortened, _ADVICE.sub("", found["message"])),
        line=int(found["line"]),
        column=int(found["column"]),
        weight=Weight.BROKEN if is_broken else Weight.WRONG,
    )


def _shortened(quoted: re.Match[str]) -> str:
    text = quoted[0]
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…'"


def _check_python(code: str) -> list[Problem]:
    from pml.sandbox.monty.source import NotAtTopLevel, exported

    try:
        source = exported(code, FALLBACK_EXPORT)
    except NotAtTopLevel as exc:
        return [Problem(message=str(exc), line=exc.line, column=exc.column, weight=Weight.BROKEN)]
    typed = _typed_python(code)
    if any(each.weight is Weight.BROKEN for each in typed):
        return typed
    text = source.text.encode(errors="replace")[: source.tail_at].decode(errors="replace")
    error = _load_python(text, type_check=False)
    loaded = [] if error is None else [_from_monty(error, source)]
    seen = {(each.line, each.column) for each in loaded}
    return [*loaded, *(each for each in typed if (each.line, each.column) not in seen)]


def _typed_python(code: str) -> list[Problem]:
    """Return what is wrong with the types of the code as it was written, not as it is loaded."""
    import pydantic_monty as monty

    error = _load_python(code, type_check=True)
    if not isinstance(error, monty.MontyTypingError):
        return []
    said = str(error)
    return [_from_checker(each) for each in islice(_CONCISE.finditer(said), _MAX_PROBLEMS)] or [
        Problem(message=said)
    ]


def _load_python(text: str, *, type_check: bool) -> "MontyError | None":
    """Return why `text` cannot be loaded."""
    import pydantic_monty as monty

    limits = monty.ResourceLimits(
        max_feed_duration_secs=_PYTHON_S, max_memory=_PYTHON_BYTES, max_recursion_depth=100
    )
    try:
        with (
            monty.Monty(min_processes=1) as pool,
            pool.checkout(
                script_name="code.py", limits=limits, type_check=type_check, type_check_format="concise"
            ) as session,
        ):
            session.feed_run(text, print_callback=lambda stream, text: None)
    except monty.MontyError as exc:
        return exc
    return None


def _from_checker(found: re.Match[str]) -> Problem:
    return Problem(
        message=found["message"],
        line=int(found["line"]),
        column=int(found["column"]),
        weight=Weight.BROKEN if found["rule"] in _NO_PYTHON else Weight.WRONG,
    )


def _from_monty(error: "MontyError", source: "PythonSource") -> Problem:
    from pml.sandbox.monty.endings import ended_by

    ended = ended_by(
        error,
        source,
        faults=(),
        over_time=f"it does not end within {_PYTHON_S:g} s when it is loaded",
        over_memory="it takes too much memory when it is loaded",
    )
    is_certain = ended.how in (Ending.SYNTAX, Ending.RAISED)
    return Problem(
        message=ended.message or "cannot be loaded",
        line=ended.line,
        column=ended.column,
        weight=Weight.BROKEN if is_certain else Weight.WRONG,
    )


def _blank(found: re.Match[str]) -> str:
    """Return what has the same lines and columns, and says nothing."""
    return re.sub(r"[^\n]", " ", found[0])
