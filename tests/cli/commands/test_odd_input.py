"""Command lines and surroundings that nobody means: a clear word and an exit code, never a traceback."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import TIMEOUT_S, Pml
from tests.promises import promise

FAILED, USAGE, BLOCKED = 1, 2, 2
HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    "argv",
    [
        ["audit", "list", "--limit", HUGE],
        ["audit", "list", "--limit", "0"],
        ["audit", "list", "--after", HUGE],
        ["audit", "list", "--after", "-1"],
        ["rules", "remove", "\udcff"],
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(pml: Pml, argv: list[str]) -> None:
    ran = pml(*argv)

    assert ran.code == USAGE
    assert "internal error" not in ran.err


def test_a_workspace_of_links_in_a_circle_is_named(pml: Pml, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)

    ran = pml("rules", "list", "--workspace", str(loop))

    assert ran.code == FAILED
    assert str(loop) in ran.err


def test_a_workspace_whose_path_is_no_text_is_refused(pml: Pml, tmp_path: Path) -> None:
    place = os.fsencode(tmp_path) + b"/\xffws"
    os.mkdir(place)

    ran = pml("approvals", "ask", "x:y", "--workspace", os.fsdecode(place))

    assert ran.code == USAGE
    assert "the path of the workspace" in ran.err


def test_a_user_whose_name_is_no_text_is_called_by_number(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "\udcff")

    asked = pml.ask("x:y")

    assert pml("approvals", "allow", asked).code == 0
    assert pml("approvals", "show", asked, "--json").json["decided_by"]["id"] == f"uid-{os.getuid()}"


def test_a_time_beyond_the_calendar_is_refused_in_its_place(pml: Pml, pml_home: Path) -> None:
    pml_home.mkdir(mode=0o700)
    (pml_home / "config.json").write_text('{"approval": {"enabled": {"until": "9999-12-31T23:59:59-14:00"}}}')

    ran = pml("rules", "list")

    assert ran.code == FAILED
    assert "config.json:1:" in ran.err


def test_a_link_that_leads_nowhere_is_said_to(pml: Pml, workspace: Path) -> None:
    (workspace / ".pml.json").symlink_to(workspace / "nowhere")

    for argv in (["rules", "list"], ["trust", "--show"], ["rules", "remove", "a:b"]):
        ran = pml(*argv)
        assert ran.code == FAILED
        assert "link" in ran.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which this system does not have")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_told_in_words(unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "pml", "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )

    assert ran.returncode == FAILED
    assert b"the disk is full" in ran.stderr
    assert b"internal error" not in ran.stderr


@promise("hook:fails-closed")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which this system does not have")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_hook_that_cannot_write_what_it_says_blocks(
    pml_home: Path, workspace: Path, stream: str, unbuffered: str
) -> None:
    pml_home.mkdir(mode=0o700)
    (pml_home / "config.json").write_text('{"permissions": {"allow": ["Read"]}}')
    asked = {
        "session_id": "s",
        "cwd": str(workspace),
        "hook_event_name": "PreToolUse",
        "tool_name": "Read",
        "tool_input": {"file_path": "a"} if stream == "stdout" else None,  # allowed, or no question at all
        "tool_use_id": "u",
    }
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "pml", "hook", "--workspace", str(workspace)],
            input=json.dumps(asked).encode(),
            timeout=TIMEOUT_S,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full if stream == "stdout" else subprocess.PIPE,
            stderr=full if stream == "stderr" else subprocess.PIPE,
        )

    assert ran.returncode == BLOCKED


def test_a_closed_stdin_is_nobody_at_the_terminal(workspace: Path) -> None:
    (workspace / ".pml.json").write_text('{"permissions": {"allow": ["a:b"]}}')
    command = f"{sys.executable} -m pml trust <&-; {sys.executable} -m pml approvals ask a:b - <&-"

    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=TIMEOUT_S)

    assert "nobody is there to answer" in ran.stderr
    assert "stdin, which is closed" in ran.stderr
    assert "internal error" not in ran.stderr


@promise("show:nothing-hidden")
def test_doctor_shows_a_path_with_escapes_in_words(pml: Pml, pml_home: Path, tmp_path: Path) -> None:
    place = tmp_path / "w\x1b[31mred"
    place.mkdir()
    pml_home.mkdir(mode=0o700)
    for file in (pml_home / "config.json", place / ".pml.json"):
        file.write_text('{"mcpServers": {"s": {"command": "x"}}}')
    pml("trust", "--yes", "--workspace", str(place))

    ran = pml("doctor", "--workspace", str(place))

    assert "defined twice" in ran.out
    assert "\x1b" not in ran.out


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_request_to_stop_after_the_work_ends_the_process_without_a_word() -> None:
    done = """
import asyncio, os, signal
from pml.cli.interrupts import until_done

async def work():
    return 0

asyncio.run(until_done(work()))
asyncio.run(until_done(work()))
os.kill(os.getpid(), signal.SIG{name})
"""
    for name in ("TERM", "HUP"):
        ran = subprocess.run(
            [sys.executable, "-c", done.replace("{name}", name)], capture_output=True, timeout=TIMEOUT_S
        )
        assert (ran.returncode, ran.stderr) == (-getattr(signal, f"SIG{name}"), b"")


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_second_request_to_stop_ends_a_command_that_does_not_listen() -> None:
    busy = """
import asyncio
from pml.cli.interrupts import until_done

async def work():
    print("busy", flush=True)
    while True:
        pass

asyncio.run(until_done(work()))
"""
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(100):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
                break
        ended = process.poll()
        process.kill()

    assert ended == -signal.SIGTERM
