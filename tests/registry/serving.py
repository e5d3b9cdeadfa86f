"""The real registry server in this process, and requests to it that no client has tidied up."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pml.registry.cloud.registry_server import registry_app
from pml.registry.cloud.served_calls import Calls
from pml.registry.folder import RegistryFolder
from pml.web.connections import Limits
from pml.web.http_server import listen, serve, url_of

TIMEOUT_S: Final = 30.0  # only ever reached by what hangs


@dataclass(frozen=True, kw_only=True)
class Got:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, kw_only=True)
class Served:
    url: str
    lines: list[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def get(self, path: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> Got:
        """Send one request for exactly `path`; `_` in the name of a header is a hyphen."""
        sent = {"host": f"127.0.0.1:{self.port}", "connection": "close"}
        sent |= {"content-length": str(len(body))} if body else {}
        sent |= {key.replace("_", "-"): value for key, value in headers.items()}
        lines = "".join(f"{key}: {value}\r\n" for key, value in sent.items())
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
                answer = await reader.read()
            finally:
                writer.close()
            await writer.wait_closed()
        return _parse(answer)


def _parse(answer: bytes) -> Got:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {key.lower(): value for key, value in (line.split(": ", 1) for line in lines)}
    return Got(status=int(first.split(" ")[1]), headers=headers, body=body)


@asynccontextmanager
async def serving(
    folder: Path, *, only_local: bool = True, limits: Limits | None = None, calls: Calls | None = None
) -> AsyncGenerator[Served]:
    """Serve `folder` on a free port of this machine, and run `calls` beside it."""
    lines: list[str] = []
    app = registry_app(RegistryFolder(folder), only_local=only_local, debug=lines.append, calls=calls)
    with listen("127.0.0.1", 0) as listening:
        served = Served(url=url_of(listening), lines=lines)
        task = asyncio.ensure_future(serve(app, listening, limits=limits))
        try:
            yield served
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
