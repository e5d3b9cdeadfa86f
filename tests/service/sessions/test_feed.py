"""The feed: every event once and in order to whoever may see it, on every store."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from pml.core.approvals.record import SessionId
from pml.core.audit.entries import session_changed
from pml.core.audit.feed_events import EventType, install_progress, server_changed, type_of, types_matching
from pml.core.errors import Forbidden, Unavailable
from pml.core.ports.queries import AuditQuery
from pml.core.sessions.agent import Message, MessageKind
from pml.core.sessions.token import Identity, Token, TokenId, TokenRole
from pml.service.sessions import feed as feeds
from pml.service.sessions.feed import Feed, Reader
from pml.store.sqlite.store import SqliteStore
from pml.testing.store import MemoryStore
from tests.builders import NOW, OWNER, PERSON, later
from tests.promises import promise
from tests.service.offices import BOUND_S, Office

PARENT, CHILD, SIBLING, GRANDCHILD = map(SessionId, ("parent", "child", "sibling", "grandchild"))

# Another process of the same user starts a session.
ELSEWHERE = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from pml.core.approvals.record import OwnerId, SessionId
from pml.core.ports.store import Session
from pml.store.sqlite.store import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]), OwnerId("owner-2"))
    await store.sessions.start(Session(id=SessionId("elsewhere"), name="e", principal="p", workspace="/w",
        is_agent=True, started_at=datetime.now(UTC)))
    await store.close()

asyncio.run(main())
"""


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def office(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> AsyncIterator[Office]:
    is_memory = cast(str, request.param) == "memory"
    store = MemoryStore() if is_memory else await SqliteStore.open(home / ".pml", OWNER)
    yield Office(store, tmp_path)
    await store.close()


@pytest.fixture
def feed(office: Office) -> Feed:
    return Feed(office.context)


async def viewer(
    office: Office, role: TokenRole = TokenRole.PERSON, session_id: SessionId | None = None
) -> Identity:
    """Return whoever holds a new token of that role."""
    token_id = TokenId(f"{len(await office.context.store.tokens.all()):012x}")
    token = Token(id=token_id, role=role, name="x", hash="h", session_id=session_id, created_at=NOW)
    await office.context.store.tokens.add(token, by=PERSON)
    return Identity(token_id=token_id, role=role, name="x", session_id=session_id)


async def read(reader: Reader, count: int) -> list[dict[str, Any]]:
    """Return the next `count` events, in time."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(BOUND_S):
        while len(found) < count:
            found += [json.loads(event.text) for event in await reader.read(BOUND_S)]
    return found


async def start(office: Office, count: int, *, prefix: str = "s") -> None:
    for n in range(count):
        await office.session(SessionId(f"{prefix}{n}"))


async def logged(office: Office) -> list[int]:
    """Return the places of all events in the log."""
    links = await office.context.store.audit.list(AuditQuery(limit=100_000))
    return [link.seq for link in links if type_of(link.entry) is not None]


@promise("events:replayed-whole")
@pytest.mark.parametrize("ring", [3, 1000])
async def test_a_reader_that_comes_again_and_again_gets_every_event_once_and_in_order(
    office: Office, feed: Feed, ring: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "RING_EVENTS", ring)
    monkeypatch.setattr(feeds, "BATCH_BYTES", 500)
    monkeypatch.setattr(feeds, "PAGE", 7)
    who = await viewer(office)
    seen: list[int] = []
    after = 0
    async with asyncio.timeout(BOUND_S * 4), asyncio.TaskGroup() as group:
        group.create_task(start(office, 120))
        while len(seen) < 121:  # with the token's own
            async with feed.follow(who, after=after) as reader:
                for _ in range(3):
                    seen += [event.id for event in await reader.read(BOUND_S) if event.id is not None]
                    if len(seen) >= 121:
                        break
            after = seen[-1]
    assert seen == await logged(office)


async def test_a_reader_that_was_away_begins_where_it_says_it_is(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    async with feed.follow(who, after=None) as reader:
        place = reader.place
        await asyncio.sleep(0)
    await start(office, 2)
    async with feed.follow(who, after=place) as reader:
        assert [event["session"] for event in await read(reader, 2)] == ["s0", "s1"]


async def test_a_reader_without_a_place_is_told_what_happens_from_now_on(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    await start(office, 3)
    async with feed.follow(who, after=None) as reader:
        await office.session(SessionId("new"))
        assert [event["session"] for event in await read(reader, 1)] == ["new"]


async def test_a_reader_that_is_ahead_of_the_others_is_told_nothing_twice(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    async with feed.follow(who, after=None) as first:
        await office.session(SessionId("old"))  # in the log, and perhaps not read from it yet
        async with feed.follow(who, after=None) as second:
            assert len(await read(first, 1)) == 1
            await office.session(SessionId("new"))
            assert [event["session"] for event in await read(second, 1)] == ["new"]


async def test_a_place_that_the_log_has_not_reached_is_now(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    async with feed.follow(who, after=10**18) as reader:
        assert reader.place == await office.context.store.audit.last_seq()
        await office.session(SessionId("new"))
        assert [event["session"] for event in await read(reader, 1)] == ["new"]


async def test_a_reader_whose_events_left_the_ring_reads_them_from_the_log(
    office: Office, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "RING_EVENTS", 5)
    who = await viewer(office)
    async with feed.follow(who, after=None) as slow, feed.follow(who, after=None) as quick:
        await start(office, 50)
        assert len(await read(quick, 50)) == 50
        assert [event["session"] for event in await read(slow, 50)] == [f"s{n}" for n in range(50)]


async def test_large_events_leave_the_ring_before_it_has_too_many_bytes(
    office: Office, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "RING_BYTES", 1000)
    who = await viewer(office)
    async with feed.follow(who, after=None) as slow, feed.follow(who, after=None) as quick:
        for n in range(5):
            await office.ask(arguments={"text": str(n) * 600})
        for reader in (quick, slow):
            events = [event for event in await read(reader, 6) if event["type"] == "approval.requested"]
            assert [event["tool_input"]["text"][0] for event in events] == list("01234")


async def test_a_hundred_readers_each_get_all(office: Office, feed: Feed) -> None:
    who = await viewer(office)

    async def listen(begun: asyncio.Semaphore) -> list[str]:
        async with feed.follow(who, after=None) as reader:
            begun.release()
            return [event["session"] for event in await read(reader, 30)]

    begun = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(listen(begun)) for _ in range(100)]
        for _ in tasks:
            await begun.acquire()
        await start(office, 30)
    assert {tuple(task.result()) for task in tasks} == {tuple(f"s{n}" for n in range(30))}


async def _family(office: Office) -> None:
    await office.session(PARENT)
    await office.session(CHILD, parent_id=PARENT)
    await office.session(SIBLING, parent_id=PARENT)


@promise("events:only-what-the-token-may-see")
@pytest.mark.parametrize("from_the_log", [False, True])
@pytest.mark.parametrize(
    ("role", "session_id", "seen"),
    [
        (TokenRole.PERSON, None, ["parent", "child", "sibling", "grandchild", "end"]),
        (TokenRole.SESSION, PARENT, ["parent", "child", "sibling", "grandchild"]),
        (TokenRole.SESSION, CHILD, ["child", "grandchild"]),
        (TokenRole.CHILD, CHILD, ["child"]),
        (TokenRole.CHILD, GRANDCHILD, ["grandchild"]),
    ],
)
async def test_each_token_sees_what_it_may_also_of_sessions_started_later(
    office: Office,
    feed: Feed,
    role: TokenRole,
    session_id: SessionId | None,
    seen: list[str],
    from_the_log: bool,
) -> None:
    await _family(office)
    who, person = await viewer(office, role, session_id), await viewer(office)
    place = await office.context.store.audit.last_seq()
    questions = types_matching(["approval.requested"])
    found: list[dict[str, Any]] = []

    async def happen() -> None:
        """What each of them asks holds a secret of its own."""
        for asking in (PARENT, CHILD, SIBLING, GRANDCHILD, SessionId("end")):
            above = {GRANDCHILD: CHILD, CHILD: PARENT, SIBLING: PARENT}.get(asking)
            session = await office.session(asking, parent_id=above)
            await office.ask(arguments={"secret": asking}, session=session)

    if from_the_log:
        await happen()
    async with (
        feed.follow(who, after=place, types=questions) as reader,
        feed.follow(person, after=place, types=questions) as last,
    ):
        if not from_the_log:
            await happen()
        await read(last, 5)
        while batch := await reader.read(0):
            found += [json.loads(event.text) for event in batch]
    assert [event["tool_input"]["secret"] for event in found] == seen
    assert [event["session"] for event in found] == seen


@promise("events:only-what-the-token-may-see")
async def test_what_belongs_to_no_session_is_for_persons(office: Office, feed: Feed) -> None:
    await _family(office)
    person = await viewer(office)
    others = [
        await viewer(office, TokenRole.SESSION, PARENT),
        await viewer(office, TokenRole.CHILD, CHILD),
    ]
    async with feed.follow(person, after=None) as reader:
        place = reader.place
        feed.publish(server_changed("memory", "ready", at=NOW))
        await viewer(office, TokenRole.CHILD, CHILD)  # a token is no event of its session
        await office.session(SessionId("end"))
        types = [event["type"] for event in await read(reader, 3)]
    assert types == ["server.changed", "tokens.changed", "session.started"]
    for other in others:
        async with feed.follow(other, after=place) as reader:
            assert await reader.read(0) == []


async def test_a_session_that_was_forgotten_is_seen_by_itself_and_persons_only(
    office: Office, feed: Feed
) -> None:
    await _family(office)
    parent = await viewer(office, TokenRole.SESSION, PARENT)
    await office.context.store.sessions.end(CHILD, at=NOW)
    await office.context.store.sessions.forget(older_than=later(1))
    async with feed.follow(parent, after=0) as reader:
        sessions = {event["session"] for event in await read(reader, 2)}
    assert sessions == {"parent", "sibling"}


async def test_events_of_another_process_arrive(tmp_path: Path, home: Path) -> None:
    store = await SqliteStore.open(home / ".pml", OWNER)
    office = Office(store, tmp_path)
    who = await viewer(office)
    try:
        async with Feed(office.context).follow(who, after=None) as reader:
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", ELSEWHERE, str(home / ".pml"))
            async with asyncio.timeout(BOUND_S * 4):
                assert await other.wait() == 0
            assert [event["session"] for event in await read(reader, 1)] == ["elsewhere"]
    finally:
        await store.close()


async def test_what_an_agent_said_is_told_with_its_text(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    session = await office.session()
    async with feed.follow(who, after=None, types=types_matching(["session.said"])) as reader:
        for text in ("first", "second"):
            said = Message(session_id=session.id, kind=MessageKind.TEXT, text=text, at=NOW)
            await office.context.store.runs.say(said)
        assert [event["text"] for event in await read(reader, 2)] == ["first", "second"]


async def test_an_approval_that_was_cleaned_up_is_told_without_its_arguments(
    office: Office, feed: Feed
) -> None:
    who = await viewer(office)
    record = await office.ask()
    await office.deny(record, message="no")
    await office.context.store.approvals.cleanup_old(older_than=later(1), at=later(1))
    async with feed.follow(who, after=0, types=types_matching(["approval*"])) as reader:
        asked, denied, cleaned = await read(reader, 3)
    assert (asked["approval_id"], asked["tool_name"]) == (record.id, record.tool_name)
    assert "tool_input" not in asked
    assert (denied["decision"], denied["by"]["id"]) == ("denied", "ana")
    assert "message" not in denied
    assert (cleaned["type"], cleaned["count"]) == ("approvals.cleaned", 1)


async def test_only_the_types_that_are_wanted_are_told(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    async with feed.follow(who, after=0, types=frozenset({EventType.SESSION_ENDED})) as reader:
        session = await office.session()
        await office.context.store.sessions.end(session.id, at=NOW)
        assert [event["type"] for event in await read(reader, 1)] == ["session.ended"]


async def test_what_is_in_no_log_is_told_once_and_only_to_those_who_listen(
    office: Office, feed: Feed
) -> None:
    await _family(office)
    parent, sibling = (
        await viewer(office, TokenRole.SESSION, PARENT),
        await viewer(office, TokenRole.CHILD, SIBLING),
    )

    def progress(n: int) -> None:
        feed.publish(install_progress("memory", done=n, total=3, message="m", at=NOW, session_id=CHILD))

    progress(0)
    async with feed.follow(parent, after=None) as reader, feed.follow(sibling, after=None) as other:
        progress(1)
        progress(2)
        found = await read(reader, 2)
        async with feed.follow(parent, after=None) as late:
            assert await late.read(0) == []
        assert await other.read(0) == []
    assert [event["done"] for event in found] == [1, 2]
    assert all("id" not in event for event in found)


async def test_the_log_is_read_only_while_somebody_listens(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    before = asyncio.all_tasks()
    async with feed.follow(who, after=None), feed.follow(who, after=None):
        assert len(asyncio.all_tasks() - before) == 1
    assert asyncio.all_tasks() == before


@promise("events:only-what-the-token-may-see")
async def test_a_token_that_is_revoked_or_over_sees_no_more(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    async with feed.follow(who, after=None) as reader:
        await office.session(SessionId("before"))
        assert len(await read(reader, 1)) == 1
        await office.context.store.tokens.revoke(who.token_id, at=NOW, by=PERSON)
        await office.session(SessionId("after"))
        with pytest.raises(Forbidden):
            await read(reader, 1)
    with pytest.raises(Forbidden):
        async with feed.follow(who, after=None):
            pass


@promise("events:only-what-the-token-may-see")
@pytest.mark.parametrize("role", [TokenRole.PERSON, TokenRole.CHILD])
async def test_a_revoked_token_ends_the_reading_at_once_though_the_reader_is_not_told_of_tokens(
    office: Office, feed: Feed, role: TokenRole
) -> None:
    await office.session(CHILD)
    who = await viewer(office, role, None if role is TokenRole.PERSON else CHILD)
    async with feed.follow(who, after=None, types=frozenset({EventType.SESSION_ENDED})) as reader:
        waiting = asyncio.ensure_future(reader.read(600))
        await asyncio.sleep(0)
        await office.context.store.tokens.revoke(who.token_id, at=NOW, by=PERSON)
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(Forbidden):
                await waiting


async def test_a_token_revoked_between_two_reads_ends_the_second_at_once(office: Office, feed: Feed) -> None:
    who, other = await viewer(office), await viewer(office)
    types = frozenset({EventType.SESSION_ENDED})
    async with feed.follow(other, after=None) as told, feed.follow(who, after=None, types=types) as reader:
        assert await reader.read(0) == []
        await office.context.store.tokens.revoke(who.token_id, at=NOW, by=PERSON)
        await read(told, 1)
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(Forbidden):
                await reader.read(600)


async def test_a_token_ends_the_reading_when_its_time_is_over(office: Office, feed: Feed) -> None:
    token = Token(
        id=TokenId("f" * 12),
        role=TokenRole.PERSON,
        name="x",
        hash="h",
        created_at=NOW,
        expires_at=NOW + timedelta(seconds=60),
    )
    await office.context.store.tokens.add(token, by=PERSON)
    who = Identity(token_id=token.id, role=token.role, name="x", session_id=None)
    async with feed.follow(who, after=None) as reader:
        office.clock.advance(59.9)
        waiting = asyncio.ensure_future(reader.read(600))
        await asyncio.sleep(0)
        office.clock.advance(0.2)
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(Forbidden):
                await waiting


async def test_closing_ends_every_reader_at_once(office: Office, feed: Feed) -> None:
    who = await viewer(office)
    async with feed.follow(who, after=None) as reader:
        waiting = asyncio.ensure_future(reader.read(600))
        await asyncio.sleep(0)
        feed.close()
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(Unavailable, match="stops"):
                await waiting
    with pytest.raises(Unavailable, match="stops"):
        async with feed.follow(who, after=None):
            pass


async def test_a_store_that_fails_ends_the_readers_and_later_ones_read_again(
    office: Office, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = await viewer(office)

    async def fail(query: AuditQuery) -> list[Any]:
        raise Unavailable("the disk is gone")

    async with feed.follow(who, after=None) as reader:
        with monkeypatch.context() as patch:
            patch.setattr(office.context.store.audit, "list", fail)
            await office.context.store.audit.record(session_changed("s", "running", at=NOW))
            with pytest.raises(Unavailable, match="the disk is gone"):
                await read(reader, 1)
        async with feed.follow(who, after=reader.place) as again:
            assert [event["type"] for event in await read(again, 1)] == ["session.changed"]
