"""Calls that name PML itself: a command with the word `pml`, a path into PML_HOME. A person decides those.

An agent that could run them unasked could answer its own questions. What hides the name from this look (a
variable, an encoding) is beyond it; containment is there for that.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pml.core.rules import runs_code
from pml.core.values import Json, JsonObject

WHY: Final = "it names PML itself, which only a person may let an agent use"
_SPLITTING: Final = str.maketrans("", "", "'\"\\")  # a shell takes `p'm'l` for `pml`
_SLASHES: Final = re.compile(r"/(?:\.?/)+")
_NAME: Final = re.compile(r"(?<![a-z0-9])pml(?![a-z0-9])")
_FOLDER: Final = re.compile(r"(?:^|[/\\])\.pml(?:[/\\]|$)")


def is_reserved(tool: str, arguments: JsonObject, *, home: str) -> bool:
    """Tell whether the call is one that only a person decides; `home` is PML_HOME."""
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
