"""A small real HTTP registry with the API of the official one, and `server.json` files after its schema."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from pml.web.http_server import listen, serve, url_of

META: Final = "io.modelcontextprotocol.registry/official"
WAIT_S: Final = 60.0
WEATHER: Final = "io.github.acme/weather"


def server_json(name: str = WEATHER, **more: Any) -> dict[str, Any]:
    """Return a `server.json` with one package of npm."""
    return {
        "$schema": "server.schema.json",
        "name": name,
        "description": "Tells the weather.",
        "version": "1.0.0",
        "repository": {"url": "https://github.example/acme/weather", "source": "github"},
        "packages": [package()],
        **more,
    }


def package(**more: Any) -> dict[str, Any]:
    return {
        "registryType": "npm",
        "identifier": "@acme/weather",
        "version": "1.0.0",
        "transport": {"type": "stdio"},
        **more,
    }


@dataclass
class Official:
    """What the registry lists: by name its versions, the newest last; `asked` are the requests."""

    url: str = ""
    listed: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    status: dict[str, str] = field(default_factory=dict[str, str])
    asked: list[str] = field(default_factory=list[str])
    lies: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def put(self, shape: dict[str, Any]) -> None:
        self.listed.setdefault(shape["name"], []).append(shape)

    def answer(self, path: str, query: str) -> tuple[int, bytes]:
        words = path.removeprefix("/v0.1/servers").strip("/").split("/")
        if path in self.lies:
            return 200, self.lies[path]
        if words == [""]:
            return 200, self._page({key: values[0] for key, values in parse_qs(query).items()})
        versions = self.listed.get(unquote(words[0]), [])
        if len(words) != 3 or words[1] != "versions":
            return 404, b"{}"
        found = [each for each in versions if words[2] in ("latest", each["version"])]
        return (200, json.dumps(self._wrapped(found[-1])).encode()) if found else (404, b"{}")

    def _page(self, asked: dict[str, str]) -> bytes:
        fitting = [each[-1] for name, each in sorted(self.listed.items()) if asked.get("search", "") in name]
        start, limit = int(asked.get("cursor", "0")), int(asked.get("limit", "30"))
        page = fitting[start : start + limit]
        metadata: dict[str, Any] = {"count": len(page)}
        if start + limit < len(fitting):
            metadata["nextCursor"] = str(start + limit)
        return json.dumps({"servers": [self._wrapped(each) for each in page], "metadata": metadata}).encode()

    def _wrapped(self, shape: dict[str, Any]) -> dict[str, Any]:
        meta = {"status": self.status.get(shape["name"], "active"), "isLatest": True}
        return {"server": shape, "_meta": {META: meta}}


@asynccontextmanager
async def official() -> AsyncGenerator[Official]:
    """Serve one on a free port of this machine; its address is that of the API."""
    it = Official()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path, query = scope["raw_path"].decode(), scope["query_string"].decode()
        it.asked.append(f"{path}?{query}" if query else path)
        status, body = it.answer(path, query)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    with listen("127.0.0.1", 0) as listening:
        it.url = f"{url_of(listening)}/v0.1/servers"
        task = asyncio.ensure_future(serve(app, listening))
        try:
            yield it
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@contextmanager
def official_beside() -> Generator[Official]:
    """Serve one in a thread of its own, for tests that run a whole command in this one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    serving = official()
    try:
        yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(WAIT_S)
    finally:
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()
