"""A server of the MCP SDK on HTTP: `sdk_server.py PORT streamable-http|json|sse`."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("shop")


class Person(BaseModel):
    name: str


@server.tool()
def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool()
async def greet(ctx: Context) -> str:
    """Ask for a name, and greet."""
    answer = await ctx.elicit("What is your name?", Person)
    return f"hello {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool()
async def steps(ctx: Context) -> str:
    """Take three steps."""
    for step in range(3):
        await ctx.report_progress(step + 1, 3, "step")
    return "done"


if __name__ == "__main__":
    port, how = int(sys.argv[1]), sys.argv[2]
    if how == "sse":
        server.run(transport="sse", host="127.0.0.1", port=port)
    else:
        is_json = how == "json"
        server.run(
            transport="streamable-http",
            host="127.0.0.1",
            port=port,
            json_response=is_json,
            stateless_http=is_json,
        )
