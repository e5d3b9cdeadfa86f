"""`pml secrets`: a value is typed unseen or piped, never an argument, and no command ever shows one."""

import json
import os
import stat
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.terminals import on_terminal
from tests.commands import TIMEOUT_S, Pml, Ran
from tests.promises import promise

SECRET = "hunter2"
BACKENDS = Path(__file__).parents[2] / "settings"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep away from the real keyring of whoever runs the tests."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


@pytest.fixture
def keyring(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A keyring that keeps what it is given in this file."""
    path = home / "entries.json"
    monkeypatch.setenv("PYTHONPATH", str(BACKENDS), prepend=os.pathsep)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring_backends.Keeping")
    monkeypatch.setenv("KEYRING_PROPERTY_PATH", str(path))
    return path


def piped(*argv: str, given: bytes = f"{SECRET}\n".encode()) -> Ran:
    """Run `pml secrets` with `given` on its standard input; what it shows has no value in it."""
    ran = subprocess.run(
        [sys.executable, "-m", "pml", "secrets", *argv],
        input=given,
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    out, err = ran.stdout.decode(), ran.stderr.decode()
    assert SECRET not in out + err
    return Ran(code=ran.returncode, out=out, err=err)


def stored(pml_home: Path) -> dict[str, dict[str, str]]:
    path = pml_home / "secrets.json"
    return json.loads(path.read_text())["secrets"] if path.exists() else {}


# --- set


@promise("secrets:private-file")
@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("given", [b"hunter2", b"hunter2\n", b"hunter2\r\n"])
def test_without_a_keyring_a_piped_line_goes_to_a_file_that_only_its_user_can_read(
    pml_home: Path, given: bytes
) -> None:
    ran = piped("set", "TOKEN", given=given)
    path = pml_home / "secrets.json"
    assert (ran.code, ran.out) == (0, f"stored TOKEN in {path}, which only you can read\n")
    assert ran.err == "  not in a keyring: no usable keyring is on this system\n"
    assert stored(pml_home) == {"TOKEN": {"in": "file", "value": SECRET}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.usefixtures("workspace")
def test_with_a_keyring_the_value_is_there_and_in_no_file_of_ours(pml_home: Path, keyring: Path) -> None:
    ran = piped("set", "TOKEN", "--json")
    assert (ran.code, ran.json) == (0, {"name": "TOKEN", "stored_in": "keyring", "problem": None})
    assert list(json.loads(keyring.read_text()).values()) == [SECRET]
    assert stored(pml_home) == {"TOKEN": {"in": "keyring"}}
    assert all(SECRET.encode() not in path.read_bytes() for path in pml_home.rglob("*") if path.is_file())
    assert piped("check", "TOKEN", "--json").json == {
        "variables": [{"name": "TOKEN", "source": "the keyring"}]
    }
    assert piped("remove", "TOKEN", "--json").json == {"removed": "TOKEN", "problem": None}
    assert (json.loads(keyring.read_text()), stored(pml_home)) == ({}, {})


@promise("secrets:no-argument")
@promise("secrets:never-shown")
@pytest.mark.parametrize(
    "words",
    [
        ("TOKEN", SECRET),
        ("TOKEN", SECRET, "more"),
        ("TOKEN", "--json", SECRET),
        ("--json", "TOKEN", SECRET),
        ("TOKEN", "--value", SECRET),
        (f"--value={SECRET}", "TOKEN"),
        (f"TOKEN={SECRET}",),
        ("TOKEN", ""),
    ],
)
def test_a_value_as_an_argument_is_refused_with_the_reason_and_not_repeated(
    pml: Pml, pml_home: Path, words: tuple[str, ...]
) -> None:
    ran = pml("secrets", "set", *words)
    assert ran.code == 2
    assert "lists of processes and shell histories show those" in ran.out + ran.err
    assert SECRET not in ran.out + ran.err
    assert stored(pml_home) == {}


@promise("secrets:no-argument")
@pytest.mark.parametrize(
    "words",
    [
        ("TOKEN", f"--token={SECRET}"),
        ("TOKEN", "--token", SECRET),
        ("TOKEN", f"-t{SECRET}"),
        ("TOKEN", f"--json={SECRET}"),
        (f"--token={SECRET}", "TOKEN"),
    ],
)
def test_an_option_that_there_is_not_is_refused_without_repeating_what_was_given(
    pml: Pml, pml_home: Path, words: tuple[str, ...]
) -> None:
    ran = pml("secrets", "set", *words)
    assert ran.code == 2
    assert SECRET not in ran.out + ran.err
    assert stored(pml_home) == {}


def test_without_a_name_only_the_name_is_asked_for(pml: Pml) -> None:
    ran = pml("secrets", "set")
    assert (ran.code, "required: NAME\n" in ran.err) == (2, True)


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"hunter2\nmore\n", "one line of text"),
        (b"hunter2\xff\n", "one line of text"),
        (b"hunter2\0\n", "one line of text"),
        (b"hunter2" * 10_000, "larger than 32 KiB"),
    ],
)
def test_what_is_no_value_is_refused_and_nothing_is_stored(
    pml_home: Path, given: bytes, problem: str
) -> None:
    ran = piped("set", "TOKEN", given=given)
    assert (ran.code, problem in ran.err) == (2, True)
    assert stored(pml_home) == {}


@pytest.mark.parametrize("name", ["1A", "sk-hunter2", "LD_PRELOAD", ""])
def test_what_may_not_be_the_name_of_a_secret_is_refused_in_every_verb(
    pml: Pml, pml_home: Path, name: str
) -> None:
    for verb in ("set", "check", "remove"):
        ran = pml("secrets", verb, name)
        assert ran.code == 2
        assert SECRET not in ran.err
    assert stored(pml_home) == {}


# --- on a terminal


@promise("secrets:never-shown")
@pytest.mark.usefixtures("workspace")
def test_at_a_terminal_the_value_is_asked_for_and_never_echoed(pml_home: Path) -> None:
    with on_terminal("secrets", "set", "TOKEN", stdout_too=True) as terminal:
        terminal.until("value of TOKEN (not shown): ")
        assert not terminal.modes()[3] & termios.ECHO
        terminal.type(f"{SECRET}\n")
        code, _ = terminal.end()
    assert (code, stored(pml_home)) == (0, {"TOKEN": {"in": "file", "value": SECRET}})
    assert "stored TOKEN" in terminal.screen
    assert SECRET not in terminal.screen


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(("typed", "code"), [("\x03", 130), ("\x04", 2), ("\n", 2)])
def test_who_gives_up_at_the_prompt_stores_nothing_and_gets_the_terminal_back(
    pml_home: Path, typed: str, code: int
) -> None:
    with on_terminal("secrets", "set", "TOKEN") as terminal:
        before = terminal.modes()[3] | termios.ECHO
        terminal.until("(not shown): ")
        terminal.type(typed)
        assert terminal.process.wait(timeout=TIMEOUT_S) == code
        assert terminal.modes()[3] & termios.ECHO == before & termios.ECHO
    assert stored(pml_home) == {}


@pytest.mark.usefixtures("workspace")
def test_a_request_to_end_at_the_prompt_leaves_the_terminal_with_its_echo(pml_home: Path) -> None:
    with on_terminal("secrets", "set", "TOKEN") as terminal:
        terminal.until("(not shown): ")
        terminal.process.terminate()
        assert terminal.process.wait(timeout=TIMEOUT_S) == 130
        assert terminal.modes()[3] & termios.ECHO
    assert stored(pml_home) == {}


# --- list, remove, check


@promise("secrets:never-shown")
def test_the_list_has_names_and_places_and_no_value(pml: Pml, pml_home: Path) -> None:
    assert "no secret is stored" in pml("secrets", "list").out
    for name in ("TOKEN", "OTHER"):
        piped("set", name)
    ran = pml("secrets", "list")
    assert ran.out == "NAME   STORED IN\nOTHER  file\nTOKEN  file\n"
    assert pml("secrets", "list", "--json").json == {
        "secrets": [{"name": "OTHER", "stored_in": "file"}, {"name": "TOKEN", "stored_in": "file"}]
    }


def test_what_is_removed_is_gone_and_what_was_never_stored_is_not_found(pml: Pml, pml_home: Path) -> None:
    piped("set", "TOKEN")
    assert pml("secrets", "remove", "TOKEN").out == "removed TOKEN: PML no longer uses it\n"
    assert stored(pml_home) == {}
    ran = pml("secrets", "remove", "TOKEN")
    assert (ran.code, "no secret `TOKEN` is stored" in ran.err) == (5, True)


@promise("env:workspace-needs-trust")
def test_check_says_where_each_would_come_from_and_a_workspace_counts_once_it_is_trusted(
    pml: Pml, pml_home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST", SECRET)
    (workspace / ".env").write_text("SECOND=hunter2\n'hunter2'\n")
    piped("set", "THIRD")
    names = ("FIRST", "SECOND", "THIRD")
    ran = pml("secrets", "check", *names)
    assert (ran.code, ran.err) == (5, "")
    assert ran.out.splitlines()[1:] == [
        "FIRST   the environment",
        "SECOND  not set",
        f"THIRD   {pml_home / 'secrets.json'}",
    ]
    (workspace / ".pml.json").write_text('{"permissions": {"allow": ["fs:*"]}}')
    assert pml("trust", "--yes").code == 0
    ran = pml("secrets", "check", *names)
    assert (ran.code, f"SECOND  {workspace / '.env'}" in ran.out) == (0, True)
    assert ran.err == f"warning: {workspace / '.env'}: line 2 is not `NAME=value`\n"
    assert SECRET not in ran.out


def test_a_broken_file_is_told_and_stays(pml: Pml, pml_home: Path) -> None:
    pml_home.mkdir(mode=0o700)
    (pml_home / "secrets.json").write_text('{"TOKEN": "hunter2"}')
    for argv in (("list",), ("set", "TOKEN"), ("remove", "TOKEN")):
        ran = piped(*argv)
        assert ran.code != 0
        assert "is not as PML writes it, and is left alone" in ran.err
    assert (pml_home / "secrets.json").read_text() == '{"TOKEN": "hunter2"}'


# --- an agent


@promise("agent:cannot-decide")
@pytest.mark.usefixtures("agent")
def test_beneath_an_agent_nothing_is_stored_or_removed_and_only_names_are_told(pml_home: Path) -> None:
    (pml_home / "secrets.json").write_text(
        '{"version": 1, "secrets": {"TOKEN": {"in": "file", "value": "hunter2"}}}'
    )
    before = (pml_home / "secrets.json").read_bytes()
    for argv in (("set", "TOKEN"), ("set", "OTHER"), ("remove", "TOKEN")):
        ran = piped(*argv, given=b"planted\n")
        assert ran.code == 1
        assert "beneath the agent session `the-agent`" in ran.err
    assert (pml_home / "secrets.json").read_bytes() == before
    assert piped("list").out == "NAME   STORED IN\nTOKEN  file\n"


@promise("secrets:never-shown")
@pytest.mark.usefixtures("workspace")
def test_a_value_is_in_no_environment_argument_or_log_of_the_command(
    pml_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PML_LOG", "debug")
    piped("set", "TOKEN")
    piped("list", "--json")
    holding = [
        path.name for path in pml_home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert holding == ["secrets.json"]
    assert SECRET not in "".join(os.environ.values())


# --- the record


@promise("secrets:never-shown")
@pytest.mark.usefixtures("workspace")
def test_storing_and_removing_is_on_record_by_name_alone(pml: Pml) -> None:
    piped("set", "TOKEN")
    piped("remove", "TOKEN")

    entries = pml("audit", "list", "--json").json["entries"]
    kept = [(entry["kind"], entry["detail"]) for entry in entries if entry["kind"].startswith("secret.")]
    assert kept == [("secret.stored", {"name": "TOKEN"}), ("secret.removed", {"name": "TOKEN"})]
