"""A small MCP server that writes down every call: what ran, and how often, can be read off its file."""

import json
import sys
from pathlib import Path
from typing import Any

LEDGER = Path("ledger.txt")  # in the working directory
WHAT = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
TOOLS = [{"name": name, "description": f"{name} it", "inputSchema": WHAT} for name in ("open", "pay", "shut")]


def main() -> None:
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], **serve(message)}
            print(json.dumps(answer), flush=True)


def serve(message: dict[str, Any]) -> dict[str, Any]:
    match message:
        case {"method": "initialize", "params": {"protocolVersion": version}}:
            info = {"name": "ledger", "version": "1"}
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        case {"method": "tools/list"}:
            return {"result": {"tools": TOOLS}}
        case {"method": "tools/call", "params": {"name": name, "arguments": {"what": what}}}:
            with LEDGER.open("a", encoding="utf-8") as file:
                file.write(f"{name} {what}\n")
            return {"result": {"content": [{"type": "text", "text": f"{name} {what}: done"}]}}
        case _:
            return {"error": {"code": -32601, "message": "no such method or tool"}}


if __name__ == "__main__":
    main()
