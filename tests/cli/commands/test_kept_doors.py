"""The workspace's file, at every door: who empties it undoes no deny, and nobody writes it unasked."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.doors import DOORS, Door, entering
from tests.commands import Pml
from tests.promises import promise
from tests.upstream.fleets import ODD

DENIED: Final = 3
doors = pytest.mark.parametrize("door", DOORS)


@pytest.fixture
def config(pml: Pml, workspace: Path) -> Path:
    """A trusted file that starts a server, allows all of its tools, and denies one."""
    path = workspace / ".pml.json"
    server = {"command": sys.executable, "args": [str(ODD)]}
    rules = {"allow": ["odd:*"], "deny": ["odd:env"], "ask": []}
    path.write_text(json.dumps({"mcpServers": {"odd": server}, "permissions": rules}))
    assert pml("trust", "--yes").code == 0
    return path


def denial(agent: Door) -> Any:
    result = agent.call("odd:env", {})
    assert "error" in result["structuredContent"], result
    return result["structuredContent"]["error"]


@promise("trust:kept")
@doors
@pytest.mark.parametrize("content", [None, "{}", '{"permissions": {"allow": ["*"]}}'])
def test_a_deny_holds_at_every_door_when_the_file_is_emptied_or_gone(
    pml: Pml, config: Path, door: str, content: str | None
) -> None:
    with entering(door) as agent:
        assert denial(agent)["code"] == "TOOL_DENIED"
        if content is None:
            config.unlink()
        else:
            config.write_text(content)

        assert denial(agent)["code"] == "TOOL_DENIED"
        assert "as last trusted" in denial(agent)["rule"]
    assert "is denied by the workspace's file as it was last trusted" in pml("call", "odd:env").err


@promise("reserved:settings-files")
@doors
@pytest.mark.parametrize("file", [".pml.json", ".mcp.json", ".claude/settings.json"])
def test_an_allowed_tool_that_is_led_to_a_settings_file_asks_a_person_at_every_door(
    config: Path, door: str, file: str
) -> None:
    with entering(door) as agent:
        assert "approval_required" not in agent.call("odd:echo", {"path": "notes.txt"})

        asked = agent.call("odd:echo", {"path": file})

        assert asked["approval_required"] is True
        assert "You cannot approve it." in asked["content"][0]["text"]
        still = agent.go_on(asked["approval_context"]["workflow_id"])
        assert still["approval_required"] is True


@promise("trust:kept")
def test_what_is_kept_is_shown_and_a_person_ends_it(config: Path, pml: Pml) -> None:
    config.unlink()

    listed = pml("rules", "list", "--json").json
    assert [(rule["entry"], rule["kept"]) for rule in listed["rules"]] == [("odd:env", True)]
    assert "is missing: 1 rule of the content that was trusted last" in listed["kept"]
    shown = pml("rules", "list")
    assert "kept from the content that was trusted last" in shown.out
    assert "pml trust --forget" in shown.err
    checks = pml("doctor", "--json").json["checks"]
    assert [check["status"] for check in checks if check["name"] == "kept rules"] == ["warn"]
    assert "kept in force" in pml("approvals", "list").err
    assert pml("call", "odd:env", "{}").code == DENIED

    assert pml("trust", "--forget", "--json").json["kept"] is False
    assert pml("rules", "list", "--json").json["rules"] == []
    assert pml("trust", "--forget").code == 0


@promise("trust:kept")
def test_trust_in_other_content_shows_which_rules_it_ends(config: Path, pml: Pml) -> None:
    config.write_text("{}")

    assert pml("trust", "--show", "--json").json["drops"] == ['deny "odd:env"']
    assert 'deny "odd:env"' in pml("trust", "--show").out
    assert pml("trust", "--yes").code == 0

    assert pml("rules", "list", "--json").json["kept"] is None
