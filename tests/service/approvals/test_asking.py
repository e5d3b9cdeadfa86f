"""Asking and waiting: no answer is lost, and every way for a question to end has its own word."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import msgspec
import pytest

from pml.core.approvals.events import Abandoned
from pml.core.approvals.reasons import AskRule
from pml.core.approvals.record import Approval, ApprovalId, OwnerId, Role, SessionId, State
from pml.core.config.file import FileKind
from pml.core.errors import Invalid, NotFound, TooManyPending
from pml.core.ports.store import Subscription
from pml.service.approvals.answers import answer_in_run
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.lifecycle import (
    MAX_PENDING,
    RECHECK_S,
    all_pending,
    ask,
    cancel,
    find,
    pending,
    wait,
)
from pml.service.policy.policy import current_policy, matched_rule
from tests.builders import MODEL, NOW, later
from tests.promises import promise
from tests.service.offices import ARGUMENTS, BOUND_S, SESSION, TOOL, Office

OTHER = OwnerId("owner-2")


class ScriptedChanges:
    """Changes whose every wait does the next step of a script and then returns, as if it were woken."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], object]] = []
        self.timeouts_s: list[float] = []
        self.on_watch: Callable[[], None] = lambda: None

    @contextmanager
    def _watch(self) -> Generator[Subscription]:
        self.on_watch()
        yield self

    def watch(self, approval_id: ApprovalId | None = None) -> AbstractContextManager[Subscription]:
        return self._watch()

    async def wait(self, timeout_s: float) -> bool:
        self.timeouts_s.append(timeout_s)
        step = self.steps.pop(0)
        result = step()
        if asyncio.iscoroutine(result):
            await result
        return True


@pytest.fixture
def changes(office: Office, monkeypatch: pytest.MonkeyPatch) -> ScriptedChanges:
    """Make every wait of the office follow a script."""
    scripted = ScriptedChanges()
    monkeypatch.setattr(office.context.store, "changes", scripted)
    return scripted


async def test_a_question_is_stored_with_all_that_was_asked(office: Office) -> None:
    office.write(FileKind.USER, {"permissions": {"ask": ["github:*"]}, "approval": {"ttl_s": 60}})
    question = await office.question(tool_use_id="use-1", definition="sha256:d", artefact="sha256:a")
    policy = await current_policy(office.context, str(office.workspace))

    record = await ask(office.context, question, matched_rule(await office.judge()))

    assert record == Approval(
        id=record.id,
        session_id=SESSION,
        subject=question.subject,
        tool_name=TOOL,
        tool_input=ARGUMENTS,
        tool_use_id="use-1",
        digest=record.run_digest,
        definition="sha256:d",
        artefact="sha256:a",
        rule=AskRule(entry='"github:*"', file=policy.loaded.user.path, line=1),
        ttl_s=60,
        created_at=NOW,
        expires_at=later(60),
        owner=office.owners.me,
    )
    assert await office.stored(record) == record


async def test_the_same_question_asked_again_is_the_same_record_and_stays_with_its_asker(
    office: Office,
) -> None:
    first = await office.ask()
    office.owners.me = OTHER
    second = await office.ask()

    assert second == msgspec.structs.replace(first, version=2)
    assert await pending(office.context) == [second]


@promise("names:never-a-pattern")
@pytest.mark.parametrize(
    "tool", ["*", "github:*", "github:create_?", "*:create", "a b", "github:a\u200bb", "github:\u202ea", ""]
)
async def test_a_tool_whose_name_is_a_pattern_or_hides_something_is_not_asked_about(
    office: Office, tool: str
) -> None:
    question = await office.question(tool)
    before = await office.kinds()

    with pytest.raises(Invalid):
        await ask(office.context, question)

    assert await pending(office.context) == []
    assert await office.kinds() == before


