"""Claude Code's settings that let the gateway's tools run: PML then asks, whatever it leaves to clients."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from pml.agents.allowances import allowances, is_left_to_pml
from pml.agents.claude_code.gateway_name import own_name
from tests.promises import promise
from tests.upstream.fleets import ODD

TIMEOUT_S: Final = 60.0  # only ever reached by a gateway that hangs
HELLO: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "claude-code", "version": "1"},
}


@pytest.fixture
def shop(tmp_path: Path, home: Path) -> Path:
    """A workspace with a server of the user's, whose unlisted tools are left to the client."""
    place = tmp_path / "shop"
    (place / ".claude").mkdir(parents=True)
    (home / ".pml").mkdir(mode=0o700)
    config = {
        "approval": {"unlisted": "if_client_cannot"},
        "mcpServers": {"odd": {"command": sys.executable, "args": [str(ODD)]}},
    }
    (home / ".pml" / "config.json").write_text(json.dumps(config))
    return place.resolve()


def call_unlisted(place: Path) -> dict[str, Any]:
    """Return what a listed tool that no rule names answers, to Claude Code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pml", "stdio"],
        cwd=place,
        env=os.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n"
        )
        process.stdin.flush()
        answers = (json.loads(line) for line in process.stdout)
        return next(answer for answer in answers if answer.get("id") == 1)["result"]

    try:
        ask("initialize", HELLO)
        until = time.monotonic() + TIMEOUT_S
        while "odd__echo" not in [tool["name"] for tool in ask("tools/list", {})["tools"]]:
            assert time.monotonic() < until, "the server is not listed"
        return ask("tools/call", {"name": "odd__echo", "arguments": {"a": "hi"}})
    finally:
        process.communicate(timeout=TIMEOUT_S)


@promise("claude:never-nobody")
@pytest.mark.parametrize("file", ["settings.json", "settings.local.json"])
@pytest.mark.parametrize("entry", ["mcp__{}", "mcp__{}__*"])
def test_pml_asks_while_the_client_lets_the_gateways_tools_run(
    shop: Path, home: Path, file: str, entry: str
) -> None:
    settings = shop / ".claude" / file
    name = own_name(home / ".pml", str(shop))
    settings.write_text(json.dumps({"permissions": {"allow": [entry.format(name)]}}))
    assert call_unlisted(shop)["approval_required"] is True

    settings.unlink()
    assert "approval_required" not in call_unlisted(shop)  # the client asks about it


def test_what_a_person_let_the_client_run_for_one_tool_is_the_clients(shop: Path, home: Path) -> None:
    name = own_name(home / ".pml", str(shop))
    allowed = [f"mcp__{name}__odd__echo", "mcp__other", "Bash"]
    (shop / ".claude" / "settings.local.json").write_text(json.dumps({"permissions": {"allow": allowed}}))

    assert "approval_required" not in call_unlisted(shop)


def test_entries_are_found_by_the_server_that_they_name(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"permissions": {"allow": ["mcp__pml", "mcp__pml-1__x", 3, "mcp__pml-12"]}}))

    assert allowances(path, ("pml", "pml-1")) == [("pml", "mcp__pml"), ("pml-1", "mcp__pml-1__x")]
    assert (is_left_to_pml([path], ["pml"]), is_left_to_pml([path], ["pml-1"])) == (True, False)
    path.write_text("{")
    assert (allowances(path, ("pml",)), allowances(tmp_path / "none", ("pml",))) == ([], [])
