"""An npm registry on loopback that serves what a test publishes, and can lie about all of it."""

import base64
import contextlib
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

SERVER: Final = b"""#!/usr/bin/env node
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) console.log(line);
"""
RELEASED_AT: Final = "2026-01-02T03:04:05.678Z"
CHUNK: Final = b"\0" * 65536

Member = tuple[tarfile.TarInfo, bytes]
Respond = Callable[[BaseHTTPRequestHandler, threading.Event], None]


def pack(files: Mapping[str, bytes], members: Sequence[Member] = ()) -> bytes:
    """Return the tarball of a package with these files, and with `members` just as they are."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member, _ = plain(f"package/{name}", content)
            tar.addfile(member, io.BytesIO(content))
        for member, content in members:
            tar.addfile(member, io.BytesIO(content) if content else None)
    return packed.getvalue()


def plain(path: str, content: bytes) -> Member:
    member = tarfile.TarInfo(path)
    member.size = len(content)
    member.mode = 0o644
    return member, content


def special(path: str, kind: bytes, target: str = "") -> Member:
    """Return a link, a device or a pipe."""
    member = tarfile.TarInfo(path)
    member.type = kind
    member.linkname = target
    return member, b""


def sha512(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def endless(handler: BaseHTTPRequestHandler, closing: threading.Event) -> None:
    """Answer with a body that never ends, slowly enough for who keeps all of it."""
    handler.send_response(200)
    handler.end_headers()
    while not closing.wait(timeout=0.01):
        handler.wfile.write(CHUNK)


def silent(handler: BaseHTTPRequestHandler, closing: threading.Event) -> None:
    """Promise a body and never send it."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.flush()
    closing.wait(timeout=60)


def plainly(content: bytes, *, status: int = 200, location: str | None = None) -> Respond:
    def respond(handler: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        handler.send_response(status)
        if location is not None:
            handler.send_header("Location", location)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return respond


@dataclass
class NpmRegistry:
    """`answers` are those that differ from what was published, by path; `asked` are the requests so far."""

    port: int
    packuments: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    answers: dict[str, Respond] = field(default_factory=dict[str, Respond])
    asked: list[str] = field(default_factory=list[str])
    authorizations: list[str | None] = field(default_factory=list[str | None])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def publish(
        self,
        name: str,
        version: str = "1.0.0",
        *,
        files: Mapping[str, bytes] | None = None,
        members: Sequence[Member] = (),
        dist: Mapping[str, Any] | None = None,
        **manifest: Any,
    ) -> str:
        """Publish a version and return the path of its tarball; `dist` overrides what is true of it."""
        said: dict[str, Any] = {"name": name, "version": version, "type": "module", **manifest}
        content = {"package.json": json.dumps(said).encode(), "index.js": SERVER, **(files or {})}
        tarball = pack(content, members)
        path = f"/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        told = {"tarball": self.url[:-1] + path, "integrity": sha512(tarball), **(dist or {})}
        packument = self.packuments.setdefault(name, {"name": name, "versions": {}, "time": {}})
        packument["versions"][version] = {
            **said,
            "dist": {key: value for key, value in told.items() if value is not None},
        }
        packument["time"][version] = RELEASED_AT
        packument["dist-tags"] = {"latest": version}
        self.answers[path] = plainly(tarball)
        return path

    def respond(self, handler: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        path = unquote(handler.path)
        self.asked.append(path)
        self.authorizations.append(handler.headers.get("Authorization"))
        if answer := self.answers.get(path):
            answer(handler, closing)
        elif packument := self.packuments.get(path[1:]):
            plainly(json.dumps(packument).encode())(handler, closing)
        else:
            plainly(b"{}", status=404)(handler, closing)


@contextlib.contextmanager
def npm_registry() -> Generator[NpmRegistry]:
    """Serve a registry until the end of the block."""
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):  # who asked is gone
                registry.respond(self, closing)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        registry = NpmRegistry(port=server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            closing.set()
            server.shutdown()
            thread.join(timeout=10)
