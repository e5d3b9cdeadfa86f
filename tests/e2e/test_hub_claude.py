"""Claude Code itself, launched by PML before a real hub: what it asks, what people answer, and what runs."""

import json
import os
import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.hubs import Hub, Room, bash, hub_running, plexus, until
from tests.e2e.installed import npm_server
from tests.e2e.messages_api import LAST_WORD, Use
from tests.e2e.workspaces import ASKED
from tests.promises import promise

DONE: Final = (0, f"{LAST_WORD}\n")
REFUSED: Final = (3, f"{LAST_WORD}\n")  # a person said no to one of its calls


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Generator[Hub]:
    with hub_running(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def room(hub: Hub) -> Room:
    return hub.room()


def test_a_command_runs_when_a_person_allows_it_and_not_before(room: Room) -> None:
    room.hub.api.also("first-task", bash("touch a.mark"))
    with room.launched("do the first-task") as agent:
        asked = room.question()
        assert (asked["tool"], asked["input"]["command"]) == ("Bash", "touch a.mark")
        assert room.marks() == []
        room.allow(asked)
        ran = agent.finish()
    assert (ran.code, ran.out) == DONE, ran.err
    assert room.marks() == ["a.mark"]


def test_a_denied_command_does_not_run_and_the_persons_words_reach_the_model(room: Room) -> None:
    room.hub.api.also("denied-task", bash("touch a.mark"))
    with room.launched("do the denied-task") as agent:
        room.deny(room.question(), "--message", "use the other folder")
        ran = agent.finish()
    assert (ran.code, ran.out) == REFUSED, ran.err
    [told] = room.hub.api.results_of("denied-task")
    assert "use the other folder" in told
    assert room.marks() == []


def test_what_a_person_edits_is_what_runs(room: Room) -> None:
    room.hub.api.also("edited-task", bash("touch a.mark"))
    with room.launched("do the edited-task") as agent:
        room.allow(room.question(), "--input", json.dumps({"command": "touch edited.mark"}))
        ran = agent.finish()
    assert (ran.code, ran.out) == DONE, ran.err
    assert room.marks() == ["edited.mark"]


def test_two_agents_that_ask_at_once_each_get_their_own_answer(room: Room) -> None:
    room.hub.api.also("left-task", bash("touch left.mark"))
    room.hub.api.also("right-task", bash("touch right.mark"))
    with room.launched("do the left-task") as left, room.launched("do the right-task") as right:
        asked = {each["input"]["command"]: each for each in room.questions(2)}
        room.deny(asked["touch left.mark"], "--message", "not the left one")
        room.allow(asked["touch right.mark"])
        assert [(ran.code, ran.out) for ran in (left.finish(), right.finish())] == [REFUSED, DONE]
    [told_left], [told_right] = room.hub.api.results_of("left-task"), room.hub.api.results_of("right-task")
    assert "not the left one" in told_left
    assert "not the left one" not in told_right
    assert room.marks() == ["right.mark"]


def use_memory(room: Room, folder: Path) -> Path:
    """Give the room a server that remembers, and return the file that it writes."""
    notes = folder / "notes.jsonl"
    memory = npm_server("memory", env={"MEMORY_FILE_PATH": str(notes)})
    rules = {"allow": [], "ask": ["memory:create_entities"], "deny": ["memory:read_graph"]}
    room.settle({"permissions": rules, "mcpServers": {"memory": memory.as_config()}})
    return notes


def next_question(room: Room, *before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked next."""
    seen = [each["id"] for each in before]
    [asked] = until(lambda: [each for each in room.pending() if each["id"] not in seen], "another question")
    return asked


@promise("launch:settings-do-not-bypass")
def test_settings_and_hooks_that_let_everything_run_do_not_go_round_the_question(room: Room) -> None:
    room.hub.api.also("eager-task", bash("touch a.mark"))
    allowing = {"permissions": {"allow": ["Bash", "Bash(touch:*)"], "defaultMode": "bypassPermissions"}}
    says = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    (room.path / "says.json").write_text(json.dumps(says))
    hook = {"type": "command", "command": f"touch {room.path}/hook.mark; cat {room.path}/says.json"}
    hooks = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [hook]}]}}
    users = Path(room.hub.environment["HOME"]) / ".claude" / "settings.json"
    projects = room.path / ".claude" / "settings.json"
    for file in (users, projects):
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({**allowing, **hooks}))
    try:
        with room.launched("do the eager-task") as agent:
            room.deny(room.question())
            ran = agent.finish()
    finally:
        users.unlink()
    assert (ran.code, ran.out) == REFUSED, ran.err
    assert room.marks() == []


@promise("rules:deny-wins")
def test_a_deny_holds_for_what_the_client_takes_to_be_harmless(room: Room) -> None:
    room.settle({"permissions": {"deny": ["Bash", "Read"], "allow": [], "ask": []}})
    (room.path / "note.txt").write_text("the words of the note")
    read = Use(tool="Read", arguments={"file_path": str(room.path / "note.txt")})
    room.hub.api.also("harmless-task", bash("pwd"), read)
    with room.launched("do the harmless-task") as agent:
        ran = agent.finish()
    assert (ran.code, ran.out) == DONE, ran.err
    told_bash, told_read = room.hub.api.results_of("harmless-task")
    assert "Tool Bash is denied by user config" in told_bash
    assert "Tool Read is denied by user config" in told_read
    assert "the words of the note" not in told_read
    assert room.asked() == []


@promise("permit:same-tool-use-attaches")
@pytest.mark.parametrize("end", [Hub.kill, Hub.stop])
def test_a_hub_that_is_ended_and_started_again_costs_no_question_and_no_answer(
    room: Room, end: Callable[[Hub], None]
) -> None:
    tasks = {name: f"{name}-{end.__name__}" for name in ("during", "after")}
    commands = {name: f"echo once | tee -a {name}.mark" for name in tasks}
    for name, command in commands.items():
        room.hub.api.also(tasks[name], bash(command))
    with room.launched(f"do {tasks['during']}") as during, room.launched(f"do {tasks['after']}") as after:
        asked = {each["input"]["command"]: each for each in room.waited(2)}
        end(room.hub)
        room.allow(asked[commands["during"]])
        room.hub.start()
        room.allow(asked[commands["after"]])
        ran = [during.finish(), after.finish()]
    assert [(each.code, each.out) for each in ran] == [DONE, DONE]
    assert [(room.path / f"{name}.mark").read_text() for name in commands] == ["once\n", "once\n"]
    assert [room.hub.api.results_of(task) for task in tasks.values()] == [["once"], ["once"]]
    assert [each["id"] for each in room.asked()] == [each["id"] for each in asked.values()]


@promise("launch:own-tools-asked-once")
def test_a_tool_of_a_server_is_asked_for_once_by_the_gateway_and_runs_when_it_is_allowed(
    room: Room, tmp_path: Path
) -> None:
    notes = use_memory(room, tmp_path)
    room.hub.api.also(
        "memory-task",
        plexus("memory__create_entities", **ASKED),
        plexus("memory__search_nodes", query="Ada"),  # no rule names it
        plexus("memory__delete_entities", entityNames=["Ada"]),
        plexus("memory__read_graph"),
    )
    with room.launched("do the memory-task") as agent:
        first = next_question(room)
        assert not notes.exists()
        room.allow(first)
        second = next_question(room, first)
        room.allow(second)
        room.deny(next_question(room, first, second), "--message", "she stays")
        ran = agent.finish()
    assert (ran.code, ran.out) == REFUSED, ran.err
    assert [each["tool"] for each in room.asked()] == [
        "memory:create_entities",
        "memory:search_nodes",
        "memory:delete_entities",
    ]
    created, found, kept, refused = room.hub.api.results_of("memory-task")
    assert "Ada" in created
    assert "Ada" in found
    assert "she stays" in kept
    assert "Tool memory:read_graph is denied by user config" in refused
    assert "Ada" in notes.read_text()


@promise("permit:same-tool-use-attaches")
def test_a_tool_that_waits_when_the_hub_is_killed_is_called_again_and_not_asked_for_again(
    room: Room, tmp_path: Path
) -> None:
    notes = use_memory(room, tmp_path)
    remember = plexus("memory__create_entities", **ASKED)
    room.hub.api.also("interrupted-task", remember, remember)
    with room.launched("do the interrupted-task") as agent:
        [asked] = room.waited()
        room.hub.kill()
        room.allow(asked)
        room.hub.start()
        ran = agent.finish()
    assert (ran.code, ran.out) == DONE, ran.err
    lost, created = room.hub.api.results_of("interrupted-task")
    assert "the connection was lost" in lost
    assert "Ada" in created
    assert notes.read_text().count("Ada") == 1
    assert [each["id"] for each in room.asked()] == [asked["id"]]


@promise("launch:config-private-and-removed")
def test_an_agent_of_a_hub_that_is_killed_ends_when_it_is_started_again(room: Room) -> None:
    room.hub.api.also("hubs-task", bash("touch a.mark"))
    order = {"prompt": "do the hubs-task", "name": "hubs", "workspace": str(room.path)}
    room.hub.ask("/api/sessions", order)
    room.question()
    session = room.session("hubs")
    room.hub.kill()
    assert room.hub.config_of(session["id"]) != []
    room.hub.start()
    room.assert_over(session, state="failed")


@promise("launch:config-private-and-removed")
def test_an_agent_that_is_killed_leaves_no_question_no_token_and_no_configuration(room: Room) -> None:
    room.hub.api.also("mortal-task", bash("touch a.mark"))
    with room.launched("do the mortal-task", "--name", "mortal") as agent:
        room.question()
        session = room.session("mortal")
        assert session["state"] == "waiting_for_approval"
        assert room.hub.config_of(session["id"]) == ["mcp.json", "settings.json"]
        os.kill(session["pid"], signal.SIGKILL)
        ran = agent.finish()
    assert ran.code == 128 + signal.SIGKILL
    room.assert_over(session, state="failed")
