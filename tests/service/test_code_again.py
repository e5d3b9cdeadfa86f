"""The same call made again goes on with the code that it began, for whoever may want that and nobody else."""

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import pytest

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import Approval, OwnerId, SessionId, State
from pml.core.config.file import FileKind
from pml.core.errors import Invalid, NotFound, WorkflowGone
from pml.core.names import parse_tool
from pml.core.own_tools import EXECUTE
from pml.core.ports.records import Session
from pml.core.sessions.process import Process
from pml.core.sessions.token import TokenRole
from pml.core.values import Json, JsonObject
from pml.service.call import Attempt, Paused, PendingCall
from pml.service.calls.execute import run_or_call
from pml.service.session_tree import start_session
from pml.service.upkeep import sweep
from tests.fakes import FakeAsking, FakeOwners
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.codehouses import (
    Library,
    abandon,
    add,
    enter_library,
    one_by_one,
    until,
    value_in,
)
from tests.service.offices import SESSION, Office

CAPABILITY: Final = "ledger:settle"
CLIENT: Final = Process(pid=7, started=70)
OTHER_CLIENT: Final = Process(pid=8, started=80)
PREFIX: Final = "acme.tools"
STEPS: Final = one_by_one(add("one"), add("asks"), add("two"))
CODE: Final[JsonObject] = {"code": "steps"}
NEXT: Final = OwnerId("the next")
NOTES: Final[list[Any]] = [{"tool": "notes:add", "args": {"text": text}} for text in ("one", "two")]
RULES: Final[list[Any]] = [CAPABILITY, *NOTES]


@pytest.fixture
async def house(office: Office) -> Library:
    """`settle` adds three notes, the second of which asks; so does the code `steps`. Its client lives."""
    office.processes.alive |= {CLIENT, OTHER_CLIENT}
    await office.session(SESSION, process=CLIENT)
    house = await enter_library(office)
    house.publish("ledger.settle", STEPS, dynamic=True)
    house.sandbox.scripts["steps"] = STEPS
    house.configure(allow=RULES)
    return house


async def make(
    house: Library,
    tool: str = CAPABILITY,
    arguments: JsonObject | None = None,
    *,
    prefix: str | None = None,
    asking: FakeAsking | None = None,
) -> Json:
    """Make the call as a client does."""
    attempt = Attempt(
        tool=parse_tool(tool), arguments=arguments or {}, offered=tool == EXECUTE, prefix=prefix
    )
    asked = asking or FakeAsking(has_form=True)
    return value_in(await run_or_call(PendingCall(house.gate, attempt, asked)))


async def left(
    house: Library, tool: str = CAPABILITY, arguments: JsonObject | None = None, *, prefix: str | None = None
) -> Paused:
    with pytest.raises(Paused) as paused:
        await make(house, tool, arguments, prefix=prefix)
    return paused.value


async def begin_session(
    office: Office,
    session_id: str,
    *,
    process: Process | None = None,
    principal: str = "ana",
    is_agent: bool = True,
    parent_id: SessionId | None = None,
    role: TokenRole = TokenRole.SESSION,
    tools: tuple[str, ...] | None = None,
    waits: bool = False,
) -> Session:
    return await start_session(
        office.context,
        session_id=SessionId(session_id),
        name=session_id,
        principal=principal,
        workspace=str(office.workspace),
        process=process,
        is_agent=is_agent,
        parent_id=parent_id,
        role=role,
        tools=tools,
        waits=waits,
    )


async def next_gateway(house: Library, session: Session, *, is_first_alive: bool = False) -> Library:
    """Return another process with that session, on the same store; the first one was killed unless alive."""
    office = house.office
    config = office.read(FileKind.USER)
    owners = FakeOwners(NEXT, {office.owners.me} if is_first_alive else ())
    context = dataclasses.replace(office.context, owners=owners, policies={})
    await sweep(context)
    other = Library(
        office,
        session,
        context=context,
        sources=house.sources,
        installer=house.installer,
        scripts=house.sandbox.scripts,
    )
    office.write(FileKind.USER, config)
    return other


def name_prefix(house: Library, prefix: str) -> None:
    config = house.office.read(FileKind.USER)
    assert isinstance(config, Mapping)
    house.office.write(FileKind.USER, {**config, "registry_prefix": prefix})


# It goes on


@promise("code:pause-repeats-nothing")
@pytest.mark.parametrize(("tool", "arguments"), [(CAPABILITY, {"n": 1}), (EXECUTE, CODE)])
async def test_the_same_call_of_the_same_session_goes_on(
    house: Library, tool: str, arguments: JsonObject
) -> None:
    paused = await left(house, tool, arguments)
    await house.allow(paused.record)

    assert await make(house, tool, arguments) == "done"
    assert house.added == ["one", "asks", "two"]


