"""What every store does with sessions and the grants that live as long as they do."""

import pytest

from pml.core.approvals.record import ApprovalId, SessionId
from pml.core.audit.entries import entry_of, grant_added, grant_revoked, session_ended, session_started
from pml.core.errors import AlreadyDecided, Conflict, NotFound, PmlError
from pml.core.ports.records import Session
from pml.core.ports.store import Store
from pml.core.sessions.process import Process
from pml.core.sessions.token import TokenRole
from tests.builders import (
    NOW,
    PERSON,
    SESSION,
    allow,
    deny,
    later,
    make_approval,
    make_grant,
    make_intent,
    make_session,
    uuid,
)
from tests.contract.steps import entries_of
from tests.promises import promise

TOOL = "github:create_issue"
SHELL = Process(pid=4711, started=1762171200.123456)


# --- sessions


async def test_a_session_is_stored_as_it_started(store: Store) -> None:
    session = make_session(parent_id=SessionId("session-0"), process=SHELL)

    assert await store.sessions.start(session) == session
    assert await store.sessions.get(SESSION) == session
    assert await store.sessions.get(SessionId("session-2")) is None
    assert await entries_of(store) == [session_started(SESSION, session.name, at=NOW, parent_id="session-0")]


async def test_a_live_session_started_again_is_the_one_that_lives(store: Store) -> None:
    first = await store.sessions.start(make_session())
    before = await entries_of(store)

    again = await store.sessions.start(make_session(name="another", process=SHELL, started_at=later(5)))

    assert again == first
    assert await store.sessions.get(SESSION) == first
    assert await entries_of(store) == before


@promise("session:own-memory")
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        make_session(principal="mallory:/repo/shop"),
        make_session(workspace="/repo/other"),
        make_session(parent_id=SessionId("session-0")),
        make_session(is_agent=False),
        make_session(role=TokenRole.CHILD),
        make_session(tools=("github:*",)),
        make_session(waits=True),
    ],
    ids=["principal", "workspace", "parent", "agent", "role", "tools", "waits"],
)
async def test_a_session_is_not_joined_by_another_principal_workspace_parent_or_agent(
    store: Store, other: Session, ended: bool
) -> None:
    await store.sessions.start(make_session())
    if ended:
        await store.sessions.end(SESSION, at=later(1))
    session, before = await store.sessions.get(SESSION), await entries_of(store)

    with pytest.raises(Conflict, match=f"`{SESSION}` belongs to ana"):
        await store.sessions.start(other)

    assert await store.sessions.get(SESSION) == session
    assert await entries_of(store) == before


@promise("session:own-memory")
async def test_an_ended_session_started_again_begins_anew_without_its_grants(store: Store) -> None:
    await store.sessions.start(make_session())
    await store.grants.add(make_grant(1))
    await store.sessions.end(SESSION, at=later(1))
    anew = make_session(name="again", process=SHELL, started_at=later(2))

    assert await store.sessions.start(anew) == anew

    assert await store.sessions.get(SESSION) == anew
    assert await store.sessions.live() == [anew]
    assert await store.grants.all() == []
    assert (await entries_of(store))[-1] == session_started(SESSION, "again", at=later(2), parent_id=None)
    await store.grants.add(make_grant(2))
    assert await store.grants.of(SESSION, TOOL) == [make_grant(2)]


async def test_ending_is_recorded_once_and_an_unknown_session_has_nothing_to_end(store: Store) -> None:
    await store.sessions.start(make_session())
    await store.sessions.end(SESSION, at=later(1))
    await store.sessions.end(SESSION, at=later(2))
    await store.sessions.end(SessionId("session-2"), at=later(2))

    session = await store.sessions.get(SESSION)
    assert session is not None
    assert session.ended_at == later(1)
    assert await store.sessions.get(SessionId("session-2")) is None
    assert (await entries_of(store))[1:] == [session_ended(SESSION, at=later(1))]


async def test_live_lists_the_sessions_that_have_not_ended_oldest_first(store: Store) -> None:
    young = await store.sessions.start(make_session(SessionId("a"), started_at=later(2)))
    old = await store.sessions.start(make_session(SessionId("b"), started_at=later(1)))
    await store.sessions.start(make_session(SessionId("c")))
    await store.sessions.end(SessionId("c"), at=later(3))

    assert await store.sessions.live() == [old, young]


# --- grants


