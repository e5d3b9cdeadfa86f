"""A real MCP server of the SDK that wants a key in a header. Its first line of output says where it is."""

import json
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.types import Receive, Scope, Send


def main() -> None:
    server = MCPServer("notes")

    @server.tool()
    def add(text: str) -> str:
        """Add a note."""
        return f"noted {text}"

    del add
    app, wanted = server.streamable_http_app(), f"Bearer {sys.argv[1]}".encode()

    async def keyed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != wanted:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"}), flush=True)
        uvicorn.Server(uvicorn.Config(keyed, log_level="error", lifespan="on")).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())