async def test_the_twenty_first_question_of_a_session_is_refused_and_another_session_is_free(
    office: Office,
) -> None:
    for n in range(MAX_PENDING):
        await office.ask(arguments={"n": n})

    with pytest.raises(TooManyPending, match="20"):
        await office.ask(arguments={"n": MAX_PENDING})

    other = await office.session(SessionId("session-2"))
    assert (await office.ask(arguments={"n": MAX_PENDING}, session=other)).status is State.PENDING
    assert len([record async for record in all_pending(office.context, session_id=SESSION)]) == MAX_PENDING


@pytest.mark.parametrize("arguments", [{"a": "\ud800"}, {"\udfff": 1}, {"n": float("inf")}])
async def test_arguments_that_cannot_be_stored_exactly_are_refused(
    office: Office, arguments: dict[str, str | float]
) -> None:
    with pytest.raises(Invalid, match="the arguments"):
        await office.ask(arguments=arguments)
    with pytest.raises(Invalid, match="tool use id"):
        await office.ask(tool_use_id="\udcff")
    assert await pending(office.context) == []


async def test_nearly_a_megabyte_of_arguments_is_stored_exactly(office: Office) -> None:
    arguments = {"text": "\0\u202e😀\u200b" * 60_000}

    record = await office.ask(arguments=arguments)

    assert (await office.stored(record)).tool_input == arguments


async def test_every_waiting_question_is_listed_once_over_the_pages(office: Office) -> None:
    asked: list[Approval] = []
    for n in range(12):
        session = await office.session(SessionId(f"session-{n}"))
        asked += [await office.ask(arguments={"n": k}, session=session) for k in range(10)]
    asked.sort(key=lambda record: record.id)

    assert [record async for record in all_pending(office.context)] == asked
    assert await pending(office.context, limit=3) == asked[:3]
    assert await pending(office.context, after=asked[2], limit=2) == asked[3:5]


async def test_an_approval_is_found_by_the_start_of_its_id_and_never_by_nothing(office: Office) -> None:
    record = await office.ask()

    assert await find(office.context, record.id[:8].upper()) == record
    with pytest.raises(Invalid, match="empty id"):
        await find(office.context, "")
    with pytest.raises(NotFound, match="no approval"):
        await find(office.context, "ffff")


# --- waiting


@promise("approval:decision-never-lost")
async def test_a_decision_made_before_the_waiter_is_registered_is_not_lost(office: Office) -> None:
    record = await office.ask()
    await office.allow(record)

    assert (await wait(office.context, record.id)).status is State.ALLOWED


@promise("approval:decision-never-lost")
async def test_a_decision_made_as_the_waiter_registers_is_not_lost(
    office: Office, changes: ScriptedChanges
) -> None:
    record = await office.ask()

    def decide_now() -> None:
        # MemoryStore never gives up the loop, so one step of the coroutine is the whole decision.
        work = office.deny(record)
        with pytest.raises(StopIteration):
            work.send(None)

    changes.on_watch = decide_now

    assert (await wait(office.context, record.id)).status is State.DENIED


@promise("approval:decision-never-lost")
async def test_a_decision_made_between_reading_and_waiting_wakes_the_waiter(office: Office) -> None:
    record = await office.ask()
    waiting = asyncio.create_task(wait(office.context, record.id))
    await asyncio.sleep(0)
    await office.allow(record)

    async with asyncio.timeout(BOUND_S):
        assert (await waiting).status is State.ALLOWED


async def test_every_waiter_gets_the_decision(office: Office) -> None:
    record = await office.ask()
    waiting = [asyncio.create_task(wait(office.context, record.id)) for _ in range(3)]
    await asyncio.sleep(0)
    await office.deny(record, message="not today")

    async with asyncio.timeout(BOUND_S):
        answers = await asyncio.gather(*waiting)

    assert {(answer.status, answer.response_message) for answer in answers} == {(State.DENIED, "not today")}


@promise("expiry:not-denial")
async def test_a_question_that_nobody_answers_expires_and_is_not_denied(
    office: Office, changes: ScriptedChanges
) -> None:
    record = await office.ask()
    changes.steps = [lambda: office.clock.advance(record.ttl_s)]

    ended = await wait(office.context, record.id)

    assert (ended.status, ended.decided_by) == (State.EXPIRED, None)
    assert await office.kinds() == ["session.started", "approval.requested", "approval.expired"]


