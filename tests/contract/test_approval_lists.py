"""How every store finds approvals, tells which are due, and forgets the old ones."""

import msgspec
import pytest

from pml.core.approvals.events import Abandoned, Cancelled
from pml.core.approvals.record import ENDED, RECONNECT_S, Approval, ApprovalId, SessionId, State
from pml.core.audit.entries import cleaned
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Held
from pml.core.ports.store import Store
from tests.builders import (
    NOW,
    TTL_S,
    allow,
    deny,
    later,
    make_approval,
    make_session,
    make_workflow,
    uuid,
)
from tests.contract.steps import ask, ask_and, ask_in_every_state, log_of

# --- finding and listing


async def test_approvals_are_found_by_the_beginning_of_their_id(store: Store) -> None:
    ids = ["aa-1", "aa-2", "ab-1", "b%", "b_"]
    records = [
        await ask(store, msgspec.structs.replace(make_approval(n), id=ApprovalId(approval_id)))
        for n, approval_id in enumerate(ids)
    ]

    assert await store.approvals.find("aa", limit=10) == records[:2]
    assert await store.approvals.find("a", limit=2) == records[:2]
    assert await store.approvals.find("ab-1", limit=10) == [records[2]]
    assert await store.approvals.find("b_", limit=10) == [records[4]]
    assert await store.approvals.find("%", limit=10) == []
    assert await store.approvals.find("ab-11", limit=10) == []
    assert await store.approvals.find("AA", limit=10) == []


async def test_a_page_lists_the_oldest_first_and_only_what_was_asked_for(store: Store) -> None:
    records = await ask_in_every_state(store)
    other = await ask(store, make_approval(50, session_id=SessionId("session-2"), created_at=later(-1)))

    async def page(query: ApprovalQuery) -> list[Approval]:
        return await store.approvals.page(query)

    assert await page(ApprovalQuery()) == [other, *sorted(records.values(), key=lambda record: record.id)]
    pending = frozenset({State.PENDING})
    assert await page(ApprovalQuery(states=pending)) == [other, records[State.PENDING]]
    assert await page(ApprovalQuery(states=pending, session_id=other.session_id)) == [other]
    assert await page(ApprovalQuery(states=frozenset({State.DENIED, State.ALLOWED}))) == sorted(
        [records[State.ALLOWED], records[State.DENIED]], key=lambda record: record.id
    )
    assert await page(ApprovalQuery(states=frozenset())) == []
    assert await page(ApprovalQuery(limit=1)) == [other]


