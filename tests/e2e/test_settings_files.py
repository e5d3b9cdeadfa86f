"""Claude Code itself, launched by PML: what says what it may do is not its own to write."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.hubs import Hub, Room, bash, hub_running, until
from tests.e2e.messages_api import LAST_WORD, Use
from tests.promises import promise

DONE: Final = (0, f"{LAST_WORD}\n")
SAID_NO: Final = (3, f"{LAST_WORD}\n")
RULES: Final = {"permissions": {"allow": ["Write", "Edit", "Read"], "deny": ["Bash"], "ask": []}}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Generator[Hub]:
    with hub_running(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def room(hub: Hub) -> Room:
    room = hub.room()
    room.settle(RULES)
    return room


def write(path: Path) -> Use:
    return Use(tool="Write", arguments={"file_path": str(path), "content": "{}"})


@promise("reserved:settings-files")
def test_emptying_the_file_with_the_denies_asks_a_person_though_writing_is_allowed(room: Room) -> None:
    config = room.path / ".pml.json"
    before = config.read_text()
    read = Use(tool="Read", arguments={"file_path": str(config)})
    room.hub.api.also("empty-task", write(room.path / "notes.txt"), read, write(config))
    with room.launched("do the empty-task") as agent:
        room.allow(room.question())  # also to look at it
        asked = until(lambda: next((each for each in room.pending() if each["tool"] == "Write"), None), "it")
        assert (asked["tool"], asked["input"]["file_path"]) == ("Write", str(config))
        assert (room.path / "notes.txt").exists()
        room.deny(asked)
        ran = agent.finish()
    assert (ran.code, ran.out) == SAID_NO, ran.err
    assert config.read_text() == before


@promise("reserved:settings-files")
@pytest.mark.parametrize("file", [".claude/settings.json", ".claude/settings.local.json", ".mcp.json"])
def test_making_settings_of_its_own_asks_a_person_though_writing_is_allowed(room: Room, file: str) -> None:
    word = f"make-{file}-task"
    room.hub.api.also(word, write(room.path / file))
    with room.launched(f"do the {word}") as agent:
        asked = room.question()
        assert (asked["tool"], asked["input"]["file_path"]) == ("Write", str(room.path / file))
        room.deny(asked)
        ran = agent.finish()
    assert (ran.code, ran.out) == SAID_NO, ran.err
    assert not (room.path / file).exists()


@promise("trust:kept")
def test_the_deny_holds_when_the_file_was_emptied_all_the_same(room: Room) -> None:
    (room.path / ".pml.json").write_text(json.dumps({}))
    room.hub.api.also("kept-task", bash("touch a.mark"))
    with room.launched("do the kept-task") as agent:
        ran = agent.finish()
    assert (ran.code, ran.out) == DONE, ran.err
    [told] = room.hub.api.results_of("kept-task")
    assert "denied" in told
    assert room.marks() == []
