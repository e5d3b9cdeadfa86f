"""The permission tool as others would write it: `mcp` or FastMCP over Streamable HTTP, all in memory.

It knows no token, no rule, no store and no other process: `Bash` is allowed at once, `WebSearch` denied, and
anything else waits until `/decide` answers all that waits. `/events` pours what `/emit` makes to each reader.
Run as `permit_server.py sdk|fastmcp PORT`.
"""

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import uvicorn
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

EVENT_TEXT = json.dumps({"type": "approval.requested", "input": "x" * 500})
waiting: list[tuple[asyncio.Future[bool], int]] = []
readers: set[asyncio.Queue[str]] = set()
Tell = Callable[[], Awaitable[None]]


async def permit(tool_name: str, input: dict[str, Any], tell: Tell) -> str:
    allow = tool_name == "Bash"
    if tool_name not in ("Bash", "WebSearch"):
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.append((decided, input["number"]))
        await tell()
        allow = await decided
    if allow:
        return json.dumps({"behavior": "allow", "updatedInput": input})
    return json.dumps({"behavior": "deny", "message": f"denied: no {input['number']}."})


async def decide(request: Request) -> JSONResponse:
    for future, number in waiting:
        future.set_result(number % 2 == 0)
    count = len(waiting)
    waiting.clear()
    return JSONResponse({"decided": count})


async def emit(request: Request) -> JSONResponse:
    for _ in range(int(request.query_params["count"])):
        for reader in readers:
            reader.put_nowait(EVENT_TEXT)
    return JSONResponse({})


async def events(request: Request) -> EventSourceResponse:
    queue: asyncio.Queue[str] = asyncio.Queue()
    readers.add(queue)

    async def pour() -> AsyncGenerator[str]:
        try:
            while True:
                yield await queue.get()
        finally:
            readers.discard(queue)

    return EventSourceResponse(pour())


def sdk_app() -> Starlette:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    async def call(
        ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        given = params.arguments or {}
        text = await permit(given["tool_name"], given["input"], lambda: ctx.session.report_progress(1))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server("permits", on_call_tool=call).streamable_http_app()


def fastmcp_app() -> Starlette:
    fastmcp: Any = importlib.import_module("fastmcp")  # a peer of its own environment

    async def loopback_permit(tool_name: str, input: dict[str, Any], tool_use_id: str, ctx: Any) -> str:
        return await permit(tool_name, input, lambda: ctx.report_progress(1))

    loopback_permit.__annotations__["ctx"] = fastmcp.Context
    server = fastmcp.FastMCP("permits")
    server.tool(loopback_permit)
    return server.http_app()


def allow_many_files() -> None:
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    app = sdk_app() if kind == "sdk" else fastmcp_app()
    app.routes.append(Route("/decide", decide, methods=["POST"]))
    app.routes.append(Route("/emit", emit, methods=["POST"]))
    app.routes.append(Route("/events", events))
    allow_many_files()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", access_log=False, ws="none")
