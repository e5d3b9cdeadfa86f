"""Launched agents: never wider than who launched them, and over, with all that was theirs, when they end."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from pml.core.approvals.record import OwnerId, SessionId, State
from pml.core.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from pml.core.ports.records import Session
from pml.core.sessions.agent import MessageKind, Order, Outcome, Run, RunState
from pml.core.sessions.launch import LaunchConsent
from pml.core.sessions.process import Process
from pml.core.sessions.token import Token, TokenRole
from pml.service.sessions import launcher as launching
from pml.service.sessions.launcher import (
    MAX_CHILDREN,
    MAX_DEPTH,
    MAX_MESSAGE,
    MAX_PROMPT,
    MAX_RUNS,
    Launcher,
    Wish,
    close_left_runs,
)
from pml.service.sessions.tokens import identify_bearer
from pml.service.upkeep import end_session
from pml.store.sqlite.store import SqliteStore
from pml.testing.store import MemoryStore
from tests.builders import OWNER, PERSON, WORKSPACE, make_order
from tests.fakes import FakeAgents
from tests.promises import promise
from tests.service.families import Asker, join
from tests.service.offices import BOUND_S, Office

CONSENT = LaunchConsent(why="a person said so")
WISH = Wish(prompt="mend the shop")
GONE = OwnerId("gone")


class Yard:
    """A launcher with agents that do as the test says; `ended` are the sessions of which it was told."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.agents = FakeAgents()
        self.ended: list[SessionId] = []
        self.launcher = Launcher(office.context, self.agents, self._note)

    async def _note(self, session_id: SessionId) -> None:
        self.ended.append(session_id)

    async def launch(self, wish: Wish = WISH, *, parent: Session | None = None) -> Session:
        """Launch an agent and return its session once it runs."""
        session = await self.launcher.launch(
            wish, parent=parent, workspace=str(self.office.workspace), by=PERSON, consent=CONSENT
        )
        await self.agents.until_running()
        return await self.session(session.id)

    async def session(self, session_id: SessionId) -> Session:
        session = await self.office.context.store.sessions.get(session_id)
        assert session is not None
        return session

    async def run(self, session_id: SessionId) -> Run:
        run = await self.office.context.store.runs.get(session_id)
        assert run is not None
        return run

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(BOUND_S):
            with self.office.context.store.changes.watch() as changes:
                while not await holds():
                    await changes.wait(0.1)

    async def until_over(self, session_id: SessionId) -> None:
        async def over() -> bool:
            return session_id in self.ended

        await self.until(over)

    async def tokens(self, session_id: SessionId) -> list[Token]:
        return [
            each for each in await self.office.context.store.tokens.all() if each.session_id == session_id
        ]

    async def assert_over(self, session_id: SessionId, state: RunState, result: str | None) -> None:
        """Check that the run has ended so, and that nothing of it is left."""
        run, session = await self.run(session_id), await self.session(session_id)
        assert (run.state, run.result, run.config) == (state, result, None)
        assert session.ended_at is not None
        assert all(token.revoked_at is not None for token in await self.tokens(session_id))
        assert self.agents.config_folder(session_id) not in self.agents.configs


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def yard(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Yard]:
    store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "db", OWNER)
    yard = Yard(Office(store, tmp_path))
    yield yard
    async with asyncio.timeout(BOUND_S):
        await yard.launcher.close()
    await store.close()


@pytest.fixture
async def top(yard: Yard) -> Session:
    return await join(yard.office, "top")


# What is launched


async def test_an_agent_is_launched_with_what_was_wished_and_a_token_of_its_own(
    yard: Yard, top: Session
) -> None:
    (yard.office.workspace / "within").mkdir()
    wish = Wish(
        prompt="mend it", name="mender", cwd="within", model="big", tools=("Read", "notes:*"), ttl_s=60
    )

    session = await yard.launch(wish, parent=top)

    order, token = yard.agents.ran[session.id]
    assert order == Order(
        prompt="mend it",
        cwd=str(yard.office.workspace / "within"),
        model="big",
        tools=("Read", "notes:*"),
        loopback=True,
        may_launch=False,
        arguments=(),
    )
    assert (session.name, session.parent_id, session.role) == ("mender", top.id, TokenRole.CHILD)
    assert (session.tools, session.waits, session.ttl_s) == (("Read", "notes:*"), True, 60)
    assert session.workspace == str(yard.office.workspace)
    identity = await identify_bearer(yard.office.context, f"Bearer {token}")
    assert identity is not None
    assert (identity.role, identity.session_id) == (TokenRole.CHILD, session.id)
    assert (await yard.run(session.id)).state in (RunState.STARTING, RunState.RUNNING)


