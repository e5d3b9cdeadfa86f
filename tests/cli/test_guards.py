"""Who may run which command: one table, walked over, as real processes in the surroundings of an agent."""

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import pytest

from pml.agents.known import KNOWN
from pml.cli.guards import GUARDS, Guard
from pml.cli.main import COMMANDS
from pml.core.sessions.agent_marks import MARK, find_mark
from tests.cli.terminals import on_terminal
from tests.commands import TIMEOUT_S, Pml, Ran, run_process
from tests.promises import promise

# A command line for each that needs a person. It would do something, or at least not be refused for this.
PEOPLES: Final[Mapping[str, list[str]]] = {
    "add": ["add", "memory", "--yes"],
    "approvals allow": ["approvals", "allow", "0000"],
    "call": ["call", "fs:read"],
    "capability accept": ["capability", "accept", "acme.tools.notes"],
    "deps install": ["deps", "install", "memory", "--yes"],
    "import": ["import", "--yes"],
    "inbox": ["inbox", "--link"],
    "init --model-may-approve": ["init", "--model-may-approve", "always"],
    "init --remove": ["init", "--claude-code", "--remove"],
    "launch --may-launch": ["launch", "--may-launch", "--", "claude", "-p", "x"],
    "login": ["login", "linear"],
    "rules allow": ["rules", "allow", "fs:*"],
    "rules disable": ["rules", "disable", "fs:*"],
    "rules enable": ["rules", "enable", "fs:*"],
    "rules remove": ["rules", "remove", "fs:*"],
    "secrets set": ["secrets", "set", "A_KEY"],
    "token create": ["token", "create", "--role", "person"],
    "trust": ["trust", "--yes"],
    "uninstall": ["uninstall", "--yes"],
}
# `call` asks at its terminal, or leaves the question to others: nothing is refused.
REFUSED: Final = sorted({*PEOPLES} - {"call"})
ALONE: Final[Mapping[str, list[str]]] = {
    "add --dry-run": ["add", "memory", "--dry-run"],
    "approvals deny": ["approvals", "deny", "0000"],
    "deps gc": ["deps", "gc"],
    "import --dry-run": ["import", "--dry-run"],
    "remove": ["remove", "nothing", "--yes"],
    "remove --dry-run": ["remove", "nothing", "--dry-run"],
    "rules deny": ["rules", "deny", "fs:*"],
    "rules ask": ["rules", "ask", "fs:*"],
    "secrets remove": ["secrets", "remove", "A_KEY"],
    "sessions stop": ["sessions", "stop", "nightly"],
    "token list": ["token", "list"],
    "token revoke": ["token", "revoke", "0000"],
    "trust --show": ["trust", "--show"],
    "trust --remove": ["trust", "--remove"],
    "uninstall --dry-run": ["uninstall", "--dry-run"],
}
SAYS: Final = "run it in a terminal of yours, or give a person's token in PML_TOKEN_FILE"
needs_setsid = pytest.mark.skipif(sys.platform != "linux", reason="`setsid` is a command of Linux")


def verbs() -> Iterator[str]:
    """Yield every command, each of its verbs by itself."""
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"pml.cli.commands.{name}").configure(parser)
        found = [each.choices for each in parser._actions if each.dest == "verb"]  # pyright: ignore[reportPrivateUsage]
        yield from (f"{name} {verb}" for verb in cast("list[dict[str, Any]]", found)[0]) if found else [name]


