"""One paste of what people have: `pml import`, one yes, and Claude Code uses all of it through PML.

A program by npx, one of Python with a key, a server elsewhere that wants a header, and one behind a login.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.e2e import claude_print
from tests.e2e.agent_rig import Agent, Shop, reach, see
from tests.e2e.command_agents import running
from tests.e2e.installed import bare_environment, network_settings
from tests.e2e.workspaces import Workspace
from tests.oauth.rig import consent, issuer_running, protected_running
from tests.oauth.rig import running as program_running
from tests.promises import promise

HEADER: Final = "ghp_0123456789abcdefABCDEF0123456789abcd"
KEY: Final = "sk-proj-S3cretS3cretS3cret"
BOUND_S: Final = 300.0  # only ever reached by a network that hangs
NO_KEYRING: Final = {"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
HERE: Final = Path(__file__).parent


def pml(place: Workspace, *argv: str) -> "subprocess.Popen[str]":
    """Start `pml` as a person does in that workspace."""
    return subprocess.Popen(
        [sys.executable, "-m", "pml", *argv],
        cwd=place.path,
        env={**bare_environment(place.home), **place.network, "PML_HOME": os.environ["PML_HOME"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def log_in(place: Workspace) -> None:
    with pml(place, "login", "vault", "--no-browser") as process:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if "/auth?" in line:
                break
        else:
            raise AssertionError("".join(lines))
        consent(lines[-1].strip())
        out, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 0, out + err


def use(agent: Agent, place: Workspace, server: str, action: str, **arguments: object) -> str:
    """Call a tool, see that it is asked about, allow it as a person, and return what the model is shown."""
    asked = reach(agent, server, action, **arguments)
    see(asked, f"Approval required to call {server}:{action}")
    [workflow_id] = set(re.findall(r"workflow_id\W+([0-9a-f-]{36})", asked))
    place.allow()
    return agent.call("call", continue_workflow={"workflow_id": workflow_id, "approved": True})


@promise("import:one-yes")
@promise("import:no-value-shown")
def test_four_servers_of_a_list_come_over_with_one_yes_and_claude_code_uses_each_of_them(
    tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    place = Workspace(
        path=folder.resolve(),
        home=home,
        notes=tmp_path / "none",
        network={**network_settings(), **NO_KEYRING},
    )
    place.configure({"approval": {"model_may_approve": "never"}})
    keyed = [sys.executable, str(HERE / "keyed_server.py"), HEADER]
    with (
        issuer_running() as issuer,
        protected_running(issuer, tmp_path / "calls") as vault,
        program_running(keyed) as notes,
    ):
        servers: dict[str, dict[str, object]] = {
            "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"], "env": {}},
            "clock": {"command": "uvx", "args": ["mcp-server-time"], "env": {"CLOCK_API_KEY": KEY}},
            "notes": {
                "type": "http",
                "url": notes["url"],
                "headers": {"Authorization": f"Bearer {HEADER}"},
            },
            "vault": {"type": "http", "url": vault},
        }
        (home / ".claude.json").write_text(json.dumps({"numStartups": 3, "mcpServers": servers}))
        with pml(place, "import", "--yes", "--move-secrets") as importing:
            out, err = importing.communicate(timeout=BOUND_S)
        if "check the network" in err:
            pytest.skip(f"needs the package registries, which cannot be reached: {err}")
        assert importing.returncode == 0, err
        assert "took over 4 servers" in out + err
        assert (HEADER in out + err, KEY in out + err) == (False, False)
        written = (home / ".pml" / "config.json").read_text()
        assert (HEADER in written, KEY in written) == (False, False)
        log_in(place)

        with running(
            claude_print.CLIENT, Shop(workspace=place, go=tmp_path, tally=tmp_path / "none")
        ) as agent:
            see(use(agent, place, "memory", "read_graph"), "entities")
            see(use(agent, place, "clock", "get_current_time", timezone="UTC"), "UTC")
            see(use(agent, place, "notes", "add", text="good morning"), "noted good morning")
            see(use(agent, place, "vault", "read", name="door"), "read door")
            agent.end()
        assert (tmp_path / "calls").read_text() == "read door\n"
