"""The MCP conformance suite against a hub, with an adapter between the two.

The suite knows no tokens and calls tools by names of its own; the adapter adds the token and the server's
name, breaks the one stream that is to be resumed, and passes everything else on as it comes: whom a hostile
`Host` or `Origin` may reach is for the hub to say. What a scenario wants is the suite's business.
"""

import asyncio
import json
import os
import re
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.e2e.installed import NODE, PACKAGES, bare_environment

SUITE: Final = PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
SUITE_S: Final = 90.0  # a healthy run takes a few seconds; a scenario that hangs gives up after 60
STOP_S: Final = 5  # for streams that the suite left open
READY_S: Final = 30.0  # only ever reached by a hub that does not start
ORIGIN: Final = re.compile(rb"http://[^/\s\"]+")
SSE: Final = "text/event-stream"
END_OF_EVENT: Final = b"\n"
RESUMED: Final = b'"test_reconnection"'  # the tool in whose call a stream is to end after its first event
SERVERS, ASKED = "server", "user_name"  # PML's name for a server's question, and the suite's
HOP_BY_HOP: Final = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
NAMED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "tools/call": (),
    "prompts/get": (),
    "completion/complete": ("ref",),
}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What the suite found in one scenario: the checks it made, and what it complained of."""

    name: str
    passed: int
    complaints: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        """Whether something was checked and nothing was complained of, not even as a mere warning."""
        return self.passed > 0 and not self.complaints


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """Speaks to the hub at `origin` for the suite, under the names that `server` has there."""

    origin: str
    token: str
    server: str

    def outwards(self, body: bytes) -> bytes:
        """Return the suite's message with the names that the hub knows."""
        message: Any = json.loads(body)
        path = NAMED_BY.get(message.get("method"))
        if path is None:
            return body
        named = message["params"]
        for key in path:
            named = named[key]
        if "name" in named:
            named["name"] = f"{self.server}__{named['name']}"
        answers = message["params"].get("inputResponses")
        if answers and ASKED in answers:
            answers[SERVERS] = answers.pop(ASKED)
        return json.dumps(message).encode()

    def homewards(self, body: bytes) -> bytes:
        """Return the hub's message with the names that the suite knows."""
        message: Any = json.loads(body)
        result: dict[str, Any] = message.get("result", {})
        questions = result.get("inputRequests", {})
        if SERVERS in questions:
            questions[ASKED] = questions.pop(SERVERS)
        listed: list[dict[str, str]] = [*result.get("tools", ()), *result.get("prompts", ())]
        for entry in listed:
            entry["name"] = entry["name"].removeprefix(f"{self.server}__")
        return json.dumps(message).encode() if listed or questions else body

    async def homewards_lines(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Pass events on, each line as soon as it is whole."""
        rest = b""
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                data = line.removeprefix(b"data:").strip()
                if line.startswith(b"data:") and data:
                    line = b"data: " + self.homewards(data)
                yield line + b"\n"
        yield rest

    def headers(self, request: Request) -> dict[str, str]:
        """Return the suite's headers with the token; what names this adapter names the hub instead."""
        own = request.scope["server"]
        authority = f"{own[0]}:{own[1]}"
        headers = {name: value for name, value in request.headers.items() if name not in HOP_BY_HOP}
        for name in {"host", "origin"} & headers.keys():
            if headers[name] in (authority, f"http://{authority}"):
                headers[name] = headers[name].replace(authority, httpx2.URL(self.origin).netloc.decode())
        if "mcp-name" in headers and "://" not in headers["mcp-name"]:
            headers["mcp-name"] = f"{self.server}__{headers['mcp-name'].strip()}"
        return {**headers, "authorization": f"Bearer {self.token}", "accept-encoding": "identity"}


@asynccontextmanager
async def serving_hub(workspace: Path, *, home: Path) -> AsyncGenerator[str]:
    """Run `pml serve` in a process of its own; yields where it is."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pml", "serve", "--port", "0", "--json"),
        stdin=DEVNULL,
        stdout=PIPE,
        env={**bare_environment(home), "PML_HOME": os.environ["PML_HOME"]},
        cwd=workspace,
    )
    assert process.stdout is not None
    try:
        yield await _origin(process.stdout)
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(READY_S):
            await process.wait()


async def _origin(out: asyncio.StreamReader) -> str:
    async with asyncio.timeout(READY_S):
        async for line in out:
            if found := ORIGIN.search(line):
                return found[0].decode()
    raise AssertionError("the hub ended without telling where it is")


@asynccontextmanager
async def adapted(adapter: Adapter) -> AsyncGenerator[str]:
    """Serve the adapter on a free port of loopback; yields the URL that the suite is given."""
    async with httpx2.AsyncClient(base_url=adapter.origin, timeout=None, trust_env=False) as hub:

        async def pass_on(request: Request) -> Response:
            body = await request.body()
            answer = await hub.send(
                hub.build_request(
                    request.method,
                    request.url.path,
                    headers=adapter.headers(request),
                    content=adapter.outwards(body) if body else b"",
                ),
                stream=True,
            )
            return await _answered(adapter, answer, breaks=RESUMED in body)

        app = Starlette(routes=[Route("/mcp", pass_on, methods=["GET", "POST", "DELETE"])])
        async with _served(app) as authority:
            yield f"http://{authority}/mcp"


async def _answered(adapter: Adapter, answer: httpx2.Response, *, breaks: bool) -> Response:
    headers = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
    kind = headers.get("content-type", "")
    if kind.startswith(SSE):

        async def events() -> AsyncGenerator[bytes]:
            try:
                async for line in adapter.homewards_lines(answer.aiter_raw()):
                    yield line
                    if breaks and line == END_OF_EVENT:
                        return
            finally:
                await answer.aclose()

        return StreamingResponse(events(), status_code=answer.status_code, headers=headers)
    body = await answer.aread()
    content = adapter.homewards(body) if body and kind.startswith("application/json") else body
    return Response(content, status_code=answer.status_code, headers=headers)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # they are the test run's


@asynccontextmanager
async def _served(app: Starlette) -> AsyncGenerator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=STOP_S)
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def run_suite(url: str, version: str, *, home: Path) -> dict[str, Scenario]:
    """Run every scenario of the version against `url`; return what was found, by name."""
    results, log = home / "conformance", home / "conformance.log"
    wanted = ("--suite", "all", "--spec-version", version)
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(NODE, str(SUITE), "server", "--url", url, *wanted, "--output-dir", str(results)),
            stdin=DEVNULL,
            stdout=out,
            stderr=STDOUT,
            env=bare_environment(home),
        )
    try:
        async with asyncio.timeout(SUITE_S):
            await process.wait()
    except TimeoutError as exc:
        raise AssertionError(f"the suite does not end: {log.read_text()}") from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = [_found(file) for file in sorted(results.glob("server-*/checks.json"))]
    assert found, log.read_text()
    return {scenario.name: scenario for scenario in found}


def _found(file: Path) -> Scenario:
    """Read a file in a folder such as `server-tools-list-2026-11-16T06-15-00-000Z`."""
    checks: list[dict[str, str]] = json.loads(file.read_text())
    return Scenario(
        name=file.parent.name.removeprefix("server-").rsplit("-", 6)[0],
        passed=sum(check["status"] == "SUCCESS" for check in checks),
        complaints=tuple(
            f"{check['id']}: {check.get('errorMessage', check['description'])}"
            for check in checks
            if check["status"] in ("FAILURE", "WARNING")
        ),
    )
