"""A decision in one process wakes a waiter in another, with hints, without them, and from a long path."""

from pathlib import Path

import pytest

from pml.app import open_context, person
from pml.service.approvals.lifecycle import Decision, Question, ask, decide
from tests.faults.workers import place_of, session_in, spawn
from tests.promises import promise

BOUND_S = 60.0


@promise("approval:decision-never-lost")
@pytest.mark.parametrize("hints", ["sent", "lost"])
@pytest.mark.parametrize("path", ["short", "long" * 30])
async def test_a_decision_wakes_a_waiter_in_another_process(tmp_path: Path, path: str, hints: str) -> None:
    home = tmp_path / path
    async with open_context(place_of(home)) as context:
        session = await session_in(context, home, "s")
        record = await ask(context, Question(session=session, tool="test:work", arguments={}))
        waiter = spawn("wait-for", home, record.id)
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "waiting\n"
        if hints == "lost":
            (socket,) = (home / "run").glob("*.sock")
            socket.unlink()

        await decide(context, record.id, Decision(by=person(), digest=record.digest, allow=False))

        assert waiter.communicate(timeout=BOUND_S)[0] == "denied\n"
