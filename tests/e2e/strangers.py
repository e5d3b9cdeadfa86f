"""Another page on this machine: what a dev server of an agent could serve, on whatever port is free."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass(kw_only=True)
class Stranger:
    """Where it is, what its page holds (or instead `body`), and the headers of every request that it got."""

    url: str
    html: str = ""
    body: str = ""
    got: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])


@contextmanager
def stranger_running(
    html: str = "", *, body: str = "", port: int = 0, status: int = 200
) -> Generator[Stranger]:
    stranger = Stranger(url="", html=html, body=body)

    class Answering(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def do_GET(self) -> None:
            stranger.got.append({name.lower(): value for name, value in self.headers.items()})
            page = f"<!doctype html><title>another page</title>{stranger.html}"
            body = (stranger.body or page).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", port), Answering) as server:
        stranger.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, name="stranger")
        thread.start()
        try:
            yield stranger
        finally:
            server.shutdown()
            thread.join()
