"""A Python package index on loopback (PEP 503 and 691) whose wheels are made in the test; it can lie."""

import contextlib
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_JSON = "application/vnd.pypi.simple.v1+json"
_STEP_S = 0.05  # between two pieces of a body that never ends; the end of the test is noticed as often


def make_wheel(
    name: str,
    version: str,
    *,
    files: Mapping[str, str | bytes] | None = None,
    requires: tuple[str, ...] = (),
    scripts: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
) -> bytes:
    """Return a pure wheel; names in `files` are taken as they are, however odd, and `links` are symbolic."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    wanted = "".join(f"Requires-Dist: {one}\n" for one in requires)
    content: dict[str, str | bytes] = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **(files or {}),
    }
    if scripts:
        lines = "".join(f"{script} = {target}\n" for script, target in scripts.items())
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    record = "".join(f"{path},,\n" for path in [*content, *(links or {}), f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(path), data, compress_type=zipfile.ZIP_DEFLATED)
        for path, target in (links or {}).items():
            link = zipfile.ZipInfo(path)
            link.create_system = 3
            link.external_attr = 0o120777 << 16
            archive.writestr(link, target)
    return packed.getvalue()


def make_sdist(name: str, version: str, setup: str) -> bytes:
    """Return a source distribution whose `setup.py` is `setup`."""
    packed = io.BytesIO()
    described = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in {"setup.py": setup, "PKG-INFO": described}.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


@dataclass(kw_only=True)
class PythonIndex:
    """What it has, by file name, and how it lies.

    `bodies` are sent instead of what a file is; `claims` are told as its sha256 (None: it tells none);
    `endless` files begin and never end; `uploaded` is when they were added. `plain`: it speaks only PEP 503,
    so no sizes and no dates.
    """

    url: str
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    bodies: dict[str, bytes] = field(default_factory=dict[str, bytes])
    claims: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    endless: set[str] = field(default_factory=set[str])
    uploaded: dict[str, str] = field(default_factory=dict[str, str])
    plain: bool = False
    asked: list[str] = field(default_factory=list[str])

    def add(self, name: str, version: str, wheel: bytes, *, tag: str = "py3-none-any") -> str:
        """Offer `wheel` and return its file name."""
        file = f"{name.replace('-', '_')}-{version}-{tag}.whl"
        self.files[file] = wheel
        return file

    def sha256(self, file: str) -> str | None:
        if file in self.claims:
            return self.claims[file]
        return hashlib.sha256(self.files[file]).hexdigest()

    def page(self, project: str) -> tuple[str, bytes] | None:
        """Return the type and the content of the project's page."""
        found = [file for file in self.files if _project(file) == project]
        if not found:
            return None
        return self._html(found) if self.plain else self._json(project, found)

    def _html(self, found: list[str]) -> tuple[str, bytes]:
        links = [f'<a href="{self.url}/files/{file}#sha256={self.sha256(file)}">{file}</a>' for file in found]
        return "text/html", f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()

    def _json(self, project: str, found: list[str]) -> tuple[str, bytes]:
        files = [
            {
                "filename": file,
                "url": f"{self.url}/files/{file}",
                "hashes": {"sha256": sha} if (sha := self.sha256(file)) else {},
                "size": len(self.files[file]),
                "upload-time": self.uploaded.get(file, "2026-10-19T12:00:00.000000Z"),
            }
            for file in found
        ]
        page = {"meta": {"api-version": "1.1"}, "name": project, "versions": [], "files": files}
        return _JSON, json.dumps(page).encode()


def _project(file: str) -> str:
    stem = file.split("-")[0] if file.endswith(".whl") else file.rsplit("-", 1)[0]
    return stem.replace("_", "-").lower()


@contextlib.contextmanager
def serve_index() -> Generator[PythonIndex]:
    """Serve an index until the block ends; its address is `index.url` + `/simple`."""
    over = threading.Event()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            index.asked.append(self.path)
            kind, _, name = self.path.strip("/").partition("/")
            if kind == "simple" and (page := index.page(name.strip("/"))) is not None:
                self._send(*page)
            elif kind == "files" and name in index.endless:
                self._drip()
            elif kind == "files" and name in index.files:
                self._send("application/octet-stream", index.bodies.get(name, index.files[name]))
            else:
                self.send_error(404)

        do_HEAD = do_GET

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _drip(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(10**12))
            self.end_headers()
            with contextlib.suppress(OSError):  # the client has had enough
                while not over.wait(_STEP_S):
                    self.wfile.write(b"PK\x03\x04")

        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    index = PythonIndex(url=f"http://127.0.0.1:{server.server_port}")
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield index
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        serving.join()
