"""Values that code gets from a tool: plain data, made of an MCP result.

`structuredContent` if the result has one, else the text of its text blocks, else the blocks themselves.
"""

from typing import Any

import msgspec

from pml.core.errors import ToolFailed

_NOTHING = (b"", b"null")


class _Result(msgspec.Struct):
    content: list[dict[str, Any]] = []
    structured: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="structuredContent")
    is_error: bool = msgspec.field(default=False, name="isError")


class _Asking(msgspec.Struct):
    approval_required: Any = None


class _Returned(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")


def value_of(result: bytes, *, tool: str, is_code: bool = False) -> bytes:
    """Return what the code gets, as JSON text; of other code (`is_code`) what that returned.

    Raises: ToolFailed if the tool says that it failed.
    """
    try:
        read = msgspec.json.decode(result, type=_Result)
        structured = bytes(read.structured)
        if is_code and structured not in _NOTHING:
            structured = bytes(msgspec.json.decode(structured, type=_Returned).result)
    except msgspec.DecodeError as exc:
        raise ToolFailed(f"the result of {tool} is none that MCP knows") from exc
    texts = [block.get("text") for block in read.content if block.get("type") == "text"]
    text = "\n".join(text for text in texts if isinstance(text, str))
    if read.is_error:
        raise ToolFailed(text or f"{tool} failed and does not say why")
    if bytes(read.structured) not in _NOTHING:
        return structured
    return msgspec.json.encode(text if len(texts) == len(read.content) else read.content)


def is_asking(result: bytes) -> bool:
    """Tell whether the result is another PML's question instead of what the tool returned."""
    try:
        return msgspec.json.decode(result, type=_Asking).approval_required is True
    except msgspec.DecodeError:
        return False
