"""Agents of the libraries openai-agents and pydantic-ai before the gateway: what their models are shown.

Their models are driven by the test, a turn at a time. `make clients` installs them and prints their versions.
"""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.e2e.agent_rig import Shop, ask, see, walk_through
from tests.e2e.installed import ROOT, SCRIPTS, bare_environment
from tests.e2e.workspaces import Workspace
from tests.promises import promise

PYTHON: Final = ROOT / ".venv" / "agents" / "bin" / "python"
RUN_S: Final = 120.0  # only ever reached by an agent that hangs
LIBRARIES: Final = ("openai-agents", "pydantic-ai")


class LibraryAgent:
    """An agent that waits for what its model says next."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.tools: list[str] = []
        self.first = self._read()

    def begin(self, tool: str, /, **arguments: object) -> None:
        """Have the model call a tool."""
        self._say({"tool": tool, "arguments": arguments})

    def finish(self) -> str:
        """Return what the model is shown of the call that was begun."""
        saw = self._read()["saw"]
        return saw if isinstance(saw, str) else json.dumps(saw)

    def call(self, tool: str, /, **arguments: object) -> str:
        self.begin(tool, **arguments)
        return self.finish()

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
def running(library: str, workspace: Workspace, **variables: str) -> Generator[LibraryAgent]:
    if not (PYTHON.parents[1] / ".ready").exists():
        pytest.skip("needs the libraries of tests/clients/requirements.txt: `make clients` installs them")
    gateway = workspace.gateway
    command = [str(PYTHON), str(SCRIPTS / "library_agent.py"), library, gateway.command, *gateway.args]
    environment = {**bare_environment(workspace.home), **gateway.env, **variables}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=workspace.path, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            yield LibraryAgent(process)
        finally:
            process.kill()


@promise("list:late-tool-reached")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_connects_while_a_server_is_slow_and_is_told_everything_in_its_turns(
    library: str, shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(library, shop.workspace) as agent:
        with capsys.disabled():
            print(f"\n{agent.first['library']} {agent.first['version']}")
        walk_through(agent, shop)


def test_an_agent_that_ends_every_request_after_five_seconds_hears_that_nobody_has_decided(
    shop: Shop,
) -> None:
    with running("openai-agents", shop.workspace) as agent:
        see(agent.call("call", continue_workflow=ask(agent)), "still undecided")
        agent.end()
