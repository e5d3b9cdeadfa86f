"""The echo server over Streamable HTTP, without a framework; prints its port, then serves."""

import asyncio
import json
from typing import Any

from bench.echo_server import TOOLS


def _result(message: dict[str, Any]) -> dict[str, Any] | None:
    match message.get("method"):
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}}
            info = {"name": "echo", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
        case "ping":
            return {}
        case _:
            return None


def _answer(method: str, body: bytes) -> bytes:
    if method != "POST":
        return b"HTTP/1.1 405 X\r\ncontent-length: 0\r\n\r\n"
    message = json.loads(body)
    result = _result(message)
    if "id" not in message or result is None:
        return b"HTTP/1.1 202 X\r\ncontent-length: 0\r\n\r\n"
    told = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    head = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {len(told)}\r\n"
    return head.encode() + b"mcp-session-id: s\r\n\r\n" + told


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while first := (await reader.readline()).split():
        length = 0
        while line := (await reader.readline()).strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        writer.write(_answer(first[0].decode(), await reader.readexactly(length)))
        await writer.drain()
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