@promise("code:pause-repeats-nothing")
@pytest.mark.parametrize(("tool", "arguments"), [(CAPABILITY, None), (EXECUTE, CODE)])
async def test_it_goes_on_after_a_kill_of_the_gateway_whose_client_lives(
    house: Library, tool: str, arguments: JsonObject | None
) -> None:
    paused = await left(house, tool, arguments)
    after = await next_gateway(house, await begin_session(house.office, "session-2", process=CLIENT))
    first = await house.office.context.store.sessions.get(SESSION)
    assert first is not None
    assert first.ended_at is None

    await after.allow(paused.record)
    assert await make(after, tool, arguments) == "done"

    assert (house.added, after.added) == (["one"], ["asks", "two"])


@promise("code:unknown-asks-a-person")
async def test_a_call_that_was_under_way_at_that_kill_is_asked_about_and_the_first_not_repeated(
    house: Library,
) -> None:
    house.configure(allow=["*"])
    house.publish("ledger.settle", one_by_one(add("one")), dynamic=True)
    house.servers.hangs = True
    working = asyncio.ensure_future(make(house))
    await until(house.servers.running)

    session = await begin_session(house.office, "session-2", process=OTHER_CLIENT)
    after = await next_gateway(house, session)
    paused = await left(after)

    assert paused.record.rule is not None
    assert matched(paused.record.rule).verdict == "unknown"
    assert after.added == []
    await abandon(working)


@promise("code:pause-repeats-nothing")
async def test_it_goes_on_in_another_session_when_the_first_has_ended(house: Library) -> None:
    paused = await left(house)
    house.office.processes.alive.discard(CLIENT)
    session = await begin_session(house.office, "session-2", process=OTHER_CLIENT)
    after = await next_gateway(house, session)
    await after.allow(paused.record)

    assert await make(after) == "done"
    assert after.added == ["asks", "two"]


@promise("code:pause-repeats-nothing")
async def test_it_goes_on_after_a_request_that_was_cancelled(house: Library) -> None:
    shown = asyncio.Event()

    async def think(record: Approval) -> Approval:
        shown.set()
        return await house.waiting()(record)

    asking = FakeAsking(think, has_form=True)
    working = asyncio.ensure_future(make(house, asking=asking))
    await until(shown)
    await abandon(working)
    assert await house.office.status(asking.asked[0]) is State.CANCELLED

    paused = await left(house)
    assert paused.record.id != asking.asked[0].id
    await house.allow(paused.record)

    assert await make(house) == "done"
    assert house.added == ["one", "asks", "two"]


@promise("code:pause-repeats-nothing")
async def test_it_goes_on_and_asks_anew_when_nobody_answered_in_time(house: Library) -> None:
    paused = await left(house)
    house.office.clock.advance(paused.record.ttl_s + 1)
    await sweep(house.office.context)
    assert await house.office.status(paused.record) is State.EXPIRED

    again = await left(house)

    assert (again.run_id, house.added) == (paused.run_id, ["one"])
    assert again.record.id != paused.record.id


# It is a call of its own


@pytest.mark.parametrize(
    "other", [OTHER_CLIENT, None], ids=["another client", "a client of which nothing is known"]
)
async def test_what_waits_for_a_session_that_lives_is_not_another_clients(
    house: Library, other: Process | None
) -> None:
    paused = await left(house)
    session = await begin_session(house.office, "session-2", process=other)
    after = await next_gateway(house, session, is_first_alive=True)
    await after.allow(paused.record)

    assert (await left(after)).run_id != paused.run_id
    assert after.added == ["one"]
    assert await make(house) == "done"


async def test_two_sessions_of_which_no_process_is_known_are_not_the_same_clients(office: Office) -> None:
    house = await enter_library(office)
    house.publish("ledger.settle", STEPS, dynamic=True)
    house.configure(allow=RULES)
    paused = await left(house)
    after = await next_gateway(house, await begin_session(office, "session-2"), is_first_alive=True)
    await after.allow(paused.record)

    assert (await left(after)).run_id != paused.run_id
    assert await make(house) == "done"


POWERS: Final[list[dict[str, Any]]] = [
    {"principal": "bob"},
    {"parent_id": SESSION},
    {"tools": ("ledger:*", "notes:*")},
    {"waits": True},
    {"is_agent": False},
    {"role": TokenRole.CHILD},
]


@promise("code:same-powers")
@pytest.mark.parametrize("powers", POWERS, ids=[str(next(iter(powers))) for powers in POWERS])
async def test_whoever_has_other_powers_does_not_go_on_with_it_nor_use_its_answers(
    house: Library, powers: dict[str, Any]
) -> None:
    paused = await left(house)
    session = await begin_session(house.office, "session-2", process=CLIENT, **powers)
    await house.office.context.store.sessions.end(SESSION, at=house.office.clock.now())
    after = await next_gateway(house, session)
    await after.allow(paused.record)

    assert (await left(after)).run_id != paused.run_id
    assert after.added == ["one"]
    with pytest.raises(WorkflowGone):
        await after.take_up(paused.run_id or "")


