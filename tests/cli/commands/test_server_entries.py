"""Entries of `mcpServers` as people have them: one that cannot be used, one that is off, variables in one."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.doors import DOORS, entering
from tests.commands import Pml
from tests.promises import promise

OK, FAILED, DENIED, PENDING, NOT_FOUND = 0, 1, 3, 4, 5
ECHO = Path(__file__).parents[3] / "bench" / "echo_server.py"
HI = '{"text": "hi"}'
EVIL = "import pathlib; pathlib.Path('ran').touch()\n"


class Shop:
    """A trusted workspace with the server `echo` and what else a test puts beside it."""

    def __init__(self, path: Path, pml: Pml) -> None:
        self.path = path
        self.pml = pml
        (path / "good.py").write_text(ECHO.read_text())
        (path / "evil.py").write_text(EVIL + ECHO.read_text())

    def configure(self, **servers: dict[str, Any]) -> None:
        rules = {"allow": ["echo:*", "time:*"], "deny": ["Bash"]}
        (self.path / ".pml.json").write_text(json.dumps({"permissions": rules, "mcpServers": servers}))
        assert self.pml("trust", "--yes").code == OK

    def call(self, tool: str = "echo:echo") -> int:
        return self.pml("call", tool, HI).code

    @property
    def ran(self) -> bool:
        return (self.path / "ran").exists()


@pytest.fixture
def shop(workspace: Path, pml: Pml) -> Shop:
    return Shop(workspace, pml)


GOOD = {"command": sys.executable, "args": ["good.py"], "env": {"PYTHONUNBUFFERED": "1", "NODE_ENV": "test"}}
REMOTE = {"type": "http", "serverUrl": "https://x.test/mcp"}


@promise("config:one-entry-alone")
def test_an_entry_that_cannot_be_used_is_loud_and_costs_nothing_else(shop: Shop) -> None:
    shop.configure(echo=GOOD, time=REMOTE, bad={"command": "npx -y foo"})
    assert shop.call() == OK
    assert shop.pml("rules", "explain", "Bash", "{}", "--json").json["verdict"] == "deny"
    servers = {each["name"]: each for each in shop.pml("servers", "list", "--json").json["servers"]}
    assert {name: each["state"] for name, each in servers.items()} == {
        "bad": "refused",
        "echo": "stopped",
        "time": "refused",
    }
    assert "has no `url`" in servers["time"]["problem"]
    doctor = shop.pml("doctor", "--json").json["checks"]
    hints = {check["message"].split("`")[1]: check["hint"] for check in doctor if check["name"] == "servers"}
    assert '"command": "npx", "args": ["-y", "foo"]' in hints["bad"]


@promise("config:one-entry-alone")
@pytest.mark.parametrize("entry", [REMOTE, {"command": "x", "disabled": True}], ids=["url", "disabled"])
def test_nothing_else_takes_the_name_of_an_entry_that_starts_nothing(
    shop: Shop, entry: dict[str, Any]
) -> None:
    shop.configure(time=entry)  # the catalog has a server of this name, and a rule allows its tools
    ran = shop.pml("call", "time:get_current_time", '{"timezone": "UTC"}')
    assert ran.code == NOT_FOUND
    assert "server `time` is " in ran.err


@promise("config:one-entry-alone")
@promise("server:expansion-pinned")
@pytest.mark.parametrize("door", DOORS)
def test_at_every_door_one_entry_stands_alone_and_a_variable_starts_no_other_program(
    shop: Shop, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = {"command": sys.executable, "args": ["${SCRIPT:-good.py}"]}
    shop.configure(echo=echo, time=REMOTE, off={"command": "x", "disabled": True})
    with entering(door) as agent:
        assert agent.call("echo:echo", {"text": "hi"})["content"][0]["text"] == "hi"
        for tool, why in (("time:get_current_time", "has no `url`"), ("off:x", "is disabled in")):
            refused = agent.call(tool, {})
            assert refused["structuredContent"]["error"]["code"] == "not_found"
            assert why in refused["content"][0]["text"]
    monkeypatch.setenv("SCRIPT", "evil.py")
    with entering(door) as agent:
        asked = agent.ask("tools/call", {"name": "echo__echo", "arguments": {"text": "hi"}})["result"]
        assert asked["approval_context"]["type"] == "integrity_changed"
        agent.go_on(asked["approval_context"]["workflow_id"])
    assert not shop.ran


def test_a_disabled_server_is_listed_as_that_and_not_started(shop: Shop) -> None:
    shop.configure(echo={**GOOD, "disabled": True})
    assert shop.call() == NOT_FOUND
    (server,) = shop.pml("servers", "list", "--json").json["servers"]
    assert (server["state"], server["source"]["file"]) == ("disabled", str(shop.path / ".pml.json"))
    (check,) = [each for each in shop.pml("doctor", "--json").json["checks"] if each["name"] == "servers"]
    assert (check["status"], "is disabled in" in check["message"]) == ("ok", True)


# Variables


@promise("server:expansion-pinned")
@pytest.mark.parametrize("key", ["command", "args", "cwd", "PATH"])
def test_another_value_of_a_variable_starts_another_program_only_after_a_persons_yes(
    shop: Shop, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, evil = _program(shop.path, "good"), _program(shop.path, "evil")
    entries = {
        "command": ({"command": "${PROGRAM}"}, f"{good}/echo-server", f"{evil}/echo-server"),
        "args": ({"command": sys.executable, "args": ["${PROGRAM:-good.py}"]}, "", "evil.py"),
        "cwd": ({"command": sys.executable, "args": ["-m", "it"], "cwd": "${PROGRAM}"}, str(good), str(evil)),
        "PATH": (
            {"command": "echo-server", "env": {"PATH": "${PROGRAM}:/usr/bin:/bin"}},
            str(good),
            str(evil),
        ),
    }
    entry, first, second = entries[key]
    monkeypatch.setenv("PROGRAM", first)
    shop.configure(echo=entry)
    assert shop.call() == OK
    monkeypatch.setenv("PROGRAM", second)
    assert (shop.call(), shop.ran) == (PENDING, False)
    (record,) = shop.pml("approvals", "list", "--json").json["approvals"]
    assert (record["subject"], record["may_allow"]) == ("integrity_changed", ["person"])
    assert shop.pml("approvals", "deny", record["id"]).code == OK
    assert (shop.call(), shop.ran) == (DENIED, False)
    monkeypatch.setenv("PROGRAM", first)
    assert shop.call() == OK


def _program(workspace: Path, name: str) -> Path:
    """Return a folder outside the workspace with a program and a module; evil ones leave a mark."""
    folder = workspace.parent / name
    folder.mkdir()
    (folder / "it.py").write_text(
        (workspace / f"{name}.py").read_text().replace("'ran'", f"'{workspace}/ran'")
    )
    (folder / "echo-server").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/it.py"\n')
    (folder / "echo-server").chmod(0o755)
    return folder


@promise("server:expansion-pinned")
def test_a_variable_that_gets_its_first_value_after_the_trust_is_asked_about(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.configure(echo={"command": sys.executable, "args": ["${SCRIPT}"]})
    ran = shop.pml("call", "echo:echo", HI)
    assert (ran.code, "`SCRIPT`" in ran.err) == (FAILED, True)
    monkeypatch.setenv("SCRIPT", "evil.py")
    assert (shop.call(), shop.ran) == (PENDING, False)


@promise("server:expansion-pinned")
def test_the_users_own_file_is_pinned_with_its_first_start(
    shop: Shop, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"command": sys.executable, "args": ["${SCRIPT}"]}
    user.parent.mkdir(exist_ok=True)
    user.write_text(json.dumps({"permissions": {"allow": ["echo:*"]}, "mcpServers": {"echo": entry}}))
    monkeypatch.setenv("SCRIPT", "good.py")
    assert shop.call() == OK
    monkeypatch.setenv("SCRIPT", "evil.py")
    assert (shop.call(), shop.ran) == (PENDING, False)


def test_a_token_may_change_and_is_shown_nowhere(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "first-secret-value")
    shop.configure(echo={**GOOD, "env": {"TOKEN": "${MY_TOKEN}"}})
    assert shop.call() == OK
    monkeypatch.setenv("MY_TOKEN", "second-secret-value")
    assert shop.call() == OK
    for words in (("servers", "list"), ("servers", "status"), ("doctor",), ("trust", "--show")):
        assert "secret-value" not in shop.pml(*words, "--json").out


@promise("trust:shows-what-it-loosens")
def test_the_question_of_trust_names_the_variables_that_a_server_would_be_given(
    workspace: Path, pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET", "value-of-the-secret")
    entry = {"command": "${RUNNER:-npx}", "args": ["--key", "${AWS_SECRET}", "${NOT_SET}"]}
    (workspace / ".pml.json").write_text(json.dumps({"mcpServers": {"x": entry, "y": REMOTE}}))
    shown = pml("trust", "--show").out
    assert '["${RUNNER:-npx}","--key","${AWS_SECRET}","${NOT_SET}"]' in shown.replace('", "', '","')
    assert "takes RUNNER, AWS_SECRET from your environment or `pml secrets`" in shown
    assert 'the program is now "npx"' in shown
    assert "cannot be started until NOT_SET is set" in shown
    assert "server `y` is not used" in shown
    assert "value-of-the-secret" not in shown
