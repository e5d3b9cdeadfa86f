"""Files in which opencode keeps its MCP servers, and its words for them."""

import re
from typing import Final

from pml.core.imports.client_entries import Reading, common_words, replaced, texts_of
from pml.core.imports.client_files import ClientFile, everywhere
from pml.core.values import JsonObject

_CLIENT: Final = "opencode"
_ENV: Final = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def opencode_words(value: JsonObject) -> Reading:
    """Read an entry of opencode: the whole command line is one list, and `{env:NAME}` a variable."""
    entry = dict(replaced(value, lambda text: _ENV.sub(r"${\1}", text)))
    line = entry.pop("command", None)
    if isinstance(line, list | tuple) and line:
        entry["command"], entry["args"] = line[0], list(line[1:])
    if "environment" in entry:
        entry["env"] = entry.pop("environment")
    if any("{file:" in text for text in texts_of(entry)):
        return Reading(entry=entry, refused="has `{file:…}`, which only opencode fills in")
    return common_words(entry)


OPENCODE_FILES: Final = tuple(
    ClientFile(
        client=_CLIENT,
        places=everywhere(f"{folder}/opencode.{suffix}"),
        keys=("mcp",),
        words=opencode_words,
        is_project=is_project,
    )
    for folder, is_project in (("{config}/opencode", False), ("{workspace}", True))
    for suffix in ("json", "jsonc")
)