@promise("launch:a-persons-to-allow")
async def test_without_a_persons_yes_no_session_launches(yard: Yard, top: Session) -> None:
    with pytest.raises(Forbidden):
        await yard.launcher.launch(WISH, parent=top, workspace=top.workspace, by=PERSON)

    assert yard.agents.ran == {}


@promise("launch:never-wider-than-parent")
async def test_only_one_that_may_launch_gets_the_role_for_it(yard: Yard, top: Session) -> None:
    plain = await yard.launch(parent=top)
    trusted = await yard.launch(Wish(prompt="x", may_launch=True), parent=top)

    assert (plain.role, trusted.role) == (TokenRole.CHILD, TokenRole.SESSION)
    with pytest.raises(Forbidden):
        await yard.launcher.launch(WISH, parent=plain, workspace=plain.workspace, consent=CONSENT)
    assert (await yard.launch(parent=trusted)).parent_id == trusted.id


async def test_an_agent_without_loopback_does_not_wait(yard: Yard, top: Session) -> None:
    session = await yard.launch(Wish(prompt="x", loopback=False), parent=top)

    assert not session.waits


@promise("launch:never-wider-than-parent")
@pytest.mark.parametrize(
    ("own", "wished", "gets"),
    [
        (None, None, None),
        (None, ("Bash",), ("Bash",)),
        (("Read", "notes:*"), None, ("Read", "notes:*")),
        (("Read", "notes:*"), ("notes:add",), ("notes:add",)),
        (("Read", "notes:*"), ("notes:a*", "Read"), ("notes:a*", "Read")),
        (("Read",), (), ()),
        (("create_*",), ("github:create_issue",), ("github:create_issue",)),
        ((), None, ()),
    ],
)
async def test_a_child_gets_what_its_parent_has_or_less(
    yard: Yard,
    own: tuple[str, ...] | None,
    wished: tuple[str, ...] | None,
    gets: tuple[str, ...] | None,
) -> None:
    parent = await join(yard.office, "bound", tools=own)

    session = await yard.launch(Wish(prompt="x", tools=wished), parent=parent)

    assert session.tools == gets
    assert yard.agents.ran[session.id][0].tools == gets


@promise("launch:never-wider-than-parent")
@pytest.mark.parametrize(
    "wished", [("Bash",), ("*",), ("notes:*", "*:add"), ("Rea?",), ("R*",), ("git*:add",), ("notes?add",)]
)
async def test_a_child_gets_nothing_that_its_parent_has_not(yard: Yard, wished: tuple[str, ...]) -> None:
    parent = await join(yard.office, "bound", tools=("Read", "notes:*"))

    with pytest.raises(Forbidden):
        await yard.launcher.launch(
            Wish(prompt="x", tools=wished), parent=parent, workspace=parent.workspace, consent=CONSENT
        )

    assert await yard.office.context.store.runs.live() == []


@pytest.mark.parametrize(
    "wish",
    [
        Wish(prompt=" \n"),
        Wish(prompt="x" * (MAX_PROMPT + 1)),
        Wish(prompt="\ud800"),
        Wish(prompt="x", name="\ud800"),
        Wish(prompt="x", name="n" * 101),
        Wish(prompt="x", name="two\nlines"),
        Wish(prompt="x", name="hid\u200bden"),
        Wish(prompt="x", model=""),
        Wish(prompt="x", model="--dangerously-skip-permissions"),
        Wish(prompt="x", ttl_s=0),
        Wish(prompt="x", ttl_s=24 * 3600 + 1),
        Wish(prompt="x", cwd="\0"),
        Wish(prompt="x", cwd=".."),
        Wish(prompt="x", cwd="/"),
        Wish(prompt="x", cwd="../shop-of-another"),
        Wish(prompt="x", cwd="within/../../.."),
    ],
)
async def test_a_wish_that_makes_no_sense_starts_nothing_and_leaves_nothing(
    yard: Yard, top: Session, wish: Wish
) -> None:
    (yard.office.workspace.parent / "shop-of-another").mkdir()
    before = await yard.office.kinds()

    with pytest.raises(Invalid):
        await yard.launcher.launch(wish, parent=top, workspace=top.workspace, consent=CONSENT)

    assert yard.agents.ran == {}
    assert await yard.office.context.store.runs.live() == []
    assert await yard.office.context.store.sessions.descendants(top.id) == []
    assert await yard.office.kinds() == before


