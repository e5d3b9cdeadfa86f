"""What a session sees of those that it launched, and the next thing that needs it."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from pml.core.approvals.record import ApprovalId, SessionId
from pml.core.errors import Forbidden, NotFound
from pml.core.ports.records import Session
from pml.core.sessions.agent import MessageKind, RunState
from pml.service.sessions.loopback import CLIMB_S, respond
from pml.service.sessions.supervision import WAITING, Kind, Next, child_of, children_of, next_for
from pml.store.sqlite.store import SqliteStore
from pml.testing.store import MemoryStore
from tests.builders import OWNER, make_message, make_run
from tests.promises import promise
from tests.service.families import Asker, Family, gather
from tests.service.offices import BOUND_S, Office


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Office]:
    store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "db", OWNER)
    yield Office(store, tmp_path)
    await store.close()


@pytest.fixture
async def family(office: Office) -> Family:
    """A family whose younger ones were launched and run."""
    family = await gather(office)
    for session in (family.parent, family.child, family.sibling):
        await office.context.store.runs.add(make_run(session.id))
        await move(office, session, RunState.RUNNING)
    return family


async def move(office: Office, session: Session, state: RunState, result: str | None = None) -> None:
    await office.context.store.runs.move(session.id, state, at=office.clock.now(), result=result)


async def say(office: Office, session: Session, text: str) -> None:
    await office.context.store.runs.say(make_message(text, session_id=session.id, kind=MessageKind.TEXT))


async def next_now(office: Office, session: Session, *, of: SessionId | None = None) -> Next:
    """Return what needs the session already."""
    async with asyncio.timeout(BOUND_S):
        return await next_for(office.context, session, of=of, timeout_s=0, told=set())


def waiting_for_next(office: Office, session: Session) -> "asyncio.Task[Next]":
    return asyncio.create_task(next_for(office.context, session, of=None, timeout_s=3600, told=set()))


async def test_a_session_lists_what_it_launched_and_what_those_launched(
    office: Office, family: Family
) -> None:
    asker = Asker(office, family.child)
    await asker.question()

    seen = {
        each.session.id: (each.state, each.waiting)
        for each in await children_of(office.context, family.parent)
    }
    assert seen == {family.child.id: (WAITING, 1), family.sibling.id: ("running", 0)}
    above = {each.session.id for each in await children_of(office.context, family.grandparent)}
    assert above == {family.parent.id, family.child.id, family.sibling.id}
    assert await children_of(office.context, family.stranger) == []
    await asker.lose()


@promise("supervise:own-descendants-only")
async def test_a_child_sees_nothing_and_nobody_sees_who_is_not_below(office: Office, family: Family) -> None:
    with pytest.raises(Forbidden):
        await children_of(office.context, family.child)
    with pytest.raises(Forbidden):
        await next_now(office, family.child)
    for session, other in (
        (family.stranger, family.child.id),
        (family.parent, family.parent.id),
        (family.parent, family.grandparent.id),
        (family.parent, SessionId("nobody")),
    ):
        with pytest.raises(NotFound):
            await child_of(office.context, session, other)
        with pytest.raises(NotFound):
            await next_now(office, session, of=other)


async def test_a_request_comes_before_a_message_and_a_message_before_the_end(
    office: Office, family: Family
) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()
    await say(office, family.sibling, "hello")
    await move(office, family.sibling, RunState.DONE, "done")

    first = await next_now(office, family.parent)
    assert (first.kind, [each.record for each in first.requests]) == (Kind.REQUEST, [record])
    await respond(office.context, family.parent, record.id, allow=True)
    await asker.answer()

    second = await next_now(office, family.parent)
    assert (second.kind, [each.text for each in second.messages]) == (Kind.MESSAGE, ["hello"])
    third = await next_now(office, family.parent)
    assert (third.kind, third.child and third.child.run.result) == (Kind.ENDED, "done")


async def test_each_message_is_told_once_and_in_order(office: Office, family: Family) -> None:
    for n in range(45):
        await say(office, family.child, f"message {n}")

    heard: list[str] = []
    while (found := await next_now(office, family.parent)).kind is Kind.MESSAGE:
        assert found.child is not None
        assert found.child.session.id == family.child.id
        heard += [each.text for each in found.messages]

    assert heard == [f"message {n}" for n in range(45)]
    assert found == Next(kind=Kind.NOTHING)


async def test_an_end_is_told_once_unless_that_session_is_asked_for(office: Office, family: Family) -> None:
    await move(office, family.child, RunState.FAILED, "it broke")

    first = await next_now(office, family.parent)
    assert first.child is not None
    assert (first.kind, first.child.state, first.child.run.result) == (Kind.ENDED, "failed", "it broke")
    assert (await next_now(office, family.parent)).kind is Kind.NOTHING
    for _ in range(2):
        assert (await next_now(office, family.parent, of=family.child.id)).kind is Kind.ENDED


async def test_only_what_concerns_the_named_session_is_told(office: Office, family: Family) -> None:
    await say(office, family.sibling, "hello")

    assert (await next_now(office, family.parent, of=family.child.id)).kind is Kind.NOTHING
    assert (await next_now(office, family.parent, of=family.sibling.id)).kind is Kind.MESSAGE


async def test_it_returns_at_once_when_nothing_runs_that_could_need_it(
    office: Office, family: Family
) -> None:
    async with asyncio.timeout(BOUND_S):
        assert (
            await next_for(office.context, family.stranger, of=None, timeout_s=3600, told=set())
        ).kind is Kind.NOTHING
    for session in (family.child, family.sibling):
        await move(office, session, RunState.DONE)
        assert (await next_now(office, family.parent)).kind is Kind.ENDED

    async with asyncio.timeout(BOUND_S):
        assert (
            await next_for(office.context, family.parent, of=None, timeout_s=3600, told=set())
        ).kind is Kind.NOTHING


async def test_who_waits_is_woken_by_a_request(office: Office, family: Family) -> None:
    waiting = waiting_for_next(office, family.parent)
    await asyncio.sleep(0)
    asker = Asker(office, family.child)
    record = await asker.question()

    async with asyncio.timeout(BOUND_S):
        found = await waiting

    assert [each.record for each in found.requests] == [record]
    await asker.lose()


async def test_who_waits_is_woken_by_a_message(office: Office, family: Family) -> None:
    waiting = waiting_for_next(office, family.parent)
    await asyncio.sleep(0)

    await say(office, family.child, "hello")

    async with asyncio.timeout(BOUND_S):
        assert (await waiting).kind is Kind.MESSAGE


async def test_who_waits_is_woken_by_an_end(office: Office, family: Family) -> None:
    waiting = waiting_for_next(office, family.parent)
    await asyncio.sleep(0)

    await move(office, family.child, RunState.DONE, "done")

    async with asyncio.timeout(BOUND_S):
        assert (await waiting).kind is Kind.ENDED


@promise("supervise:climbs")
async def test_a_request_of_a_grandchild_reaches_the_grandparent_after_a_while(
    office: Office, family: Family
) -> None:
    asker = Asker(office, family.child)
    await asker.question()
    assert (await next_now(office, family.grandparent)).kind is Kind.NOTHING

    office.clock.advance(CLIMB_S)

    assert (await next_now(office, family.grandparent)).kind is Kind.REQUEST
    await asker.lose()


async def test_messages_of_a_grandchild_are_its_parents_to_hear(office: Office, family: Family) -> None:
    await say(office, family.child, "hello")

    assert (await next_now(office, family.grandparent)).kind is Kind.NOTHING
    assert (await next_now(office, family.parent)).kind is Kind.MESSAGE


async def test_who_waits_for_a_grandchild_waits_while_it_runs(office: Office, family: Family) -> None:
    waiting = asyncio.create_task(
        next_for(office.context, family.grandparent, of=family.child.id, timeout_s=3600, told=set())
    )
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done()

    await move(office, family.child, RunState.DONE)

    async with asyncio.timeout(BOUND_S):
        assert (await waiting).kind is Kind.NOTHING


@promise("supervise:climbs")
async def test_a_request_that_was_told_and_left_holds_up_nothing_else(office: Office, family: Family) -> None:
    told: set[ApprovalId] = set()

    async def now() -> Next:
        return await next_for(office.context, family.parent, of=None, timeout_s=0, told=told)

    asker = Asker(office, family.child)
    record = await asker.question()
    first = await now()
    assert [request.record.id for request in first.requests] == [record.id]
    await move(office, family.sibling, RunState.DONE)
    assert (await now()).kind is Kind.ENDED
    assert (await now()).kind is Kind.REQUEST  # the time is over: it still waits
    await asker.lose()
