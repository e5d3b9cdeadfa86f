"""TypeScript made JavaScript, once: by a process that may do nothing, and kept by the hash of the source.

A kept file names the hash of what it holds: one that was damaged is made anew. Imports are refused here, by
their place in the text, so that an author hears of them at once; nothing could be loaded anyway.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from pml.core.code.sandbox import Ended, Ending
from pml.host.private import private_directory
from pml.host.replace import replace_file
from pml.sandbox.deno.imports import find_import
from pml.sandbox.deno.process import DenoProcess, Stopped

_FORMAT: Final = b"1"  # of what is kept: another one is not found, and made anew
_NO_IMPORTS: Final = "code cannot import modules: call tools with `mcp.namespace.action()`"


class _Made(msgspec.Struct, frozen=True):
    """What the stripper answers: the code, or why there is none."""

    code: str | None = None
    message: str = ""
    line: int | None = None
    column: int | None = None


class KeptCode:
    """A folder of JavaScript by the hash of its source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, source: str) -> str | None:
        try:
            named, _, code = self._path(source).read_bytes().partition(b"\n")
        except OSError:
            return None
        return code.decode() if named == _hash(code) else None

    def keep(self, source: str, code: str) -> None:
        content = code.encode()
        with contextlib.suppress(OSError):  # a full disk: it is made again next time
            private_directory(self._folder)
            replace_file(self._path(source), _hash(content) + b"\n" + content, mode=0o600)

    def _path(self, source: str) -> Path:
        return self._folder / f"{_hash(_FORMAT + source.encode()).decode()}.js"


async def translate(
    source: str, take: Callable[[], Awaitable[DenoProcess]], kept: KeptCode | None
) -> str | Ended:
    """Return the JavaScript of `source`, or how it ended before it began. Raises: Unavailable."""
    try:
        source.encode()
    except UnicodeEncodeError:
        return Ended(how=Ending.SYNTAX, message="SyntaxError: the code has half of a surrogate pair")
    if kept is not None and (found := await asyncio.to_thread(kept.find, source)) is not None:
        return found
    made = await _strip(source, take)
    if isinstance(made, str) and kept is not None:
        await asyncio.to_thread(kept.keep, source, made)
    return made


async def _strip(source: str, take: Callable[[], Awaitable[DenoProcess]]) -> str | Ended:
    text = "//" + source[2:] if source.startswith("#!") else source
    content = text.encode()
    process = await take()
    try:
        answer = await process.exchange(b"%d\n" % len(content), content)
        made = msgspec.json.decode(answer, type=_Made)
    except Stopped as exc:
        return Ended(how=exc.how, message=exc.message)
    except (msgspec.DecodeError, ValueError):
        return Ended(how=Ending.BROKEN, message="the sandbox made no sense")
    finally:
        process.kill()
    if made.code is None:
        return Ended(
            how=Ending.SYNTAX, message=f"SyntaxError: {made.message}", line=made.line, column=made.column
        )
    if (place := await asyncio.to_thread(find_import, made.code)) is not None:
        line, column = place
        return Ended(how=Ending.SYNTAX, message=f"SyntaxError: {_NO_IMPORTS}", line=line, column=column)
    return made.code


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
