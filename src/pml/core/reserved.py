"""Calls that name PML itself: a command with the word `pml`, a path that leads into PML_HOME. A person's.

An agent that could run them unasked could answer its own questions. What hides the name from this look (a
variable, an encoding) is beyond it; containment is there for that.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
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
_Named = tuple[str | None, str]  # a text, and the name of the member that it stands in


def is_reserved(tool: str, arguments: JsonObject, *, home: str, cwd: str | None, paths: Paths) -> bool:
    """Tell whether the call is one that only a person decides; `home` is PML_HOME."""
    texts = _texts(arguments)
    return _names_pml(tool, arguments, texts, home) or _leads_into(home, texts, cwd, paths)


def _leads_into(home: str, texts: Sequence[_Named], cwd: str | None, paths: Paths) -> bool:
    """Tell whether a text is a path that really leads into `home`, however it is written."""
    inside: str | None = None
    for name, text in texts:
        if name is None or len(text) > MAX_PATH_CHARS:
            continue
        if not ("/" in text or "\\" in text or names_location(name)):  # also a bare name may be a link
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


def _names_pml(tool: str, arguments: JsonObject, texts: Sequence[_Named], home: str) -> bool:
    is_code: bool | None = None
    home = _plain(home)
    for _, text in texts:
        plain = _plain(text)
        if home in plain:
            return True
        if "pml" not in plain:
            continue
        if _FOLDER.search(plain):
            return True
        if _NAME.search(plain):
            is_code = runs_code(tool, arguments) if is_code is None else is_code
            if is_code:
                return True
    return False


def _plain(text: str) -> str:
    """Return the text as a shell and the system would read its words and paths, in one case."""
    if "\\" in text or "'" in text or '"' in text:
        text = text.replace("\\\n", "").translate(_SPLITTING)
    plain = text.lower()
    return _SLASHES.sub("/", plain) if "//" in plain or "/./" in plain else plain


def _texts(arguments: JsonObject) -> list[_Named]:
    """Return every text in them, names of members too, which stand in none."""
    found: list[_Named] = []
    todo: list[tuple[str, Json]] = [("", arguments)]
    while todo:
        name, value = todo.pop()
        if isinstance(value, str):
            found.append((name, value))
        elif isinstance(value, Mapping):
            found += [(None, inner) for inner in value]
            todo += value.items()
        elif isinstance(value, list | tuple):
            todo += [(name, inner) for inner in value]
    return found
