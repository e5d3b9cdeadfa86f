"""The real Claude Code, launched: it asks for everything, is heard, and is ended whole."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pml.core.errors import Unavailable
from pml.core.sessions.agent import MessageKind, Outcome, RunState
from pml.host.processes import SystemProcesses
from tests.agents.conftest import MakeBench
from tests.agents.launching import SESSION, TOKEN, Bench
from tests.agents.stand_in_hub import Asked, deny
from tests.e2e.messages_api import LAST_WORD, Use
from tests.promises import promise
from tests.upstream.fleets import all_beneath, runs

TOUCH = Use(tool="Bash", arguments={"command": "touch made", "description": "make a file"})
LOOK = Use(tool="Bash", arguments={"command": "ls", "description": "look around"})
WAIT_S = 60.0  # only ever reached by something that hangs
HARMLESS = {"allow": ["Bash", "Read", "Edit", "Write"]}
HOOK = 'touch hooked; echo \'{"decision": "approve"}\''


def _hooks() -> dict[str, object]:
    ran = {"hooks": [{"type": "command", "command": HOOK}]}
    return {"PreToolUse": [{"matcher": "*", **ran}], "SessionStart": [ran], "PermissionRequest": [ran]}


async def _wait_for(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not look():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.02)


async def _pid_in(file: Path) -> int:
    """Return the number that a process of the agent writes down."""
    read: list[str] = []

    def look() -> bool:
        read.append(file.read_text() if file.exists() else "")
        return read[-1].endswith("\n")

    await _wait_for(look)
    return int(read[-1])


async def _all_started(made: Bench) -> list[int]:
    """Return the agent and all that it has started, once its command runs; as this side numbers them."""
    await _pid_in(made.workspace / "pid")
    assert made.heard.process is not None
    return all_beneath(made.heard.process.pid)


async def _gone(started: list[int]) -> None:
    await _wait_for(lambda: not any(map(runs, started)))


def _has_config(made: Bench) -> bool:
    return Path(made.agents().config_folder(SESSION)).exists()


async def test_what_it_says_is_told_and_its_last_word_is_its_result(bench: MakeBench) -> None:
    made = bench("I shall make a file.")
    outcome = await made.run()
    assert outcome == Outcome(state=RunState.DONE, exit_code=0, result="I shall make a file.")
    assert made.heard.messages == [
        (MessageKind.TEXT, "I shall make a file."),
        (MessageKind.RESULT, "I shall make a file."),
    ]


async def test_a_tool_is_asked_for_runs_when_allowed_and_is_told_with_turns_and_cost(
    bench: MakeBench,
) -> None:
    made = bench(TOUCH)
    outcome = await made.run()
    assert outcome == Outcome(state=RunState.DONE, exit_code=0, result=LAST_WORD)
    assert [(each["tool_name"], each["input"]) for each in made.hub.asked] == [("Bash", TOUCH.arguments)]
    assert made.hub.authorizations == {f"Bearer {TOKEN}"}
    assert (made.workspace / "made").exists()
    assert made.heard.messages == [
        (MessageKind.TOOL, "Bash: touch made"),
        (MessageKind.TEXT, LAST_WORD),
        (MessageKind.RESULT, LAST_WORD),
    ]
    turns, cost = made.heard.counts[-1]
    assert turns == 2
    assert cost > 0


@promise("launch:settings-do-not-bypass")
async def test_settings_and_hooks_of_user_and_project_let_nothing_run_unasked(bench: MakeBench) -> None:
    made = bench(TOUCH, answer=deny)
    loose = {"permissions": HARMLESS, "hooks": _hooks()}
    made.write(".claude/settings.json", loose)
    made.write(".claude/settings.local.json", loose)
    made.write(".claude/settings.json", loose, at=made.home)
    made.write(".mcp.json", {"mcpServers": {"plexus": {"command": "touch", "args": ["shadowed"]}}})
    known = {str(made.workspace): {"hasTrustDialogAccepted": True, "allowedTools": ["Bash"]}}
    made.write(".claude.json", {"projects": known}, at=made.home)
    outcome = await made.run()
    assert outcome.state is RunState.DONE
    assert [each["tool_name"] for each in made.hub.asked] == ["Bash"]
    assert made.api.results == ["not on my watch"]
    assert {file.name for file in made.workspace.iterdir()} == {".claude", ".mcp.json"}


@promise("launch:settings-do-not-bypass")
@pytest.mark.parametrize(
    "use", [LOOK, Use(tool="Read", arguments={"file_path": "notes.txt"})], ids=["a command", "a file"]
)
async def test_what_the_client_holds_to_be_harmless_is_asked_for_too(bench: MakeBench, use: Use) -> None:
    made = bench(use, answer=deny)
    made.write("notes.txt", "the notes")
    await made.run()
    assert [each["tool_name"] for each in made.hub.asked] == [use.tool]
    assert made.api.results == ["not on my watch"]


async def test_an_agent_whose_hub_cannot_be_reached_runs_no_tool(bench: MakeBench) -> None:
    made = bench(TOUCH)
    made.hub.url = "http://127.0.0.1:9"
    outcome = await made.run()
    assert outcome.state is RunState.FAILED
    assert outcome.result is not None
    assert "mcp__plexus__loopback_permit" in outcome.result
    assert not (made.workspace / "made").exists()


@promise("launch:no-raw-arguments")
@pytest.mark.parametrize("prompt", ["--dangerously-skip-permissions", "-- --help", "/config", "update"])
async def test_a_prompt_is_only_ever_text_for_the_model(bench: MakeBench, prompt: str) -> None:
    made = bench()
    outcome = await made.run(made.order(prompt))
    assert outcome.result == LAST_WORD
    [conversation] = made.api.conversations
    assert any(prompt in str(message["content"]) for message in conversation.messages)


@promise("launch:no-raw-arguments")
async def test_a_model_is_only_ever_a_model(bench: MakeBench) -> None:
    made = bench(TOUCH, answer=deny)
    await made.run(made.order(model="--dangerously-skip-permissions"))
    assert [each["tool_name"] for each in made.hub.asked] == ["Bash"]


async def test_only_the_built_in_tools_that_were_ordered_are_there(bench: MakeBench) -> None:
    made = bench(TOUCH)
    await made.run(made.order(tools=("Bash", "Web*", "github:*", "default")))
    built_in = {tool for tool in made.api.conversations[0].tools if not tool.startswith("mcp__")}
    assert built_in == {"Bash", "WebFetch", "WebSearch"}
    assert [each["tool_name"] for each in made.hub.asked] == ["Bash"]


@promise("launch:config-private-and-removed")
async def test_its_configuration_is_its_users_alone_and_gone_when_it_ends(bench: MakeBench) -> None:
    seen: list[tuple[str, int]] = []

    def look(asked: Asked) -> dict[str, object]:
        folder = Path(made.agents().config_folder(SESSION))
        seen.extend((path.name, path.stat().st_mode & 0o777) for path in (folder, *sorted(folder.iterdir())))
        return {"behavior": "deny", "message": "no"}

    made = bench(TOUCH, answer=look)
    await made.run()
    folder = Path(made.agents().config_folder(SESSION))
    assert seen == [(folder.name, 0o700), ("mcp.json", 0o600), ("settings.json", 0o600)]
    assert not _has_config(made)


@promise("launch:config-private-and-removed")
async def test_the_token_is_neither_on_the_command_line_nor_in_the_environment(bench: MakeBench) -> None:
    found: list[bytes] = []

    def look(asked: Asked) -> dict[str, object]:
        assert made.heard.process is not None
        place = Path(f"/proc/{made.heard.process.pid}")
        found.extend((place / name).read_bytes() for name in ("cmdline", "environ"))
        return {"behavior": "deny", "message": "no"}

    made = bench(TOUCH, answer=look)
    await made.run(agents=made.agents(environ={"PML_HOME": "/p", "SOMETHING_ELSE": "x", "AWS_REGION": "r"}))
    command_line, environment = found
    assert TOKEN.encode() not in command_line + environment
    assert b"PML_HOME" not in environment
    assert b"SOMETHING_ELSE" not in environment
    assert b"AWS_REGION=r" in environment


@promise("launch:config-private-and-removed")
async def test_its_configuration_is_gone_after_it_was_killed(bench: MakeBench) -> None:
    def kill(asked: Asked) -> dict[str, object]:
        assert made.heard.process is not None
        os.kill(made.heard.process.pid, signal.SIGKILL)
        return {"behavior": "deny", "message": "no"}

    made = bench(TOUCH, answer=kill)
    outcome = await made.run()
    assert (outcome.state, outcome.exit_code) == (RunState.FAILED, -signal.SIGKILL)
    assert not _has_config(made)


@promise("launch:config-private-and-removed")
async def test_its_configuration_is_gone_when_it_cannot_be_started(bench: MakeBench) -> None:
    made = bench()
    with pytest.raises(Unavailable, match="cannot be started"):
        await made.run(msgspec.structs.replace(made.order(), cwd="/nowhere"))
    assert not _has_config(made)


async def test_stopping_ends_the_agent_and_what_it_has_started(bench: MakeBench) -> None:
    command = "tail -f /dev/null & echo $! > pid; wait"
    made = bench(Use(tool="Bash", arguments={"command": command, "description": "wait"}))
    running = asyncio.ensure_future(made.run())
    started = await _all_started(made)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await _gone(started)
    assert made.heard.process is not None
    assert not SystemProcesses().running(made.heard.process)
    assert not _has_config(made)


async def test_an_agent_whose_keeper_is_gone_is_ended_with_its_shells(bench: MakeBench) -> None:
    command = "echo $$ > pid; trap '' TERM; while :; do sleep 1; done"
    made = bench(Use(tool="Bash", arguments={"command": command, "description": "wait"}))
    running = asyncio.ensure_future(made.run())
    started = await _all_started(made)
    assert made.heard.process is not None
    made.agents().kill(made.heard.process)
    outcome = await running
    assert outcome.state is RunState.FAILED
    await _gone(started)
