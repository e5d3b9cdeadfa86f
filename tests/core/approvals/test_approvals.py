"""The states of an approval: the table, and the guards beside it."""

from collections.abc import Callable
from itertools import product
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.approvals.events import (
    Abandoned,
    Allowed,
    Attached,
    Cancelled,
    Claimed,
    Completed,
    Delivered,
    Denied,
    Event,
    Expired,
    Failed,
    Lost,
    Unsent,
)
from pml.core.approvals.record import (
    ENDED,
    LIVE,
    Approval,
    Channel,
    Decider,
    DeciderKind,
    OwnerId,
    Role,
    Scope,
    State,
    Subject,
    told,
)
from pml.core.approvals.states import TRANSITIONS, advance
from pml.core.digest import digest_call
from pml.core.errors import (
    AlreadyClaimed,
    AlreadyDecided,
    ApprovalExpired,
    Changed,
    IllegalEvent,
    Invalid,
    PmlError,
)
from tests.builders import (
    ANYONE,
    FORM,
    MODEL,
    NOW,
    OWNER,
    PARENT,
    PERSON,
    RULE,
    TTL_S,
    allow,
    claim,
    deny,
    later,
    make_approval,
)
from tests.promises import promise

OTHER_OWNER: Final = OwnerId("owner-2")
EDITED: Final = {"title": "edited"}

# One event of every kind, right for the record it is given: what is refused is refused for the state.
SAMPLES: Final[dict[type[Event], Callable[[Approval], Event]]] = {
    Allowed: allow,
    Denied: deny,
    Expired: lambda record: Expired(at=record.expires_at),
    Cancelled: lambda _: Cancelled(at=later(1), reason="the agent ended"),
    Abandoned: lambda _: Abandoned(at=later(1)),
    Attached: lambda _: Attached(at=later(1), owner=OTHER_OWNER),
    Claimed: claim,
    Delivered: lambda record: Delivered(at=NOW, owner=OWNER, digest=record.run_digest),
    Completed: lambda _: Completed(at=later(1)),
    Failed: lambda _: Failed(at=later(1), message="the server failed"),
    Lost: lambda _: Lost(at=later(1)),
    Unsent: lambda _: Unsent(at=later(1)),
}
WAYS: Final[dict[State, list[type[Event]]]] = {
    State.PENDING: [],
    State.ALLOWED: [Allowed],
    State.EXECUTING: [Allowed, Claimed],
    State.COMPLETED: [Allowed, Claimed, Completed],
    State.FAILED: [Allowed, Claimed, Failed],
    State.UNKNOWN: [Allowed, Claimed, Lost],
    State.DENIED: [Denied],
    State.EXPIRED: [Expired],
    State.CANCELLED: [Cancelled],
}


def in_state(state: State, record: Approval | None = None) -> Approval:
    record = make_approval(deciders=ANYONE) if record is None else record
    for kind in WAYS[state]:
        record = advance(record, SAMPLES[kind](record))
    assert record.status is state
    return record


def not_in_the_table() -> list[tuple[State, type[Event]]]:
    return [pair for pair in product(State, SAMPLES) if pair not in TRANSITIONS]


# --- the table


def test_there_is_a_sample_of_every_event_and_a_way_into_every_state() -> None:
    assert set(SAMPLES) == set(Event.__subclasses__())
    assert set(WAYS) == set(State)


def test_the_table_is_the_design() -> None:
    moves = {(before, after) for (before, _), after in TRANSITIONS.items() if before is not after}
    assert {before: {after for b, after in moves if b is before} for before, _ in moves} == {
        State.PENDING: {State.ALLOWED, State.DENIED, State.EXPIRED, State.CANCELLED},
        State.ALLOWED: {State.EXECUTING, State.COMPLETED, State.EXPIRED, State.CANCELLED},
        State.EXECUTING: {State.COMPLETED, State.FAILED, State.UNKNOWN, State.CANCELLED, State.ALLOWED},
    }
    assert LIVE | ENDED == set(State)
    assert not {before for before, _ in TRANSITIONS} & ENDED


@pytest.mark.parametrize(("state", "kind"), not_in_the_table())
@promise("approval:final")
def test_an_event_that_the_table_does_not_know_raises_and_changes_nothing(
    state: State, kind: type[Event]
) -> None:
    record = in_state(state)
    before = msgspec.structs.asdict(record)

    with pytest.raises((IllegalEvent, AlreadyDecided, AlreadyClaimed, ApprovalExpired)):
        advance(record, SAMPLES[kind](record))

    assert msgspec.structs.asdict(record) == before


