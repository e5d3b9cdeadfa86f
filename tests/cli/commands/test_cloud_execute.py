"""`pml cloud --execute` as a process: it runs what its folder has, for who has a token, by its own rules."""

import asyncio
import json
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import Unavailable
from pml.upstream.cloud.client import CloudClient
from tests.cli.commands.test_cloud import cloud, ready
from tests.commands import TIMEOUT_S, Pml
from tests.promises import promise
from tests.registry.places import GREET, fill

ARGUMENTS = {"who": "Ann"}
CODE = "async def greet(args, mcp):\n    return {'hello': args['who']}\n"


@pytest.fixture
def registry(workspace: Path) -> Path:
    """A registry with a capability in Python, which the rules of the workspace may allow."""
    folder = fill(workspace / "registry", code=None, type="python", routing="server")
    (folder / f"{GREET}.py").write_text(CODE)
    return folder


def rule(workspace: Path, pml: Pml, **lists: list[str]) -> None:
    permissions = {"allow": [], "deny": [], "ask": ["*"], **lists}
    (workspace / ".pml.json").write_text(json.dumps({"version": "0.1.0", "permissions": permissions}))
    assert pml("trust", "--yes").code == 0


def make_key(pml: Pml) -> dict[str, Any]:
    return pml("token", "create", "--role", "session", "--name", "bob", "--json").json


def call(url: str, key: str | None) -> Any:
    async def one() -> bytes:
        client = CloudClient()
        try:
            return await client.call(url, GREET, ARGUMENTS, key=key)
        finally:
            await client.close()

    return json.loads(asyncio.run(one()))


@promise("cloud:own-rules")
def test_it_runs_what_its_rules_allow_for_whoever_has_a_token(
    workspace: Path, registry: Path, pml: Pml
) -> None:
    rule(workspace, pml, allow=["text:greet"])
    key = make_key(pml)
    with cloud("--folder", "registry", "--execute", "--json") as process:
        told = ready(process)
        assert told["executes"] is True
        result = call(told["url"], key["token"])
        assert result["structuredContent"]["result"] == {"hello": "Ann"}
        with pytest.raises(Unavailable, match="wants a key"):
            call(told["url"], None)
        assert pml("token", "revoke", key["id"]).code == 0
        with pytest.raises(Unavailable, match="refuses the key"):
            call(told["url"], key["token"])


@promise("cloud:own-rules")
def test_it_runs_nothing_that_its_rules_deny_or_ask_about(workspace: Path, registry: Path, pml: Pml) -> None:
    rule(workspace, pml, deny=["text:*"])
    key = make_key(pml)
    with cloud("--folder", "registry", "--execute", "--json") as process:
        url = ready(process)["url"]
        denied = call(url, key["token"])
        assert denied["structuredContent"]["error"]["code"] == "TOOL_DENIED"
        rule(workspace, pml)
        asked = call(url, key["token"])
        assert asked["approval_required"] is True


def test_it_says_that_it_runs_tools_by_which_rules_and_how_to_make_a_key(
    workspace: Path, home: Path, registry: Path, pml: Pml
) -> None:
    with cloud("--folder", "registry", "--execute") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    url = lines[0].rsplit(" ", 1)[1].strip()
    assert f'"registry": "{url}" and "cloud": "{url}"' in lines[1]
    assert "IT RUNS TOOLS" in lines[2]
    assert str(workspace / ".pml.json") in lines[2]
    assert str(home / ".pml" / "config.json") in lines[2]
    command = re.search(r"`(pml token create [^`]+)`", lines[3])
    assert command is not None
    assert pml(*shlex.split(command[1])[1:], "--json").json["role"] == "session"
    assert "pml secrets set PML_CLOUD_KEY" in lines[3]
    assert "Ctrl-C" in lines[4]


@promise("cloud:only-with-token")
def test_it_runs_nothing_unless_it_is_asked_to(workspace: Path, registry: Path, pml: Pml) -> None:
    rule(workspace, pml, allow=["text:greet"])
    key = make_key(pml)
    with cloud("--folder", "registry", "--json") as process:
        told = ready(process)
        assert told["executes"] is False
        with pytest.raises(Unavailable, match="runs no tools") as caught:
            call(told["url"], key["token"])
    assert "pml cloud --execute" in (caught.value.hint or "")


def test_a_workspace_that_is_not_there_is_told(workspace: Path, registry: Path, pml: Pml) -> None:
    ran = pml("cloud", "--folder", "registry", "--execute", "--workspace", "none")
    assert (ran.code, "workspace `none`" in ran.err) == (1, True)
