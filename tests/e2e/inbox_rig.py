"""A real hub, a real browser before it, and agents whose calls wait: what the tests of the inbox stand on.

An agent here is an MCP client over HTTP with a token of its own, which blocks in `loopback_permit` as Claude
Code does. What matters only by its number or its kind is put into the store from beside the hub.
"""

import asyncio
import http.client
import itertools
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, sync_playwright

from pml.app import Place, open_context
from pml.core.approvals.record import Channel, Decider, DeciderKind, SessionId
from pml.core.ports.records import Session
from pml.core.sessions.token import TokenRole
from pml.service.approvals.consent import seek_consent
from pml.service.approvals.lifecycle import MAX_PENDING, Question
from pml.service.context import Context
from pml.service.session_tree import start_session
from pml.service.sessions.logins import login_link, make_login
from pml.service.sessions.tokens import create_agent_token
from tests.e2e.hubs import STATE_S, Hub, Room, hub_running, until
from tests.e2e.installed import bare_environment

BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
LEGACY: Final = "2025-11-25"
ME: Final = Decider(kind=DeciderKind.PERSON, id="test", channel=Channel.TERMINAL)
Input = Mapping[str, Any]
T = TypeVar("T")


@contextmanager
def browser_running(home: Path) -> Generator[Browser]:
    """Run Chromium without a window, or skip; where `CI` is set, a skip is a failure."""
    found = [path for name in BROWSERS if (path := shutil.which(name))]
    if not found:
        pytest.skip("needs Chromium: install the package `chromium` of your system")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found[0],
            args=["--no-sandbox"] if os.geteuid() == 0 else [],  # root has no sandbox of its own
            env={**bare_environment(home)},
        )
        yield browser
        browser.close()


class Beside:
    """The hub's store, used from another process: this one. It has a thread, as the browser needs ours."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._opened: Future[Context] = Future()
        self._over = asyncio.Event()
        self._thread = Thread(target=self._live, name="beside-the-hub", daemon=True)
        self._thread.start()

    def __call__(self, use: Callable[[Context], Awaitable[T]]) -> T:
        context = self._opened.result(STATE_S)

        async def used() -> T:
            return await use(context)

        return asyncio.run_coroutine_threadsafe(used(), self._loop).result(STATE_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(STATE_S)

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._open())

    async def _open(self) -> None:
        try:
            async with open_context(self._place) as context:
                self._opened.set_result(context)
                await self._over.wait()
        except Exception as exc:
            if not self._opened.done():
                self._opened.set_exception(exc)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A call that waits for its permission."""

    id: str
    digest: str
    said: "Future[dict[str, Any]]"

    def answer(self) -> dict[str, Any]:
        """Return what the client was told, once it is told."""
        return self.said.result(STATE_S)

    @property
    def waits(self) -> bool:
        return not self.said.done()


