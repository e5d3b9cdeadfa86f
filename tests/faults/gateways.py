"""`pml stdio` and `pml serve` as processes, with a server that no polite request ends, and what of it runs.

Found by a variable that all inherit which the server starts, whatever box or session they are in.
"""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.upstream.fleets import ODD

SOON_S: Final = 30.0  # only ever reached by what never happens
LEGACY: Final = "2025-06-18"
MODERN: Final = "2026-07-28"
_HELLO: Final = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": _HELLO["clientInfo"],
    "io.modelcontextprotocol/clientCapabilities": {},
}


def until(look: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SOON_S
    while not look():
        assert time.monotonic() < end, f"it never came to this: {what}"
        time.sleep(0.02)


class Place:
    """A home of PML and a workspace whose one server is as stubborn as can be."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"OUTLIVES={uuid.uuid4()}"
        self.pml_home, self.workspace = folder / ".pml", folder / "shop"
        self.pml_home.mkdir(mode=0o700, parents=True)
        self.workspace.mkdir()
        self.call: dict[str, Any] = {"name": "odd__fork", "arguments": {"escape": True}}
        self.configure({"command": sys.executable, "args": [str(ODD), "stubborn"]})
        self.environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "PML_HOME": str(self.pml_home),
            "LANG": "C.UTF-8",
        }

    def configure(self, server: dict[str, Any]) -> None:
        name, _, value = self.mark.partition("=")
        self.server = server | {"env": {name: value}}
        settings = {"mcpServers": {"odd": self.server}, "permissions": {"allow": ["odd:*"]}}
        (self.pml_home / "config.json").write_text(json.dumps(settings))

    def left(self) -> list[int]:
        """Return the processes that the server is, or has started."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_ours(name)]

    def pml(self, *words: str, **more: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "pml", *words],
            cwd=self.workspace,
            env=self.environment,
            stdout=subprocess.PIPE,
            **more,
        )

    def _is_ours(self, name: str) -> bool:
        with contextlib.suppress(OSError):
            return self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        return False


@contextlib.contextmanager
def stdio(
    place: Place, *, modern: bool = False, answered: bool = True
) -> Generator["subprocess.Popen[bytes]"]:
    """Yield a gateway that has called its server; the stubborn one leaves a process in another session."""
    with place.pml("stdio", stdin=subprocess.PIPE) as gateway:
        assert gateway.stdin is not None
        try:
            if not modern:
                _send(gateway, 0, "initialize", _HELLO)
                _answer(gateway, 0)
                gateway.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            meta = {"_meta": _META} if modern else {}
            _send(gateway, 1, "tools/call", place.call | meta)
            if answered:
                result = _answer(gateway, 1)
                assert not result["result"].get("isError"), result
            yield gateway
        finally:
            gateway.kill()


@contextlib.contextmanager
def hub(place: Place) -> Generator["subprocess.Popen[bytes]"]:
    """Yield the same as a hub, over HTTP."""
    words = ("token", "create", "--role", "session", "--json")
    made = place.pml(*words, stdin=subprocess.DEVNULL).communicate(timeout=SOON_S)[0]
    with place.pml("serve", "--port", "0", "--json", stdin=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        try:
            printed = b""
            while not printed.endswith(b"}\n"):
                printed += running.stdout.readline()
            where = urlsplit(json.loads(printed)["url"]).netloc
            token = json.loads(made)["token"]
            visit = _post(where, token, "", {"id": 0, "method": "initialize", "params": _HELLO})
            call = {"id": 1, "method": "tools/call", "params": place.call}
            _post(where, token, visit, call)
            yield running
        finally:
            running.kill()


def _send(gateway: "subprocess.Popen[bytes]", number: int, method: str, params: Any) -> None:
    assert gateway.stdin is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    gateway.stdin.write(json.dumps(message).encode() + b"\n")
    gateway.stdin.flush()


def _answer(gateway: "subprocess.Popen[bytes]", number: int) -> Any:
    assert gateway.stdout is not None
    while True:
        answer = json.loads(gateway.stdout.readline())
        if answer.get("id") == number:
            return answer


def _post(where: str, token: str, visit: str, message: Any) -> str:
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    headers |= {"Mcp-Session-Id": visit, "MCP-Protocol-Version": LEGACY} if visit else {}
    connection = http.client.HTTPConnection(where, timeout=SOON_S)
    try:
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
        reply = connection.getresponse()
        text = reply.read().decode()
    finally:
        connection.close()
    assert reply.status < 300, text
    assert '"isError":true' not in text, text
    return reply.headers.get("mcp-session-id", "")
