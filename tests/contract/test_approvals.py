"""What every store does with approvals."""

import asyncio
from datetime import datetime, timedelta
from itertools import count

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pml.core.approvals.events import (
    Abandoned,
    Attached,
    Cancelled,
    Completed,
    Expired,
    Failed,
    Lost,
    Unsent,
)
from pml.core.approvals.reasons import AskRule
from pml.core.approvals.record import (
    ENDED,
    RECONNECT_S,
    Approval,
    ApprovalId,
    Channel,
    Decider,
    DeciderKind,
    OwnerId,
    Role,
    Scope,
    SessionId,
    State,
    Subject,
)
from pml.core.approvals.states import advance
from pml.core.digest import digest_call
from pml.core.errors import (
    AlreadyClaimed,
    AlreadyDecided,
    ApprovalExpired,
    Changed,
    Conflict,
    IllegalEvent,
    NotFound,
    PmlError,
    TooManyPending,
)
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.store import Store
from pml.core.values import MAX_DEPTH, Json, JsonObject, canonical, check
from tests.builders import (
    NOW,
    PERSON,
    TTL_S,
    allow,
    claim,
    deny,
    later,
    make_approval,
    uuid,
)
from tests.contract.steps import (
    MAX_PENDING,
    ask,
    ask_and,
    ask_in_every_state,
    in_every_state,
    log_of,
    outcome_of,
)
from tests.promises import promise

OTHER_OWNER = OwnerId("owner-2")
_fresh = count(1)  # the examples of a generated test share one store

_texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    [
        "\0",
        "a\0b",
        "\u202eevil\u202c",
        "zero\u200bwidth",
        "👩‍👩‍👧",
        "\t\r\n\u2028",
        "x" * 5_000,
        "'; DROP TABLE--",
    ]
)
_numbers = (
    st.integers()
    | st.sampled_from([0, 1, 2**53 + 1, 2**63, 2**64, -(2**70)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([1.0, -0.0, 5e-324, 1e308])
)
_values = st.recursive(
    st.none() | st.booleans() | _numbers | _texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(_texts, children, max_size=3),
    max_leaves=10,
)
_inputs = st.dictionaries(_texts, _values, max_size=4)
_instants = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=20_000)).map(
    lambda passed: NOW + passed
)

generated = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# --- asking


@pytest.mark.parametrize("subject", Subject)
async def test_a_question_of_every_subject_can_be_stored(store: Store, subject: Subject) -> None:
    asked = make_approval(subject=subject)
    await ask(store, asked)
    assert await store.approvals.get(asked.id) == asked


async def test_a_question_is_stored_as_it_was_asked(store: Store) -> None:
    new = make_approval()
    assert await ask(store, new) == new
    assert await store.approvals.get(new.id) == new
    assert await store.approvals.get(ApprovalId(uuid(2))) is None


async def test_the_same_question_asked_again_attaches_to_the_one_that_waits(store: Store) -> None:
    first = await ask(store, make_approval(1, tool_use_id="use"))
    second = make_approval(2, tool_use_id="use", owner=OTHER_OWNER, created_at=later(1))

    attached = await ask(store, second)

    assert attached == msgspec.structs.replace(first, version=2)
    assert await store.approvals.get(first.id) == attached
    assert await store.approvals.get(second.id) is None


async def test_the_same_question_asked_again_finds_the_answer_that_was_given(store: Store) -> None:
    first = make_approval(1, tool_use_id="use")
    allowed = await ask_and(store, first, allow(first, message="go on"))

    attached = await ask(store, make_approval(2, tool_use_id="use", created_at=later(1)))

    assert attached == advance(allowed, Attached(at=later(1), owner=first.owner))


async def test_attaching_brings_an_abandoned_question_back_to_its_new_asker(store: Store) -> None:
    first = make_approval(1, tool_use_id="use")
    await ask_and(store, first, Abandoned(at=later(1)))

    attached = await ask(store, make_approval(2, tool_use_id="use", owner=OTHER_OWNER, created_at=later(2)))

    assert attached == msgspec.structs.replace(first, owner=OTHER_OWNER, version=3)
    assert await store.approvals.get(first.id) == attached
    assert await store.approvals.due(now=later(1 + RECONNECT_S), limit=10) == []