class Caller:
    """An agent's client: one session of the hub, with one MCP connection."""

    def __init__(self, room: Room, token: str, session_id: str) -> None:
        self.room = room
        self.session_id = session_id
        self._token = token
        self._numbers = itertools.count(1)
        hello = {
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        self._visit = ""
        self._visit, _ = self._post({"id": 0, "method": "initialize", "params": hello})
        self._post({"method": "notifications/initialized"})

    def asks(self, tool: str, **given: Any) -> Asked:
        """Ask whether `tool` may run, and return once the question waits."""
        use = f"toolu_{self.session_id}_{next(self._numbers)}"
        said = self.tries(tool, given, use=use)

        def found() -> Mapping[str, Any] | None:
            assert not said.done(), f"it did not wait: {said.result(0)}"
            return next((each for each in self.room.pending() if each["tool_use_id"] == use), None)

        waiting = until(found, f"{tool} waits")
        return Asked(id=waiting["id"], digest=waiting["digest"], said=said)

    def tries(self, tool: str, given: Input, *, use: str | None = None) -> "Future[dict[str, Any]]":
        """Ask, whether it has to wait or not."""
        use = use or f"toolu_{self.session_id}_{next(self._numbers)}"
        arguments = {"tool_name": tool, "input": given, "tool_use_id": use}
        said: Future[dict[str, Any]] = Future()

        def run() -> None:
            try:
                [content] = self.call("loopback_permit", **arguments)["content"]
                said.set_result(json.loads(content["text"]))
            except Exception as exc:
                said.set_exception(exc)

        Thread(target=run, name=use, daemon=True).start()
        return said

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Return the result of a tool of the hub."""
        number = next(self._numbers)
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": number}}
        _, answer = self._post({"id": number, "method": "tools/call", "params": params})
        return answer["result"]

    def end(self) -> None:
        """End the session, as when its agent has ended."""
        _, token_id, _ = self._token.split("_", 2)
        ran = self.room.pml("token", "revoke", token_id)
        assert ran.code == 0, ran.err

    def _post(self, message: Mapping[str, Any]) -> tuple[str, Any]:
        """Send a message; return the visit's id and what answers it: of a stream, the last that was said."""
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if self._visit:
            headers |= {"Mcp-Session-Id": self._visit, "MCP-Protocol-Version": LEGACY}
        connection = http.client.HTTPConnection(urlsplit(self.room.hub.url).netloc, timeout=3 * STATE_S)
        try:
            connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
            reply = connection.getresponse()
            text = reply.read().decode()
        finally:
            connection.close()
        assert reply.status < 300, text
        told = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
        said = [each for each in told if each.strip()] or [text]
        return reply.headers.get("mcp-session-id", ""), json.loads(said[-1]) if said[-1] else None


@dataclass(kw_only=True)
class Inbox:
    """One hub and one browser, for the tests of a module."""

    hub: Hub
    browser: Browser
    beside: Beside
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def room(self, name: str | None = None) -> Room:
        """Return a workspace that nobody has used, of that name if one is given."""
        if name is None:
            return self.hub.room()
        path = self.hub.place / name
        path.mkdir()
        return Room(hub=self.hub, path=path.resolve())

    def caller(self, room: Room, name: str | None = None, *, parent: str | None = None) -> Caller:
        """Return a new agent in that room; one with a parent is its child."""
        session_id = f"{name or 'agent'}-{next(self._numbers)}"
        role = TokenRole.SESSION if parent is None else TokenRole.CHILD

        async def create(context: Context) -> str:
            _, text = await create_agent_token(
                context,
                role=role,
                name=name or session_id,
                session_id=SessionId(session_id),
                parent_id=None if parent is None else SessionId(parent),
                workspace=str(room.path),
                ttl_s=None,
                by=ME,
            )
            return text

        return Caller(room, self.beside(create), session_id)

    def fill(self, room: Room, count: int, tool: str = "Bash") -> list[str]:
        """Put so many questions, in as many sessions as it takes; return their ids, oldest first."""
        names = [f"crowd-{next(self._numbers)}" for _ in range(-(-count // MAX_PENDING))]

        async def put(context: Context) -> list[str]:
            sessions = [await _session(context, name, room) for name in names]
            return [await _put(context, sessions[n // MAX_PENDING], n, tool) for n in range(count)]

        return self.beside(put)

    def link(self, name: str = "ana") -> str:
        """Return a link that logs that person in, as `pml inbox --link` prints it."""

        async def make(context: Context) -> str:
            return await make_login(context, name=name, by=ME)

        return login_link(self.hub.url, self.beside(make))

    def clear(self) -> None:
        """Deny all that waits."""
        while found := self.hub.ask("/api/approvals?limit=500")["approvals"]:
            no = [{"id": each["id"], "digest": each["digest"], "allow": False} for each in found]
            self.hub.ask("/api/approvals/decisions", {"decisions": no})


async def _session(context: Context, name: str, room: Room) -> Session:
    return await start_session(
        context,
        session_id=SessionId(name),
        name=name,
        principal="test",
        workspace=str(room.path),
        process=None,
        is_agent=False,
    )


async def _put(context: Context, session: Session, number: int, tool: str) -> str:
    given = {"command": f"git log --oneline -n {number}", "description": f"look at {number} commits"}
    question = Question(session=session, tool=tool, arguments=given, tool_use_id=f"toolu_{number}")
    consent = await seek_consent(context, question, wait_s=0, on_asked=lambda record: None)
    assert consent.record is not None
    return str(consent.record.id)


@contextmanager
def inbox_running(place: Path) -> Generator[Inbox]:
    with hub_running(place) as hub:
        home = Path(hub.environment["HOME"])
        beside = Beside(Place(home=Path(hub.environment["PML_HOME"]), workspace=place, user_home=home))
        try:
            with browser_running(home) as browser:
                yield Inbox(hub=hub, browser=browser, beside=beside)
        finally:
            beside.close()
