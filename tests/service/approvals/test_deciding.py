"""Deciding: the first answer wins, only those decide who may, and edited arguments are judged again."""

import asyncio

import pytest

from pml.core.approvals.deciders import Matter, Way, who_may_allow
from pml.core.approvals.record import (
    Approval,
    Channel,
    Decider,
    DeciderKind,
    Role,
    Scope,
    SessionId,
    State,
    Subject,
)
from pml.core.errors import (
    AlreadyDecided,
    ApprovalExpired,
    Changed,
    Invalid,
    MayNotDecide,
    NotFound,
    ToolDenied,
)
from pml.core.rules.ruleset import VerdictKind
from pml.service.approvals.lifecycle import Decision, decide, get
from pml.service.context import Context
from tests.builders import ANYONE, FORM, MODEL, PARENT, PERSON, RULE, later
from tests.promises import promise
from tests.service.offices import TOOL, Office, parent

OTHER = Decider(kind=DeciderKind.PERSON, id="ben", channel=Channel.INBOX)


async def test_an_allow_is_stored_with_who_gave_it_and_when(office: Office) -> None:
    record = await office.ask()
    office.clock.advance(5)
    decision = Decision(by=PERSON, digest=record.digest, allow=True, message="go on")

    decided = await decide(office.context, record.id, decision)

    assert decided.record == await office.stored(record)
    assert (decided.remembered, decided.released) == (None, ())
    assert (
        decided.record.status,
        decided.record.decided_by,
        decided.record.scope,
        decided.record.response_message,
        decided.record.resolved_at,
        decided.record.expires_at,
    ) == (State.ALLOWED, PERSON, Scope.ONCE, "go on", later(5), later(5 + record.ttl_s))


@promise("approval:first-decision-wins")
@pytest.mark.parametrize("first_allows", [True, False])
async def test_the_second_decision_changes_nothing_and_learns_who_was_first_and_when(
    office: Office, first_allows: bool
) -> None:
    record = await office.ask()
    first = (await office.allow(record)).record if first_allows else await office.deny(record)
    told = rf"{'allowed' if first_allows else 'denied'} by person `ana` \(terminal\) at 2026-11-03T12:00:00Z"

    for answer in (office.allow(record, by=OTHER), office.deny(record, by=OTHER)):
        with pytest.raises(AlreadyDecided, match=told):
            await answer

    assert await office.stored(record) == first


@promise("approval:first-decision-wins")
async def test_of_decisions_made_at_once_exactly_one_wins(office: Office) -> None:
    record = await office.ask()
    answers = [office.allow(record, by=OTHER) if n % 2 else office.deny(record) for n in range(6)]

    outcomes = await asyncio.gather(*answers, return_exceptions=True)

    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyDecided) for outcome in outcomes) == 5


@promise("approval:exact-arguments")
@pytest.mark.parametrize("allow", [True, False])
async def test_a_decision_on_another_digest_than_the_one_shown_decides_nothing(
    office: Office, allow: bool
) -> None:
    record = await office.ask()
    decision = Decision(by=PERSON, digest="sha256:of something else", allow=allow)

    with pytest.raises(Changed):
        await decide(office.context, record.id, decision)

    assert await office.stored(record) == record


@promise("expiry:not-denial")
async def test_a_decision_that_comes_too_late_finds_the_question_expired(office: Office) -> None:
    record = await office.ask()
    office.clock.advance(record.ttl_s)

    for answer in (office.allow(record), office.deny(record)):
        with pytest.raises(ApprovalExpired):
            await answer

    assert await office.status(record) is State.EXPIRED


async def test_deciding_what_does_not_exist_says_so(office: Office) -> None:
    record = await office.ask()

    with pytest.raises(NotFound):
        await decide(office.context, type(record.id)("nothing"), Decision(by=PERSON, digest="", allow=True))


async def test_a_message_that_cannot_be_stored_exactly_decides_nothing(office: Office) -> None:
    record = await office.ask()

    with pytest.raises(Invalid, match="the message"):
        await office.deny(record, message="\udcff")

    assert await office.status(record) is State.PENDING


# --- who may decide


def roles(
    *,
    has_form: bool = False,
    model: bool = False,
    parent_may: bool = False,
    subject: Subject = Subject.TOOL_CALL,
    verified: bool = True,
) -> frozenset[Role]:
    matter = Matter(subject=subject, is_verified=verified)
    return who_may_allow(matter, Way(form=has_form, model=model, parent=parent_may))


@promise("agent:nothing-unapproved")
@pytest.mark.parametrize(
    ("deciders", "by"),
    [
        (roles(), MODEL),
        (roles(), FORM),
        (roles(), PARENT),
        (roles(has_form=True), MODEL),
        (roles(model=True), FORM),
        (roles(model=True, has_form=True, subject=Subject.INTEGRITY_CHANGED), MODEL),
        (roles(model=True, has_form=True, subject=Subject.INTEGRITY_CHANGED), FORM),
        (roles(model=True, subject=Subject.WORKSPACE_TRUST), MODEL),
        (roles(parent_may=True, subject=Subject.WORKSPACE_TRUST), PARENT),
        (roles(parent_may=True, subject=Subject.INTEGRITY_CHANGED), PARENT),
        (roles(parent_may=True, verified=False), PARENT),
        (ANYONE, RULE),
    ],
)
async def test_nobody_allows_who_was_not_named_when_the_question_was_asked(
    office: Office, deciders: frozenset[Role], by: Decider
) -> None:
    top = await office.session(SessionId(PARENT.id))
    child = await office.session(parent_id=top.id)
    record = await office.ask(session=child, deciders=deciders)

    with pytest.raises(MayNotDecide):
        await office.allow(record, by=by)

    assert await office.stored(record) == record


