"""The real Claude Code at a person's terminal: printed as they asked, and asking on its own screen too."""

import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pml.agents.claude_code.command_line import read_typed
from pml.agents.claude_code.terminal_run import ClaudeHere, given_pieces
from pml.core.sessions.agent import MessageKind, Outcome, RunState
from tests.agents.conftest import MakeBench
from tests.agents.launching import SESSION, TOKEN, Bench
from tests.agents.stand_in_hub import deny
from tests.e2e.claude import KEY, Screen
from tests.e2e.installed import ROOT
from tests.e2e.messages_api import LAST_WORD, Use
from tests.promises import promise
from tests.tools import need

TOUCH = Use(tool="Bash", arguments={"command": "touch made", "description": "make a file"})
LOOK = Use(tool="Bash", arguments={"command": "ls", "description": "look around"})


async def _nothing() -> AsyncIterator[bytes]:
    for piece in list[bytes]():
        yield piece


async def _run(
    made: Bench, *words: str, given: AsyncIterator[bytes] | None = None, loopback: bool = True
) -> tuple[bytes, bytes, Outcome]:
    typed = read_typed(words, loopback=loopback)
    shown, complained = bytearray(), bytearray()
    agents = ClaudeHere(
        made.parts(), typed, show=shown.extend, complain=complained.extend, given=given or _nothing()
    )
    order = made.order(typed.prompt or "", arguments=typed.arguments, loopback=loopback, is_here=True)
    outcome = await agents.run(order, session_id=SESSION, token=TOKEN, told=made.heard)
    return bytes(shown), bytes(complained), outcome


async def test_without_a_form_the_result_is_printed_as_text(bench: MakeBench) -> None:
    made = bench(TOUCH)
    shown, _, outcome = await _run(made, "-p", "make it")
    assert shown == f"{LAST_WORD}\n".encode()
    assert outcome == Outcome(state=RunState.DONE, exit_code=0, result=LAST_WORD)
    assert [each["tool_name"] for each in made.hub.asked] == ["Bash"]
    assert (MessageKind.TOOL, "Bash: touch made") in made.heard.messages


async def test_as_json_the_clients_own_result_is_printed(bench: MakeBench) -> None:
    shown, _, _ = await _run(bench(), "-p", "make it", "--output-format", "json")
    result = json.loads(shown)
    assert (result["type"], result["result"]) == ("result", LAST_WORD)


async def test_as_a_stream_every_line_is_printed(bench: MakeBench) -> None:
    shown, _, _ = await _run(bench(), "-p", "make it", "--output-format=stream-json", "--verbose")
    events = [json.loads(line)["type"] for line in shown.splitlines()]
    assert events[0] == "system"
    assert events[-1] == "result"


async def test_a_prompt_and_what_comes_by_a_pipe_are_joined(bench: MakeBench) -> None:
    made = bench()
    read, write = os.pipe()
    os.write(write, b"the piped text")
    os.close(write)
    await _run(made, "-p", "what is this?", given=given_pieces(read))
    os.close(read)
    assert _user_text(made) == "what is this?\nthe piped text"


async def test_a_pipe_that_stays_open_and_silent_does_not_hold_a_prompt_up(bench: MakeBench) -> None:
    made = bench()
    read, write = os.pipe()
    _, complained, outcome = await _run(made, "-p", "go on", given=given_pieces(read))
    os.close(write)
    os.close(read)
    assert outcome.result == LAST_WORD
    assert b"nothing comes by standard input" in complained


async def test_what_comes_by_a_file_is_the_prompt_where_none_is_typed(
    bench: MakeBench, tmp_path: Path
) -> None:
    made = bench()
    (tmp_path / "prompt").write_text("from a file " * 10_000)
    descriptor = os.open(tmp_path / "prompt", os.O_RDONLY)
    await _run(made, "-p", given=given_pieces(descriptor))
    os.close(descriptor)
    assert _user_text(made) == ("from a file " * 10_000)


def _user_text(made: Bench) -> str:
    """Return what the model was given as the user's, without what the client adds."""
    texts = [
        block["text"]
        for message in made.api.conversations[0].messages
        if message["role"] == "user"
        for block in _blocks(message["content"])
        if not block["text"].startswith("<system-reminder>")
    ]
    return texts[0]


def _blocks(content: Any) -> list[dict[str, str]]:
    return [{"text": content}] if isinstance(content, str) else content


async def test_what_the_client_complains_of_is_passed_on(bench: MakeBench) -> None:
    shown, complained, outcome = await _run(bench(), "-p")
    assert b"Input must be provided" in complained
    assert (shown, outcome.state, outcome.exit_code) == (b"", RunState.FAILED, 1)


@promise("launch:settings-do-not-bypass")
async def test_without_loopback_nobody_is_asked_and_the_users_settings_count(bench: MakeBench) -> None:
    made = bench(TOUCH, answer=deny)
    made.write(".claude/settings.json", {"permissions": {"allow": ["Bash"]}}, at=made.home)
    await _run(made, "-p", "make it", loopback=False)
    assert made.hub.asked == []
    assert (made.workspace / "made").exists()


@contextmanager
def _at_terminal(made: Bench, *words: str) -> Generator[Screen]:
    """Run what was typed on a screen of its own; the client has been there before, so it asks nothing."""
    known: dict[str, Any] = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {
            str(made.workspace): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        },
    }
    made.write(".claude.json", known, at=made.home)
    place = {
        "hub": made.hub.url,
        "configs": str(made.configs),
        "home": str(made.home),
        "pml_home": str(made.home / ".pml"),
        "workspace": str(made.workspace),
    }
    screen = Screen(need("tmux"), f"pml-{uuid.uuid4().hex}")
    environment = {**made.parts().environ, "TERM": "xterm-256color", "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    command = [sys.executable, str(ROOT / "tests" / "agents" / "at_terminal.py"), json.dumps(place), *words]
    try:
        screen.open(command, environment, made.workspace)
        yield screen
    finally:
        screen.close()


@promise("launch:settings-do-not-bypass")
@pytest.mark.parametrize("use", [TOUCH, LOOK], ids=["a change", "a look"])
def test_on_its_screen_the_hub_is_asked_by_a_hook_whatever_settings_say(bench: MakeBench, use: Use) -> None:
    made = bench(use, answer=deny)
    loose = {"permissions": {"allow": ["Bash"]}, "disableAllHooks": True}
    made.write(".claude/settings.json", loose, at=made.home)
    made.write(".claude/settings.json", loose)
    with _at_terminal(made, "--", "make it") as screen:
        screen.wait("not on my watch", LAST_WORD)
    assert [(each["tool_name"], each["input"]) for each in made.hub.asked] == [("Bash", use.arguments)]
    assert made.hub.authorizations == {f"Bearer {TOKEN}"}
    assert not (made.workspace / "made").exists()


@promise("launch:config-private-and-removed")
def test_its_screen_is_left_by_its_own_keys_and_its_configuration_is_gone(bench: MakeBench) -> None:
    made = bench(TOUCH)
    with _at_terminal(made, "make it") as screen:
        screen.wait(LAST_WORD)
        assert (made.workspace / "made").exists()
        assert len(list(made.configs.iterdir())) == 1
        screen.press("C-c")
        screen.press_until("C-c", lambda _: screen.is_over)
    assert list(made.configs.iterdir()) == []
