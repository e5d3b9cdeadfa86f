"""`pml` itself: commands, help, exit codes, errors, and how it ends when it is told to."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pml.app import find_place, open_context
from pml.cli.exits import EXIT_OF_CODE, Exit, exit_of
from pml.cli.main import COMMANDS
from pml.core.errors import (
    AlreadyClaimed,
    AlreadyDecided,
    ApprovalExpired,
    Changed,
    ConfigInvalid,
    ErrorCode,
    Forbidden,
    IllegalEvent,
    Invalid,
    MayNotDecide,
    NotFound,
    PmlError,
    ToolDenied,
    TooManyPending,
    Unavailable,
)
from pml.service.approvals.lifecycle import pending
from tests.commands import TIMEOUT_S, Pml, run_process, spawn

# --- exit codes


def test_every_kind_of_error_has_an_exit_code() -> None:
    assert set(EXIT_OF_CODE) == set(ErrorCode)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PmlError("x"), 1),
        (Invalid("x"), 2),
        (ConfigInvalid("f", 1, 1, "x"), 1),
        (Forbidden("x"), 1),
        (MayNotDecide("x"), 1),
        (TooManyPending("x"), 1),
        (ToolDenied("x"), 3),
        (NotFound("x"), 5),
        (ApprovalExpired("x"), 5),
        (AlreadyDecided("x"), 6),
        (AlreadyClaimed("x"), 6),
        (IllegalEvent("x"), 1),
        (Changed("x"), 1),
        (Unavailable("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, PmlError) else "",
)
def test_an_error_ends_with_the_exit_code_that_tells_of_it(error: PmlError, code: int) -> None:
    assert exit_of(error) == code


def test_an_error_is_one_documented_object_with_json_and_words_without(pml: Pml) -> None:
    ran = pml("approvals", "show", "ffff", "--json")
    hint = "`pml approvals list --all` shows all there are"
    error = {"code": "not_found", "message": "no approval `ffff`", "hint": hint}
    assert (ran.code, ran.json, ran.err) == (Exit.GONE, {"error": error}, "")
    ran = pml("approvals", "show", "ffff")
    assert (ran.code, ran.out, ran.err) == (Exit.GONE, "", f"pml: no approval `ffff`\n  → {hint}\n")


# --- usage


def test_without_a_command_the_help_is_shown(pml: Pml) -> None:
    ran = pml()
    assert ran.code == 0
    for command in COMMANDS:
        assert command in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(pml: Pml, command: str) -> None:
    ran = pml(command, "--help")
    assert ran.code == 0
    assert "examples:" in ran.out
    assert f"  pml {command}" in ran.out


VERBS = {
    "capability": ("new", "types", "check", "accept"),
    "approvals": ("list", "show", "ask", "allow", "deny", "watch"),
    "rules": ("list", "allow", "deny", "ask", "remove", "explain"),
    "audit": ("list", "verify"),
    "servers": ("list", "status", "stop", "logs"),
    "catalog": ("list", "show", "search"),
    "deps": ("list", "install", "verify", "remove", "gc"),
    "secrets": ("set", "list", "remove", "check"),
}


@pytest.mark.parametrize(("command", "verb"), [(each, verb) for each in VERBS for verb in VERBS[each]])
def test_every_verb_has_help_and_takes_the_common_options(pml: Pml, command: str, verb: str) -> None:
    ran = pml(command, verb, "--help")
    assert ran.code == 0
    assert f"pml {command} {verb}" in ran.out
    assert "--json" in ran.out
    assert "--workspace" in ran.out


@pytest.mark.parametrize(("command", "verb"), [(each, verb) for each in VERBS for verb in VERBS[each]])
def test_every_verb_has_examples_of_itself(pml: Pml, command: str, verb: str) -> None:
    examples = pml(command, verb, "--help").out.partition("examples:\n")[2]
    lines = [line for line in examples.splitlines() if line.startswith("  pml ")]
    assert lines
    assert all(line.startswith(f"  pml {command} {verb}") for line in lines)


@pytest.mark.parametrize("command", VERBS)
def test_a_command_without_its_verb_shows_its_help(pml: Pml, command: str) -> None:
    ran = pml(command)
    assert (ran.code, ran.out) == (0, pml(command, "--help").out)


def test_help_is_a_command_too(pml: Pml) -> None:
    for words in ((), ("rules",), ("rules", "allow"), ("version",)):
        ran = pml("help", *words)
        assert (ran.code, ran.out) == (0, pml(*words, "--help").out)
    assert pml("help", "rulez").code == Exit.USAGE


@pytest.mark.parametrize(
    ("word", "meant"), [("approve", "approvals"), ("rule", "rules"), ("audits", "audit"), ("zzz", None)]
)
def test_an_unknown_command_names_the_one_it_resembles(pml: Pml, word: str, meant: str | None) -> None:
    ran = pml(word, "list")
    assert ran.code == Exit.USAGE
    assert f"pml: no command `{word}`" in ran.err
    assert ("did you mean" in ran.err) is (meant is not None)
    assert meant is None or f"did you mean `{meant}`?" in ran.err


def test_an_option_is_not_guessed_from_its_start(pml: Pml) -> None:
    for argv in (
        ("--vers",),
        ("doctor", "--js"),
        ("rules", "list", "--js"),
        ("rules", "allow", "a:b", "--us"),
    ):
        assert pml(*argv).code == Exit.USAGE


@pytest.mark.parametrize(
    "argv", [("aproove",), ("rules", "forbid"), ("trust", "--maybe"), ("approvals", "show")]
)
def test_a_command_line_that_cannot_be_read_is_refused_with_the_usage(
    pml: Pml, argv: tuple[str, ...]
) -> None:
    ran = pml(*argv)
    assert (ran.code, "usage: pml" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            ("rules", "alow", "x"),
            "no `alow`; did you mean `allow`? (there are list, allow, deny, ask,",
        ),
        (("servers", "lits"), "no `lits`; did you mean `list`? (there are list, status, stop, logs)"),
        (("deps", "zzz"), "no `zzz` (there are list, install, verify, remove, gc)"),
        (("rules", "remove", "x", "--effect", "dney"), "no `dney`; did you mean `deny`?"),
    ],
)
def test_a_mistyped_verb_names_the_one_it_resembles_in_plain_words(
    pml: Pml, argv: tuple[str, ...], told: str
) -> None:
    ran = pml(*argv)
    assert ran.code == Exit.USAGE
    assert told in ran.err
    assert "Effect" not in ran.err


def test_a_complaint_about_an_option_does_not_repeat_its_value(pml: Pml) -> None:
    ran = pml("rules", "list", "--tken=hunter2")
    assert (ran.code, "--tken=…" in ran.err, "hunter2" in ran.err) == (Exit.USAGE, True, False)


def test_an_option_before_the_command_is_not_taken_for_it(pml: Pml) -> None:
    ran = pml("--version")
    assert (ran.code, ran.out.startswith("pml ")) == (0, True)


def test_version_is_told_in_words_and_as_an_object(pml: Pml) -> None:
    shape = pml("version", "--json").json
    assert pml("version").out == f"pml {shape['version']}\n"
    assert shape["python"] == ".".join(map(str, sys.version_info[:3]))


def test_version_and_help_import_nothing_heavy() -> None:
    code = """
