"""`make run` shows two agents that really wait for a person, with a hub of its own or beside another."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "first-look"
PML = Path(sys.executable).with_name("pml")
BOUND_S = 60


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user of this machine who has never used PML."""
    return {"HOME": str(tmp_path), "PATH": f"{PML.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"}


@contextlib.contextmanager
def started(command: list[str], environment: dict[str, str]) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=BOUND_S)


def waiting(environment: dict[str, str]) -> list[dict[str, Any]]:
    command = [str(PML), "approvals", "list", "--json"]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    return json.loads(ran.stdout)["approvals"]


def printed_until_both_wait(look: subprocess.Popen[str]) -> str:
    assert look.stdout is not None
    text = ""
    while text.count("waits for you") < 2:
        line = look.stdout.readline()
        assert line, text
        text += line
    return text


@pytest.mark.parametrize("beside", [False, True])
def test_two_agents_wait_for_whoever_opens_the_link(environment: dict[str, str], beside: bool) -> None:
    with contextlib.ExitStack() as stack:
        if beside:
            serve = [str(PML), "serve", "--port", "0", "--json"]
            hub = stack.enter_context(started(serve, environment))
            assert hub.stdout is not None
            assert hub.stdout.readline().startswith("{")
        look = stack.enter_context(started([sys.executable, str(SCRIPT)], environment))

        told = printed_until_both_wait(look)

        assert told.count("#login=pml_") == 1
        asked = {(each["session_name"], each["title"].partition("@")[0]) for each in waiting(environment)}
        assert asked == {("writer", "Call Edit"), ("planner", "Install time")}
    assert [each for each in waiting(environment) if each["session_name"] == "writer"] == []
