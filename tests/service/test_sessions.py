"""Sessions: who started whom, and that an agent does not decide for itself."""

from typing import Any

import msgspec
import pytest

from pml.core.approvals.record import Scope, SessionId
from pml.core.errors import Conflict, Invalid, MayNotDecide, NotFound
from pml.core.rules.ruleset import VerdictKind
from pml.core.sessions.process import Process
from pml.service.session_tree import descends_from, guard_person, session_of, start_session
from pml.service.upkeep import end_session
from tests.builders import NOW, later
from tests.promises import promise
from tests.service.offices import Office

ME = Process(pid=30, started=3.0)
SHELL = Process(pid=20, started=2.0)
AGENT = Process(pid=10, started=1.0)


async def test_a_session_started_again_is_the_live_one(office: Office) -> None:
    first = await office.session(process=SHELL)

    assert await office.session(process=AGENT) == first
    assert await session_of(office.context, first.id) == first
    assert first.started_at == NOW
    with pytest.raises(NotFound):
        await session_of(office.context, SessionId("nobody"))


@promise("session:own-memory")
async def test_a_session_that_ended_begins_anew_without_what_it_remembered(office: Office) -> None:
    first = await office.session(process=SHELL)
    await office.allow(await office.ask(session=first), scope=Scope.SESSION)
    await end_session(office.context, first)
    office.clock.advance(5)

    anew = await office.session(process=AGENT)

    assert anew == msgspec.structs.replace(first, process=AGENT, started_at=later(5))
    assert await office.context.store.sessions.live() == [anew]
    assert (await office.judge(session=anew)).kind is not VerdictKind.ALLOW


@promise("session:own-memory")
async def test_nobody_joins_a_session_of_another_principal_workspace_or_agent(office: Office) -> None:
    mine = await office.session()
    others: list[dict[str, Any]] = [
        {"principal": "mallory"},
        {"workspace": "/elsewhere"},
        {"is_agent": not mine.is_agent},
        {"parent_id": SessionId("parent")},
    ]
    for other in others:
        claims: dict[str, Any] = {
            "principal": mine.principal,
            "workspace": mine.workspace,
            "is_agent": mine.is_agent,
            "parent_id": mine.parent_id,
        }
        with pytest.raises(Conflict, match="belongs to"):
            await start_session(
                office.context, session_id=mine.id, name=mine.name, process=None, **(claims | other)
            )


async def test_a_session_name_that_cannot_be_stored_exactly_is_refused(office: Office) -> None:
    with pytest.raises(Invalid, match="session"):
        await office.session(SessionId("\udcff"))


async def test_descent_follows_parents_to_the_top_and_ends_in_a_circle(office: Office) -> None:
    top = await office.session(SessionId("top"), parent_id=SessionId("leaf"))
    middle = await office.session(SessionId("middle"), parent_id=top.id)
    leaf = await office.session(SessionId("leaf"), parent_id=middle.id)
    orphan = await office.session(SessionId("orphan"), parent_id=SessionId("unknown"))

    assert await descends_from(office.context, leaf, top.id)
    assert await descends_from(office.context, leaf, middle.id)
    assert not await descends_from(office.context, leaf, SessionId("stranger"))
    assert await descends_from(office.context, orphan, SessionId("unknown"))
    assert not await descends_from(office.context, orphan, top.id)


@promise("agent:nothing-unapproved")
async def test_a_command_beneath_a_registered_agent_may_not_decide(office: Office) -> None:
    office.processes.above = [ME, SHELL, AGENT]
    await office.session(process=AGENT, is_agent=True)

    with pytest.raises(MayNotDecide, match="beneath the agent session `session-1`"):
        await guard_person(office.context)


async def test_a_command_beside_an_agent_or_beneath_a_script_may_decide(office: Office) -> None:
    office.processes.above = [ME, SHELL]
    await office.session(SessionId("agent"), process=AGENT, is_agent=True)
    await office.session(SessionId("script"), process=SHELL, is_agent=False)
    await guard_person(office.context)

    office.processes.above = [ME, Process(pid=AGENT.pid, started=9.0)]
    await guard_person(office.context)