import json, sys
from pml.cli.main import main
main(["version"])
main([])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr))
    heavy = {"rich", "apsw", "psutil", "sqlite3", "pml.app", "pml.store", "pml.service", "pml.settings"}
    assert loaded & heavy == set()


# --- a store that cannot serve


COMMAND_LINES = [
    ("init",),
    ("trust", "--show"),
    ("approvals", "list"),
    ("approvals", "allow", "ffff"),
    ("rules", "list"),
    ("rules", "allow", "a:b", "--user"),
    ("rules", "remove", "a:b"),
    ("rules", "explain", "a:b"),
    ("audit", "list"),
    ("audit", "verify"),
]


@pytest.mark.parametrize("argv", COMMAND_LINES, ids=" ".join)
def test_a_home_that_is_no_directory_is_a_clear_error(
    pml: Pml, pml_home: Path, argv: tuple[str, ...]
) -> None:
    pml_home.write_text("something else")
    ran = pml(*argv)
    assert ran.code == Exit.FAILED
    assert ran.err.startswith(f"pml: {pml_home}")
    assert "PML_HOME" in ran.err
    assert pml(*argv, "--json").json["error"]["code"] == "unavailable"
    assert pml_home.read_text() == "something else"


@pytest.mark.parametrize("argv", COMMAND_LINES, ids=" ".join)
def test_garbage_in_the_place_of_the_database_is_a_clear_error_and_is_kept(
    pml: Pml, pml_home: Path, workspace: Path, argv: tuple[str, ...]
) -> None:
    pml_home.mkdir(mode=0o700)
    path = pml_home / "pml.db"
    path.write_bytes(b"garbage " * 1000)
    ran = pml(*argv)
    assert ran.code == Exit.FAILED
    assert ran.err.startswith(f"pml: {path}: the file is not a database")
    assert path.read_bytes() == b"garbage " * 1000
    assert list(workspace.iterdir()) == []


