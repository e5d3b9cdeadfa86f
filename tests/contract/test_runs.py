"""What every store does with launched agents and what they say."""

import asyncio

import msgspec
import pytest

from pml.core.approvals.record import OwnerId, SessionId
from pml.core.audit.entries import session_changed, session_said
from pml.core.errors import Conflict, IllegalEvent, Invalid, NotFound
from pml.core.ports.store import Store
from pml.core.sessions.agent import ENDED_RUN, NEXT, MessageKind, RunState
from tests.builders import NOW, SESSION, later, make_message, make_order, make_run, make_session
from tests.contract.steps import entries_of

OTHER = SessionId("session-2")
NOBODY = SessionId("session-9")


# --- runs


async def test_a_run_is_stored_as_it_was_ordered(store: Store) -> None:
    order = make_order(
        'mend\nthe "shop"\0😀', model="opus", tools=("github:*", "Bash"), arguments=("--verbose",)
    )
    run = make_run(order=order, owner=OwnerId("owner-7"), config="/run/session-1")

    await store.runs.add(run)

    assert await store.runs.get(SESSION) == run
    assert await store.runs.get(NOBODY) is None
    assert await entries_of(store) == [session_changed(SESSION, "starting", at=NOW)]


@pytest.mark.parametrize("tools", [None, ()])
async def test_an_order_for_no_tools_is_not_one_for_whatever_the_rules_let(
    store: Store, tools: tuple[str, ...] | None
) -> None:
    await store.runs.add(make_run(order=make_order(tools=tools)))

    run = await store.runs.get(SESSION)

    assert run is not None
    assert run.order.tools == tools


async def test_a_session_has_one_run(store: Store) -> None:
    run = make_run()
    await store.runs.add(run)

    with pytest.raises(Conflict):
        await store.runs.add(make_run(order=make_order("something else")))

    assert await store.runs.get(SESSION) == run
    assert len(await entries_of(store)) == 1


async def test_an_order_that_cannot_be_stored_exactly_is_refused(store: Store) -> None:
    with pytest.raises(Invalid):
        await store.runs.add(make_run(order=make_order("half of a pair: \ud800")))

    assert await store.runs.get(SESSION) is None
    assert await entries_of(store) == []


@pytest.mark.parametrize("state", sorted(ENDED_RUN))
async def test_a_run_that_ends_is_recorded_with_how_and_when(store: Store, state: RunState) -> None:
    run = make_run()
    await store.runs.add(run)

    running = await store.runs.move(SESSION, RunState.RUNNING, at=later(1))
    assert running == msgspec.structs.replace(run, state=RunState.RUNNING)
    ended = await store.runs.move(SESSION, state, at=later(2), exit_code=3, result="that was it")

    assert ended == msgspec.structs.replace(
        run, state=state, exit_code=3, result="that was it", ended_at=later(2)
    )
    assert await store.runs.get(SESSION) == ended
    assert (await entries_of(store))[1:] == [
        session_changed(SESSION, "running", at=later(1)),
        session_changed(SESSION, state, at=later(2)),
    ]


@pytest.mark.parametrize("state", RunState)
async def test_a_run_moves_only_as_the_table_says_and_else_nothing_has_changed(
    store: Store, state: RunState
) -> None:
    await store.runs.add(make_run())
    if state is not RunState.STARTING:
        await store.runs.move(SESSION, state, at=later(1), exit_code=0)
    before, log = await store.runs.get(SESSION), await entries_of(store)

    for refused in set(RunState) - NEXT[state]:
        with pytest.raises(IllegalEvent, match=f"it cannot become {refused}"):
            await store.runs.move(SESSION, refused, at=later(2), exit_code=9, result="again")

        assert await store.runs.get(SESSION) == before
        assert await entries_of(store) == log


async def test_of_two_who_end_a_run_one_does(store: Store) -> None:
    await store.runs.add(make_run())

    outcomes = await asyncio.gather(
        store.runs.move(SESSION, RunState.DONE, at=later(1)),
        store.runs.move(SESSION, RunState.STOPPED, at=later(1)),
        return_exceptions=True,
    )

    assert sorted(isinstance(outcome, IllegalEvent) for outcome in outcomes) == [False, True]
    assert len(await entries_of(store)) == 2


async def test_a_run_that_is_not_there_does_not_move(store: Store) -> None:
    with pytest.raises(NotFound, match="session-9"):
        await store.runs.move(NOBODY, RunState.RUNNING, at=NOW)

    assert await entries_of(store) == []


