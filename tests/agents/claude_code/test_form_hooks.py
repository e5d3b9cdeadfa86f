"""A hook of Claude Code that answers forms: a form's answer is then not a person's word for trust."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from pml.agents.claude_code.form_hooks import FormHooks, config_folder, settings_files, why_scripted
from tests.commands import spawn
from tests.promises import promise

TIMEOUT_S: Final = 60.0  # only ever reached by a gateway that hangs
MODERN: Final = "2026-07-28"
ANSWERS: Final = {"hooks": {"Elicitation": [{"hooks": [{"type": "command", "command": "yes"}]}]}}
PLAIN: Final = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "yes"}]}]}}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A workspace whose file nobody trusts yet, and which defines a server."""
    place = tmp_path / "shop"
    (place / ".claude").mkdir(parents=True)
    servers = {"local": {"command": "/nowhere/server"}}
    (place / ".pml.json").write_text(json.dumps({"mcpServers": servers}))
    return place.resolve()


class Gateway:
    """`pml stdio` with a client that can show forms, and leaves every one."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.forms = 0

    def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._send({"id": 1, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("method") == "elicitation/create":
                self.forms += 1
                self._send({"id": message["id"], "result": {"action": "cancel"}})
            elif message.get("id") == 1:
                return message["result"]
        raise EOFError

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


@contextmanager
def gateway(place: Path, **more: str) -> Generator[Gateway]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pml", "stdio"],
        cwd=place,
        env={**os.environ, **more},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Gateway(process)
    finally:
        process.communicate(timeout=TIMEOUT_S)


@contextmanager
def hub(place: Path) -> Generator[None]:
    """A hub that runs, so that the gateway offers to start agents."""
    with spawn(["serve", "--port", "0", "--json", "--workspace", str(place)]) as process:
        assert process.stdout is not None
        while process.stdout.readline() not in ("}\n", ""):
            pass
        try:
            yield
        finally:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)


def discover(at: Gateway, *, era: str, client: str) -> str:
    """Ask for what needs the file's trust; return what `use` does."""
    return use(at, "discover", {}, era=era, client=client)


def use(at: Gateway, tool: str, arguments: Mapping[str, Any], *, era: str, client: str) -> str:
    """Call a tool; return the text, or `form` if a modern client is to show one."""
    info = {"name": client, "version": "1"}
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
    call: dict[str, Any] = {"name": tool, "arguments": arguments}
    if era == MODERN:
        names = {"protocolVersion": era, "clientInfo": info, "clientCapabilities": capabilities}
        call["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in names.items()}
    else:
        hello = {"protocolVersion": era, "capabilities": capabilities, "clientInfo": info}
        at.ask("initialize", hello)
    result = at.ask("tools/call", call)
    if result.get("resultType") == "input_required":
        at.forms += 1
        return "form"
    return result["content"][0]["text"]


@promise("form:hook-is-no-person")
@pytest.mark.parametrize("era", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_no_form_asks_for_trust_where_a_hook_of_the_workspace_answers_forms(
    shop: Path, era: str, name: str
) -> None:
    path = shop / ".claude" / name
    path.write_text(json.dumps(ANSWERS))
    with gateway(shop) as at:
        said = discover(at, era=era, client="claude-code")
    assert at.forms == 0
    assert said.startswith("Approval required to trust this workspace's .pml.json\n")
    assert f"does not decide this: {path} has a hook `Elicitation`" in said


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_a_form_asks_where_no_hook_answers_it_or_the_client_knows_no_such_hook(
    shop: Path, era: str, client: str
) -> None:
    settings = PLAIN if client == "claude-code" else ANSWERS
    (shop / ".claude" / "settings.json").write_text(json.dumps(settings))
    with gateway(shop) as at:
        discover(at, era=era, client=client)
    assert at.forms == 1


@promise("form:hook-is-no-person")
@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize("is_hooked", [True, False], ids=["a hook", "none"])
def test_no_form_asks_for_a_launch_where_a_hook_answers_forms(
    tmp_path: Path, era: str, is_hooked: bool
) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(ANSWERS if is_hooked else PLAIN))
    with hub(tmp_path), gateway(tmp_path) as at:
        said = use(at, "session_launch", {"prompt": "go on"}, era=era, client="claude-code")
    assert (at.forms, "has a hook `Elicitation`" in said) == ((0, True) if is_hooked else (1, False))


@promise("form:hook-is-no-person")
def test_the_folder_that_the_client_works_in_counts_and_so_does_its_mark_whatever_it_calls_itself(
    shop: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude" / "settings.json").write_text(json.dumps(ANSWERS))
    with gateway(shop, CLAUDECODE="1", CLAUDE_PROJECT_DIR=str(project)) as at:
        said = discover(at, era="2025-11-25", client="another")
    assert (at.forms, str(project) in said) == (0, True)


@promise("form:hook-is-no-person")
@pytest.mark.parametrize("event", ["Elicitation", "ElicitationResult"])
@pytest.mark.parametrize(
    "where",
    [
        "managed/managed-settings.json",
        "managed/managed-settings.d/10-forms.json",
        "config/settings.json",
        "config/plugins/cache/market/plugin/1.0.0/hooks/hooks.json",
        "work/.claude/settings.json",
        "work/.claude/settings.local.json",
    ],
)
def test_a_hook_is_found_wherever_the_client_reads_it(tmp_path: Path, where: str, event: str) -> None:
    hooks = FormHooks(tmp_path / "config", [tmp_path / "work"], managed=tmp_path / "managed")
    assert hooks() is None
    path = tmp_path / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": {event: [{"hooks": [{"type": "command", "command": "yes"}]}]}}))
    why = hooks()
    assert why is not None
    assert (str(path) in why, f"`{event}`" in why) == (True, True)


@promise("form:hook-is-no-person")
def test_a_hook_that_was_there_stays_though_its_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps(ANSWERS))
    hooks = FormHooks(tmp_path / "config", [tmp_path], managed=tmp_path / "managed")
    why = hooks()
    path.unlink()
    assert hooks() == why is not None


@pytest.mark.parametrize("text", ["{", "[]", "\xff", '{"hooks": {} // no\n}', "[" * 100_000])
def test_settings_that_cannot_be_read_may_have_such_a_hook(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(text.encode("latin-1"))
    assert "cannot be read" in (why_scripted(path) or "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes with a name among files")
def test_settings_that_would_never_end_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    os.mkfifo(path)
    assert "cannot be read" in (why_scripted(path) or "")


@pytest.mark.parametrize("settings", ["", "{}", '{"hooks": {}}', '{"hooks": {"Elicitation": []}}', "\n"])
def test_settings_without_such_a_hook_answer_nothing(tmp_path: Path, settings: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(settings)
    assert why_scripted(path) is None
    assert why_scripted(tmp_path / "none.json") is None


def test_the_users_settings_are_where_the_client_is_told_to_keep_them(tmp_path: Path) -> None:
    assert config_folder({}, tmp_path) == tmp_path / ".claude"
    config = config_folder({"CLAUDE_CONFIG_DIR": str(tmp_path / "kept")}, tmp_path)
    assert tmp_path / "kept" / "settings.json" in settings_files(config, [])
