"""What every agent goes through before the gateway, whatever library or program it is.

An agent is something whose model the test drives: it tells which tools the model is offered, and what the
model is shown of each call. Its workspace has a tool of each kind, and a server that waits to be let go.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.e2e.installed import PATH
from tests.e2e.workspaces import Workspace
from tests.upstream import odd_server

GONE_S: Final = 30.0  # in which every process of an agent that ended is gone
LOOK_EVERY_S: Final = 0.1
WHY_NOT: Final = "ask Ada first"  # what a person says with their no


class Agent(Protocol):
    """An agent that waits for what its model says next."""

    @property
    def tools(self) -> Sequence[str]:
        """The gateway's tools that the model is offered now, by the names that the gateway gave them."""
        ...

    def begin(self, tool: str, /, **arguments: object) -> None:
        """Have the model call a tool of the gateway's."""
        ...

    def finish(self) -> str:
        """Return what the model is shown of the call that was begun."""
        ...

    def call(self, tool: str, /, **arguments: object) -> str:
        """Do both."""
        ...

    def end(self) -> None:
        """Have the model say its last word, and see the agent end well."""
        ...


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A workspace before which no agent has been; `go` is the file that the server `late` waits for."""

    workspace: Workspace
    go: Path
    tally: Path

    def ran(self) -> list[str]:
        """The tools that have run, in order."""
        return self.tally.read_text().split()

    def leftovers(self) -> list[str]:
        """Those of its processes that do not end."""
        end = time.monotonic() + GONE_S
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(LOOK_EVERY_S)
        return left

    def processes(self) -> list[str]:
        """The processes that belong to it: those that know its home or its files."""
        # With their environments: that is where the gateway, and what the agent itself starts, have the home.
        command = ["ps", "axeww", "-o", "pid=,args="]
        ran = subprocess.run(command, env={"PATH": PATH}, capture_output=True, text=True, check=True)
        home = f"HOME={self.workspace.home}"
        return [line for line in ran.stdout.splitlines() if home in line.split() or str(self.tally) in line]


def open_shop(folder: Path, home: Path) -> Shop:
    """Make that workspace in an empty folder: one tool is allowed, one denied, all others are asked for."""
    go, tally = folder / "go", folder / "tally"
    place = folder / "shop"
    place.mkdir()
    odd = [sys.executable, str(odd_server.__file__), f"tally={tally}", "declares=text"]
    slowly = f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.05; done; exec {shlex.join(odd)}"
    workspace = Workspace(path=place.resolve(), home=home, notes=folder / "none")
    workspace.configure(
        {
            "permissions": {"allow": ["odd:echo", "odd:sh", "late:echo"], "deny": ["odd:env"]},
            "approval": {"model_may_approve": "never"},
            "mcpServers": {
                "odd": {"command": odd[0], "args": odd[1:]},
                "late": {"command": "/bin/sh", "args": ["-c", slowly]},
            },
        }
    )
    return Shop(workspace=workspace, go=go, tally=tally)


def reach(agent: Agent, server: str, action: str, **arguments: object) -> str:
    """Call the tool as this client can: by its name, if it was listed, or through `call`."""
    wire = f"{server}__{action}"
    if wire in agent.tools:
        return agent.call(wire, **arguments)
    agent.begin("call", tool=f"{server}:{action}", arguments=arguments)
    return finish_unlisted(agent, wire, **arguments)


def finish_unlisted(agent: Agent, wire: str, **arguments: object) -> str:
    """Finish a call through `call`; a client that has listed the tool since has its model told the name."""
    shown = agent.finish()
    return agent.call(wire, **arguments) if "is listed by its own name" in shown else shown


def ask(agent: Agent) -> dict[str, object]:
    """Call what nobody has decided about, and return the argument by which it is continued."""
    asked = reach(agent, "odd", "bark")
    see(asked, "Approval required to call odd:bark")
    [workflow_id] = set(re.findall(r"workflow_id\W+([0-9a-f-]{36})", asked))
    return {"workflow_id": workflow_id, "approved": True}


def see(shown: str, expected: str) -> None:
    assert expected in shown, f"the model was shown:\n{shown}"


def see_echo(shown: str, text: str) -> None:
    """See what the tool itself answered: a question would quote the text too."""
    see(shown, text)
    assert "Approval required" not in shown


def walk_through(agent: Agent, shop: Shop) -> None:
    """Do all that an agent may come to do, and see that its model is told of it; then end."""
    assert {"discover", "call", "execute"} <= set(agent.tools)
    assert not any(name.startswith("late__") for name in agent.tools)

    agent.begin("call", tool="late:echo", arguments={"text": "good morning"})
    shop.go.touch()
    see_echo(finish_unlisted(agent, "late__echo", text="good morning"), "good morning")
    see(agent.call("discover", query="late:echo"), "late:echo")
    see_echo(reach(agent, "late", "echo", text="good evening"), "good evening")

    see_echo(reach(agent, "odd", "echo", text="hello"), "hello")
    see(reach(agent, "odd", "env"), "Tool odd:env is denied by user config")
    go_on = ask(agent)
    assert shop.ran() == ["echo"] * 3
    agent.begin("call", continue_workflow=go_on)
    shop.workspace.allow()
    shown = agent.finish()
    if "still undecided" in shown:  # the person was slower than this client's requests may be
        shown = agent.call("call", continue_workflow=go_on)
    see(shown, "barked")
    see(agent.call("call", continue_workflow=go_on), "Workflow expired or not found")
    assert shop.ran() == ["echo", "echo", "echo", "bark"]

    go_on = ask(agent)
    shop.workspace.deny(WHY_NOT)
    shown = agent.call("call", continue_workflow=go_on)
    see(shown, "Tool execution denied by user")
    see(shown, WHY_NOT)
    assert shop.ran() == ["echo", "echo", "echo", "bark"]

    assert any("pml stdio" in line for line in shop.processes())
    agent.end()
    assert shop.leftovers() == []
