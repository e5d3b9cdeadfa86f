"""What a cloud runs for others: whose call it is, what is offered, and for how long a token counts."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from pml.app import Place, open_context
from pml.app_cloud import REVOKED_S, CloudExecutor, open_cloud
from pml.core.approvals.record import Role, SessionId, State
from pml.core.errors import Forbidden, NotFound
from pml.core.own_tools import CONTINUE
from pml.core.packages.capability import Routing
from pml.core.sessions.token import Identity, TokenRole
from pml.core.values import JsonObject
from pml.registry.cloud.served_calls import Executor
from pml.service.call import Gate
from pml.service.context import Context
from pml.service.sandboxes import Sandboxes
from pml.service.session_tree import session_of
from pml.service.sessions.tokens import create_agent_token, create_token, revoke_token
from tests.builders import PERSON
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.registry.places import GREET, fill
from tests.service.codehouses import Library, abandon, add, enter_library, one_by_one, until
from tests.service.offices import BOUND_S, Office

FQDN: Final = "acme.tools.far"
BOB: Final = SessionId("bob")
SOON_S: Final = 30.0  # only ever reached by what goes on
SLEEPS: Final = "import asyncio\n\nasync def greet(args, mcp):\n    await asyncio.sleep(86400)\n"
GREETS: Final = "async def greet(args, mcp):\n    return 'hello'\n"


async def key_of(context: Context, workspace: str, *, session_id: SessionId = BOB) -> tuple[Identity, Any]:
    """Return who a new session's token makes its holder, and the token."""
    token, _ = await create_agent_token(
        context,
        role=TokenRole.SESSION,
        name=str(session_id),
        session_id=session_id,
        parent_id=None,
        workspace=workspace,
        ttl_s=None,
        by=PERSON,
    )
    who = Identity(token_id=token.id, role=token.role, name=token.name, session_id=token.session_id)
    return who, token


@dataclass
class Clouded:
    """A cloud whose gates stand in a library. `opened` are the sessions that a gate was opened for."""

    house: Library
    opened: list[Any] = field(default_factory=list[Any])

    def __post_init__(self) -> None:
        self.context = self.house.office.context
        self.executor = CloudExecutor(self.context, self._open)

    async def _open(self, session_id: SessionId) -> Gate:
        session = await session_of(self.context, session_id)
        self.opened.append(session)
        self.house.equip(session=session, is_cloud=True)
        return self.house.gate

    async def key(self, *, session_id: SessionId = BOB) -> tuple[Identity, Any]:
        return await key_of(self.context, str(self.house.office.workspace), session_id=session_id)

    async def call(self, who: Identity, name: str = FQDN, arguments: JsonObject | None = None) -> Any:
        result = await self.executor.call(who, {"name": name, "arguments": arguments or {}})
        return msgspec.json.decode(result)


@pytest.fixture
async def cloud(office: Office) -> Clouded:
    """`far` adds a note; the rules allow all."""
    house = await enter_library(office)
    house.publish("far", one_by_one(add("one"), result="far away"), "notes:add", routing=Routing.SERVER)
    house.configure(allow=["*"])
    return Clouded(house)


# How long a token counts


@promise("cloud:revoked-ends-calls")
async def test_a_call_that_runs_ends_when_its_token_is_revoked(cloud: Clouded) -> None:
    who, token = await cloud.key()
    other, _ = await cloud.key(session_id=SessionId("eve"))
    cloud.house.servers.hangs = True
    theirs = asyncio.ensure_future(cloud.call(who))
    others = asyncio.ensure_future(cloud.call(other))
    await until(cloud.house.servers.running)
    await cloud.executor.end_revoked()
    await revoke_token(cloud.context, token.id, by=PERSON)
    await cloud.executor.end_revoked()

    await asyncio.wait({theirs}, timeout=BOUND_S)
    assert isinstance(theirs.exception(), Forbidden)
    assert not others.done()
    await abandon(others)