@promise("launch:never-wider-than-parent")
async def test_a_link_leads_no_agent_out_of_the_workspace(yard: Yard, top: Session) -> None:
    outside = yard.office.workspace.parent / "outside"
    outside.mkdir()
    (yard.office.workspace / "inside").mkdir()
    (yard.office.workspace / "out").symlink_to(outside)
    (yard.office.workspace / "in").symlink_to(yard.office.workspace / "inside")

    for cwd in ("out", "out/deeper", str(yard.office.workspace / "out")):
        with pytest.raises(Invalid, match="not within the workspace"):
            await yard.launcher.launch(
                Wish(prompt="x", cwd=cwd), parent=top, workspace=top.workspace, consent=CONSENT
            )

    session = await yard.launch(Wish(prompt="x", cwd="in"), parent=top)
    assert yard.agents.ran[session.id][0].cwd == str(yard.office.workspace / "inside")


# How many


async def test_sessions_stand_only_so_deep(yard: Yard, top: Session) -> None:
    session = top
    for _ in range(MAX_DEPTH - 1):
        session = await yard.launch(Wish(prompt="x", may_launch=True), parent=session)

    with pytest.raises(Forbidden, match="at the bottom"):
        await yard.launcher.launch(WISH, parent=session, workspace=session.workspace, consent=CONSENT)

    assert len(yard.agents.ran) == MAX_DEPTH - 1


async def test_a_session_has_only_so_many_children_at_once(yard: Yard, top: Session) -> None:
    children = [await yard.launch(parent=top) for _ in range(MAX_CHILDREN)]
    with pytest.raises(Conflict):
        await yard.launcher.launch(WISH, parent=top, workspace=top.workspace, consent=CONSENT)

    yard.agents.end(children[0].id)
    await yard.until_over(children[0].id)

    await yard.launch(parent=top)


async def test_the_limit_holds_for_launches_at_the_same_time(yard: Yard, top: Session) -> None:
    launches = [
        yard.launcher.launch(WISH, parent=top, workspace=top.workspace, consent=CONSENT)
        for _ in range(MAX_CHILDREN + 3)
    ]

    async with asyncio.timeout(BOUND_S):
        done = await asyncio.gather(*launches, return_exceptions=True)

    assert sum(isinstance(each, Conflict) for each in done) == 3
    assert len(await yard.office.context.store.runs.live()) == MAX_CHILDREN


