"""The MCP conformance suite over HTTP, on a server behind the hub: all that it finds fault with is listed."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from pml.downstream.protocol.eras import MODERN
from tests.commands import run_process
from tests.e2e.conformance import Adapter, adapted, run_suite, serving_hub
from tests.e2e.installed import Server, need_clients
from tests.promises import promise

FIXTURE: Final = "fixture"
RESUMING_CHECKS: Final = 3  # the stream began with an id, said when to come back, and was taken up again
SCENARIOS: Final[Mapping[str, int]] = {"2025-06-18": 27, "2025-11-25": 33, MODERN: 40}

SAMPLING: Final = "a server does not get to prompt the user's model: sampling is not offered"
SUBSCRIBING: Final = "PML announces that lists change, not single resources: no subscriptions"
LEGACY_NOT_KEPT: Final[Mapping[str, str]] = {
    "tools-call-sampling": SAMPLING,
    "resources-subscribe": SUBSCRIBING,
    "resources-unsubscribe": SUBSCRIBING,
}
MODERN_NOT_KEPT: Final[Mapping[str, str]] = {
    "input-required-result-basic-sampling": SAMPLING,
    "input-required-result-capability-check": SAMPLING,
    "input-required-result-multiple-input-requests": SAMPLING,
    "input-required-result-basic-list-roots": "the workspace is the root: modern clients are not asked",
    "input-required-result-ignore-extra-params": "an answer without the state of its question is no answer",
    "http-custom-header-server-validation": "no tool is listed with arguments that are repeated in headers",
}


@pytest.fixture
def workspace(tmp_path: Path, home: Path) -> Path:
    """A folder without settings of its own; the user's allow everything and name the server."""
    need_clients()
    server = Server(command=sys.executable, args=(str(Path(__file__).with_name("conformance_server.py")),))
    settings = {"permissions": {"allow": ["*"]}, "mcpServers": {FIXTURE: server.as_config()}}
    (home / ".pml").mkdir(mode=0o700)
    (home / ".pml" / "config.json").write_text(json.dumps(settings))
    place = tmp_path / "shop"
    place.mkdir()
    return place


@promise("mcp:conformance")
@pytest.mark.parametrize("version", SCENARIOS)
async def test_a_server_behind_the_hub_passes_every_scenario_but_those_that_pml_does_not_offer(
    workspace: Path, home: Path, version: str
) -> None:
    made = run_process("token", "create", "--role", "session", "--json", "--workspace", str(workspace))
    assert made.code == 0, made.err
    async with serving_hub(workspace, home=home) as origin:
        adapter = Adapter(origin=origin, token=made.json["token"], server=FIXTURE)
        async with adapted(adapter) as url:
            found = await run_suite(url, version, home=home)

    assert len(found) == SCENARIOS[version]
    faults = {name: scenario.complaints for name, scenario in found.items() if not scenario.is_kept}
    not_kept = MODERN_NOT_KEPT if version == MODERN else LEGACY_NOT_KEPT
    assert {name: faults[name] for name in faults if name not in not_kept} == {}
    assert faults.keys() == not_kept.keys(), "a scenario that passes is no longer an exception"
    if version == "2025-11-25":
        resuming = found["server-sse-polling"]  # passes with less, where nothing was to be resumed
        assert resuming.passed == RESUMING_CHECKS