@pytest.mark.parametrize(
    "other",
    [
        make_approval(2, tool_use_id="another use"),
        make_approval(2, tool_use_id="use", tool_input={"title": "something else"}),
        make_approval(2, tool_use_id="use", tool_name="github:close_issue"),
        make_approval(2, tool_use_id="use", subject=Subject.TOOL_CHANGED),
        make_approval(2, tool_use_id="use", session_id=SessionId("session-2")),
    ],
    ids=["tool use", "arguments", "tool", "subject", "session"],
)
@promise("approval:exact-arguments")
async def test_a_question_that_differs_is_a_question_of_its_own(store: Store, other: Approval) -> None:
    first = make_approval(1, tool_use_id="use")
    allowed = await ask_and(store, first, allow(first))

    assert await ask(store, other) == other
    assert await store.approvals.get(first.id) == allowed


@pytest.mark.parametrize("state", sorted({*ENDED, State.EXECUTING}))
async def test_a_question_that_is_over_or_in_use_is_not_attached_to(store: Store, state: State) -> None:
    new, path = in_every_state()[state]
    before = await ask_and(store, new, *path)
    again = msgspec.structs.replace(new, id=ApprovalId(uuid(99)))

    assert await ask(store, again) == again
    assert await store.approvals.get(new.id) == before


@promise("approval:bounded-asks")
async def test_the_twenty_first_undecided_question_of_a_session_is_refused(store: Store) -> None:
    for n in range(1, MAX_PENDING + 1):
        await ask(store, make_approval(n))
    before = await log_of(store)

    with pytest.raises(TooManyPending, match="20") as refused:
        await ask(store, make_approval(21))

    assert refused.value.hint is not None
    assert await store.approvals.get(ApprovalId(uuid(21))) is None
    assert await log_of(store) == before


async def test_a_full_session_may_still_attach_and_leaves_others_free(store: Store) -> None:
    for n in range(1, MAX_PENDING + 1):
        await ask(store, make_approval(n))

    assert (await ask(store, make_approval(7, created_at=later(1)))).id == uuid(7)
    other = make_approval(21, session_id=SessionId("session-2"))
    assert await ask(store, other) == other


async def test_a_decision_makes_room_for_the_next_question(store: Store) -> None:
    for n in range(1, MAX_PENDING + 1):
        await ask(store, make_approval(n))
    await store.approvals.advance(ApprovalId(uuid(3)), deny(make_approval(3)))

    assert await ask(store, make_approval(21)) == make_approval(21)


@promise("approval:bounded-asks")
async def test_the_arguments_that_wait_of_a_session_are_bounded_together(store: Store) -> None:
    for n in range(1, 4):
        await store.approvals.ask(
            make_approval(n, tool_input={"text": "é" * 500}), max_pending=20, max_bytes=3_100
        )

    with pytest.raises(TooManyPending, match="3 questions waiting, with 3,0"):
        await store.approvals.ask(make_approval(4), max_pending=20, max_bytes=3_050)

    elsewhere = make_approval(5, session_id=SessionId("another"))
    assert await store.approvals.ask(elsewhere, max_pending=20, max_bytes=3_050) == elsewhere


@promise("approval:bounded-asks")
async def test_questions_asked_at_once_do_not_slip_past_the_bound(store: Store) -> None:
    asked = [store.approvals.ask(make_approval(n), max_pending=3) for n in range(1, 9)]
    results = await asyncio.gather(*asked, return_exceptions=True)

    assert sum(isinstance(result, Approval) for result in results) == 3
    assert sum(isinstance(result, TooManyPending) for result in results) == 5
    assert len(await store.approvals.page(ApprovalQuery())) == 3


async def test_the_same_question_asked_at_once_is_one_record(store: Store) -> None:
    asked = [ask(store, make_approval(n, tool_use_id="use")) for n in range(1, 9)]
    results = await asyncio.gather(*asked)

    assert len({result.id for result in results}) == 1
    assert len(await store.approvals.page(ApprovalQuery())) == 1


async def test_an_id_is_never_given_to_a_second_question(store: Store) -> None:
    first = await ask(store, make_approval(1))
    before = await log_of(store)

    with pytest.raises(PmlError):
        await ask(store, make_approval(1, tool_use_id="another use"))

    assert await store.approvals.get(first.id) == first
    assert await log_of(store) == before