async def test_a_page_lists_the_questions_with_one_digest(store: Store) -> None:
    same = [await ask(store, make_approval(n, tool_input={"n": 1})) for n in (1, 2)]
    theirs = await ask(store, make_approval(3, tool_input={"n": 1}, session_id=SessionId("session-2")))
    await ask(store, make_approval(4, tool_input={"n": 2}))
    query = ApprovalQuery(digest=theirs.digest)

    assert await store.approvals.page(query) == [*same, theirs]
    assert await store.approvals.page(msgspec.structs.replace(query, session_id=theirs.session_id)) == [
        theirs
    ]
    assert await store.approvals.page(ApprovalQuery(digest="sha256:other")) == []


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_pages_cover_everything_exactly_once_also_while_rows_are_added(
    store: Store, limit: int
) -> None:
    def nth(n: int) -> Approval:  # two of each instant: the id breaks the tie
        return make_approval(n, session_id=SessionId(f"session-{n}"), created_at=later(n // 2))

    expected = [await ask(store, nth(n)) for n in (5, 2, 9, 4, 7, 3, 8, 6, 1)]
    seen: list[Approval] = []
    query = ApprovalQuery(limit=limit)
    added = 20
    while page := await store.approvals.page(query):
        seen.extend(page)
        if added < 24:
            expected.append(await ask(store, nth(added)))
            added += 1
        query = msgspec.structs.replace(query, after=(page[-1].created_at, page[-1].id))

    assert seen == sorted(expected, key=lambda record: (record.created_at, record.id))


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_newest_first_the_pages_are_the_same_the_other_way_round(store: Store, limit: int) -> None:
    asked = [
        await ask(store, make_approval(n, session_id=SessionId(f"session-{n}"), created_at=later(n // 2)))
        for n in (5, 2, 9, 4, 7, 3, 8, 6, 1)
    ]
    seen: list[Approval] = []
    query = ApprovalQuery(limit=limit, newest=True)
    while page := await store.approvals.page(query):
        seen.extend(page)
        query = msgspec.structs.replace(query, after=(page[-1].created_at, page[-1].id))

    assert seen == sorted(asked, key=lambda record: (record.created_at, record.id), reverse=True)


async def test_a_page_lists_what_was_asked_in_one_workspace(store: Store) -> None:
    for name, workspace in (("here", "/repo/shop"), ("there", "/repo/shop/inner"), ("too", "/repo/shop")):
        await store.sessions.start(make_session(SessionId(name), workspace=workspace))
    asked = [
        await ask(store, make_approval(n, session_id=SessionId(name), created_at=later(n)))
        for n, name in enumerate(["here", "there", "too", "unknown"])
    ]
    query = ApprovalQuery(workspace="/repo/shop")

    assert await store.approvals.page(query) == [asked[0], asked[2]]
    assert await store.approvals.page(msgspec.structs.replace(query, newest=True)) == [asked[2], asked[0]]
    assert await store.approvals.page(ApprovalQuery(workspace="/repo")) == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("create_issue", {0, 1, 2, 3}),
        ("GITHUB:", {0, 1, 2, 3}),
        ("hello wOrld", {0}),
        ('"Title":"hello', {0}),
        ('say "hi"', {1}),
        ("two\nlines", {1}),
        ("é", {1}),
        ("É", {1}),
        ("LINES, É", {1}),
        ("é\n", set[int]()),
        ("session-2", {2}),
        ("nightly run", {2}),
        ("staging", {3}),
        ("edited title", {4}),
        ("ana", {3, 4}),
        ("took its time", {5}),
        ("person", set[int]()),
        ("100%", {0}),
        ("100_", set[int]()),
        ("%", {0}),
        ("_", {0, 1, 2, 3, 4, 5}),
        ("\\", {0, 1}),  # JSON spells quotes and line breaks with it
        ("'; DROP TABLE approvals", set[int]()),
        ("", {0, 1, 2, 3, 4, 5}),
    ],
)
async def test_a_search_finds_literal_text_where_a_person_would_look_for_it(
    store: Store, text: str, places: set[int]
) -> None:
    await store.sessions.start(make_session(SessionId("session-2"), name="the Nightly Run"))
    asked = [
        await ask(store, make_approval(0, tool_input={"title": "Hello World", "share": "100% of \\"})),
        await ask(store, make_approval(1, tool_input={"title": 'Say "Hi"', "body": ["two\nlines, é"]})),
        await ask(store, make_approval(2, session_id=SessionId("session-2"), tool_input={})),
    ]
    denied = make_approval(3, tool_input={})
    asked.append(await ask_and(store, denied, deny(denied, message="use the Staging database")))
    edited = make_approval(4, tool_name="files:write_file", tool_input={})
    asked.append(await ask_and(store, edited, allow(edited, updated_input={"t": "Edited Title"})))
    cancelled = make_approval(5, tool_name="files:read_file", tool_input={})
    asked.append(await ask_and(store, cancelled, Cancelled(at=later(1), reason="it took its time")))

    found = await store.approvals.page(ApprovalQuery(search=text))

    assert {asked.index(record) for record in found} == places


# --- time and owners


async def test_due_is_what_waits_beyond_its_time_and_nothing_else(store: Store) -> None:
    records = await ask_in_every_state(store)

    assert await store.approvals.due(now=later(TTL_S - 0.000001), limit=100) == []
    due = await store.approvals.due(now=later(TTL_S), limit=100)
    assert due == [records[State.PENDING], records[State.ALLOWED]]
    assert await store.approvals.due(now=later(TTL_S), limit=1) == due[:1]


async def test_a_decision_starts_the_time_again_for_collecting(store: Store) -> None:
    new = make_approval()
    allowed = await ask_and(store, new, allow(new, at=later(TTL_S - 1)))

    assert await store.approvals.due(now=later(2 * TTL_S - 1.000001), limit=100) == []
    assert await store.approvals.due(now=later(2 * TTL_S - 1), limit=100) == [allowed]


async def test_an_abandoned_question_is_due_when_its_asker_had_time_to_come_back(store: Store) -> None:
    abandoned = await ask_and(store, make_approval(1), Abandoned(at=later(5)))
    await ask_and(store, make_approval(2), Abandoned(at=later(5)), Cancelled(at=later(6), reason="ended"))
    await ask(store, make_approval(3))

    assert await store.approvals.due(now=later(5 + RECONNECT_S - 0.000001), limit=100) == []
    assert await store.approvals.due(now=later(5 + RECONNECT_S), limit=100) == [abandoned]


async def test_a_question_due_for_two_reasons_is_listed_once(store: Store) -> None:
    abandoned = await ask_and(store, make_approval(1), Abandoned(at=later(5)))

    assert await store.approvals.due(now=later(TTL_S), limit=100) == [abandoned]


async def test_the_waiting_are_counted_in_all_sessions(store: Store) -> None:
    await ask_in_every_state(store)
    await ask(store, make_approval(50))

    assert await store.approvals.count_pending() == 2


async def test_held_is_what_runs_and_what_is_waited_for_without_a_workflow(store: Store) -> None:
    records = await ask_in_every_state(store)
    with_workflow = await ask(store, make_approval(50))
    await store.workflows.issue(make_workflow(1, approval_id=with_workflow.id))
    await store.workflows.issue(make_workflow(2, approval_id=records[State.EXECUTING].id))
    abandoned = await ask_and(store, make_approval(51), Abandoned(at=NOW))

    held = {record.id: record for record in await store.approvals.held()}

    expected = [records[State.PENDING], records[State.ALLOWED], records[State.EXECUTING], abandoned]
    assert held == {
        record.id: Held(
            id=record.id,
            session_id=record.session_id,
            status=record.status,
            owner=record.owner,
            abandoned_at=record.abandoned_at,
        )
        for record in expected
    }


# --- cleaning up


async def test_cleanup_removes_what_ended_before_and_nothing_that_lives(store: Store) -> None:
    records = await ask_in_every_state(store)

    assert await store.approvals.cleanup_old(older_than=later(TTL_S * 100), at=later(1)) == len(ENDED)

    for state, record in records.items():
        assert await store.approvals.get(record.id) == (None if state in ENDED else record)


async def test_cleanup_keeps_what_ended_at_or_after_the_instant(store: Store) -> None:
    old, kept = make_approval(1, created_at=later(-100)), make_approval(2, created_at=later(-100))
    await ask_and(store, old, deny(old, at=later(-0.000001)))
    denied = await ask_and(store, kept, deny(kept, at=NOW))

    assert await store.approvals.cleanup_old(older_than=NOW, at=later(1)) == 1
    assert await store.approvals.page(ApprovalQuery()) == [denied]


async def test_cleanup_records_that_it_removed_and_is_silent_when_it_did_not(store: Store) -> None:
    new = make_approval()
    await ask_and(store, new, deny(new))
    before = await log_of(store)
    assert await store.approvals.cleanup_old(older_than=NOW, at=later(1)) == 0
    assert await log_of(store) == before

    await store.approvals.cleanup_old(older_than=later(1), at=later(2))

    assert [link.entry for link in await log_of(store)][len(before) :] == [
        cleaned(1, at=later(2), older_than=later(1))
    ]


async def test_a_workflow_goes_with_its_approval(store: Store) -> None:
    new = make_approval()
    await ask_and(store, new, deny(new))
    await store.workflows.issue(make_workflow(1, approval_id=new.id))
    living = await ask(store, make_approval(2))
    await store.workflows.issue(make_workflow(2, approval_id=living.id))

    await store.approvals.cleanup_old(older_than=later(1), at=later(1))

    assert await store.workflows.get(uuid(1)) is None
    assert await store.workflows.get(uuid(2)) == make_workflow(2, approval_id=living.id)
