"""The MCP server behind every gateway that is measured: `echo` returns its text, `big` returns 64 KB.

Plain and without a loop, so that the time a call takes is the gateway's. It knows 2025-11-25 only.
"""

import json
import os
import sys
from typing import Any

BIG_BYTES = 64 * 1024
READ_BYTES = 64 * 1024  # what a pipe holds; a larger buffer is mapped and unmapped at every read
_STRING = {"type": "string"}
INITIALIZED: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "echo", "version": "1"},
}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "description": "Return the text.",
        "inputSchema": {"type": "object", "properties": {"text": _STRING}, "required": ["text"]},
    },
    {
        "name": "big",
        "description": "Return 64 KB of text.",
        "inputSchema": {"type": "object", "properties": {"text": _STRING}},
    },
]


def answer(message: dict[str, Any]) -> bytes:
    """Return the line that answers one request."""
    match message["method"]:
        case "initialize":
            result = encode(INITIALIZED)
        case "tools/list":
            result = encode({"tools": TOOLS})
        case "tools/call" if message["params"]["name"] == "big":
            result = BIG
        case "tools/call":
            result = encode(_text(message["params"]["arguments"]["text"]))
        case "ping":
            result = b"{}"
        case _:
            error = b'{"code":-32601,"message":"unknown method"}'
            return b'{"jsonrpc":"2.0","id":%s,"error":%s}\n' % (encode(message["id"]), error)
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (encode(message["id"]), result)


def encode(value: object) -> bytes:
    return json.dumps(value).encode()


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


BIG = encode(_text("x" * BIG_BYTES))  # once: to encode it takes longer than most gateways do


def serve() -> None:
    """Answer until the input ends; what arrived together is answered with one write."""
    rest = b""
    while chunk := os.read(0, READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        messages = [json.loads(line) for line in lines if line.strip()]
        sys.stdout.buffer.write(b"".join(answer(message) for message in messages if "id" in message))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