async def test_counting_changes_the_counts_and_nothing_else(store: Store) -> None:
    run = make_run()
    await store.runs.add(run)
    await store.runs.add(make_run(OTHER))
    log = await entries_of(store)

    await store.runs.count(SESSION, turns=3, cost_usd=0.125)
    await store.runs.count(NOBODY, turns=3, cost_usd=0.125)

    assert await store.runs.get(SESSION) == msgspec.structs.replace(run, turns=3, cost_usd=0.125)
    assert await store.runs.get(OTHER) == make_run(OTHER)
    assert await entries_of(store) == log


async def test_live_are_the_runs_that_have_not_ended_oldest_first(store: Store) -> None:
    young = make_run(SESSION, started_at=later(2))
    await store.runs.add(young)
    await store.runs.add(make_run(OTHER))
    old = await store.runs.move(OTHER, RunState.RUNNING, at=later(1))
    await store.runs.add(make_run(NOBODY))
    await store.runs.move(NOBODY, RunState.STOPPED, at=later(3))

    assert await store.runs.live() == [old, young]


async def test_leftovers_are_ended_runs_whose_configuration_still_stands(store: Store) -> None:
    for session_id, config in ((SESSION, "/run/1"), (OTHER, "/run/2"), (NOBODY, None)):
        await store.runs.add(make_run(session_id, config=config))
    left = await store.runs.move(SESSION, RunState.DONE, at=later(1))
    await store.runs.move(NOBODY, RunState.DONE, at=later(1))

    assert await store.runs.leftovers() == [left]
    await store.runs.forget_config(SESSION)
    await store.runs.forget_config(SessionId("session-unknown"))

    assert await store.runs.leftovers() == []
    assert await store.runs.get(SESSION) == msgspec.structs.replace(left, config=None)
    assert await store.runs.get(OTHER) == make_run(OTHER, config="/run/2")


# --- messages


async def test_a_message_is_stored_with_its_place_and_recorded_by_its_digest(store: Store) -> None:
    message = make_message("it is\0mended 😀", kind=MessageKind.RESULT, at=later(1))

    stored = await store.runs.say(message)

    assert stored.seq > 0
    assert stored == msgspec.structs.replace(message, seq=stored.seq)
    assert await store.runs.messages(SESSION) == [stored]
    log = await entries_of(store)
    assert log == [session_said(SESSION, "result", message.text, seq=stored.seq, at=later(1))]
    assert "mended" not in repr(log)


async def test_messages_are_read_oldest_first_from_a_place_on_and_only_those_of_the_session(
    store: Store,
) -> None:
    said = [await store.runs.say(make_message(f"{n}")) for n in range(3)]
    theirs = await store.runs.say(make_message(session_id=OTHER))
    said.append(await store.runs.say(make_message("3")))

    assert [message.seq for message in said] == sorted({message.seq for message in said})
    assert await store.runs.messages(SESSION) == said
    assert await store.runs.messages(SESSION, limit=2) == said[:2]
    assert await store.runs.messages(SESSION, after=said[1].seq) == said[2:]
    assert await store.runs.messages(SESSION, after=said[-1].seq) == []
    assert await store.runs.messages(OTHER) == [theirs]


async def test_messages_said_at_once_all_get_a_place_of_their_own(store: Store) -> None:
    said = await asyncio.gather(*(store.runs.say(make_message(f"{n}")) for n in range(50)))

    assert len({message.seq for message in said}) == 50
    assert await store.runs.messages(SESSION) == sorted(said, key=lambda message: message.seq)


async def test_the_place_of_a_forgotten_message_is_not_given_again(store: Store) -> None:
    await store.sessions.start(make_session())
    gone = await store.runs.say(make_message())
    await store.sessions.end(SESSION, at=later(1))
    await store.sessions.forget(older_than=later(2))
    assert await store.runs.messages(SESSION) == []

    assert (await store.runs.say(make_message())).seq > gone.seq


async def test_a_message_that_cannot_be_stored_exactly_is_refused(store: Store) -> None:
    with pytest.raises(Invalid):
        await store.runs.say(make_message("half of a pair: \ud800"))

    assert await store.runs.messages(SESSION) == []
    assert await entries_of(store) == []


async def test_what_a_parent_was_told_never_goes_back(store: Store) -> None:
    run = make_run()
    await store.runs.add(run)
    await store.runs.add(make_run(OTHER))
    log = await entries_of(store)

    await store.runs.tell(SESSION, up_to=7)
    await store.runs.tell(SESSION, up_to=3)
    await store.runs.tell(NOBODY, up_to=7)
    assert await store.runs.get(SESSION) == msgspec.structs.replace(run, told_seq=7)
    await store.runs.tell(SESSION, up_to=2**62)

    assert await store.runs.get(SESSION) == msgspec.structs.replace(run, told_seq=2**62)
    assert await store.runs.get(OTHER) == make_run(OTHER)
    assert await entries_of(store) == log