async def test_other_arguments_begin_another_run(house: Library) -> None:
    paused = await left(house, CAPABILITY, {"n": 1})
    await house.allow(paused.record)

    assert (await left(house, CAPABILITY, {"n": 2})).run_id != paused.run_id
    assert house.added == ["one", "one"]


async def test_another_tool_begins_another_run(house: Library) -> None:
    house.publish("ledger.close", one_by_one(add("two")), dynamic=True)
    house.configure(allow=[*RULES, "ledger:close"])
    paused = await left(house)
    await house.allow(paused.record)

    assert await make(house, "ledger:close") == "done"
    assert house.added == ["one", "two"]


@promise("registry:prefix-means-one")
@pytest.mark.parametrize("is_by_default", [True, False])
async def test_another_publishers_capability_of_that_name_is_another_call(
    house: Library, is_by_default: bool
) -> None:
    name_prefix(house, PREFIX)
    paused = await left(house)
    await house.allow(paused.record)
    if is_by_default:
        name_prefix(house, "evil.org")
        house.sources.error = NotFound("no such entry")

    with pytest.raises(NotFound):
        await make(house, prefix=None if is_by_default else "evil.org")

    assert house.added == ["one"]
    assert await house.office.status(paused.record) is State.ALLOWED


@promise("code:one-runner")
@pytest.mark.parametrize("is_elsewhere", [True, False])
async def test_what_is_at_work_is_not_taken_from_whoever_has_it(house: Library, is_elsewhere: bool) -> None:
    """Not by another process, and not by the same one."""
    house.servers.hangs = True
    working = asyncio.ensure_future(make(house))
    await until(house.servers.running)
    [run] = await house.office.context.store.journals.begun_with("ana", CAPABILITY)
    other = house
    if is_elsewhere:
        session = await begin_session(house.office, "session-2", process=CLIENT)
        other = await next_gateway(house, session, is_first_alive=True)
    house.servers.hangs = False

    assert (await left(other)).run_id != run.id

    now = await house.office.context.store.journals.get(run.id)
    assert now is not None
    assert (now.owner, now.taken) == (run.owner, run.taken)
    await abandon(working)


async def test_an_answer_that_a_call_brings_along_is_for_that_call(house: Library) -> None:
    waiting = await left(house)
    house.configure(allow=NOTES)
    asked = await house.leave(CAPABILITY)
    await house.allow(asked.record)
    settled = await house.office.stored(asked.record)
    attempt = Attempt(tool=parse_tool(CAPABILITY), arguments={}, offered=False)

    with pytest.raises(Paused) as paused:
        await run_or_call(PendingCall(house.gate, attempt, FakeAsking(has_form=True), settled=settled))

    assert paused.value.run_id != waiting.run_id
    assert await house.office.status(settled) is State.COMPLETED


# Names that servers have too


@promise("code:pause-repeats-nothing")
async def test_a_capability_that_is_spelt_out_goes_on_though_a_server_has_its_namespace(
    house: Library,
) -> None:
    house.publish("notes.settle", STEPS, dynamic=True)
    house.configure(allow=[*RULES, "notes:settle"])
    name_prefix(house, PREFIX)
    paused = await left(house, "notes:settle", prefix=PREFIX)
    await house.allow(paused.record)

    assert await make(house, "notes:settle", prefix=PREFIX) == "done"
    assert house.added == ["one", "asks", "two"]


async def test_the_short_name_means_the_server_and_not_that_capability(house: Library) -> None:
    house.publish("notes.settle", STEPS, dynamic=True)
    house.configure(allow=[*RULES, "notes:settle"])
    name_prefix(house, PREFIX)
    paused = await left(house, "notes:settle", prefix=PREFIX)
    await house.allow(paused.record)

    with pytest.raises(NotFound):
        await make(house, "notes:settle")
    assert house.added == ["one"]


@promise("code:pause-repeats-nothing")
async def test_a_capability_goes_on_that_brings_a_server_of_its_own_name(house: Library) -> None:
    script = one_by_one(("memory:add", {"text": "kept"}), add("asks"))
    house.publish("memory.keep", script, dependencies=[make_dependency()], dynamic=True)
    house.configure(allow=["memory:*"])
    install = await left(house, "memory:keep")
    await house.allow(install.record)
    paused = await left(house, "memory:keep")
    assert "memory" in house.gate.loaded
    await house.allow(paused.record)

    assert await make(house, "memory:keep") == "done"
    assert house.added == ["kept", "asks"]


# What is no code


@pytest.mark.parametrize(
    "code", [{}, {"code": " "}, {"code": "x", "args": 1}, {"code": "x", "language": "c"}]
)
async def test_nobody_is_asked_about_what_cannot_be_run(house: Library, code: JsonObject) -> None:
    house.configure(ask=[EXECUTE])

    with pytest.raises(Invalid):
        await make(house, EXECUTE, code)

    assert await house.questions() == []
