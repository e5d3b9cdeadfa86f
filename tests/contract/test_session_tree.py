"""What every store does with sessions that start sessions: their powers, their tree, and when they go."""

import msgspec
import pytest

from pml.core.approvals.record import ApprovalId, SessionId
from pml.core.errors import NotFound
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.ports.store import Store
from pml.core.sessions.agent import RunState
from pml.core.sessions.process import Process
from pml.core.sessions.token import ParentMay, TokenRole
from tests.builders import (
    NOW,
    PERSON,
    SESSION,
    deny,
    later,
    make_approval,
    make_grant,
    make_message,
    make_run,
    make_session,
    make_token,
)
from tests.contract.steps import ask, ask_and, entries_of

ROOT, MIDDLE, LEAF = SessionId("root"), SessionId("middle"), SessionId("leaf")
OTHER = SessionId("other")
CHILD = Process(pid=4712, started=1762171201.5)


async def start(store: Store, session_id: SessionId, parent_id: SessionId | None = None) -> Session:
    return await store.sessions.start(make_session(session_id, parent_id=parent_id))


async def start_family(store: Store) -> None:
    await start(store, ROOT)
    await start(store, MIDDLE, ROOT)
    await start(store, LEAF, MIDDLE)


async def end(store: Store, *session_ids: SessionId) -> None:
    for session_id in session_ids:
        await store.sessions.end(session_id, at=later(1))


async def ids(store: Store) -> list[SessionId]:
    return sorted(session.id for session in await store.sessions.page(after=None, limit=100))


# --- powers and process


@pytest.mark.parametrize(
    "session",
    [
        make_session(role=TokenRole.CHILD, tools=("github:*", "Bash", 'a"b\\'), waits=True, ttl_s=20),
        make_session(role=TokenRole.PERSON, tools=()),
        make_session(parent_id=ROOT, parent_may=ParentMay.LISTED, launches_unasked=True),
        make_session(),
    ],
    ids=["child", "no tools at all", "with powers", "plain"],
)
async def test_a_session_keeps_what_it_may_do(store: Store, session: Session) -> None:
    await store.sessions.start(session)

    assert await store.sessions.get(SESSION) == session


async def test_the_process_that_holds_a_session_is_told_later(store: Store) -> None:
    session = await start(store, SESSION)
    other = await start(store, OTHER)

    await store.sessions.set_process(SESSION, CHILD)

    assert await store.sessions.get(SESSION) == msgspec.structs.replace(session, process=CHILD)
    assert await store.sessions.get(OTHER) == other
    with pytest.raises(NotFound, match="session-9"):
        await store.sessions.set_process(SessionId("session-9"), CHILD)


