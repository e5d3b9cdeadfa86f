"""Who has a run of code, what ends with it, and what is forgotten: what every store does with journals."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec
import pytest

from pml.core.approvals.record import OwnerId, SessionId, State
from pml.core.code.journal import CodeRun, Kept
from pml.core.code.sandbox import Language
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.ports.store import Store
from pml.core.values import Json
from tests.builders import OWNER, later, make_approval
from tests.contract.journals import (
    MINE,
    RUN,
    THEIRS,
    asked_by,
    begun,
    finished,
    make_code_run,
    started,
    steps_of,
    taken,
)
from tests.contract.steps import CALL, ask, ask_and, in_every_state, log_of
from tests.promises import promise

WHOLE = CodeRun(
    id="run-2.0.11",
    root="run-2",
    principal="ana",
    session_id=SessionId("session-2"),
    tool="shop:restock",
    arguments=CALL.arguments,
    offered=False,
    language=Language.PYTHON,
    code="async def run(args, mcp):\n\treturn '\0😀'",
    export="run",
    args=[1, 1.0, 2**70, None, True, {"z": 1, "a": {"é": "\u202e"}}],
    artefact="sha256:code",
    covered=frozenset({"fs:read", "github:create_issue"}),
    metadata=b"\x00\xff{}",
    source="https://registry.example/shop",
    seed=b"\x00\xff" * 16,
    started_at=later(0.000001),
    taken=3,
    owner=OWNER,
)


# --- starting


@promise("values:exact")
async def test_a_run_is_kept_exactly_as_it_was_started(store: Store) -> None:
    await started(store, make_code_run("run-2"), WHOLE)

    assert await store.journals.get("run-2") == make_code_run("run-2")
    got = await store.journals.get(WHOLE.id)
    assert got == WHOLE
    assert got is not None
    assert msgspec.json.encode(got.args) == msgspec.json.encode(WHOLE.args)  # with its keys in their order
    assert await store.journals.get("run-3") is None


async def test_a_run_started_twice_stays_the_first(store: Store) -> None:
    first = make_code_run()
    await started(store, first)
    await store.journals.begin(begun())

    await started(store, msgspec.structs.replace(first, code="return 2", owner=THEIRS))

    assert await store.journals.get(RUN) == first
    assert await steps_of(store) == [begun()]


async def test_the_arguments_of_a_run_are_nobody_elses_to_change(store: Store) -> None:
    arguments: dict[str, Json] = {"path": "/a"}
    await started(store, msgspec.structs.replace(make_code_run(), arguments=arguments, args=arguments))

    arguments["path"] = "/b"
    got = await store.journals.get(RUN)
    assert got is not None
    assert isinstance(got.args, dict)
    got.args["path"] = "/c"

    again = await store.journals.get(RUN)
    assert again is not None
    assert (again.arguments, again.args) == ({"path": "/a"}, {"path": "/a"})


@pytest.mark.parametrize(
    "wrong",
    [
        msgspec.structs.replace(make_code_run(), code="\ud800"),
        msgspec.structs.replace(make_code_run(), args=[float("nan")]),
        msgspec.structs.replace(make_code_run(), arguments={"a": "\udfff"}),
    ],
)
async def test_a_run_that_cannot_be_kept_exactly_is_refused(store: Store, wrong: CodeRun) -> None:
    with pytest.raises(Invalid):
        await store.journals.start(wrong)

    assert await store.journals.get(RUN) is None


async def test_a_run_within_one_that_has_ended_is_not_started(store: Store) -> None:
    await started(store)
    await store.journals.end(RUN)

    with pytest.raises(NotFound, match=RUN):
        await store.journals.start(make_code_run(f"{RUN}.0", root=RUN))

    assert await store.journals.get(f"{RUN}.0") is None


# --- who has it


@promise("code:one-runner")
async def test_of_many_that_take_a_run_at_once_exactly_one_has_it(store: Store) -> None:
    await started(store)
    owners = [OwnerId(f"owner-{n}") for n in range(8)]

    takes = (store.journals.take(RUN, owner, dead=()) for owner in owners)
    outcomes = await asyncio.gather(*takes, return_exceptions=True)

    (kept,) = (outcome for outcome in outcomes if isinstance(outcome, Kept))
    assert kept.run.owner == owners[outcomes.index(kept)]
    assert kept.run.taken == 1
    refused = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    assert len(refused) == 7
    assert all(f"`{kept.run.owner}`" in conflict.message for conflict in refused)
    assert await store.journals.get(RUN) == kept.run


@promise("code:one-runner")
async def test_whoever_has_a_run_does_not_take_it_a_second_time(store: Store) -> None:
    await started(store)
    await taken(store)

    with pytest.raises(Conflict, match=MINE):
        await store.journals.take(RUN, MINE, dead=(THEIRS,))

    assert await store.journals.get(RUN) == msgspec.structs.replace(make_code_run(), owner=MINE, taken=1)


async def test_a_run_that_was_started_with_an_owner_is_its_own(store: Store) -> None:
    await started(store, make_code_run(owner=THEIRS))

    with pytest.raises(Conflict, match=THEIRS):
        await store.journals.take(RUN, MINE, dead=())


async def test_a_run_that_was_left_can_be_taken_and_counts_how_often(store: Store) -> None:
    await started(store)

    for count in range(1, 4):
        assert (await taken(store)).run == msgspec.structs.replace(make_code_run(), owner=MINE, taken=count)
        await store.journals.leave(RUN, dump=None, dumped=0)

    assert await store.journals.get(RUN) == msgspec.structs.replace(make_code_run(), taken=3)


async def test_a_run_of_a_dead_owner_can_be_taken_and_its_steps_are_there(store: Store) -> None:
    await started(store, make_code_run(owner=THEIRS))
    await store.journals.begin(begun())

    kept = await taken(store, dead=(OwnerId("another"), THEIRS))

    run = msgspec.structs.replace(make_code_run(), owner=MINE, taken=1)
    assert kept == Kept(run=run, steps=[begun()])
    with pytest.raises(Conflict, match=MINE):
        await store.journals.take(RUN, OwnerId("third"), dead=(THEIRS,))


async def test_a_run_that_is_not_there_cannot_be_taken_and_is_no_error_to_leave(store: Store) -> None:
    assert await store.journals.take(RUN, MINE, dead=()) is None

    await store.journals.leave(RUN, dump=b"dump", dumped=1)

    assert await store.journals.get(RUN) is None
    await started(store)
    assert (await taken(store)).dump is None


async def test_leaving_keeps_the_dump_until_the_next_leave(store: Store) -> None:
    await started(store)

    async def left(dump: bytes | None, dumped: int) -> tuple[bytes | None, int]:
        await store.journals.leave(RUN, dump=dump, dumped=dumped)
        kept = await taken(store)
        return kept.dump, kept.dumped

    assert await left(b"\0first\xff", 2) == (b"\0first\xff", 2)
    assert await left(b"second", 5) == (b"second", 5)
    kept = await taken(store, dead=(MINE,))  # whoever had it died: its dump is still good
    assert (kept.dump, kept.dumped) == (b"second", 5)
    assert await left(b"", 0) == (b"", 0)
    assert await left(None, 7) == (None, 0)


async def test_owners_are_those_who_have_runs(store: Store) -> None:
    await started(
        store,
        make_code_run("a", owner=THEIRS),
        make_code_run("a.0", root="a", owner=THEIRS),
        make_code_run("b", owner=MINE),
        make_code_run("c"),
    )
    assert await store.journals.owners() == [MINE, THEIRS]

    await store.journals.leave("b", dump=None, dumped=0)
    await store.journals.end("a")

    assert await store.journals.owners() == []


# --- ending


NESTED = ("run-1.0", "run-1.0.0", "run-1.0.12", "run-1.01", "run-1.1", "run-1.10", "run-1.1.0")
BESIDE = ("run-10", "run-1-", "run-1/0", "run-2", "run")


async def start_many(store: Store) -> None:
    beside = [make_code_run(run_id) for run_id in BESIDE]
    nested = [make_code_run(run_id, root=RUN, owner=THEIRS) for run_id in NESTED]
    await started(store, make_code_run(), *nested, *beside, make_code_run("run-2.0", root="run-2"))
    for run_id in (RUN, *NESTED, *BESIDE, "run-2.0"):
        await store.journals.begin(begun(0, run_id=run_id))


async def left_of(store: Store) -> set[str]:
    every = (RUN, *NESTED, *BESIDE, "run-2.0")
    left = {run_id for run_id in every if await store.journals.get(run_id) is not None}
    for run_id in left:
        assert await steps_of(store, run_id) == [begun(0, run_id=run_id)]
    return left


async def test_a_run_ends_with_all_the_runs_within_it(store: Store) -> None:
    await start_many(store)

    await store.journals.end(RUN)

    assert await left_of(store) == {*BESIDE, "run-2.0"}


async def test_the_end_of_a_nested_run_takes_only_those_within_it(store: Store) -> None:
    await start_many(store)

    await store.journals.end("run-1.0")
    assert await left_of(store) == {RUN, "run-1.01", "run-1.1", "run-1.10", "run-1.1.0", *BESIDE, "run-2.0"}

    await store.journals.end("run-1.1")
    assert await left_of(store) == {RUN, "run-1.01", "run-1.10", *BESIDE, "run-2.0"}


async def test_a_run_that_ended_leaves_no_step_and_no_dump_to_the_next_of_its_id(store: Store) -> None:
    await started(store)
    await store.journals.finish(finished(place=0))
    await store.journals.leave(RUN, dump=b"dump", dumped=1)

    await store.journals.end(RUN)
    await store.journals.end(RUN)

    await started(store)
    assert await taken(store) == Kept(
        run=msgspec.structs.replace(make_code_run(), owner=MINE, taken=1), steps=[]
    )


@promise("code:results-go")
async def test_nothing_of_a_journal_gets_into_the_audit_log(store: Store) -> None:
    await started(store)
    await taken(store)
    await store.journals.begin(begun(0))
    await store.journals.finish(finished(0, place=0, value=b"the-secret"))
    await store.journals.leave(RUN, dump=b"the-secret", dumped=1)
    await store.journals.forget(older_than=later(1), dead=())
    await store.journals.end(RUN)

    assert await log_of(store) == []


# --- what waits, and what is forgotten


async def test_the_runs_that_a_client_began_with_a_tool_are_told_the_newest_first(store: Store) -> None:
    older, newer, other = make_code_run("b"), make_code_run("a", started_at=later(1)), make_code_run("c")
    await started(
        store,
        newer,
        older,
        other,
        make_code_run("e", principal="eve"),
        make_code_run("f", tool="shop:restock"),
        make_code_run("a.0", root="a"),
    )

    assert await store.journals.begun_with("ana:/repo/shop", "execute") == [newer, other, older]
    assert await store.journals.begun_with("ana:/repo/shop", "shop:restock") == [
        make_code_run("f", tool="shop:restock")
    ]
    assert await store.journals.begun_with("ana", "execute") == []

    await store.journals.take("c", MINE, dead=())
    await store.journals.end("a")
    assert [run.id for run in await store.journals.begun_with("ana:/repo/shop", "execute")] == ["c", "b"]


AFTER = later(1)


async def forgotten(store: Store, *, older_than: datetime = AFTER, dead: Sequence[OwnerId] = ()) -> int:
    return await store.journals.forget(older_than=older_than, dead=dead)


@pytest.mark.parametrize("state", list(State))
async def test_a_run_is_forgotten_once_no_question_of_it_is_open(store: Store, state: State) -> None:
    record, events = in_every_state()[state]
    await started(store, make_code_run(), make_code_run(f"{RUN}.0", root=RUN))
    await ask_and(store, asked_by(record, RUN), *events)

    count = await forgotten(store)

    is_kept = state is not State.CANCELLED
    assert count == (0 if is_kept else 1)
    assert (await store.journals.get(RUN) is not None) is is_kept
    assert (await store.journals.get(f"{RUN}.0") is not None) is is_kept


@pytest.mark.parametrize("state", [State.DENIED, State.UNKNOWN, State.COMPLETED, State.FAILED, State.EXPIRED])
async def test_a_run_waits_no_longer_for_an_answer_than_its_question_would_have(
    store: Store, state: State
) -> None:
    record, events = in_every_state()[state]
    await started(store)
    kept = await ask_and(store, asked_by(record, RUN), *events)

    assert await forgotten(store, older_than=kept.expires_at) == 1


async def test_a_question_of_another_run_or_of_none_keeps_no_run(store: Store) -> None:
    await started(store)
    await ask(store, asked_by(make_approval(1), "run-2"))
    await ask(store, make_approval(2))

    assert await forgotten(store) == 1
    assert await store.journals.get(RUN) is None


async def test_a_run_that_somebody_alive_has_is_not_forgotten(store: Store) -> None:
    await started(store, make_code_run(owner=THEIRS), make_code_run("run-2", owner=MINE))

    assert await forgotten(store, dead=(OwnerId("another"),)) == 0
    assert await forgotten(store, dead=(THEIRS,)) == 1

    assert await store.journals.get(RUN) is None
    assert await store.journals.get("run-2") is not None


async def test_a_run_that_was_just_started_is_not_forgotten(store: Store) -> None:
    await started(store, make_code_run(started_at=later(1)))

    assert await forgotten(store, older_than=later(1)) == 0
    assert await forgotten(store, older_than=later(1.000001)) == 1


async def test_a_nested_run_is_forgotten_with_its_root_and_never_before(store: Store) -> None:
    await started(
        store,
        make_code_run(started_at=later(2)),
        make_code_run(f"{RUN}.0", root=RUN),
        make_code_run("run-2"),
        make_code_run("run-2.0", root="run-2", started_at=later(9), owner=THEIRS),
    )

    assert await forgotten(store) == 1

    assert await store.journals.get(f"{RUN}.0") is not None
    assert await store.journals.get("run-2.0") is None


async def test_a_run_that_did_something_since_is_not_forgotten(store: Store) -> None:
    await started(store, make_code_run(), make_code_run(f"{RUN}.0", root=RUN))
    await store.journals.finish(
        msgspec.structs.replace(finished(place=0), run_id=f"{RUN}.0", at_ms=int(later(5).timestamp() * 1000))
    )

    assert await forgotten(store, older_than=later(4)) == 0
    assert await forgotten(store, older_than=later(6)) == 1


async def test_a_run_with_a_step_of_unknown_outcome_is_kept_for_a_day(store: Store) -> None:
    await started(store)
    await store.journals.begin(begun())

    assert await forgotten(store, older_than=later(24 * 3600 - 1)) == 0
    assert await forgotten(store, older_than=later(24 * 3600 + 1)) == 1


async def test_the_runs_that_a_session_began_are_told(store: Store) -> None:
    other = msgspec.structs.replace(make_code_run("run-2"), session_id=SessionId("session-2"))
    await started(store, make_code_run(), make_code_run(f"{RUN}.0", root=RUN), other)

    assert await store.journals.begun_in(SessionId("session-1")) == [RUN]
    assert await store.journals.begun_in(SessionId("session-2")) == ["run-2"]
    assert await store.journals.begun_in(SessionId("session-3")) == []