@promise("expiry:not-denial")
async def test_a_question_that_is_withdrawn_is_cancelled_and_not_denied(office: Office) -> None:
    record = await office.ask()
    waiting = asyncio.create_task(wait(office.context, record.id))
    await asyncio.sleep(0)
    await cancel(office.context, record.id, reason="the agent gave up")

    async with asyncio.timeout(BOUND_S):
        ended = await waiting

    assert (ended.status, ended.reason, ended.decided_by) == (State.CANCELLED, "the agent gave up", None)


async def test_a_wait_that_is_bounded_returns_the_open_question(
    office: Office, changes: ScriptedChanges
) -> None:
    record = await office.ask()
    changes.steps = [lambda: office.clock.advance(10)]

    assert await wait(office.context, record.id, timeout_s=10) == record
    assert await wait(office.context, record.id, timeout_s=0) == record


async def test_a_wake_up_that_brings_nothing_new_goes_on_waiting(
    office: Office, changes: ScriptedChanges
) -> None:
    record = await office.ask()
    changes.steps = [lambda: None, lambda: None, lambda: office.allow(record)]

    assert (await wait(office.context, record.id)).status is State.ALLOWED
    assert changes.steps == []


@pytest.mark.parametrize("timeout_s", [None, 0])
async def test_whoever_waits_takes_over_a_question_that_was_left(
    office: Office, changes: ScriptedChanges, timeout_s: float | None
) -> None:
    record = await office.ask()
    office.owners.me = OTHER
    await office.context.store.approvals.advance(record.id, Abandoned(at=NOW))
    taken: list[Approval] = []

    async def look() -> None:
        taken.append(await office.stored(record))
        await office.allow(record)

    changes.steps = [look]

    ended = await wait(office.context, record.id, timeout_s=timeout_s)

    assert (taken or [ended]) == [msgspec.structs.replace(record, owner=OTHER, version=3)]


async def test_waiting_for_a_call_that_runs_beyond_its_time_looks_now_and_then_and_not_all_the_time(
    office: Office, changes: ScriptedChanges
) -> None:
    record = (await office.allow(await office.ask())).record
    await claim(office.context, record.id)
    office.clock.advance(record.ttl_s)
    changes.steps = [lambda: None, lambda: finish(office.context, record.id)]

    ended = await wait(office.context, record.id, during=frozenset({State.EXECUTING}))

    assert ended.status is State.COMPLETED
    assert changes.timeouts_s == [RECHECK_S, RECHECK_S]


async def test_waiting_for_what_does_not_exist_says_so(office: Office) -> None:
    with pytest.raises(NotFound, match="no approval"):
        await wait(office.context, ApprovalId("nothing"))


@promise("consent:allower-is-a-decider")
async def test_an_answer_in_a_run_is_one_only_if_its_giver_may_decide_it_now(office: Office) -> None:
    wide = frozenset({Role.PERSON, Role.MODEL})
    asked = replace(await office.question(tool_use_id="run.1", deciders=wide), run_id="run")
    record = await ask(office.context, asked)
    await office.allow(record, by=MODEL)

    assert await answer_in_run(office.context, asked) == await office.stored(record)
    assert await answer_in_run(office.context, replace(asked, deciders=frozenset({Role.PERSON}))) is None


@promise("approval:exact-arguments")
async def test_a_question_put_to_others_keeps_its_digest_and_one_of_another_call_has_its_own(
    office: Office,
) -> None:
    question = await office.question()
    taken = question.digest
    assert replace(question, deciders=frozenset()).digest == taken
    others = (
        replace(question, arguments={**question.arguments, "more": 1}),
        replace(question, tool="other:tool"),
        replace(question, definition="sha256-other"),
        replace(question, artefact="sha256-other"),
        replace(question, cwd="/elsewhere"),
    )
    assert len({taken, *(each.digest for each in others)}) == 1 + len(others)
