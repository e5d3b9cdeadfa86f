"""Servers of the catalog that nobody configured, through real clients: asked about, installed, run, proven.

The packages come from the registries that this machine is set up for. Where those cannot be reached the tests
are skipped.
"""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult

from tests.e2e.claude import Setting, interactive, run_headless
from tests.e2e.clients import PYTHON, READS_S, call, connected
from tests.e2e.installed import bare_environment, need_clients, network_settings
from tests.e2e.messages_api import LAST_WORD, Conversation, MessagesApi, Use, scripted
from tests.e2e.workspaces import Workspace
from tests.promises import promise

INSTALL_S: Final = 300.0  # only ever reached by a network that hangs
NOW: Final = "time:get_current_time"
UTC: Final[Mapping[str, object]] = {"tool": NOW, "arguments": {"timezone": "UTC"}}
TOKYO: Final[Mapping[str, object]] = {"tool": NOW, "arguments": {"timezone": "Asia/Tokyo"}}
GRAPH: Final[Mapping[str, object]] = {"tool": "memory:read_graph", "arguments": {}}
TIME_RULE: Final = {"permissions": {"allow": ["time:*"]}}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of PML in which the server `time` is installed, as a rule allowed."""
    place = tmp_path_factory.mktemp("installed")
    home = place / ".pml"
    home.mkdir(mode=0o700)
    (home / "config.json").write_text(json.dumps(TIME_RULE))
    ran = subprocess.run(
        [sys.executable, "-m", "pml", "call", NOW, '{"timezone": "UTC"}'],
        cwd=place,
        env={**bare_environment(place), **network_settings(), "PML_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )
    if "check the network" in ran.stderr:
        pytest.skip(f"needs a Python package index, which cannot be reached: {ran.stderr}")
    assert ran.returncode == 0, ran.stderr
    return home


@pytest.fixture
def fresh(tmp_path: Path, home: Path, installed: Path) -> Workspace:
    """An empty workspace and an empty home, on a machine that reaches package registries."""
    need_clients()
    place = tmp_path / "shop"
    place.mkdir()
    notes = home / ".pml" / "state" / "memory" / "memory.jsonl"
    return Workspace(path=place.resolve(), home=home, notes=notes, network=network_settings())


@pytest.fixture
def prepared(fresh: Workspace, installed: Path) -> Workspace:
    """A workspace on whose machine `time` is installed, and allowed."""
    pml_home = fresh.home / ".pml"
    pml_home.mkdir(mode=0o700)
    shutil.copytree(installed / "servers", pml_home / "servers", symlinks=True)
    recorded = (installed / "deps.json").read_text()
    (pml_home / "deps.json").write_text(recorded.replace(str(installed), str(pml_home)))
    fresh.configure(TIME_RULE)
    return fresh


def setting(api: MessagesApi, workspace: Workspace) -> Setting:
    return Setting(api=api, server=workspace.gateway, home=workspace.home, workspace=workspace.path)


def use(arguments: Mapping[str, object]) -> Use:
    return Use(tool="mcp__pml__call", arguments=arguments)


def continued(told: str) -> dict[str, object]:
    """Return the argument that takes up what waits, by the id in the text that the model was shown."""
    [workflow_id] = set(re.findall(r"workflow_id\W+([0-9a-f-]{36})", told))  # as text, or as JSON
    return {"continue_workflow": {"workflow_id": workflow_id, "approved": True}}


def go_on(conversation: Conversation) -> Use:
    return use(continued(conversation.results[-1]))


# --- Claude Code


@promise("load:asked-before-installed")
def test_accepting_the_form_installs_exactly_that_server_and_the_tool_is_not_asked_for_again(
    fresh: Workspace,
) -> None:
    with scripted(use(UTC), use(TOKYO)) as api, interactive(setting(api, fresh)) as screen:
        form = screen.wait("Install time@", "Accept")
        for fact in ("uvx mcp-server-time==", "network: none"):  # without unfolding the form
            assert fact in form, fact
        assert fresh.servers == []
        screen.accept()
        screen.wait(LAST_WORD)
    first, second = api.results
    assert json.loads(first)["timezone"] == "UTC"
    assert json.loads(second)["timezone"] == "Asia/Tokyo"
    assert (fresh.servers, fresh.pending()) == (["time"], [])


@promise("load:asked-before-installed")
def test_declining_the_form_tells_the_model_and_installs_nothing(fresh: Workspace) -> None:
    with scripted(use(UTC)) as api, interactive(setting(api, fresh)) as screen:
        screen.wait("Install time@", "Accept")
        screen.decline()
        screen.wait(LAST_WORD)
    [told] = api.results
    assert told.startswith("Dependency time required but not approved\n")
    assert (fresh.servers, fresh.pending()) == ([], [])


@promise("load:asked-before-installed")
def test_headless_nothing_is_installed_until_a_person_allows_it_in_another_terminal(fresh: Workspace) -> None:
    def person_allows(conversation: Conversation) -> Use:
        assert fresh.servers == []
        fresh.allow()
        return go_on(conversation)

    with scripted(use(GRAPH), go_on, person_allows) as api:
        run_headless(setting(api, fresh))
    asked, still_asked, ran = api.results
    for told in (asked, still_asked):
        assert "Approval required to install memory@" in told
        assert "You cannot approve it." in told
    assert json.loads(ran) == {"entities": [], "relations": []}
    assert fresh.servers == ["memory"]


# --- the Python client


class Person:
    """Reads and accepts every form, and keeps them and the progress that was told in between."""

    def __init__(self) -> None:
        self.forms: list[str] = []
        self.told: list[str] = []

    async def fill(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.forms.append(params.message)
        await asyncio.sleep(READS_S)
        return ElicitResult(action="accept", content={"remember": "once"})

    async def hear(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append(message or "")


async def call_alone(
    workspace: Workspace, person: Person, mode: Literal["auto", "legacy"], arguments: Mapping[str, Any]
) -> CallToolResult:
    """Call the tool in a connection of its own."""
    server = StdioServerParameters.model_validate(workspace.gateway.as_config())
    async with Client(server, mode=mode, elicitation_callback=person.fill) as client:
        return await client.call_tool(
            "call", dict(arguments), read_timeout_seconds=INSTALL_S, progress_callback=person.hear
        )


@pytest.mark.parametrize(("mode", "arguments"), [("auto", UTC), ("legacy", GRAPH)])
async def test_an_install_tells_its_progress_in_either_era(
    fresh: Workspace, mode: Literal["auto", "legacy"], arguments: Mapping[str, Any]
) -> None:
    person = Person()
    ran = await call_alone(fresh, person, mode, arguments)
    assert ran.is_error is not True, ran
    [form] = person.forms
    name = str(arguments["tool"]).partition(":")[0]
    assert form.startswith(f"Install {name}@")
    assert any("download" in message for message in person.told), person.told
    assert fresh.servers == [name]


# --- what was installed stays what it was


def flip_a_byte(home: Path) -> str:
    """Change one byte of the installed server and return the file's name."""
    [file] = home.glob("servers/time/*/site/mcp_server_time/server.py")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)
    file.chmod(0o400)
    return "site/mcp_server_time/server.py"


@promise("load:changed-never-starts")
async def test_a_changed_byte_of_an_installed_server_stops_it_until_a_person_accepts_it(
    prepared: Workspace,
) -> None:
    async with connected(PYTHON, prepared.gateway, home=prepared.home) as client:
        assert json.loads((await call(client, "call", UTC)).text)["timezone"] == "UTC"
    assert prepared.pml("deps", "verify").code == 0

    changed = flip_a_byte(prepared.home / ".pml")
    async with connected(PYTHON, prepared.gateway, home=prepared.home) as client:
        asked = await call(client, "call", UTC)
        assert asked.result is not None, asked.error
        assert asked.result["structuredContent"]["approval_type"] == "integrity"
        assert changed in asked.text
        by_model = await call(client, "call", continued(asked.text))
        assert by_model.result is not None, by_model.error
        assert by_model.result["structuredContent"]["approval_type"] == "integrity"
        verified = prepared.pml("deps", "verify")
        assert (verified.code, changed in verified.out) == (1, True)

        prepared.allow()
        accepted = await call(client, "call", continued(by_model.text))
        assert json.loads(accepted.text)["timezone"] == "UTC"
