"""Agents of the libraries openai-agents and pydantic-ai before the gateway: what their models are shown.

Their models are driven by the test, a turn at a time. `make clients` installs them and prints their versions.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.installed import ROOT, SCRIPTS, bare_environment
from tests.e2e.workspaces import Workspace
from tests.promises import promise
from tests.upstream import odd_server

PYTHON: Final = ROOT / ".venv" / "agents" / "bin" / "python"
RUN_S: Final = 120.0  # only ever reached by an agent that hangs
LOOKS: Final = 100  # at what is there; each takes a turn of the agent
LIBRARIES: Final = ("openai-agents", "pydantic-ai")


class Agent:
    """An agent that waits for what its model says next."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.tools: list[str] = []
        self.first = self._read()

    def call(self, tool: str, /, **arguments: object) -> str:
        """Have the model call a tool, and return what it is shown then."""
        self._say({"tool": tool, "arguments": arguments})
        saw = self._read()["saw"]
        return saw if isinstance(saw, str) else json.dumps(saw)

    def end(self) -> None:
        self._say(None)
        assert self._process.wait(RUN_S) == 0

    def _say(self, order: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the agent ended"
        turn = json.loads(line)
        self.tools = turn["tools"]
        return turn


@contextmanager
def running(library: str, workspace: Workspace) -> Generator[Agent]:
    if not (PYTHON.parents[1] / ".ready").exists():
        pytest.skip("needs the libraries of tests/clients/requirements.txt: `make clients` installs them")
    gateway = workspace.gateway
    command = [str(PYTHON), str(SCRIPTS / "library_agent.py"), library, gateway.command, *gateway.args]
    environment = {**bare_environment(workspace.home), **gateway.env}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=workspace.path, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            yield Agent(process)
        finally:
            process.kill()


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """What the server `late` waits for before it starts."""
    return tmp_path / "go"


@pytest.fixture
def place(tmp_path: Path, home: Path, go: Path) -> Workspace:
    folder = tmp_path / "shop"
    folder.mkdir()
    odd = [sys.executable, str(odd_server.__file__), f"tally={tmp_path / 'tally'}"]
    slowly = f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.05; done; exec {shlex.join(odd)}"
    workspace = Workspace(path=folder.resolve(), home=home, notes=tmp_path / "none")
    workspace.configure(
        {
            "permissions": {"allow": ["odd:echo", "late:echo"], "deny": ["odd:env"]},
            "approval": {"model_may_approve": "never"},
            "mcpServers": {
                "odd": {"command": odd[0], "args": odd[1:]},
                "late": {"command": "/bin/sh", "args": ["-c", slowly]},
            },
        }
    )
    return workspace


def reach(agent: Agent, server: str, action: str, **arguments: object) -> str:
    """Call the tool as this client can: by its name, if it was listed, or through `call`."""
    wire = f"{server}__{action}"
    if wire in agent.tools:
        return agent.call(wire, **arguments)
    return agent.call("call", tool=f"{server}:{action}", arguments=arguments)


def wait_for_tool(agent: Agent, tool: str) -> None:
    """Look until the tool is known."""
    for _ in range(LOOKS):
        if tool in agent.call("discover", query=tool):
            return
    raise AssertionError(f"{tool} was never found")


def leftovers(mark: Path) -> list[str]:
    """The processes that have the folder in their command line."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if str(mark) in line and not line.startswith("ps ")]


@promise("list:late-tool-reached")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_connects_while_a_server_is_slow_and_is_told_everything_in_its_turns(
    library: str, place: Workspace, go: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(library, place) as agent:
        with capsys.disabled():
            print(f"\n{agent.first['library']} {agent.first['version']}")
        assert {"discover", "call", "execute"} <= set(agent.tools)
        assert not any(name.startswith("late__") for name in agent.tools)

        wait_for_tool(agent, "odd:echo")
        assert "hello" in reach(agent, "odd", "echo", text="hello")
        assert "Tool odd:env is denied by user config" in reach(agent, "odd", "env")

        asked = reach(agent, "odd", "progress")
        assert "Approval required to call odd:progress" in asked
        [workflow_id] = set(re.findall(r"workflow_id\W+([0-9a-f-]{36})", asked))
        go_on = {"workflow_id": workflow_id, "approved": True}
        assert "still undecided" in agent.call("call", continue_workflow=go_on)
        place.allow()
        assert "Approval required" not in agent.call("call", continue_workflow=go_on)
        assert "Workflow expired or not found" in agent.call("call", continue_workflow=go_on)

        go.touch()
        wait_for_tool(agent, "late:echo")
        assert "hello" in reach(agent, "late", "echo", text="hello")
        agent.end()
    assert leftovers(tmp_path) == []
