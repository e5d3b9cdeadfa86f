"""The least that a Python server on asyncio can be: it answers `initialize`, and nothing else.

What it takes to start is the floor for any gateway written on asyncio; it imports nothing of PML.
"""

import asyncio
import json
import sys


async def serve() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        message = json.loads(line)
        if message.get("method") == "initialize":
            result: dict[str, object] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bare", "version": "1"},
            }
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
