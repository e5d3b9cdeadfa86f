"""A hub without a socket: the real guard, table and use cases over a store in memory.

top (session) ── kid (child)          other (session) ── stranger (child)
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pml.core.approvals.record import Approval, Role, SessionId
from pml.core.ports.records import Session
from pml.core.ports.store import Store
from pml.core.sessions.agent import Order, Outcome, RunState, Told
from pml.core.sessions.process import Process
from pml.core.sessions.token import ParentMay, TokenRole
from pml.core.values import Json, JsonObject
from pml.hub.app import hub_app
from pml.hub.body_limits import BodyLimits
from pml.hub.metrics import Gauges
from pml.hub.origins import allowed_names
from pml.oauth.open_logins import OpenLogins
from pml.service.session_tree import start_session
from pml.service.sessions.launcher import Launcher
from pml.service.sessions.logins import make_login
from pml.service.sessions.tokens import create_token
from pml.settings.secrets import Secrets
from pml.settings.server_logins import DiskServerLogins
from pml.testing.store import MemoryStore
from pml.web.visitors import identity_of
from tests.builders import PERSON
from tests.fakes_servers import FakeServerHost
from tests.service.offices import BOUND_S, Office

PORT: Final = 4445
BASE: Final = f"http://127.0.0.1:{PORT}"
TOP, KID, OTHER, STRANGER = (SessionId(name) for name in ("top", "kid", "other", "stranger"))
PARENT_MAY: Final = frozenset({Role.PERSON, Role.PARENT})


class FakeAgents:
    """Agents that run until they are stopped."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.tokens: list[str] = []
        self._started = asyncio.Condition()

    async def started(self, count: int) -> None:
        """Return once so many run, in time."""
        async with asyncio.timeout(BOUND_S), self._started:
            await self._started.wait_for(lambda: len(self.orders) >= count)

    def config_folder(self, session_id: SessionId) -> str:
        return f"/nowhere/{session_id}"

    def remove_config(self, folder: str) -> None:
        pass

    def kill(self, process: Process) -> None:
        pass

    async def run(self, order: Order, *, session_id: SessionId, token: str, told: Told) -> Outcome:
        async with self._started:
            self.orders.append(order)
            self.tokens.append(token)
            self._started.notify_all()
        await asyncio.Event().wait()
        return Outcome(state=RunState.DONE, exit_code=0, result=None)


class FakeKeyring:
    """A keyring in memory; `broken` is how it fails, if it does."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.broken: Exception | None = None

    def get(self, names: Sequence[str]) -> Mapping[str, str]:
        return {name: self.kept[name] for name in names}

    def set(self, name: str, value: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.kept[name] = value

    def delete(self, name: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.kept.pop(name, None)


@dataclass(frozen=True, kw_only=True)
class Got:
    status: int
    headers: Mapping[str, str]
    text: str
    json: Any


class HubRig:
    """The hub with one session tree, one beside it, and a token for each role; `complaints` are its own."""

    def __init__(self, office: Office, *, limits: BodyLimits | None = None) -> None:
        self.office = office
        self.context = office.context
        self.agents = FakeAgents()
        self.launcher = Launcher(self.context, self.agents, on_ended=_nothing)
        self.complaints: list[Exception] = []
        self.keyring = FakeKeyring()
        self.secrets = Secrets(office.home, self.keyring)
        self.server_logins = DiskServerLogins(office.home, self.keyring)
        self.logins = OpenLogins(self.server_logins, now=office.clock.now)
        self.tokens: dict[TokenRole, str] = {}
        self.app: ASGIApp = hub_app(
            self.context,
            mcp=_who,
            events=_who,
            launcher=self.launcher,
            server_host=FakeServerHost(),
            secrets=self.secrets,
            logins=self.logins,
            workspace=str(office.workspace),
            allowed=allowed_names("127.0.0.1", "127.0.0.1", PORT, scheme="http", more=["hub.example"]),
            gauges=Gauges(waiting_permits=lambda: 3, event_streams=lambda: 2),
            started_at=office.clock.now(),
            complain=self.complaints.append,
            limits=limits,
        )

    async def fill(self) -> None:
        for session_id, parent_id, role in (
            (TOP, None, TokenRole.SESSION),
            (KID, TOP, TokenRole.CHILD),
            (OTHER, None, TokenRole.SESSION),
            (STRANGER, OTHER, TokenRole.CHILD),
        ):
            await self.start(session_id, parent_id, role)
        self.tokens = {
            TokenRole.PERSON: await self.token(TokenRole.PERSON),
            TokenRole.SESSION: await self.token(TokenRole.SESSION, TOP),
            TokenRole.CHILD: await self.token(TokenRole.CHILD, KID),
            TokenRole.LOGIN: await make_login(self.context, name="ana", by=PERSON),
        }

    async def start(self, session_id: SessionId, parent_id: SessionId | None, role: TokenRole) -> Session:
        return await start_session(
            self.context,
            session_id=session_id,
            name=session_id,
            principal=session_id,
            workspace=str(self.office.workspace),
            process=None,
            is_agent=True,
            parent_id=parent_id,
            role=role,
            parent_may=ParentMay.NOTHING if parent_id is None else ParentMay.ALL,
        )

    async def token(
        self, role: TokenRole, session_id: SessionId | None = None, *, ttl_s: int | None = None
    ) -> str:
        _, text = await create_token(
            self.context, role=role, name=f"{role}-token", session_id=session_id, ttl_s=ttl_s, by=PERSON
        )
        return text

    async def ask(
        self, session_id: SessionId = KID, tool: str = "github:create_issue", **arguments: Json
    ) -> Approval:
        session = await self.context.store.sessions.get(session_id)
        assert session is not None
        return await self.office.ask(
            tool, arguments or {"title": session_id}, session=session, deciders=PARENT_MAY
        )

    async def send(
        self,
        method: str,
        path: str,
        role: TokenRole | None = TokenRole.PERSON,
        *,
        json: Json = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Got:
        """Send one request as the holder of that role's token; headers that are given win."""
        sent = {} if role is None else {"authorization": f"Bearer {self.tokens[role]}"}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app), base_url=BASE) as client:
            answer = await client.request(
                method,
                path,
                headers={**sent, **(headers or {})},
                **({"content": content} if json is None else {"json": json}),  # pyright: ignore[reportArgumentType]
            )
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return Got(
            status=answer.status_code,
            headers={name.lower(): value for name, value in answer.headers.items()},
            text=answer.text,
            json=answer.json() if is_json and answer.text else None,
        )

    async def decide(
        self, record: Approval, role: TokenRole = TokenRole.PERSON, *, key: str | None = None, **more: Json
    ) -> Got:
        body: JsonObject = {"allow": True, "digest": record.digest, **more}
        headers = {} if key is None else {"idempotency-key": key}
        return await self.send(
            "POST", f"/api/approvals/{record.id}/decision", role, json=body, headers=headers
        )

    async def status(self, record: Approval) -> str:
        return await self.office.status(record)


async def open_rig(root: Path, *, store: Store | None = None, limits: BodyLimits | None = None) -> HubRig:
    rig = HubRig(Office(store or MemoryStore(), root), limits=limits)
    await rig.fill()
    return rig


async def _who(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell whose request it is, as an application behind the guard sees it."""
    identity = identity_of(scope)
    answer = JSONResponse({"role": identity.role, "session": identity.session_id})
    await answer(scope, receive, send)


async def _nothing(session_id: SessionId) -> None:
    pass