@pytest.mark.parametrize(
    ("deciders", "by"),
    [
        (roles(), PERSON),
        (roles(has_form=True), FORM),
        (roles(model=True), MODEL),
        (roles(parent_may=True), PARENT),
    ],
)
async def test_whoever_was_named_when_the_question_was_asked_allows(
    office: Office, deciders: frozenset[Role], by: Decider
) -> None:
    top = await office.session(SessionId(PARENT.id))
    child = await office.session(parent_id=top.id)
    record = await office.ask(session=child, deciders=deciders)

    assert (await office.allow(record, by=by)).record.decided_by == by


@promise("agent:nothing-unapproved")
async def test_a_parent_decides_for_its_descendants_and_for_nobody_else(office: Office) -> None:
    top = await office.session(SessionId("top"))
    middle = await office.session(SessionId("middle"), parent_id=top.id)
    leaf = await office.session(SessionId("leaf"), parent_id=middle.id)
    stranger = await office.session(SessionId("stranger"))
    record = await office.ask(session=leaf, deciders=ANYONE)

    for by in (parent(leaf.id), parent(stranger.id), parent("nobody")):
        with pytest.raises(MayNotDecide, match="not a descendant"):
            await office.allow(record, by=by)
        with pytest.raises(MayNotDecide, match="not a descendant"):
            await office.deny(record, by=by)
    assert await office.stored(record) == record

    assert (await office.allow(record, by=parent(top.id))).record.decided_by == parent(top.id)


@promise("agent:nothing-unapproved")
async def test_a_child_never_decides_for_its_parent(office: Office) -> None:
    top = await office.session(SessionId("top"))
    child = await office.session(SessionId("child"), parent_id=top.id)
    record = await office.ask(session=top, deciders=ANYONE)

    with pytest.raises(MayNotDecide):
        await office.allow(record, by=parent(child.id))

    assert await office.status(record) is State.PENDING


async def test_a_parent_allows_for_the_session_but_never_always(office: Office) -> None:
    top = await office.session(SessionId("top"))
    child = await office.session(SessionId("child"), parent_id=top.id)
    first = await office.ask(session=child, deciders=ANYONE)

    with pytest.raises(MayNotDecide, match="never always"):
        await office.allow(first, by=parent(top.id), scope=Scope.ALWAYS)

    assert await office.context.store.intents.open() == []
    assert not (office.workspace / ".pml.json").exists()
    await office.allow(first, by=parent(top.id), scope=Scope.SESSION)
    assert (await office.judge(session=child)).kind is VerdictKind.ALLOW


# --- edited arguments


@promise("edit:judged-again")
async def test_arguments_edited_into_what_a_rule_denies_decide_nothing(office: Office) -> None:
    office.write_rules(deny=[{"tool": TOOL, "args": {"title": "secret"}}])
    record = await office.ask()

    with pytest.raises(ToolDenied, match="is denied by"):
        await office.allow(record, updated_input={"title": "secret"})

    assert await office.stored(record) == record
    assert (await office.allow(record, updated_input={"title": "public"})).record.run_input == {
        "title": "public"
    }


@promise("edit:judged-again")
async def test_edited_arguments_that_cannot_be_stored_exactly_decide_nothing(office: Office) -> None:
    record = await office.ask()

    with pytest.raises(Invalid, match="the edited arguments"):
        await office.allow(record, updated_input={"title": "\ud800"})

    assert await office.stored(record) == record


@promise("agent:nothing-unapproved")
async def test_a_model_may_not_edit_the_call_it_made(office: Office) -> None:
    record = await office.ask(deciders=ANYONE)

    with pytest.raises(MayNotDecide, match="not change it"):
        await office.allow(record, by=MODEL, updated_input={"title": "edited"})

    assert await office.stored(record) == record


async def test_only_a_tool_call_can_be_edited(office: Office) -> None:
    record = await office.ask(subject=Subject.TOOL_CHANGED)

    with pytest.raises(Invalid, match="only a tool call"):
        await office.allow(record, updated_input={})

    assert await office.stored(record) == record


@promise("deny:beats-grants")
async def test_a_call_that_a_rule_denies_now_cannot_be_allowed_by_anybody(office: Office) -> None:
    record = await office.ask(deciders=ANYONE)
    office.write_rules(deny=["github:*"])

    for by in (PERSON, FORM, MODEL):
        for scope in Scope:
            with pytest.raises(ToolDenied, match=r'deny "github:\*"'):
                await office.allow(record, by=by, scope=scope)

    assert await office.stored(record) == record
    assert await office.context.store.grants.all() == []


async def test_a_decision_that_lands_between_reading_and_deciding_wins(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await office.ask()
    first = True

    async def get_then_be_overtaken(context: Context, approval_id: object) -> Approval:
        nonlocal first
        found = await get(context, record.id)
        if first:
            first = False
            await office.deny(record, by=OTHER)
        return found

    monkeypatch.setattr("pml.service.approvals.lifecycle.get", get_then_be_overtaken)

    with pytest.raises(AlreadyDecided, match="denied by person `ben`"):
        await office.allow(record, scope=Scope.SESSION)

    assert await office.status(record) is State.DENIED
    assert await office.context.store.grants.all() == []