def test_a_home_that_is_no_absolute_path_is_refused(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PML_HOME", "here")
    ran = pml("rules", "list")
    assert (ran.code, "absolute path" in ran.err) == (Exit.USAGE, True)


# --- how it ends


async def wait_until_asked() -> str:
    """Return the id of the question, as soon as there is one."""
    async with asyncio.timeout(TIMEOUT_S), open_context(find_place()) as context:
        with context.store.changes.watch() as changes:
            while not (waiting := await pending(context)):
                await changes.wait(TIMEOUT_S)
        return waiting[0].id


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_waiting_command_that_is_interrupted_withdraws_its_question(
    pml: Pml, number: signal.Signals
) -> None:
    with spawn(["approvals", "ask", "fs:read", "--wait"]) as process:
        try:
            asked = asyncio.run(wait_until_asked())
            process.send_signal(number)
            _, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == Exit.INTERRUPTED
    assert err.endswith("pml: interrupted\n")
    assert pml.status(asked) == "cancelled"


def test_a_reader_that_goes_away_ends_the_command_without_a_trace(pml: Pml) -> None:
    pml("init")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone, spawn(["rules", "list"], stdout=gone) as process:
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (Exit.FAILED, "")


def test_a_terminal_that_cannot_show_a_character_gets_an_escape(
    pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    pml("init")
    ran = run_process("doctor")
    assert ran.code == 0
    assert "\\u2713 trust" in ran.out


@pytest.mark.parametrize(
    ("argv", "prog", "meant"),
    [
        (("approvals", "allow", "2cfc", "--remembr=session"), "pml approvals allow", "--remember"),
        (("approvals", "list", "--al"), "pml approvals list", "--all"),
        (("inbox", "--link", "--nam", "ana"), "pml inbox", "--name"),
        (("rules", "allow", "Read", "Write"), "pml rules allow", None),
    ],
)
def test_a_mistyped_option_is_told_by_its_command_with_the_one_it_resembles(
    pml: Pml, argv: tuple[str, ...], prog: str, meant: str | None
) -> None:
    ran = pml(*argv)
    assert ran.code == Exit.USAGE
    assert f"usage: {prog} " in ran.err
    assert f"{prog}: unrecognized arguments: " in ran.err
    assert ("did you mean" in ran.err) is (meant is not None)
    assert meant is None or f"did you mean `{meant}`?" in ran.err
