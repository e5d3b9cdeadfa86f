"""`pml stdio` and `pml serve` as processes, with a server that no polite request ends, and what of it runs.

Found by a variable that all inherit which the server starts, whatever box or session they are in.
"""

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pml.app import Place as AppPlace
from pml.app import open_context, person
from pml.core.approvals.record import SessionId
from pml.core.sessions.token import TokenRole
from pml.service.sessions.tokens import create_agent_token, create_token
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
        self.rule(allow=["odd:*"])

    def rule(self, **permissions: list[str]) -> None:
        settings = {"mcpServers": {"odd": self.server}, "permissions": permissions}
        (self.pml_home / "config.json").write_text(json.dumps(settings))

    def left(self) -> list[int]:
        """Return the processes that the server is, or has started."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_ours(name)]

    def pml(self, *words: str, stdin: int, stderr: int | None = None) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "pml", *words],
            cwd=self.workspace,
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )

    def run(self, *words: str) -> Any:
        """Return the object that a command prints."""
        printed = self.pml(*words, "--json", stdin=subprocess.DEVNULL).communicate(timeout=SOON_S)[0]
        return json.loads(printed)

    def token(self, role: TokenRole) -> str:
        """Make a token as a person would, whoever runs this test."""

        async def make() -> str:
            place = AppPlace(home=self.pml_home, workspace=self.workspace, user_home=self.pml_home.parent)
            async with open_context(place) as context:
                if role is TokenRole.PERSON:
                    return (await create_token(context, role=role, name="ana", by=person()))[1]
                session_id = SessionId(str(uuid.uuid4()))
                _, text = await create_agent_token(
                    context,
                    role=role,
                    name="agent",
                    session_id=session_id,
                    parent_id=None,
                    workspace=str(self.workspace),
                    ttl_s=None,
                    by=person(),
                )
                return text

        return asyncio.run(make())

    def _is_ours(self, name: str) -> bool:
        with contextlib.suppress(OSError):
            return self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        return False


@contextlib.contextmanager
def stdio(
    place: Place, *, modern: bool = False, answered: bool = True
) -> Generator["subprocess.Popen[bytes]"]:
    """Yield a gateway that has called its server; the stubborn one leaves a process in another session."""
    with opened(place, modern=modern) as client:
        client.send(1, "tools/call", place.call)
        if answered:
            result = client.answer(1)["result"]
            assert not result.get("isError"), result
        yield client.process


@contextlib.contextmanager
def hub(place: Place) -> Generator["subprocess.Popen[bytes]"]:
    """Yield the same as a hub, over HTTP."""
    with serving(place) as served:
        client = Visitor(served.where, place.token(TokenRole.SESSION))
        result = client.call(place.call)
        assert not result.get("isError"), result
        yield served.process


class Client:
    """A client of `pml stdio`, in either era."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, modern: bool) -> None:
        self.process = process
        self._meta = {"_meta": _META} if modern else {}

    def send(self, number: int, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params | self._meta}
        self._write(message)

    def answer(self, number: int) -> Any:
        assert self.process.stdout is not None
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == number:
                return answer

    def greet(self) -> None:
        self.send(0, "initialize", dict(_HELLO))
        self.answer(0)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def opened(place: Place, *, modern: bool) -> Generator[Client]:
    with place.pml("stdio", stdin=subprocess.PIPE) as process:
        try:
            client = Client(process, modern=modern)
            if not modern:
                client.greet()
            yield client
        finally:
            process.kill()


@dataclass(frozen=True, kw_only=True)
class Served:
    process: "subprocess.Popen[bytes]"
    where: str


@contextlib.contextmanager
def serving(place: Place) -> Generator[Served]:
    with place.pml("serve", "--port", "0", "--json", stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            printed = b""
            while not printed.endswith(b"}\n"):
                printed += process.stdout.readline()
            url: str = json.loads(printed)["url"]
            yield Served(process=process, where=urlsplit(url).netloc)
        finally:
            process.kill()


class Visitor:
    """A client of the hub over HTTP."""

    def __init__(self, where: str, token: str) -> None:
        self._where, self._token, self._visit = where, token, ""
        self._numbers = itertools.count(1)
        self._post({"id": 0, "method": "initialize", "params": _HELLO})
        self._post({"method": "notifications/initialized"})

    def call(self, params: dict[str, Any]) -> Any:
        """Return the result of a tool."""
        return self._post({"id": next(self._numbers), "method": "tools/call", "params": params})["result"]

    def _post(self, message: dict[str, Any]) -> Any:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        headers |= {"Mcp-Session-Id": self._visit, "MCP-Protocol-Version": LEGACY} if self._visit else {}
        connection = http.client.HTTPConnection(self._where, timeout=SOON_S)
        try:
            connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
            reply = connection.getresponse()
            text = reply.read().decode()
        finally:
            connection.close()
        assert reply.status < 300, text
        self._visit = self._visit or reply.headers.get("mcp-session-id", "")
        said = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
        return json.loads(([each for each in said if each.strip()] or [text or "null"])[-1])


def read(where: str, token: str, path: str) -> Any:
    """Return what the hub's API answers."""
    headers = {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(f"http://{where}{path}", headers=headers)) as reply:
        return json.load(reply)
