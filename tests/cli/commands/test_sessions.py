"""`pml sessions`: the tree, one of it, what it said, and ending it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pml.app import find_place, open_context
from pml.core.approvals.record import SessionId
from pml.core.sessions.agent import Message, MessageKind, Order, Run, RunState
from pml.core.sessions.process import Process
from pml.core.sessions.token import TokenRole
from pml.host.processes import SystemProcesses
from pml.service.approvals.consent import seek_consent
from pml.service.approvals.lifecycle import Question
from pml.service.context import Context
from pml.service.session_tree import start_session
from pml.service.sessions.tokens import create_token
from tests.commands import TIMEOUT_S, Pml, spawn
from tests.faults.gateways import until

STARTS_ANOTHER = """
import subprocess, sys
print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
sys.stdin.read()
"""
pytestmark = pytest.mark.usefixtures("workspace")


def _in_store(work: Callable[[Context], Awaitable[object]]) -> None:
    async def run() -> None:
        async with open_context(find_place()) as context:
            await work(context)

    asyncio.run(run())


async def _launch(
    context: Context,
    session_id: str,
    *,
    parent: str | None = None,
    process: Process | None = None,
    order: Order | None = None,
) -> None:
    """Write down an agent as the launcher does. This process is its keeper."""
    await start_session(
        context,
        session_id=SessionId(session_id),
        name=f"agent {session_id[:1]}",
        principal=f"session:{session_id}",
        workspace=os.getcwd(),
        process=process,
        is_agent=True,
        parent_id=None if parent is None else SessionId(parent),
        role=TokenRole.CHILD,
        waits=True,
    )
    order = order or Order(prompt="do\nit", cwd=os.getcwd())
    now = datetime.now(UTC)
    await context.store.runs.add(
        Run(session_id=SessionId(session_id), order=order, owner=context.owners.me, started_at=now)
    )
    await context.store.runs.move(SessionId(session_id), RunState.RUNNING, at=now)
    await create_token(context, role=TokenRole.CHILD, name="t", session_id=SessionId(session_id), by=None)


async def _say(context: Context, session_id: str, *texts: str) -> None:
    for text in texts:
        await context.store.runs.say(
            Message(session_id=SessionId(session_id), kind=MessageKind.TEXT, text=text, at=datetime.now(UTC))
        )


async def _family(context: Context) -> None:
    await _launch(context, "a-parent")
    await _launch(context, "b-child", parent="a-parent")
    await _launch(context, "c-other")
    await context.store.runs.count(SessionId("b-child"), turns=4, cost_usd=0.125)
    await context.store.runs.move(
        SessionId("c-other"), RunState.DONE, at=datetime.now(UTC), result="made\nit"
    )
    await context.store.sessions.end(SessionId("c-other"), at=datetime.now(UTC))


def test_sessions_are_listed_beneath_those_that_started_them(pml: Pml) -> None:
    _in_store(_family)
    _, parent, child = pml("sessions", "list").out.splitlines()
    assert parent.split() == ["agent", "a", "a-parent", "running", "0", "$0.0000", os.getcwd()]
    assert child.startswith("  agent b")
    assert child.split() == ["agent", "b", "b-child", "running", "4", "$0.1250", os.getcwd()]


def test_ended_sessions_are_listed_when_asked_for(pml: Pml) -> None:
    _in_store(_family)
    states = {
        each["id"]: each["state"] for each in pml("sessions", "list", "--all", "--json").json["sessions"]
    }
    assert states == {"a-parent": "running", "b-child": "running", "c-other": "done"}
    assert "c-other" not in pml("sessions", "list").out


def test_the_sessions_of_hubs_are_listed_only_when_asked_for(pml: Pml) -> None:
    async def fill(context: Context) -> None:
        await start_session(
            context,
            session_id=SessionId("the-hub"),
            name="hub",
            principal="hub",
            workspace=os.getcwd(),
            process=None,
            is_agent=True,
        )

    _in_store(fill)
    assert pml("sessions", "list").out == "no session runs\n"
    assert pml("sessions", "list", "--json").json == {"sessions": []}
    assert "the-hub" in pml("sessions", "list", "--all").out


def test_of_an_agent_on_its_own_screen_nothing_is_made_up(pml: Pml) -> None:
    async def fill(context: Context) -> None:
        await _launch(context, "a-screen", order=Order(prompt="", cwd=os.getcwd(), is_here=True))
        await _launch(context, "b-told")
        await context.store.runs.count(SessionId("b-told"), turns=1, cost_usd=0.5)

    _in_store(fill)
    heads, screen, told = (line.split() for line in pml("sessions", "list").out.splitlines())
    assert heads == ["SESSION", "ID", "STATE", "WAITING", "TURNS", "COST", "WORKSPACE"]
    assert screen == ["agent", "a", "a-screen", "running", os.getcwd()]
    assert told == ["agent", "b", "b-told", "running", "1", "$0.5000", os.getcwd()]
    shown = pml("sessions", "show", "a-screen").out
    assert shown.endswith("  on its own screen\n")
    assert "  1 turn, $0.5000; prompt `do\\nit`\n" in pml("sessions", "show", "b-told").out


def test_what_an_agent_says_that_pml_did_not_launch_is_not_heard(pml: Pml) -> None:
    pml.ask("github:create_issue", session="robot")
    ran = pml("sessions", "messages", "robot")
    assert ran.code == 2
    assert "PML hears only agents that it launched" in ran.err


def test_without_sessions_that_is_said(pml: Pml) -> None:
    assert pml("sessions", "list").out == "no session runs\n"


def test_one_session_is_shown_by_the_start_of_its_id(pml: Pml) -> None:
    _in_store(_family)
    ran = pml("sessions", "show", "c-")
    assert ran.code == 0
    assert r"prompt `do\nit`" in ran.out
    assert r"result: made\nit" in ran.out
    assert pml("sessions", "show", "c-other", "--json").json["run"]["result"] == "made\nit"


@pytest.mark.parametrize(("given", "code"), [("nobody", 5), ("", 5), ("x", 2)])
def test_an_id_that_names_none_or_several_is_refused(pml: Pml, given: str, code: int) -> None:
    async def fill(context: Context) -> None:
        await _launch(context, "x1")
        await _launch(context, "x2")

    _in_store(fill)
    assert pml("sessions", "show", given).code == code


def test_a_session_is_found_by_its_name_the_living_first(pml: Pml) -> None:
    async def fill(context: Context) -> None:
        for session_id in ("x-old", "x-new", "y-one", "y-two", "y-three"):
            await _launch(context, session_id)
        for session_id in ("x-old", "y-one"):
            await context.store.sessions.end(SessionId(session_id), at=datetime.now(UTC))

    _in_store(fill)
    assert pml("sessions", "show", "agent x", "--json").json["id"] == "x-new"
    several = pml("sessions", "show", "agent y")
    assert (several.code, "2 sessions are named `agent y`" in several.err) == (2, True)


def test_a_name_that_is_the_start_of_anothers_id_means_neither(pml: Pml) -> None:
    async def fill(context: Context) -> None:
        await _launch(context, "3f2a-one")
        await _launch(context, "other")
        await start_session(
            context,
            session_id=SessionId("posing"),
            name="3f2a",
            principal="robot",
            workspace=os.getcwd(),
            process=None,
            is_agent=True,
        )

    _in_store(fill)
    several = pml("sessions", "stop", "3f2a")
    assert (several.code, "2 sessions are named `3f2a` or begin with it" in several.err) == (2, True)
    assert pml("sessions", "show", "3f2a-", "--json").json["id"] == "3f2a-one"


def test_questions_are_listed_and_shown_with_the_name_of_their_session(pml: Pml) -> None:
    session_id = pml("token", "create", "--role", "session", "--name", "tidy", "--json").json["session"]

    async def ask(context: Context) -> None:
        session = await context.store.sessions.get(SessionId(session_id))
        assert session is not None
        await seek_consent(
            context, Question(session=session, tool="a:b", arguments={}), wait_s=0, on_asked=lambda _: None
        )

    _in_store(ask)
    (listed,) = pml("approvals", "list", "--session", "tidy", "--json").json["approvals"]
    shown = pml("approvals", "show", listed["id"], "--json").json
    assert (listed["session_name"], shown["session_name"]) == ("tidy", "tidy")
    for out in (pml("approvals", "list").out, pml("approvals", "show", listed["id"]).out):
        assert f"tidy ({session_id[:8]})" in out
        assert session_id not in out


def test_messages_are_printed_oldest_first_and_visible(pml: Pml) -> None:
    async def fill(context: Context) -> None:
        await _family(context)
        await _say(context, "a-parent", "first", "second\nline \u202e")

    _in_store(fill)
    lines = [line.partition(" ")[2] for line in pml("sessions", "messages", "a").out.splitlines()]
    assert lines == ["text   first", r"text   second\nline \u{202e}"]
    messages = pml("sessions", "messages", "a", "--json").json["messages"]
    assert [each["text"] for each in messages] == ["first", "second\nline \u202e"]


def test_messages_are_followed_until_the_agent_ends() -> None:
    async def begin(context: Context) -> None:
        await _launch(context, "a-parent")
        await _say(context, "a-parent", "first")

    async def end(context: Context) -> None:
        await _say(context, "a-parent", "last")
        await context.store.runs.move(SessionId("a-parent"), RunState.DONE, at=datetime.now(UTC))

    _in_store(begin)
    with spawn(["sessions", "messages", "a-parent", "--follow"]) as following:
        assert following.stdout is not None
        assert following.stdout.readline().endswith("first\n")
        _in_store(end)
        out, _ = following.communicate(timeout=TIMEOUT_S)
    assert out.endswith("last\n")
    assert following.returncode == 0


@pytest.fixture
def tree(tmp_path: Path) -> Generator[tuple[Process, int]]:
    """A process with a child in a session of its own; yields it, and its child's number."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ANOTHER], stdin=pipe, stdout=pipe, start_new_session=True
    ) as running:
        assert running.stdout is not None
        below = int(running.stdout.readline())
        found = SystemProcesses().find(running.pid)
        assert found is not None
        try:
            yield found, below
        finally:
            running.kill()