@promise("cloud:gone-caller-cancels")
async def test_a_caller_who_leaves_ends_the_call_and_is_told_nothing_of_tokens(cloud: Clouded) -> None:
    who, _ = await cloud.key()
    cloud.house.servers.hangs = True
    work = asyncio.ensure_future(cloud.call(who))
    await until(cloud.house.servers.running)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    for _ in range(100):
        await asyncio.sleep(0)

    assert await cloud.context.store.journals.owners() == []


@promise("cloud:only-with-token")
async def test_a_session_that_begins_anew_is_not_taken_for_the_one_that_was(cloud: Clouded) -> None:
    who, token = await cloud.key()
    await cloud.call(who)
    await cloud.call(who)
    assert len(cloud.opened) == 1
    await revoke_token(cloud.context, token.id, by=PERSON)
    cloud.house.office.clock.advance(1)
    anew, _ = await cloud.key()

    await cloud.call(anew)

    first, second = cloud.opened
    assert first.started_at != second.started_at


@promise("cloud:only-with-token")
async def test_a_token_that_speaks_for_no_session_runs_nothing(cloud: Clouded) -> None:
    token, _ = await create_token(cloud.context, role=TokenRole.PERSON, name="ann", by=PERSON)
    who = Identity(token_id=token.id, role=token.role, name=token.name, session_id=None)

    with pytest.raises(NotFound, match="speaks for no session"):
        await cloud.call(who)


@promise("cloud:revoked-ends-calls")
async def test_code_that_waits_for_a_session_is_gone_when_its_token_is_revoked(cloud: Clouded) -> None:
    script = one_by_one(add("one"), add("asks"), result="far away")
    cloud.house.publish("far", script, dynamic=True, routing=Routing.SERVER)
    cloud.house.configure(allow=["far:*", {"tool": "notes:add", "args": {"text": "one"}}])
    who, token = await cloud.key()
    assert (await cloud.call(who))["approval_required"] is True
    [record] = await cloud.house.open_questions()
    await revoke_token(cloud.context, token.id, by=PERSON)

    assert await cloud.house.office.status(record) is State.CANCELLED
    assert await cloud.context.store.journals.get(record.run_id or "") is None
    anew, _ = await cloud.key()
    await cloud.call(anew)
    assert cloud.house.added == ["one", "one"]


# What is offered


@promise("cloud:own-folder")
async def test_only_what_its_registry_routes_to_a_server_is_run(cloud: Clouded) -> None:
    house = cloud.house
    house.publish("near", one_by_one(add("near")), "notes:add", routing=Routing.CLIENT)
    house.sources.offer("memory", make_dependency())
    house.sources.publish("acme.tools.bundled", None, routing=Routing.SERVER, registry="catalog")
    who, _ = await cloud.key()

    for name in ("acme.tools.near", "acme.tools.memory.add", "acme.tools.bundled", "acme.tools.notes.add"):
        told = await cloud.call(who, name, {"text": "x"})
        assert "this cloud runs no tool" in json.dumps(told)
    assert (house.servers.started, house.servers.ran, house.installs) == ([], [], [])


@promise("cloud:no-workflow-forwarded")
async def test_nobody_continues_a_workflow_in_the_cloud(cloud: Clouded) -> None:
    who, _ = await cloud.key()

    told = await cloud.call(who, FQDN, {CONTINUE: {"workflow_id": "x", "approved": True}})

    assert told["structuredContent"]["error"]["code"] == "invalid_arguments"
    assert cloud.house.servers.ran == []


@promise("cloud:own-rules")
async def test_a_callers_model_decides_nothing_in_the_cloud(cloud: Clouded) -> None:
    cloud.house.configure()
    who, _ = await cloud.key()

    asked = await cloud.call(who)

    assert asked["approval_required"] is True
    [record] = await cloud.house.open_questions()
    assert Role.MODEL not in record.deciders