def detached(*argv: str, shell: str = '(setsid "$@" &)', **more: str) -> Ran:
    """Run `pml` as an agent does that wants to be rid of it: its parent is gone, and it has no terminal."""
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "pml", *argv]
    # the pipes end with the last that holds them, and the shell ends before
    ran = subprocess.run(
        command,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ran(code=ran.returncode, out=ran.stdout, err=ran.stderr)


@pytest.fixture
def token_file(local: Path, pml: Pml, tmp_path: Path) -> Path:
    """A private file with a person's token."""
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(pml("token", "create", "--role", "person", "--json").json["token"] + "\n")
    return path


def test_every_command_is_in_the_table_and_every_row_is_a_command() -> None:
    assert {row.partition(" --")[0] for row in GUARDS} == {*verbs()}


def test_every_command_that_needs_a_person_is_tried() -> None:
    assert {*PEOPLES} == {row for row, who in GUARDS.items() if who is Guard.PERSON}


@promise("agent:marked")
@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("row", REFUSED)
def test_beneath_an_agent_that_pml_does_not_know_no_command_allows_or_makes_anything(
    pml: Pml, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    ran = pml(*PEOPLES[row])
    assert ran.code == 1
    assert "beneath an agent (`CLAUDECODE` is set, as Claude Code does" in ran.err
    assert SAYS in ran.err


@promise("agent:detached")
@needs_setsid
@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("row", REFUSED)
def test_a_command_that_an_agent_has_let_go_of_allows_and_makes_nothing(row: str) -> None:
    ran = detached(*PEOPLES[row])
    assert (ran.out, "has no terminal, and what started it is gone" in ran.err) == ("", True)
    assert SAYS in ran.err


@promise("agent:detached")
@needs_setsid
@pytest.mark.usefixtures("local")
@pytest.mark.parametrize(
    "shell",
    [
        '(setsid "$@" &)',
        'setsid sh -c \'"$@"; true\' sh "$@" &',
        '(setsid nohup env A=1 sh -c \'"$@"; true\' sh "$@" &)',
        'setsid setsid --fork "$@"',
    ],
    ids=["setsid", "behind a shell", "behind several", "forked"],
)
def test_it_is_let_go_of_in_many_ways(shell: str) -> None:
    ran = detached("token", "create", "--role", "person", shell=shell)
    assert (ran.out, "what started it is gone" in ran.err) == ("", True)


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("row", sorted(ALONE))
def test_what_only_looks_or_tightens_works_beneath_a_client_and_detached(
    pml: Pml, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "linux":
        assert SAYS not in detached(*ALONE[row]).err
    monkeypatch.setenv("CLAUDECODE", "1")
    assert SAYS not in pml(*ALONE[row]).err


@pytest.mark.usefixtures("local")
def test_without_a_terminal_but_with_somebody_above_a_command_works_as_over_ssh_and_in_cron() -> None:
    made = run_process("token", "create", "--role", "person")
    assert (made.code, made.out.startswith("pml_")) == (0, True)
    alone = subprocess.run(  # as the shell that sshd or cron starts
        ["sh", "-c", '"$@"; true', "sh", sys.executable, "-m", "pml", "rules", "allow", "fs:*"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert "added to" in alone.stdout


@pytest.mark.usefixtures("local")
def test_at_a_terminal_a_command_works() -> None:
    with on_terminal("rules", "allow", "fs:*") as terminal:
        code, out = terminal.end()
    assert (code, "added to" in out) == (0, True)


@promise("agent:marked")
def test_a_persons_token_lets_a_command_work_that_an_agent_or_nobody_started(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "linux":
        assert "added to" in detached("rules", "allow", "fs:*", PML_TOKEN_FILE=str(token_file)).out
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("PML_TOKEN_FILE", str(token_file))
    assert run_process("rules", "remove", "fs:*").code == 0


@promise("agent:marked")
def test_a_persons_token_is_nothing_beneath_a_registered_agent(
    token_file: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("agent")
    monkeypatch.setenv("PML_TOKEN_FILE", str(token_file))
    ran = run_process("rules", "allow", "fs:*")
    assert (ran.code, "beneath the agent session" in ran.err) == (1, True)


@promise("agent:marked")
@pytest.mark.parametrize(
    "how", ["open", "missing", "a link", "session", "revoked", "wrong", "empty", "a folder"]
)
def test_a_file_that_proves_no_person_lets_nothing_work(
    how: str, pml: Pml, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = token_file.read_text()
    match how:
        case "open":
            token_file.chmod(0o640)
        case "missing" | "a folder":
            token_file.unlink()
            if how == "a folder":
                token_file.mkdir(mode=0o700)
        case "a link":
            (token_file.parent / "other").write_text(token)
            (token_file.parent / "other").chmod(0o644)
            token_file.unlink()
            token_file.symlink_to(token_file.parent / "other")
        case "session":
            token_file.write_text(pml("token", "create", "--role", "session", "--json").json["token"])
        case "revoked":
            pml("token", "revoke", token.strip())
        case "wrong":
            token_file.write_text(token[:-5] + "aaaa")
        case _:
            token_file.write_text("")
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("PML_TOKEN_FILE", str(token_file))
    ran = run_process("rules", "allow", "fs:*")
    assert (ran.code, "PML_TOKEN_FILE: " in ran.err) == (1, True)
    assert token.strip()[-43:] not in ran.err


@promise("agent:marked")
@pytest.mark.usefixtures("local")
def test_who_tightens_beneath_an_agent_is_not_called_a_person(
    pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_CLI", "1")
    assert pml("rules", "deny", "fs:*").code == 0
    [entry] = [each for each in pml("audit", "list", "--json").json["entries"] if "rule" in each["kind"]]
    assert "person" not in json.dumps(entry)


@promise("agent:marked")
@pytest.mark.usefixtures("local")
def test_the_prompt_of_a_call_is_not_shown_beneath_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    with on_terminal("call", "pml:execute", '{"code": "return 1"}') as terminal:
        code, _ = terminal.end()
    assert "answer [" not in terminal.screen
    assert code in (0, 4)


@pytest.mark.parametrize("name", sorted({MARK, *KNOWN.marks}))
def test_every_mark_is_told_with_who_sets_it_and_an_empty_one_is_none(name: str) -> None:
    assert f"`{name}`" in (find_mark({"HOME": "/h", name: "1"}, KNOWN.marks) or "")
    assert (
        find_mark({"HOME": "/h", name: "", "CURSOR_TRACE_ID": "x", "TERM_PROGRAM": "vscode"}, KNOWN.marks)
        is None
    )