def test_stopping_ends_the_agent_what_it_launched_and_all_their_processes(
    pml: Pml, tree: tuple[Process, int]
) -> None:
    process, below = tree

    async def fill(context: Context) -> None:
        await _launch(context, "a-parent")
        await _launch(context, "b-child", parent="a-parent", process=process)

    _in_store(fill)
    ran = pml("sessions", "stop", "a-parent")
    assert (ran.code, ran.out) == (0, "stopped agent a\n")
    until(lambda: not SystemProcesses().running(process), "the agent has ended")
    until(lambda: SystemProcesses().find(below) is None, "what it started has ended")

    async def look(context: Context) -> None:
        runs = [await context.store.runs.get(SessionId(session_id)) for session_id in ("a-parent", "b-child")]
        assert [None if run is None else (run.state, run.result) for run in runs] == [
            (RunState.STOPPED, "stopped by a person"),
            (RunState.STOPPED, "the session that launched it was stopped"),
        ]
        assert [
            token.revoked_at for token in await context.store.tokens.all() if token.revoked_at is None
        ] == []

    _in_store(look)
    assert pml("sessions", "stop", "a-parent").code == 1


def test_what_pml_did_not_launch_is_not_stopped(pml: Pml) -> None:
    pml.ask("github:create_issue", session="robot")
    ran = pml("sessions", "stop", "robot")
    assert ran.code == 2
    assert "was not launched by PML" in ran.err


@pytest.mark.usefixtures("agent")
def test_an_agent_stops_nobody(pml: Pml) -> None:
    _in_store(_family)
    ran = pml("sessions", "stop", "a-parent")
    assert ran.code == 1
    assert "runs beneath the agent session" in ran.err
    assert pml("sessions", "show", "a-parent", "--json").json["state"] == "running"
