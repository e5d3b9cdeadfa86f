"""Files in which Gemini CLI keeps its MCP servers, and its words for them."""

from typing import Final

from pml.core.imports.client_entries import Reading, common_words
from pml.core.imports.client_files import ClientFile, everywhere
from pml.core.values import JsonObject

_CLIENT: Final = "Gemini"


def gemini_words(value: JsonObject) -> Reading:
    """Read an entry of Gemini: `httpUrl` is reached by HTTP, a `url` without a type by SSE."""
    if "type" in value or "command" in value:
        return common_words(value)
    if "httpUrl" in value:
        return common_words({**value, "type": "http"})
    return common_words({**value, "type": "sse"} if "url" in value else value)


GEMINI_FILES: Final = (
    ClientFile(client=_CLIENT, places=everywhere("{home}/.gemini/settings.json"), words=gemini_words),
    ClientFile(
        client=_CLIENT,
        places=everywhere("{workspace}/.gemini/settings.json"),
        words=gemini_words,
        is_project=True,
    ),
)