async def test_a_grant_is_found_by_its_session_and_its_exact_tool(store: Store) -> None:
    whole = make_grant(1)
    exact = make_grant(
        2,
        digest="sha256:1",
        definition="sha256:d",
        artefact="sha256:a",
        approval_id=ApprovalId(uuid(9)),
        created_at=later(1),
    )
    elsewhere = make_grant(3, session_id=SessionId("session-2"), created_at=later(2))
    other_tool = make_grant(4, tool="github:*", created_at=later(3))
    for grant in (exact, whole, other_tool, elsewhere):
        await store.grants.add(grant)

    assert await store.grants.of(SESSION, TOOL) == [whole, exact]
    assert await store.grants.of(SESSION, "github:close_issue") == []
    assert await store.grants.of(SessionId("session-3"), TOOL) == []
    assert await store.grants.all() == [whole, exact, elsewhere, other_tool]


async def test_a_grant_is_recorded_with_who_gave_it(store: Store) -> None:
    await store.grants.add(make_grant(1, digest="sha256:d", approval_id=ApprovalId(uuid(9))))

    assert await entries_of(store) == [
        grant_added(SESSION, TOOL, at=NOW, by=PERSON, approval_id=uuid(9), digest="sha256:d")
    ]


async def test_a_revoked_grant_is_gone_and_cannot_be_revoked_again(store: Store) -> None:
    await store.grants.add(make_grant(1))
    await store.grants.add(make_grant(2))
    await store.grants.revoke(uuid(1), at=later(1), by=PERSON)
    before = await entries_of(store)

    with pytest.raises(NotFound, match=uuid(1)):
        await store.grants.revoke(uuid(1), at=later(2), by=PERSON)

    assert await store.grants.of(SESSION, TOOL) == [make_grant(2)]
    assert before[2:] == [grant_revoked(SESSION, TOOL, at=later(1), by=PERSON)]
    assert await entries_of(store) == before


async def test_a_session_that_ends_forgets_its_grants_and_only_its_own(store: Store) -> None:
    other = SessionId("session-2")
    await store.sessions.start(make_session())
    await store.sessions.start(make_session(other))
    await store.grants.add(make_grant(1))
    await store.grants.add(make_grant(2, tool="fs:read"))
    kept = make_grant(3, session_id=other)
    await store.grants.add(kept)

    await store.sessions.end(SESSION, at=later(1))

    assert await store.grants.of(SESSION, TOOL) == []
    assert await store.grants.all() == [kept]


@promise("session:own-memory")
async def test_a_session_that_has_ended_gets_no_grant(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)
    await store.sessions.start(make_session())
    await store.sessions.end(SESSION, at=later(1))
    before = await entries_of(store)

    await store.grants.add(make_grant(1))
    assert await entries_of(store) == before
    allowed = await store.approvals.advance(record.id, allow(record), remember=make_grant(2))

    assert await store.grants.all() == []
    assert await store.approvals.get(record.id) == allowed
    assert await entries_of(store) == [*before, entry_of(allowed, allow(record))]


# --- a decision and what it remembers


async def test_a_decision_and_the_grant_it_remembers_are_stored_together(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)
    grant = make_grant(approval_id=record.id)

    allowed = await store.approvals.advance(record.id, allow(record), remember=grant)

    assert await store.approvals.get(record.id) == allowed
    assert await store.grants.all() == [grant]
    assert await entries_of(store) == [
        entry_of(record, None),
        entry_of(allowed, allow(record)),
        grant_added(SESSION, TOOL, at=NOW, by=PERSON, approval_id=record.id, digest=None),
    ]


async def test_a_decision_and_the_rule_it_remembers_are_stored_together(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    allowed = await store.approvals.advance(record.id, allow(record), remember=make_intent())

    assert await store.approvals.get(record.id) == allowed
    assert await store.intents.open() == [make_intent()]


async def test_a_decision_that_came_second_remembers_nothing(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)
    await store.approvals.advance(record.id, deny(record))
    before = await entries_of(store)

    for remember in (make_grant(), make_intent()):
        with pytest.raises(AlreadyDecided):
            await store.approvals.advance(record.id, allow(record), remember=remember)

    assert (await store.grants.all(), await store.intents.open()) == ([], [])
    assert await entries_of(store) == before


async def test_what_cannot_be_remembered_leaves_the_question_undecided(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)
    await store.grants.add(make_grant())
    await store.intents.add(make_intent())
    before = await entries_of(store)

    for remember in (make_grant(), make_intent()):
        with pytest.raises(PmlError):
            await store.approvals.advance(record.id, allow(record), remember=remember)

    assert await store.approvals.get(record.id) == record
    assert await entries_of(store) == before