# --- pages


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_of_sessions_go_from_the_newest_to_the_oldest_and_skip_none(
    store: Store, limit: int
) -> None:
    def nth(n: int) -> Session:  # two of each instant: the id breaks the tie
        return make_session(SessionId(f"session-{n}"), started_at=later(n // 2))

    expected = [await store.sessions.start(nth(n)) for n in (5, 2, 4, 3, 1)]
    await store.sessions.end(expected[0].id, at=later(9))
    expected[0] = msgspec.structs.replace(expected[0], ended_at=later(9))
    seen: list[Session] = []
    after = None
    while page := await store.sessions.page(after=after, limit=limit):
        assert len(page) <= limit
        seen.extend(page)
        await store.sessions.start(make_session(SessionId(f"new-{len(seen)}"), started_at=later(50)))
        after = (page[-1].started_at, page[-1].id)

    assert seen == sorted(expected, key=lambda session: (session.started_at, session.id), reverse=True)


# --- descendants


async def test_descendants_are_those_beneath_at_any_depth_ended_ones_too(store: Store) -> None:
    await start_family(store)
    await start(store, OTHER)
    await start(store, SessionId("others"), OTHER)
    await end(store, MIDDLE)

    async def beneath(session_id: SessionId) -> list[SessionId]:
        return sorted(session.id for session in await store.sessions.descendants(session_id))

    assert await beneath(ROOT) == [LEAF, MIDDLE]
    assert await beneath(MIDDLE) == [LEAF]
    assert await beneath(LEAF) == []
    assert await beneath(SessionId("nobody")) == []
    middle = await store.sessions.get(MIDDLE)
    assert middle in await store.sessions.descendants(ROOT)


async def test_descendants_are_found_through_a_session_that_is_not_stored(store: Store) -> None:
    leaf = await start(store, LEAF, MIDDLE)

    assert await store.sessions.descendants(MIDDLE) == [leaf]


async def test_sessions_that_name_each_other_as_parents_hang_nobody_and_are_not_their_own_descendants(
    store: Store,
) -> None:
    one = await start(store, ROOT, MIDDLE)
    two = await start(store, MIDDLE, ROOT)
    own = await start(store, OTHER, OTHER)

    assert await store.sessions.descendants(ROOT) == [two]
    assert await store.sessions.descendants(MIDDLE) == [one]
    assert await store.sessions.descendants(own.id) == []
    await end(store, ROOT, MIDDLE, OTHER)
    await store.sessions.forget(older_than=later(2))
    assert await ids(store) == []


async def test_a_long_line_of_descendants_is_found_to_its_end(store: Store) -> None:
    for n in range(1, 200):
        await start(store, SessionId(f"s-{n}"), SessionId(f"s-{n - 1}"))

    assert len(await store.sessions.descendants(SessionId("s-0"))) == 199


# --- whose approvals


async def test_a_page_lists_the_approvals_of_the_sessions_that_were_named(store: Store) -> None:
    names = ["plain", 'qu"ote', "back\\slash", "ünï😀", "null"]
    records = [
        await ask(store, make_approval(n, session_id=SessionId(name), created_at=later(n)))
        for n, name in enumerate(names)
    ]
    denied = await ask_and(store, new := make_approval(9, created_at=later(9)), deny(new))
    wanted = frozenset(record.session_id for record in records)

    assert await store.approvals.page(ApprovalQuery(sessions=wanted)) == records
    assert await store.approvals.page(ApprovalQuery(sessions=wanted, limit=2)) == records[:2]
    cursor = (records[1].created_at, records[1].id)
    assert await store.approvals.page(ApprovalQuery(sessions=wanted, after=cursor)) == records[2:]
    assert await store.approvals.page(
        ApprovalQuery(sessions=frozenset({denied.session_id}), states=frozenset({denied.status}))
    ) == [denied]
    assert await store.approvals.page(ApprovalQuery(sessions=wanted, session_id=denied.session_id)) == []


async def test_a_page_for_no_session_is_empty(store: Store) -> None:
    await ask(store, make_approval())

    assert await store.approvals.page(ApprovalQuery(sessions=frozenset())) == []


async def test_a_page_may_name_more_sessions_than_a_statement_has_room_for_values(store: Store) -> None:
    record = await ask(store, make_approval(session_id=SessionId("s-39999")))
    many = frozenset(SessionId(f"s-{n}") for n in range(40_000))

    assert await store.approvals.page(ApprovalQuery(sessions=many)) == [record]
    assert await store.approvals.page(ApprovalQuery(sessions=many - {record.session_id})) == []


# --- forgetting


async def test_a_session_that_is_forgotten_takes_all_that_was_its_own_with_it(store: Store) -> None:
    for session_id in (SESSION, OTHER):
        await start(store, session_id)
        await store.runs.add(make_run(session_id))
        await store.runs.say(make_message(session_id=session_id))
        await store.runs.move(session_id, RunState.DONE, at=later(1))
    await store.tokens.add(make_token(1), by=None)
    kept = make_token(2, session_id=OTHER)
    await store.tokens.add(kept, by=None)
    await end(store, SESSION)
    log = await entries_of(store)

    await store.sessions.forget(older_than=later(2))

    assert await ids(store) == [OTHER]
    assert await store.sessions.get(SESSION) is None
    assert await store.runs.get(SESSION) is None
    assert await store.runs.messages(SESSION) == []
    assert await store.tokens.all() == [kept]
    assert await store.runs.get(OTHER) is not None
    assert [message.session_id for message in await store.runs.messages(OTHER)] == [OTHER]
    assert await entries_of(store) == log


async def test_the_grants_of_a_forgotten_session_go_with_it(store: Store) -> None:
    kept = make_grant(2, session_id=OTHER)
    for grant in (make_grant(1), kept):
        await store.grants.add(grant)
    await store.sessions.start(msgspec.structs.replace(make_session(), ended_at=later(1)))
    await start(store, OTHER)

    await store.sessions.forget(older_than=later(2))
    assert await store.grants.all() == [kept]


async def test_a_forgotten_session_is_one_that_the_store_does_not_know(store: Store) -> None:
    await start(store, SESSION)
    await end(store, SESSION)
    await store.sessions.forget(older_than=later(2))

    await store.grants.add(make_grant())
    again = await store.sessions.start(make_session(principal="mallory:/repo/shop"))

    assert again.principal == "mallory:/repo/shop"
    assert await store.grants.all() == [make_grant()]


async def test_a_session_that_lives_or_ended_lately_stays(store: Store) -> None:
    await start(store, ROOT)
    await start(store, MIDDLE)
    await store.sessions.end(MIDDLE, at=later(2))
    await start(store, LEAF)
    await store.sessions.end(LEAF, at=later(1.999999))

    await store.sessions.forget(older_than=later(2))

    assert await ids(store) == [MIDDLE, ROOT]


async def test_a_session_with_an_approval_stays_until_that_is_gone(store: Store) -> None:
    await start(store, SESSION)
    new = make_approval()
    await ask_and(store, new, deny(new))
    await end(store, SESSION)

    await store.sessions.forget(older_than=later(10))
    assert await ids(store) == [SESSION]

    await store.approvals.cleanup_old(older_than=later(10), at=later(11))
    await store.sessions.forget(older_than=later(10))
    assert await ids(store) == []


async def test_an_ended_session_stays_while_one_beneath_it_lives(store: Store) -> None:
    await start_family(store)
    await store.tokens.add(make_token(1, session_id=ROOT), by=PERSON)
    await end(store, ROOT, MIDDLE)

    await store.sessions.forget(older_than=later(2))
    assert await ids(store) == [LEAF, MIDDLE, ROOT]
    assert len(await store.tokens.all()) == 1

    await end(store, LEAF)
    await store.sessions.forget(older_than=later(2))
    assert await ids(store) == []
    assert await store.tokens.all() == []


async def test_an_ended_session_stays_while_one_beneath_it_must_so_that_no_tree_falls_apart(
    store: Store,
) -> None:
    await start_family(store)
    new = make_approval(session_id=LEAF)
    await ask_and(store, new, deny(new))
    await end(store, MIDDLE, LEAF)

    await store.sessions.forget(older_than=later(2))

    assert await ids(store) == [LEAF, MIDDLE, ROOT]


@pytest.mark.parametrize("ended", [False, True])
async def test_a_session_stays_while_its_agent_runs_or_its_configuration_stands(
    store: Store, ended: bool
) -> None:
    await start(store, SESSION)
    await store.runs.add(make_run(config="/run/session-1"))
    if ended:
        await store.runs.move(SESSION, RunState.FAILED, at=NOW)
    else:
        await store.runs.forget_config(SESSION)
    await end(store, SESSION)

    await store.sessions.forget(older_than=later(2))
    assert await ids(store) == [SESSION]
    assert await store.runs.get(SESSION) is not None

    if ended:
        await store.runs.forget_config(SESSION)
    else:
        await store.runs.move(SESSION, RunState.FAILED, at=NOW)
    await store.sessions.forget(older_than=later(2))
    assert await ids(store) == []


async def test_there_may_be_nothing_to_forget(store: Store) -> None:
    await store.sessions.forget(older_than=later(2))
    record = await ask(store, make_approval(session_id=SessionId("never started")))

    await store.sessions.forget(older_than=later(2))

    assert await store.approvals.get(ApprovalId(record.id)) == record