async def test_only_so_many_agents_run_in_all(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_RUNS == 32
    monkeypatch.setattr(launching, "MAX_RUNS", 3)
    for _ in range(3):
        await yard.launch()

    with pytest.raises(Conflict):
        await yard.launcher.launch(WISH, parent=None, workspace=str(yard.office.workspace))

    assert len(yard.agents.ran) == 3


async def test_a_launch_that_fails_half_way_leaves_nothing_live(
    yard: Yard, top: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(yard.office.context.store.tokens, "add", fail)

    with pytest.raises(Unavailable):
        await yard.launcher.launch(WISH, parent=top, workspace=top.workspace, consent=CONSENT)

    (session,) = await yard.office.context.store.sessions.descendants(top.id)
    assert session.ended_at is not None
    assert await yard.office.context.store.runs.live() == []
    assert yard.agents.ran == {}


# How it goes


async def test_what_an_agent_tells_is_kept(yard: Yard) -> None:
    session = await yard.launch()
    told = yard.agents.told[session.id]

    await told.said(MessageKind.TEXT, "x" * (MAX_MESSAGE + 1))
    await told.counted(turns=3, cost_usd=0.25)

    run = await yard.run(session.id)
    (message,) = await yard.office.context.store.runs.messages(session.id)
    assert (run.turns, run.cost_usd, len(message.text)) == (3, 0.25, MAX_MESSAGE)

    async def has_process() -> bool:
        return (await yard.session(session.id)).process == yard.agents.process(session.id)

    await yard.until(has_process)


# How it ends


@promise("launch:ends-with-parent")
@pytest.mark.parametrize("state", [RunState.DONE, RunState.FAILED])
async def test_an_agent_that_ends_takes_its_token_its_questions_and_its_configuration_with_it(
    yard: Yard, top: Session, state: RunState
) -> None:
    session = await yard.launch(parent=top)
    _, token = yard.agents.ran[session.id]
    asker = Asker(yard.office, session)
    record = await asker.question()

    yard.agents.end(session.id, state, result="that is that")
    await yard.until_over(session.id)

    await yard.assert_over(session.id, state, "that is that")
    assert await identify_bearer(yard.office.context, f"Bearer {token}") is None
    assert not (await asker.answer()).allow
    assert await yard.office.status(record) is State.CANCELLED
    assert yard.ended == [session.id]


@pytest.mark.parametrize(
    ("error", "result"),
    [(Unavailable("no claude here"), "no claude here"), (OSError("what?"), "internal error")],
)
async def test_an_agent_that_cannot_be_started_is_over(
    yard: Yard, top: Session, error: Exception, result: str
) -> None:
    yard.agents.error = error

    session = await yard.launch(parent=top)
    await yard.until_over(session.id)

    await yard.assert_over(session.id, RunState.FAILED, result)


async def test_an_agent_is_stopped(yard: Yard, top: Session) -> None:
    session = await yard.launch(parent=top)

    async with asyncio.timeout(BOUND_S):
        await yard.launcher.stop(session.id, reason="enough")

    await yard.assert_over(session.id, RunState.STOPPED, "enough")
    with pytest.raises(NotFound):
        await yard.launcher.stop(session.id, reason="again")


@promise("launch:ends-with-parent")
@pytest.mark.parametrize("yard", ["memory"], indirect=True)
async def test_an_agent_that_is_stopped_before_its_first_step_is_over_too(yard: Yard, top: Session) -> None:
    launching = asyncio.create_task(
        yard.launcher.launch(WISH, parent=top, workspace=top.workspace, consent=CONSENT)
    )
    closing = asyncio.create_task(yard.launcher.close())  # its turn comes between the launch and the agent's
    async with asyncio.timeout(BOUND_S):
        session, _ = await asyncio.gather(launching, closing)

    assert yard.agents.ran == {}
    await yard.assert_over(session.id, RunState.STOPPED, "the hub stopped")
    assert await yard.office.context.store.runs.live() == []


async def test_one_that_is_stopped_twice_is_left_to_end_in_peace(yard: Yard, top: Session) -> None:
    may_end = asyncio.Event()
    stopped = asyncio.Event()

    async def take_time() -> None:
        await may_end.wait()
        stopped.set()

    yard.agents.before_end = take_time
    session = await yard.launch(parent=top)
    first = asyncio.create_task(yard.launcher.stop(session.id, reason="enough"))
    for _ in range(5):
        await asyncio.sleep(0)
    second = asyncio.create_task(yard.launcher.close())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not second.done()

    may_end.set()
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(first, second)

    assert stopped.is_set()
    await yard.assert_over(session.id, RunState.STOPPED, "enough")


@promise("launch:ends-with-parent")
@pytest.mark.parametrize("way", ["done", "stopped", "crashed", "store fails"])
async def test_what_an_agent_launched_ends_with_it(
    yard: Yard, top: Session, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    middle = await yard.launch(Wish(prompt="x", may_launch=True), parent=top)
    below = await yard.launch(Wish(prompt="x", may_launch=True), parent=middle)
    lowest = await yard.launch(parent=below)
    beside = await yard.launch(parent=top)

    async with asyncio.timeout(BOUND_S):
        match way:
            case "stopped":
                await yard.launcher.stop(middle.id, reason="enough")
            case "store fails":
                forget = yard.office.context.store.runs.forget_config

                async def fail(session_id: SessionId) -> None:
                    if session_id == middle.id:
                        raise Unavailable("the disk is full")
                    await forget(session_id)

                monkeypatch.setattr(yard.office.context.store.runs, "forget_config", fail)
                yard.agents.end(middle.id)
            case _:
                yard.agents.end(middle.id, RunState.DONE if way == "done" else RunState.FAILED)
        await yard.until_over(below.id)
        await yard.until_over(lowest.id)

    for session in (below, lowest):
        assert (await yard.run(session.id)).state is RunState.STOPPED
        assert (await yard.session(session.id)).ended_at is not None
    assert (await yard.run(beside.id)).state is not RunState.STOPPED


@promise("launch:ends-with-parent")
async def test_agents_whose_session_ended_elsewhere_are_stopped(yard: Yard, top: Session) -> None:
    session = await yard.launch(parent=top)
    alone = await yard.launch()
    assert await yard.launcher.stop_orphans() == 0

    await end_session(yard.office.context, top)
    async with asyncio.timeout(BOUND_S):
        assert await yard.launcher.stop_orphans() == 1

    await yard.assert_over(session.id, RunState.STOPPED, "the session that launched it ended")
    assert (await yard.session(alone.id)).ended_at is None


@promise("launch:ends-with-parent")
async def test_a_session_that_has_ended_launches_nothing(yard: Yard, top: Session) -> None:
    await end_session(yard.office.context, top)

    with pytest.raises(Conflict):
        await yard.launcher.launch(WISH, parent=top, workspace=top.workspace, consent=CONSENT)

    assert yard.agents.ran == {}


async def test_all_agents_end_with_the_hub(yard: Yard, top: Session) -> None:
    sessions = [await yard.launch(parent=top), await yard.launch()]

    async with asyncio.timeout(BOUND_S):
        await yard.launcher.close()

    for session in sessions:
        await yard.assert_over(session.id, RunState.STOPPED, "the hub stopped")


# Of a person at a terminal


async def test_a_person_gets_the_outcome_of_what_runs_here(yard: Yard) -> None:
    running = asyncio.create_task(
        yard.launcher.run_here(
            make_order(arguments=("--verbose",)), name="mine", workspace=WORKSPACE, ttl_s=None, by=PERSON
        )
    )
    await yard.agents.until_running()
    (session_id,) = yard.agents.ran
    yard.agents.end(session_id, result="mended")

    async with asyncio.timeout(BOUND_S):
        assert await running == Outcome(state=RunState.DONE, exit_code=0, result="mended")
    await yard.assert_over(session_id, RunState.DONE, "mended")


async def test_an_interrupted_person_leaves_nothing_behind(yard: Yard) -> None:
    running = asyncio.create_task(
        yard.launcher.run_here(make_order(), name=None, workspace=WORKSPACE, ttl_s=None, by=PERSON)
    )
    await yard.agents.until_running()
    (session_id,) = yard.agents.ran

    running.cancel()
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(asyncio.CancelledError):
            await running

    await yard.assert_over(session_id, RunState.STOPPED, "interrupted")


# After a crash of the hub


@promise("launch:ends-with-parent")
async def test_runs_whose_keeper_died_are_ended_and_cleared_away(yard: Yard, top: Session) -> None:
    left, kept = await yard.launch(parent=top), await yard.launch(parent=top)
    other = Launcher(yard.office.context_of(GONE), agents := FakeAgents(), None)
    lost = await other.launch(WISH, parent=top, workspace=top.workspace, consent=CONSENT)
    await agents.until_running()

    async def has_process() -> bool:
        return (await yard.session(lost.id)).process is not None

    await yard.until(has_process)
    process = (await yard.session(lost.id)).process
    assert process is not None
    yard.office.processes.alive.add(process)
    assert await close_left_runs(yard.office.context, agents) == 0

    yard.office.owners.others.discard(GONE)
    assert await close_left_runs(yard.office.context, agents) == 1

    assert agents.killed == [process]
    run, session = await yard.run(lost.id), await yard.session(lost.id)
    assert (run.state, run.result, run.config) == (RunState.FAILED, "PML ended while it ran", None)
    assert session.ended_at is not None
    assert [token.revoked_at is None for token in await yard.tokens(lost.id)] == [False]
    assert agents.configs == set()
    for running in (left, kept):
        assert (await yard.session(running.id)).ended_at is None
    assert await close_left_runs(yard.office.context, agents) == 0
    yard.office.owners.others.add(GONE)
    async with asyncio.timeout(BOUND_S):
        await other.close()


async def test_a_process_that_took_the_number_of_a_lost_agents_is_left_alone(
    yard: Yard, top: Session
) -> None:
    other = Launcher(yard.office.context_of(GONE), agents := FakeAgents(), None)
    lost = await other.launch(WISH, parent=top, workspace=top.workspace, consent=CONSENT)
    await agents.until_running()
    yard.office.processes.alive.add(Process(pid=1000, started=99.0))
    yard.office.owners.others.discard(GONE)

    assert await close_left_runs(yard.office.context, agents) == 1

    assert agents.killed == []
    assert (await yard.run(lost.id)).state is RunState.FAILED
    async with asyncio.timeout(BOUND_S):
        await other.close()


async def test_a_configuration_that_could_not_be_removed_is_removed_later(yard: Yard, top: Session) -> None:
    session = await yard.launch(parent=top)
    folder = yard.agents.config_folder(session.id)
    await yard.office.context.store.runs.move(session.id, RunState.FAILED, at=yard.office.clock.now())

    assert await close_left_runs(yard.office.context, yard.agents) == 0

    assert folder not in yard.agents.configs
    assert (await yard.run(session.id)).config is None