@promise("approval:exact-arguments")
async def test_changing_arguments_after_asking_changes_nothing_that_is_stored(store: Store) -> None:
    arguments = {"paths": ["a"]}
    new = make_approval(tool_input=arguments)
    asked = await ask(store, new)
    arguments["paths"].append("/etc/passwd")
    edited = {"paths": ["b"]}
    await store.approvals.advance(asked.id, allow(asked, updated_input=edited))
    edited["paths"].append("/etc/passwd")

    stored = await store.approvals.get(asked.id)

    assert stored is not None
    assert (stored.tool_input, stored.updated_input) == ({"paths": ["a"]}, {"paths": ["b"]})
    assert stored.run_digest == digest_call(new.tool_name, {"paths": ["b"]})


# --- deciding and claiming


@pytest.mark.parametrize("state", State)
async def test_each_event_stores_what_the_table_says(store: Store, state: State) -> None:
    new, path = in_every_state()[state]
    expected = await ask(store, new)
    for event in path:
        expected = advance(expected, event)
        assert await store.approvals.advance(new.id, event) == expected
    assert await store.approvals.get(new.id) == expected
    assert expected.status is state


async def test_an_event_for_an_unknown_approval_says_so_and_changes_nothing(store: Store) -> None:
    with pytest.raises(NotFound, match=uuid(1)):
        await store.approvals.advance(ApprovalId(uuid(1)), allow(make_approval(1)))
    assert await log_of(store) == []


@promise("approval:first-decision-wins")
async def test_of_many_decisions_at_once_exactly_one_wins_and_the_others_learn_who_and_when(
    store: Store,
) -> None:
    new = await ask(store, make_approval())
    deciders = [Decider(kind=DeciderKind.PERSON, id=f"p{n}", channel=Channel.INBOX) for n in range(10)]
    events = [allow(new, by=by) if n % 2 else deny(new, by=by) for n, by in enumerate(deciders)]

    outcomes = await asyncio.gather(*(outcome_of(store, new.id, event) for event in events))

    won = [outcome for outcome in outcomes if isinstance(outcome, Approval)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, AlreadyDecided)]
    assert (len(won), len(lost)) == (1, 9)
    assert await store.approvals.get(new.id) == won[0]
    assert all(f"{won[0].decided_by} at 2026-11-03T12:00:00Z" in error.message for error in lost)
    assert [link.entry.by for link in await log_of(store)] == [None, won[0].decided_by]


@promise("run:at-most-once")
async def test_of_many_claims_at_once_exactly_one_wins(store: Store) -> None:
    new = make_approval()
    allowed = await ask_and(store, new, allow(new))
    claims = [claim(allowed, owner=OwnerId(f"owner-{n}")) for n in range(10)]

    outcomes = await asyncio.gather(*(outcome_of(store, new.id, event) for event in claims))

    won = [outcome for outcome in outcomes if isinstance(outcome, Approval)]
    assert len(won) == 1
    assert sum(isinstance(outcome, AlreadyClaimed) for outcome in outcomes) == 9
    assert await store.approvals.get(new.id) == won[0]


@promise("login:unsent-not-repeated")
async def test_what_is_put_back_unsent_is_found_by_the_same_question_and_claimed_once(store: Store) -> None:
    new = make_approval()
    claimed = await ask_and(store, new, allow(new), claim(advance(new, allow(new))))
    back = await store.approvals.advance(claimed.id, Unsent(at=later(9)))
    again = msgspec.structs.replace(new, id=ApprovalId(uuid(7)), created_at=later(10))

    found = await ask(store, again)

    assert (found.id, found.status) == (back.id, State.ALLOWED)
    outcomes = [await outcome_of(store, back.id, claim(found)) for _ in range(2)]
    assert [isinstance(outcome, Approval) for outcome in outcomes] == [True, False]


async def test_what_was_asked_anew_meanwhile_is_not_put_back(store: Store) -> None:
    new = make_approval()
    claimed = await ask_and(store, new, allow(new), claim(advance(new, allow(new))))
    anew = await ask(store, msgspec.structs.replace(new, id=ApprovalId(uuid(7))))

    with pytest.raises(Conflict):
        await store.approvals.advance(claimed.id, Unsent(at=later(9)))

    kept = [await store.approvals.get(each.id) for each in (claimed, anew)]
    assert [each.status for each in kept if each is not None] == [State.EXECUTING, State.PENDING]