@pytest.mark.parametrize(("state", "kind"), list(TRANSITIONS))
def test_an_event_that_the_table_knows_leads_where_it_says(state: State, kind: type[Event]) -> None:
    record = in_state(state)
    after = advance(record, SAMPLES[kind](record))
    assert after.status is TRANSITIONS[state, kind]
    assert after.version == record.version + 1


def test_allowing_records_who_and_what_and_starts_the_time_again_for_collecting() -> None:
    record = make_approval()
    event = allow(record, at=later(9), scope=Scope.SESSION, message="ok", updated_input=EDITED)
    assert advance(record, event) == msgspec.structs.replace(
        record,
        status=State.ALLOWED,
        decided_by=PERSON,
        scope=Scope.SESSION,
        response_message="ok",
        updated_input=EDITED,
        expires_at=later(9 + TTL_S),
        resolved_at=later(9),
        version=2,
    )


def test_denying_records_who_and_why_and_ends_it() -> None:
    record = make_approval()
    assert advance(record, deny(record, at=later(9), message="no")) == msgspec.structs.replace(
        record,
        status=State.DENIED,
        decided_by=PERSON,
        response_message="no",
        resolved_at=later(9),
        ended_at=later(9),
        version=2,
    )


def test_expiring_and_cancelling_are_told_apart_and_decided_by_nobody() -> None:
    record = make_approval()
    ended = {"resolved_at": later(TTL_S), "ended_at": later(TTL_S), "version": 2}
    assert advance(record, Expired(at=later(TTL_S))) == msgspec.structs.replace(
        record, status=State.EXPIRED, **ended
    )
    assert advance(record, Cancelled(at=later(TTL_S), reason="gone")) == msgspec.structs.replace(
        record, status=State.CANCELLED, reason="gone", **ended
    )


def test_what_was_claimed_since_it_was_looked_at_is_not_withdrawn() -> None:
    allowed = in_state(State.ALLOWED)
    withdrawn = Cancelled(at=later(3), reason="gone", version=allowed.version)
    assert advance(allowed, withdrawn).status is State.CANCELLED
    running = advance(allowed, claim(allowed, at=later(2), owner=OTHER_OWNER))
    with pytest.raises(Changed):
        advance(running, withdrawn)


def test_a_claim_belongs_to_who_claimed_and_a_run_ends_when_it_ends() -> None:
    allowed = in_state(State.ALLOWED)
    running = advance(allowed, claim(allowed, at=later(2), owner=OTHER_OWNER))
    assert running == msgspec.structs.replace(allowed, status=State.EXECUTING, owner=OTHER_OWNER, version=3)
    assert advance(running, Completed(at=later(3))) == msgspec.structs.replace(
        running, status=State.COMPLETED, ended_at=later(3), version=4
    )
    assert advance(running, Lost(at=later(3))) == msgspec.structs.replace(
        running, status=State.UNKNOWN, ended_at=later(3), version=4
    )


def test_what_was_refused_unread_can_be_claimed_anew_in_its_own_time() -> None:
    running = in_state(State.EXECUTING)
    back = advance(running, Unsent(at=later(TTL_S + 5)))
    assert back == msgspec.structs.replace(
        running, status=State.ALLOWED, expires_at=later(2 * TTL_S + 5), version=running.version + 1
    )
    again = claim(back, at=later(TTL_S + 6))
    assert advance(back, again).status is State.EXECUTING


@pytest.mark.parametrize("state", [State.PENDING, State.ALLOWED])
def test_an_abandoned_question_is_as_before_once_somebody_attaches(state: State) -> None:
    record = in_state(state)
    abandoned = advance(record, Abandoned(at=later(1)))
    assert abandoned == msgspec.structs.replace(record, abandoned_at=later(1), version=record.version + 1)
    assert advance(abandoned, Attached(at=later(2), owner=OTHER_OWNER)) == msgspec.structs.replace(
        record, owner=OTHER_OWNER, version=record.version + 2
    )


@pytest.mark.parametrize("state", [State.PENDING, State.ALLOWED])
def test_a_question_that_is_not_abandoned_stays_with_its_first_asker_when_somebody_attaches(
    state: State,
) -> None:
    record = in_state(state)
    attached = advance(record, Attached(at=later(1), owner=OTHER_OWNER))
    assert attached == msgspec.structs.replace(record, version=record.version + 1)


def test_claiming_an_abandoned_answer_takes_it_back() -> None:
    abandoned = advance(in_state(State.ALLOWED), Abandoned(at=later(1)))
    assert advance(abandoned, claim(abandoned)).abandoned_at is None


# --- the time


