"""Calls that name PML itself: a command with the word `pml`, a path that leads into PML_HOME. A person's.

An agent that could run them unasked could answer its own questions. What hides the name from this look (a
variable, an encoding) is beyond it; containment is there for that.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from pml.core.arguments import names_location
from pml.core.matchers import Paths
from pml.core.readings import MAX_PATH_CHARS, path_readings
from pml.core.rules import runs_code
from pml.core.values import Json, JsonObject

WHY: Final = "it names PML itself, which only a person may let an agent use"
_SPLITTING: Final = str.maketrans("", "", "'\"\\")  # a shell takes `p'm'l` for `pml`
_SLASHES: Final = re.compile(r"/(?:\.?/)+")
_NAME: Final = re.compile(r"(?<![a-z0-9])pml(?![a-z0-9])")
_FOLDER: Final = re.compile(r"(?:^|[/\\])\.pml(?:[/\\]|$)")


def is_reserved(tool: str, arguments: JsonObject, *, home: str, cwd: str | None, paths: Paths) -> bool:
    """Tell whether the call is one that only a person decides; `home` is PML_HOME."""
    return _names_pml(tool, arguments, home) or _leads_into(home, arguments, cwd, paths)


def _leads_into(home: str, arguments: JsonObject, cwd: str | None, paths: Paths) -> bool:
    """Tell whether a text is a path that really leads into `home`, however it is written."""
    inside: str | None = None
    for name, text in _named_texts("", arguments):
        is_path = "/" in text or "\\" in text or names_location(name)  # also a bare name may be a link
        if not is_path or len(text) > MAX_PATH_CHARS:
            continue
        for path in _places(text, cwd, paths.home):
            with suppress(OSError, ValueError):
                inside = inside or paths.real(home)
                real = paths.real(path)
                if real == inside or real.startswith(inside.rstrip("/") + "/"):
                    return True
    return False


def _places(text: str, cwd: str | None, home: str) -> Iterator[str]:
    """Yield every place that the text can stand for: as it is written, tidied, and by its readings.

    Where there is no telling what a tool makes of it, some take it as it is written.
    """
    yield from path_readings(text, cwd=cwd, home=home)
    written = text if text.startswith("/") or cwd is None else posixpath.join(cwd, text)
    if written.startswith("/"):
        yield written
        yield posixpath.normpath(written)


def _names_pml(tool: str, arguments: JsonObject, home: str) -> bool:
    is_code: bool | None = None
    home = _plain(home)
    for text in _texts(arguments):
        plain = _plain(text)
        if home in plain or _FOLDER.search(plain):
            return True
        if "pml" in plain and _NAME.search(plain):
            is_code = runs_code(tool, arguments) if is_code is None else is_code
            if is_code:
                return True
    return False


def _plain(text: str) -> str:
    """Return the text as a shell and the system would read its words and paths, in one case."""
    plain = text.replace("\\\n", "").translate(_SPLITTING).lower()
    return _SLASHES.sub("/", plain) if "//" in plain or "/./" in plain else plain


def _named_texts(name: str, value: Json) -> Iterator[tuple[str, str]]:
    """Yield every text in `value` with the name of the member that it stands in."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for inner_name, inner in value.items():
            yield from _named_texts(inner_name, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named_texts(name, inner)


def _texts(value: Json) -> Iterator[str]:
    """Yield every text in `value`, names of members too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