@promise("approval:exact-arguments")
async def test_a_claim_of_other_arguments_than_the_approved_ones_is_refused(store: Store) -> None:
    new = make_approval()
    allowed = await ask_and(store, new, allow(new, updated_input={"title": "edited"}))
    before = await log_of(store)

    for digest in (new.digest, digest_call(new.tool_name, {"title": "worse"})):
        with pytest.raises(Changed):
            await store.approvals.advance(new.id, msgspec.structs.replace(claim(allowed), digest=digest))

    assert await store.approvals.get(new.id) == allowed
    assert await log_of(store) == before
    assert (await store.approvals.advance(new.id, claim(allowed))).status is State.EXECUTING


@promise("approval:final")
async def test_what_has_ended_never_changes_again(store: Store) -> None:
    records = await ask_in_every_state(store)
    before = await log_of(store)

    for record in (records[state] for state in ENDED):
        for event in (
            allow(record),
            deny(record),
            claim(record),
            Expired(at=later(TTL_S * 3)),
            Cancelled(at=NOW, reason="late"),
            Abandoned(at=NOW),
            Attached(at=NOW, owner=OTHER_OWNER),
            Completed(at=NOW),
            Failed(at=NOW, message="late"),
            Lost(at=NOW),
        ):
            with pytest.raises((IllegalEvent, AlreadyDecided, AlreadyClaimed, ApprovalExpired)):
                await store.approvals.advance(record.id, event)
        assert await store.approvals.get(record.id) == record

    assert await log_of(store) == before


async def test_a_refused_event_leaves_the_record_and_the_log_as_they_were(store: Store) -> None:
    new = await ask(store, make_approval())
    before = await log_of(store)

    for event in (claim(new), Completed(at=NOW), Expired(at=NOW), allow(new, at=later(TTL_S))):
        with pytest.raises(PmlError):
            await store.approvals.advance(new.id, event)

    assert await store.approvals.get(new.id) == new
    assert await log_of(store) == before


# --- what is stored is what comes back


@generated
@given(arguments=_inputs, edited=_inputs, message=_texts, created_at=_instants)
@promise("approval:exact-arguments")
async def test_any_arguments_and_instants_come_back_exactly(
    store: Store, arguments: JsonObject, edited: JsonObject, message: str, created_at: datetime
) -> None:
    n = next(_fresh)
    new = make_approval(n, session_id=SessionId(f"session-{n}"), tool_input=arguments, created_at=created_at)
    await ask(store, new)
    event = allow(new, at=created_at, message=message, updated_input=edited)
    await store.approvals.advance(new.id, event)

    stored = await store.approvals.get(new.id)

    assert stored is not None
    assert stored == advance(new, event)
    # 1 == 1.0 == True in Python: only the spelling tells them apart
    assert canonical(stored.tool_input) == canonical(arguments)
    assert canonical(stored.run_input) == canonical(edited)


async def test_every_field_comes_back_exactly(store: Store) -> None:
    new = msgspec.structs.replace(
        make_approval(deciders=frozenset(Role)),
        definition="sha256:d",
        artefact="sha256:a",
        rule=AskRule(entry="github:*", file="/repo/shop/.pml.json", line=7),
        run_id="run-1",
    )
    allowed = await ask_and(
        store,
        new,
        allow(new, at=later(0.000001), by=PERSON, scope=Scope.SESSION, message="ok"),
        Abandoned(at=later(2)),
    )

    assert await store.approvals.get(new.id) == allowed
    assert allowed == msgspec.structs.replace(
        new,
        status=State.ALLOWED,
        decided_by=PERSON,
        scope=Scope.SESSION,
        response_message="ok",
        resolved_at=later(0.000001),
        expires_at=later(TTL_S + 0.000001),
        abandoned_at=later(2),
        version=3,
    )


async def test_the_deepest_arguments_that_are_accepted_come_back_exactly(store: Store) -> None:
    deep: Json = "bottom"
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    new = make_approval(tool_input={"deep": deep})
    check(new.tool_input)

    await ask(store, new)

    stored = await store.approvals.get(new.id)
    assert stored is not None
    assert canonical(stored.tool_input) == canonical(new.tool_input)


async def test_asking_again_after_the_time_is_over_is_a_new_question(store: Store) -> None:
    first = await store.approvals.ask(make_approval(1, tool_use_id="use"), max_pending=20)
    again = make_approval(2, tool_use_id="use", created_at=first.expires_at)

    asked = await store.approvals.ask(again, max_pending=20)

    stored = await store.approvals.get(first.id)
    assert asked == again
    assert stored is not None
    assert stored.status is State.EXPIRED
