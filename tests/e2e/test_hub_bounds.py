"""What an agent that the hub launched cannot do, whatever it was told: with the real client."""

import json
from collections.abc import Generator
from typing import Any

import pytest

from tests.e2e.hubs import Hub, Room, bash, hub_running, until
from tests.e2e.messages_api import Use
from tests.promises import promise


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Generator[Hub]:
    with hub_running(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def room(hub: Hub) -> Room:
    return hub.room()


def launch(room: Room, prompt: str, **more: object) -> dict[str, Any]:
    """Let the hub launch an agent, and return its session once it has ended."""
    made = room.hub.ask("/api/sessions", {"prompt": prompt, "workspace": str(room.path), **more})
    until(lambda: room.session(made["name"])["ended_at"], "it ends")
    return room.session(made["name"])


@promise("launch:never-wider-than-parent")
def test_a_file_that_a_prompt_mentions_is_not_shown_to_the_model(room: Room) -> None:
    secret = room.hub.new_file("TOP-SECRET-4711")
    (room.path / "inside.txt").write_text("WS-SECRET-4712")
    room.hub.api.also("mention-task")
    launch(room, f'the mention-task: see @{secret} and @inside.txt and @"inside.txt"')
    shown = json.dumps([each.messages for each in room.hub.api.conversations], default=str)
    assert "mention-task" in shown
    assert "SECRET" not in shown


@promise("launch:settings-do-not-bypass")
def test_one_that_may_not_ask_does_what_rules_allow_and_nothing_else(room: Room) -> None:
    exact = {"tool": "Bash", "args": {"command": {"is": "touch ruled.mark"}}}
    room.settle({"permissions": {"allow": [exact], "deny": ["Read"], "ask": ["*"]}})
    (room.path / "inside.txt").write_text("WS-SECRET-4713")
    read = Use(tool="Read", arguments={"file_path": str(room.path / "inside.txt")})
    room.hub.api.also("quiet-task", bash("touch ruled.mark"), bash("touch other.mark"), bash("pwd"), read)
    ended = launch(room, "do the quiet-task", loopback_enabled=False)
    assert ended["state"] == "done"
    assert room.marks() == ["ruled.mark"]
    assert room.asked() == []
    told = room.hub.api.results_of("quiet-task")
    assert "may not ask" in told[1]
    assert "may not ask" in told[2]
    assert "denied by user config" in told[3]
