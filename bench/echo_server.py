"""The MCP server behind every gateway that is measured: `echo` returns its text, `big` returns 64 KB.

Plain and without a loop, so that the time a call takes is the gateway's. It knows 2025-11-25 only. Started
with a number it lists as many tools more, each as long as such tools usually are.
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


def usual_tools(count: int) -> list[dict[str, Any]]:
    """Return so many tools of usual length, about 240 bytes each."""
    properties = {"path": _STRING, "query": _STRING, "limit": {"type": "integer", "minimum": 1}}
    schema = {"type": "object", "properties": properties, "required": ["path", "query"]}
    said = "Find what the query means in the path"
    return [
        {"name": f"find_{number:03}", "description": f"{said}.", "inputSchema": schema}
        for number in range(count)
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
    TOOLS.extend(usual_tools(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    serve()