@pytest.mark.parametrize("kind", [Allowed, Denied])
def test_a_decision_counts_until_its_time_is_over(kind: type[Allowed] | type[Denied]) -> None:
    record = make_approval()
    just_in_time = kind(at=later(TTL_S - 0.000001), by=PERSON, digest=record.digest)
    assert advance(record, just_in_time).decided_by == PERSON
    with pytest.raises(ApprovalExpired, match="not decided by 2026-11-03T12:05:00Z"):
        advance(record, kind(at=later(TTL_S), by=PERSON, digest=record.digest))


def test_an_answer_can_be_collected_until_its_time_is_over() -> None:
    record = make_approval()
    allowed = advance(record, allow(record, at=later(100)))
    assert advance(allowed, claim(allowed, at=later(100 + TTL_S - 0.000001))).status is State.EXECUTING
    with pytest.raises(ApprovalExpired, match="not collected by"):
        advance(allowed, claim(allowed, at=later(100 + TTL_S)))


@pytest.mark.parametrize("state", [State.PENDING, State.ALLOWED])
def test_nothing_expires_before_its_time(state: State) -> None:
    record = in_state(state)
    with pytest.raises(IllegalEvent, match="does not expire before"):
        advance(record, Expired(at=later(TTL_S - 0.000001)))


# --- what was shown is what is decided, and what was decided is what runs


@promise("approval:exact-arguments")
def test_a_decision_on_something_else_than_was_asked_is_refused() -> None:
    record = make_approval()
    other = digest_call(record.tool_name, {"title": "something else"})
    for event in (
        Allowed(at=NOW, by=PERSON, digest=other),
        Denied(at=NOW, by=PERSON, digest=other),
    ):
        with pytest.raises(Changed):
            advance(record, event)


@promise("approval:exact-arguments")
def test_a_claim_names_exactly_what_was_allowed() -> None:
    record = make_approval()
    allowed = advance(record, allow(record))
    assert allowed.run_digest == record.digest
    others = [
        digest_call("github:delete_repo", record.tool_input),
        digest_call(record.tool_name, {**record.tool_input, "extra": None}),
        digest_call(record.tool_name, record.tool_input, definition="sha256:d"),
        digest_call(record.tool_name, record.tool_input, artefact="sha256:a"),
        "",
    ]
    for digest in others:
        for taking in (Claimed, Delivered):
            with pytest.raises(Changed):
                advance(allowed, taking(at=NOW, owner=OWNER, digest=digest))
    assert advance(allowed, Claimed(at=NOW, owner=OWNER, digest=record.digest)).status is State.EXECUTING


@promise("approval:exact-arguments")
def test_a_claim_of_an_edited_call_names_the_edited_arguments() -> None:
    record = make_approval()
    allowed = advance(record, allow(record, updated_input=EDITED))
    assert allowed.run_input == EDITED
    with pytest.raises(Changed):
        advance(allowed, Claimed(at=NOW, owner=OWNER, digest=record.digest))
    edited = digest_call(record.tool_name, EDITED)
    assert advance(allowed, Claimed(at=NOW, owner=OWNER, digest=edited)).status is State.EXECUTING


@promise("approval:exact-arguments")
def test_editing_to_no_arguments_at_all_is_an_edit() -> None:
    record = make_approval()
    allowed = advance(record, allow(record, updated_input={}))
    assert allowed.run_input == {}
    assert allowed.run_digest == digest_call(record.tool_name, {})


@promise("approval:exact-arguments")
def test_the_definition_and_the_artefact_stay_bound_when_arguments_are_edited() -> None:
    bound = {"definition": "sha256:d", "artefact": "sha256:a"}
    record = msgspec.structs.replace(make_approval(), **bound)
    allowed = advance(record, allow(record, updated_input=EDITED))
    assert allowed.run_digest == digest_call(
        record.tool_name, EDITED, definition="sha256:d", artefact="sha256:a"
    )


@pytest.mark.parametrize("subject", sorted(set(Subject) - {Subject.TOOL_CALL}))
def test_only_a_tool_call_can_be_edited(subject: Subject) -> None:
    record = make_approval(subject=subject)
    with pytest.raises(Invalid, match=subject):
        advance(record, allow(record, updated_input=EDITED))


# --- who was first


@promise("approval:first-decision-wins")
@pytest.mark.parametrize("state", [State.ALLOWED, State.EXECUTING, State.COMPLETED, State.DENIED])
def test_who_decides_second_learns_who_was_first_and_when(state: State) -> None:
    record = in_state(state)
    verb = "denied" if state is State.DENIED else "allowed"
    for event in (allow(record, by=FORM), deny(record, by=FORM)):
        with pytest.raises(AlreadyDecided, match="already") as refused:
            advance(record, event)
        assert f"already {verb} by person `ana` (terminal) at 2026-11-03T12:00:00Z" in refused.value.message