@promise("code:pause-repeats-nothing")
async def test_the_same_call_goes_on_when_a_person_of_the_cloud_has_decided(cloud: Clouded) -> None:
    script = one_by_one(add("one"), add("asks"), result="far away")
    cloud.house.publish("far", script, dynamic=True, routing=Routing.SERVER)
    cloud.house.configure(allow=["far:*", {"tool": "notes:add", "args": {"text": "one"}}])
    who, _ = await cloud.key()
    assert (await cloud.call(who))["approval_required"] is True
    [record] = await cloud.house.open_questions()
    await cloud.house.allow(record)

    assert (await cloud.call(who))["structuredContent"]["result"] == "far away"
    assert cloud.house.added == ["one", "asks"]


# Put together


@dataclass(frozen=True, kw_only=True)
class Real:
    """A cloud with a real store and real code, and another process of its operator."""

    executor: Executor
    context: Context
    place: Place

    async def call(self, who: Identity) -> Any:
        return msgspec.json.decode(await self.executor.call(who, {"name": GREET, "arguments": {}}))


@asynccontextmanager
async def running(root: Path, code: str, **config: Any) -> AsyncGenerator[Real]:
    home, workspace = root / "cloud-home", root / "work"
    home.mkdir(mode=0o700)
    workspace.mkdir()
    folder = fill(workspace / "registry", code=None, type="python", routing="server")
    (folder / f"{GREET}.py").write_text(code)
    allow = {"permissions": {"allow": ["*"], "deny": [], "ask": []}}
    (home / "config.json").write_text(json.dumps({**allow, **config}))
    place = Place(home=home, workspace=workspace, user_home=root)
    async with (
        open_context(place) as context,
        open_cloud(place, folder=folder, warn=lambda line: None) as executor,
    ):
        yield Real(executor=executor, context=context, place=place)


@promise("cloud:revoked-ends-calls")
async def test_a_cloud_looks_by_itself_whether_tokens_still_count(tmp_path: Path) -> None:
    assert REVOKED_S <= 1
    async with running(tmp_path, SLEEPS) as real:
        who, token = await key_of(real.context, str(real.place.workspace))
        work = asyncio.ensure_future(real.call(who))
        await revoke_token(real.context, token.id, by=PERSON)

        await asyncio.wait({work}, timeout=SOON_S)
        assert isinstance(work.exception(), Forbidden)


@promise("cloud:only-with-token")
async def test_a_session_of_another_workspace_runs_nothing_in_the_cloud(tmp_path: Path) -> None:
    async with running(tmp_path, GREETS) as real:
        who, _ = await key_of(real.context, str(tmp_path))

        with pytest.raises(NotFound, match="another workspace"):
            await real.call(who)


@promise("cloud:own-folder")
async def test_a_cloud_runs_what_its_own_folder_has_whatever_registry_is_configured(tmp_path: Path) -> None:
    other = fill(tmp_path / "other", code=None, type="python", routing="server")
    (other / f"{GREET}.py").write_text("async def greet(args, mcp):\n    return 'another'\n")
    async with running(tmp_path, GREETS, registry=str(other), registry_prefix="acme.tools") as real:
        who, _ = await key_of(real.context, str(real.place.workspace))

        assert (await real.call(who))["structuredContent"]["result"] == "hello"


@promise("code:no-process-left")
async def test_a_cloud_that_ends_leaves_no_code_and_no_chore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Any] = []
    real_close = Sandboxes.close

    async def close(self: Sandboxes) -> None:
        closed.append(self)
        await real_close(self)

    monkeypatch.setattr(Sandboxes, "close", close)
    before = asyncio.all_tasks()
    async with running(tmp_path, GREETS) as real:
        who, _ = await key_of(real.context, str(real.place.workspace))
        await real.call(who)

    assert len(closed) == 1
    assert asyncio.all_tasks() == before
