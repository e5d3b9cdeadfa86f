"""Type-checking code without running it for real: Deno checks TypeScript, Monty's own checker Python.

Nothing is fetched, and nothing is left behind. Places are told as they are in the author's file.
"""

import asyncio
import re
import tempfile
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import Unavailable
from pml.core.sandbox import Language

DECLARATIONS: Final = "mcp.d.ts"
_DENO_S: Final = 60.0  # 2 s for a page of code on a slow machine
_PYTHON_S: Final = 2.0  # for what a module does when it is loaded: it defines functions
_PYTHON_BYTES: Final = 64 * 1024 * 1024
_MAX_PROBLEMS: Final = 50
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
_DENO: Final = re.compile(
    r"^(?:TS\d+ \[ERROR\]|error): (?:SyntaxError: )?(?P<message>.+)\n(?:(?!TS\d+ |error: ).*\n)*?"
    r"\s+at file://\S+?:(?P<line>\d+):(?P<column>\d+)$",
    re.MULTILINE,
)
_CONCISE: Final = re.compile(
    r"^[^\n]*?:(?P<line>\d+):(?P<column>\d+): error\[[\w-]+\] (?P<message>.+)$", re.MULTILINE
)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and where in the code: lines and columns count from 1."""

    message: str
    line: int | None = None
    column: int | None = None


async def type_check(code: str, language: Language, *, declared: str) -> list[Problem]:
    """Return what the type checker says of `code`; `declared` is the text of its `mcp.d.ts`.

    Raises: Unavailable if it cannot be checked.
    """
    if language is Language.PYTHON:
        return await asyncio.to_thread(_check_python, code)
    return await _check_typescript(code, declared)


async def _check_typescript(code: str, declared: str) -> list[Problem]:
    from pml.install.tools import find_deno, run_tool
    from pml.sandbox.deno_imports import find_import

    if (place := find_import(_TYPE_IMPORT.sub(_blank, code))) is not None:
        return [Problem(message=_NO_IMPORTS, line=place[0], column=place[1])]
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
    found = _problems(_DENO, said)
    if not found:
        raise Unavailable(f"the code could not be type-checked: {said.strip()[:500] or 'deno said nothing'}")
    return found


def _check_python(code: str) -> list[Problem]:
    import pydantic_monty as monty

    limits = monty.ResourceLimits(
        max_feed_duration_secs=_PYTHON_S, max_memory=_PYTHON_BYTES, max_recursion_depth=100
    )
    try:
        with (
            monty.Monty(min_processes=1) as pool,
            pool.checkout(
                script_name="code.py", limits=limits, type_check=True, type_check_format="concise"
            ) as session,
        ):
            session.feed_run(code, print_callback=lambda stream, text: None)
    except monty.MontyTypingError as exc:
        return _problems(_CONCISE, str(exc)) or [Problem(message=str(exc))]
    except monty.MontyRuntimeError as exc:
        frames = exc.traceback()
        last = frames[-1] if frames else None
        return [
            Problem(
                message=str(exc),
                line=None if last is None else last.line,
                column=None if last is None else last.column,
            )
        ]
    except monty.MontyError as exc:
        return [Problem(message=str(exc))]
    return []


def _problems(pattern: re.Pattern[str], said: str) -> list[Problem]:
    return [
        Problem(
            message=_ADVICE.sub("", found["message"]), line=int(found["line"]), column=int(found["column"])
        )
        for found in islice(pattern.finditer(said), _MAX_PROBLEMS)
    ]


def _blank(found: re.Match[str]) -> str:
    """Return what has the same lines and columns, and says nothing."""
    return re.sub(r"[^\n]", " ", found[0])