@promise("run:at-most-once")
@pytest.mark.parametrize("state", [State.EXECUTING, State.COMPLETED, State.FAILED, State.UNKNOWN])
def test_a_call_that_was_taken_is_not_taken_again(state: State) -> None:
    record = in_state(state)
    with pytest.raises(AlreadyClaimed):
        advance(record, claim(record, owner=OTHER_OWNER))


@promise("show:nothing-hidden")
def test_the_name_of_who_decided_is_told_with_everything_visible() -> None:
    decider = Decider(kind=DeciderKind.CLIENT, id="You\u202e`\n", channel=Channel.MODEL)
    assert str(decider) == r"client `You\u{202e}`\n` (model)"


def test_each_state_is_told_in_its_own_words() -> None:
    by = "by person `ana` (terminal) at 2026-11-03T12:00:00Z"
    assert {state: told(in_state(state)) for state in State} == {
        State.PENDING: "pending",
        State.ALLOWED: f"allowed {by}",
        State.EXECUTING: f"allowed {by}, now executing",
        State.COMPLETED: f"allowed {by}, now completed",
        State.FAILED: f"allowed {by}, now failed",
        State.UNKNOWN: f"allowed {by}, now unknown",
        State.DENIED: f"denied {by}",
        State.EXPIRED: "expired at 2026-11-03T12:05:00Z",
        State.CANCELLED: "withdrawn at 2026-11-03T12:00:01Z",
    }


# --- any sequence of events

_deciders = st.sampled_from([PERSON, FORM, MODEL, PARENT, RULE])
_instants = st.integers(min_value=-TTL_S, max_value=3 * TTL_S).map(later)
_owners = st.sampled_from([OWNER, OTHER_OWNER])
_digests = st.sampled_from(
    [make_approval().digest, digest_call(make_approval().tool_name, EDITED), "sha256:other"]
)


@st.composite
def _events(draw: st.DrawFn) -> Event:
    at, by, digest, owner = draw(_instants), draw(_deciders), draw(_digests), draw(_owners)
    scope, edited = draw(st.sampled_from(Scope)), draw(st.sampled_from([None, EDITED]))
    events: list[Event] = [
        Allowed(at=at, by=by, digest=digest, scope=scope, updated_input=edited),
        Denied(at=at, by=by, digest=digest, message="no"),
        Expired(at=at),
        Cancelled(at=at, reason="gone"),
        Abandoned(at=at),
        Attached(at=at, owner=owner),
        Claimed(at=at, owner=owner, digest=digest),
        Delivered(at=at, owner=owner, digest=digest),
        Completed(at=at),
        Failed(at=at, message="failed"),
        Lost(at=at),
    ]
    return draw(st.sampled_from(events))


@given(events=st.lists(_events(), max_size=30), deciders=st.frozensets(st.sampled_from(Role)))
@promise("approval:final")
def test_no_sequence_of_events_leaves_the_table(events: list[Event], deciders: frozenset[Role]) -> None:
    record = make_approval(deciders=deciders)
    for event in events:
        before = msgspec.structs.asdict(record)
        try:
            after = advance(record, event)
        except PmlError:
            assert msgspec.structs.asdict(record) == before
            continue
        assert record.status in LIVE
        assert after.status is TRANSITIONS[record.status, type(event)]
        assert after.version == record.version + 1
        assert (after.resolved_at is None) == (after.status is State.PENDING)
        assert record.resolved_at in (None, after.resolved_at)
        assert (after.ended_at is None) == (after.status in LIVE)
        if after.owner != record.owner:
            assert isinstance(event, Claimed | Delivered) or record.abandoned_at is not None
        if record.decided_by is not None:
            assert (after.decided_by, after.scope, after.updated_input) == (
                record.decided_by,
                record.scope,
                record.updated_input,
            )
        record = after


@given(events=st.lists(_events(), max_size=30))
@promise("run:at-most-once")
def test_no_sequence_of_events_claims_twice_or_without_a_decision(events: list[Event]) -> None:
    record, claims = make_approval(deciders=ANYONE), 0
    for event in events:
        try:
            after = advance(record, event)
        except PmlError:
            continue
        if isinstance(event, Claimed | Delivered):
            claims += 1
            assert record.decided_by is not None
            assert event.digest == record.run_digest
        record = after
    assert claims <= 1
