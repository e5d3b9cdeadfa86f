"""The result of a tool as a person or a script reads it. What a server wrote cannot steer a terminal."""

import json
import re
import sys
from collections.abc import Mapping
from typing import Final, cast

from pml.cli.exits import Exit
from pml.cli.terminal.output import print_json, print_logs
from pml.core.errors import PmlError
from pml.core.text import quote, visible, visible_json
from pml.core.values import Json, JsonObject

_NOT_PLAIN: Final = re.compile(r"[^\n\t -~]")


def print_result(raw: bytes, *, server: str, as_json: bool, is_code: bool = False) -> Exit:
    """Print the result of a call and return the exit code that tells of it. Raises: PmlError.

    What code (`is_code`) printed on its way goes to stderr.
    """
    result = _read(raw, server)
    structured = result.get("structuredContent")
    logs = structured.get("logs") if is_code and isinstance(structured, Mapping) else None
    if isinstance(logs, list) and not as_json:
        print_logs(str(line) for line in logs)
    if as_json:
        print_json(result)
    else:
        for text in _texts(result):
            print_foreign(text)
    return Exit.FAILED if result.get("isError") is True else Exit.OK


def print_foreign(text: str) -> None:
    """Print text from outside: exactly to a file or pipe; to a terminal with hidden characters shown."""
    if sys.stdout.isatty():
        text = _NOT_PLAIN.sub(lambda found: visible(found[0]), text)
    print(text, end="" if text.endswith("\n") else "\n", flush=True)


def _read(raw: bytes, server: str) -> JsonObject:
    try:
        result = cast(Json, json.loads(raw))
    except (ValueError, RecursionError) as exc:
        raise PmlError(f"server `{server}` answered with what cannot be read") from exc
    if not isinstance(result, Mapping):
        raise PmlError(f"server `{server}` answered with what is not a result of a tool")
    return result


def _texts(result: JsonObject) -> list[str]:
    """Return what there is to print: each block of content, or the structured content where none is text."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    texts = [_block_text(block) for block in blocks]
    structured = result.get("structuredContent")
    has_text = any(block.get("type") == "text" for block in blocks)
    return texts if has_text or structured is None else [*texts, visible_json(structured)]


def _block_text(block: JsonObject) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind} {_word(block, 'mimeType')}, {_size(block.get('data'))} in base64]"
        case "resource_link":
            return f"[resource link {_word(block, 'uri')}]"
        case "resource":
            held = block.get("resource")
            return f"[resource {_word(held, 'uri') if isinstance(held, Mapping) else ''}]"
        case kind:
            return f"[content of type {quote(str(kind))}]"


def _word(block: JsonObject, key: str) -> str:
    return visible(str(block.get(key, "")))


def _size(data: Json) -> str:
    return f"{len(data) if isinstance(data, str) else 0:,} characters"
