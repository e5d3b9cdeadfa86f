"""Calls to a real server behind a real login, through the pipeline; what may happen to tokens meanwhile."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from pml.app import Place, open_context, open_fleet, open_server_logins
from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, SessionId, Subject
from pml.core.errors import PmlError
from pml.core.names import parse_tool
from pml.core.ports.queries import AuditQuery
from pml.core.values import JsonObject
from pml.oauth.open_logins import OpenLogins
from pml.oauth.revocation import revoke_login
from pml.service.approvals.lifecycle import get
from pml.service.call import Attempt, Gate, PendingCall
from pml.service.calls.pipeline import call_tool
from pml.service.policy.policy import current_policy
from pml.service.servers.server_logins import login_wish, note_login, remote_server
from pml.service.session_tree import start_session
from tests.fakes import FakeAsking
from tests.oauth.rig import Issuer, consent
from tests.promises import promise
from tests.upstream.fleets import FakeClient

PERSON: Final = Decider(kind=DeciderKind.PERSON, id="ada", channel=Channel.INBOX)


class House:
    """A gateway whose user has configured the server, with a person who logs in when asked."""

    def __init__(self, gate: Gate, place: Place) -> None:
        self.gate = gate
        self.place = place
        self.logins = OpenLogins(open_server_logins(place), now=gate.context.clock.now)
        self.asked: list[Subject] = []

    async def call(self, action: str, name: str = "x") -> Any:
        attempt = Attempt(tool=parse_tool(f"vault:{action}"), arguments={"name": name}, offered=False)
        result = await call_tool(PendingCall(self.gate, attempt, FakeAsking(*[self.log_in] * 3)))
        return json.loads(result)

    async def log_in(self, record: Approval) -> Approval:
        """Answer as a person does: by logging in, in a browser."""
        self.asked.append(record.subject)
        context = self.gate.context
        policy = await current_policy(context, self.gate.session.workspace)
        spec = remote_server(policy, "vault")

        async def logged_in(held: Any) -> None:
            await note_login(context, spec, held.login, by=PERSON)

        url = await self.logins.begin(record.id, login_wish(spec), logged_in)
        await asyncio.to_thread(consent, url)
        await self.logins.finished(record.id)
        return await get(context, record.id)

    async def revoke(self) -> None:
        """End the tokens at their issuer, as an administrator may at any time."""
        [login] = open_server_logins(self.place).all()
        held = open_server_logins(self.place).read(login.key)
        assert held is not None
        assert await revoke_login(held) is None

    async def told(self) -> str:
        """Return all that the audit log and the store of questions hold, as text."""
        links = await self.gate.context.store.audit.list(AuditQuery(limit=10_000))
        return repr(links)


@asynccontextmanager
async def opened_house(home: Path, tmp_path: Path, url: str, **entry: Any) -> AsyncGenerator[House]:
    (home / ".pml").mkdir(mode=0o700, exist_ok=True)
    config: JsonObject = {
        "mcpServers": {"vault": {"type": "http", "url": url, **entry}},
        "permissions": {"allow": ["vault:*"]},
    }
    (home / ".pml" / "config.json").write_text(json.dumps(config))
    place = Place(home=home / ".pml", workspace=tmp_path, user_home=home)
    async with open_context(place) as context:
        session = await start_session(
            context,
            session_id=SessionId("session-1"),
            name="test",
            principal="ada",
            workspace=str(tmp_path),
            process=context.processes.ancestors()[0],
            is_agent=True,
        )
        await current_policy(context, str(tmp_path))
        fleet = open_fleet(context, place, FakeClient())
        house = House(Gate(context=context, session=session, servers=fleet, is_stdio=True), place)
        try:
            yield house
        finally:
            await house.logins.close()
            await fleet.close()


@pytest.fixture
async def house(home: Path, tmp_path: Path, protected: str, issuer: Issuer) -> AsyncGenerator[House]:
    async with opened_house(home, tmp_path, protected) as house:
        yield house


@pytest.fixture
def noted(calls: Path) -> Callable[[], list[str]]:
    """Return the calls that ran since the test began."""
    before = len(calls.read_text().splitlines()) if calls.exists() else 0
    return lambda: calls.read_text().splitlines()[before:] if calls.exists() else []


@promise("login:asked-once")
async def test_a_call_before_any_login_continues_after_it(
    house: House, noted: Callable[[], list[str]]
) -> None:
    await house.call("read", "one")
    await house.call("read", "two")

    assert (house.asked, noted()) == ([Subject.LOGIN_REQUIRED], ["read one", "read two"])


@promise("login:unsent-not-repeated")
async def test_a_token_that_is_revoked_between_calls_asks_once_and_repeats_nothing(
    house: House, noted: Callable[[], list[str]]
) -> None:
    await house.call("read", "one")
    await house.revoke()

    await house.call("read", "two")

    assert house.asked == [Subject.LOGIN_REQUIRED] * 2
    assert noted() == ["read one", "read two"]


async def test_a_token_that_ended_is_refreshed_and_nobody_is_asked(
    house: House, noted: Callable[[], list[str]], issuer: Issuer
) -> None:
    issuer.control(ttl=20)
    await house.call("read", "one")
    before = issuer.control(ttl=3600)["refresh_token"]

    await house.call("read", "two")

    assert issuer.control()["refresh_token"] > before
    assert (house.asked, noted()) == ([Subject.LOGIN_REQUIRED], ["read one", "read two"])


async def test_a_call_that_needs_more_scopes_asks_for_a_login_with_them(
    house: House, noted: Callable[[], list[str]]
) -> None:
    await house.call("read", "one")

    await house.call("danger", "two")

    assert house.asked == [Subject.LOGIN_REQUIRED] * 2
    assert noted() == ["read one", "danger two"]


@promise("login:tokens-shown-nowhere")
async def test_no_token_is_in_the_log_or_the_store(house: House, home: Path) -> None:
    await house.call("read", "one")

    [login] = open_server_logins(house.place).all()
    held = open_server_logins(house.place).read(login.key)
    assert held is not None
    tokens = [token for token in (held.tokens.access_token, held.tokens.refresh_token) if token]
    told = await house.told()
    kept = [path.read_bytes() for path in (home / ".pml").rglob("*") if path.is_file()]
    assert len(tokens) == 2
    assert not any(token in told for token in tokens)
    holding = [raw for raw in kept if any(token.encode() in raw for token in tokens)]
    assert len(holding) == 1, "only logins.json, where no keyring serves"


@promise("login:unsent-not-repeated")
async def test_a_login_that_is_wanted_after_the_call_was_sent_repeats_nothing(
    home: Path, tmp_path: Path
) -> None:
    server = Forgetful()
    async with server.running() as url, opened_house(home, tmp_path, url) as house:
        with pytest.raises(PmlError, match="the outcome is not known"):
            await house.call("read", "one")

    assert (server.calls, house.asked) == (1, [])


class Forgetful:
    """A server that takes a call, breaks the answer off, and answers 401 to whoever wants the rest."""

    def __init__(self) -> None:
        self.calls = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (
                int(line.split(":")[1])
                for line in head.split("\r\n")
                if line.lower().startswith("content-length")
            ),
            0,
        )
        body = await reader.readexactly(length)
        writer.write(self._answer(head, json.loads(body) if body else {}))
        await writer.drain()
        writer.close()

    def _answer(self, head: str, message: Any) -> bytes:
        close = "connection: close\r\n"
        if head.startswith("GET"):
            return f"HTTP/1.1 401 Unauthorized\r\n{close}content-length: 0\r\n\r\n".encode()
        method = message.get("method")
        if method == "tools/call":
            self.calls += 1
            broken = "id: 7\r\nretry: 1\r\ndata: \r\n\r\n"
            return f"HTTP/1.1 200 OK\r\n{close}content-type: text/event-stream\r\n\r\n{broken}".encode()
        if "id" not in message or method == "server/discover":
            status = "202 Accepted" if "id" not in message else "400 Bad Request"
            return f"HTTP/1.1 {status}\r\n{close}content-length: 0\r\n\r\n".encode()
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        results: dict[str, JsonObject] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "forgetful", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "read", "inputSchema": schema}]},
        }
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": results.get(method, {})}
        raw = json.dumps(answer).encode()
        kind = f"content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
        return f"HTTP/1.1 200 OK\r\n{close}{kind}".encode() + raw
