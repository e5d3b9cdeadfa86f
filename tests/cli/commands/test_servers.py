"""`pml servers`: what is configured, what runs, stopping it, and what it wrote."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from pml.core.approvals.record import OwnerId
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.rules.ruleset import Source
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.servers.run import ContainedBy
from pml.core.servers.spec import ServerSpec
from pml.upstream.board import RunBoard
from pml.upstream.containment.box import Probed, available, held
from pml.upstream.log import log_path
from tests.builders import launch_of
from tests.cli.terminals import on_terminal
from tests.commands import TIMEOUT_S, Pml, Ran, run_process, spawn
from tests.promises import promise

OK, FAILED, GONE, INTERRUPTED = 0, 1, 5, 130
ODD: Final = Path(__file__).parents[2] / "upstream" / "odd_server.py"
SECRET: Final = "hunter2hunter2"


def odd(*options: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(ODD), *options], "env": {"ODD_KEY": SECRET}}


def digest_of(*options: str) -> str:
    shape = odd(*options)
    return ProcessLaunch(command=shape["command"], args=tuple(shape["args"]), env=shape["env"]).digest()


def configure(place: Path, servers: Mapping[str, object]) -> Path:
    path = place / ".pml.json"
    path.write_text(json.dumps({"permissions": {"allow": ["*"]}, "mcpServers": servers}))
    return path


@pytest.fixture
def shop(pml: Pml, workspace: Path) -> Path:
    """A workspace with a trusted file that defines the odd server."""
    path = configure(workspace, {"odd": odd()})
    assert pml("trust", "--yes").code == OK
    return path


def only(ran: Ran) -> dict[str, Any]:
    assert ran.code == OK
    [server] = ran.json["servers"]
    return server


@contextlib.contextmanager
def running(pml: Pml, *argv: str, runs: int = 1) -> Generator["subprocess.Popen[str]"]:
    """Hold a call open, and with it its server."""
    process = spawn(["call", "odd:silent", *argv])
    try:
        end = time.monotonic() + TIMEOUT_S
        while [run["state"] for run in _runs(pml, *argv)] != ["running"] * runs:
            assert time.monotonic() < end
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.communicate()


def _runs(pml: Pml, *argv: str) -> list[dict[str, Any]]:
    return only(pml("servers", "list", "--json", *argv))["runs"]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


# --- list and status


def test_a_workspace_without_servers_says_where_they_come_from(pml: Pml) -> None:
    ran = pml("servers", "list")
    assert ran.code == OK
    assert "mcpServers" in ran.out
    assert pml("servers", "list", "--json").json == {"servers": []}


def test_a_server_of_a_file_that_nobody_trusts_is_listed_as_such(pml: Pml, workspace: Path) -> None:
    path = configure(workspace, {"odd": odd()})
    server = only(pml("servers", "list", "--json"))
    assert (server["state"], server["trusted"], server["tools"]) == ("not trusted", False, None)
    assert server["source"] == {"file": str(path), "line": 1}
    assert "pml trust" in pml("servers", "status", "odd").out


def test_a_server_tells_what_it_offers_once_it_has_run(pml: Pml, shop: Path) -> None:
    before = only(pml("servers", "list", "--json"))
    assert (before["state"], before["trusted"], before["tools"]) == ("stopped", True, None)
    assert pml("call", "odd:echo").code == OK
    after = only(pml("servers", "list", "--json"))
    assert (after["state"], after["runs"]) == ("stopped", [])
    assert "echo" in after["tools"]
    assert f"{len(after['tools'])}  " in pml("servers", "list").out
    assert "echo, " in pml("servers", "status", "odd").out


def test_status_tells_how_a_server_is_started_but_no_values_of_variables(pml: Pml, shop: Path) -> None:
    server = only(pml("servers", "status", "odd", "--json"))
    assert server["launch"] == digest_of()
    assert (server["start"]["command"], server["start"]["args"]) == (sys.executable, [str(ODD)])
    assert server["start"]["env_names"] == ["ODD_KEY"]
    told = pml("servers", "status").out
    assert str(ODD) in told
    assert "ODD_KEY" in told
    assert digest_of() in told
    for ran in (pml("servers", "status", "--json"), pml("servers", "status"), pml("servers", "list")):
        assert SECRET not in ran.out


def test_what_holds_a_server_is_told_before_and_while_it_runs(
    pml: Pml, workspace: Path, pml_home: Path
) -> None:
    permitted = {**odd(), "permissions": {"net": True, "workspace": "read"}}
    configure(workspace, {"odd": odd(), "tight": permitted})
    wide, tight = pml("servers", "list", "--json").json["servers"]
    for server, narrow in ((wide, False), (tight, True)):
        spec = ServerSpec(
            name=server["name"],
            target=ProcessLaunch(
                command="", permissions=Permissions(net=True, workspace=Access.READ) if narrow else None
            ),
            source=Source(file="", line=1),
        )
        now = held(
            available(),
            spec.name,
            launch_of(spec),
            home=pml_home,
            user_home=pml_home.parent,
            workspace=str(workspace),
        )
        assert server["containment"] == [{"kind": now.kind, "told": now.words}]
        assert now.words in " ".join(pml("servers", "status", server["name"]).out.split())
    assert f" {available()} " in pml("servers", "list").out


def test_a_server_that_nothing_contains_is_told_so(
    pml: Pml, shop: Path, pml_home: Path, workspace: Path
) -> None:
    board(pml_home, workspace).post(
        "odd",
        target_digest=digest_of(),
        state="running",
        process=None,
        restarts=0,
        last_error=None,
        containment=ContainedBy(kind=Containment.NONE, words="not contained: bwrap is not installed"),
    )
    told = {"kind": "none", "told": "not contained: bwrap is not installed"}
    server = only(pml("servers", "list", "--json"))
    assert (server["containment"], server["runs"][0]["containment"]) == ([told], told)
    assert "not contained: bwrap is not installed" in pml("servers", "status", "odd").out


@pytest.mark.parametrize(
    ("kind", "reason", "shown"),
    [
        (Containment.BUBBLEWRAP, None, ("ok", "servers are contained by bubblewrap", None)),
        (
            Containment.LANDLOCK,
            "bwrap is not installed",
            (
                "warn",
                "servers are contained by landlock only: bwrap is not installed",
                "install the package `bubblewrap`",
            ),
        ),
        (
            Containment.NONE,
            "bwrap does not work here: no",
            (
                "warn",
                "servers are not contained: bwrap does not work here: no",
                "allow bwrap to make user namespaces" if sys.platform == "linux" else None,
            ),
        ),
    ],
)
def test_doctor_says_what_holds_servers_here_and_why_nothing_stronger(
    pml: Pml,
    monkeypatch: pytest.MonkeyPatch,
    kind: Containment,
    reason: str | None,
    shown: tuple[str, str, str | None],
) -> None:
    found = Probed(kind=kind, reason=reason)
    monkeypatch.setattr("pml.upstream.containment.box.probe", lambda: found)
    [check] = [each for each in pml("doctor", "--json").json["checks"] if each["name"] == "containment"]
    assert (check["status"], check["message"], check.get("hint")) == shown


def test_a_name_that_both_files_define_is_refused_and_told(pml: Pml, shop: Path, pml_home: Path) -> None:
    (pml_home / "config.json").write_text(json.dumps({"mcpServers": {"odd": {"command": "other"}}}))
    servers = pml("servers", "list", "--json").json["servers"]
    assert [server["state"] for server in servers] == ["refused", "refused"]
    assert "defined twice" in pml("servers", "status", "odd").out


def test_a_broken_file_is_told_and_the_other_still_counts(pml: Pml, shop: Path, pml_home: Path) -> None:
    (pml_home / "config.json").write_text("{")
    ran = pml("servers", "list", "--json")
    assert (ran.code, [server["name"] for server in ran.json["servers"]]) == (1, ["odd"])
    assert "config.json:1:" in ran.err
    assert "no server is configured" not in pml("servers", "list").out


def test_what_runs_is_told_with_its_process_and_session(pml: Pml, shop: Path) -> None:
    with on_terminal("call", "odd:silent", "--session", "robot") as terminal:
        terminal.until("waiting for server odd…")
        server = only(pml("servers", "status", "odd", "--json"))
        [run] = server["runs"]
        assert (server["state"], run["state"], run["restarts"], run["last_error"]) == (
            "running", "running", 0, None,
        )  # fmt: skip
        assert is_running(run["pid"])
        assert (run["gateway_pid"], run["sessions"]) == (terminal.process.pid, ["robot"])
        since = f"{datetime.fromisoformat(run['since']).astimezone():%Y-%m-%d %H:%M:%S}"
        assert f"process {run['pid']} since {since} of robot" in pml("servers", "list").out


def board(pml_home: Path, workspace: Path) -> RunBoard:
    return RunBoard(pml_home, workspace=str(workspace), owner=OwnerId("other"))


def test_a_crash_loop_is_told_with_its_last_error(
    pml: Pml, shop: Path, pml_home: Path, workspace: Path
) -> None:
    board(pml_home, workspace).post(
        "odd",
        target_digest=digest_of(),
        state="crash-loop",
        process=None,
        restarts=5,
        last_error="on fire\x1b",
    )
    server = only(pml("servers", "list", "--json"))
    assert (server["state"], server["runs"][0]["pid"]) == ("crash-loop", None)
    told = pml("servers", "status", "odd").out
    assert "on fire\\u{1b}" in told
    assert "restarts    5" in told
    assert pml("servers", "stop", "odd").code == GONE


def test_a_server_that_runs_but_is_configured_otherwise_by_now_is_listed_too(
    pml: Pml, shop: Path, workspace: Path
) -> None:
    with running(pml):
        configure(workspace, {"odd": odd("noise")})
        configured, left = sorted(
            pml("servers", "list", "--json").json["servers"], key=lambda server: len(server["runs"])
        )
        assert (configured["state"], configured["launch"]) == ("not trusted", digest_of("noise"))
        assert (left["state"], left["source"], left["launch"]) == ("running", None, digest_of())
        assert pml("servers", "stop", "odd").code == OK


def test_a_server_of_another_workspace_is_not_listed(
    pml: Pml, shop: Path, pml_home: Path, tmp_path: Path
) -> None:
    board(pml_home, tmp_path).post(
        "odd", target_digest=digest_of(), state="running", process=None, restarts=0, last_error=None
    )
    assert _runs(pml) == []


@pytest.mark.parametrize("argv", [("status", "od"), ("stop", "od"), ("logs", "od")])
def test_an_unknown_server_is_not_found(pml: Pml, shop: Path, argv: tuple[str, ...]) -> None:
    ran = pml("servers", *argv)
    assert ran.code == GONE
    assert "no server `od` in this workspace" in ran.err


# --- stop


def test_stop_ends_the_server_and_tells_the_call_that_waited(pml: Pml, shop: Path) -> None:
    with running(pml) as gateway:
        [run] = _runs(pml)
        ran = pml("servers", "stop", "odd")
        _, err = gateway.communicate(timeout=TIMEOUT_S)
        assert (ran.code, gateway.returncode) == (OK, FAILED)
        assert f"stopped odd: process {run['pid']}" in ran.out
        assert "server `odd`" in err
        assert not is_running(run["pid"])
    ran = pml("servers", "stop", "odd")
    assert ran.code == GONE
    assert "does not run" in ran.err


def test_stop_ends_it_in_every_gateway_of_this_workspace_and_in_no_other(
    pml: Pml, shop: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    configure(other, {"odd": odd()})
    there = ("--workspace", str(other))
    assert pml("trust", "--yes", *there).code == OK
    with running(pml), running(pml, runs=2), running(pml, *there):
        ran = pml("servers", "stop", "odd", "--json")
        assert len(ran.json["stopped"]) == 2
        assert [run["state"] for run in _runs(pml, *there)] == ["running"]
        assert pml("servers", "stop", "odd", *there).code == OK


@promise("server:killed-whole")
def test_what_a_killed_gateway_started_ends_with_it_and_is_listed_no_more(pml: Pml, workspace: Path) -> None:
    configure(workspace, {"odd": odd("stubborn")})
    assert pml("trust", "--yes").code == OK
    with running(pml) as gateway:
        [run] = _runs(pml)
        gateway.kill()
        gateway.wait(timeout=TIMEOUT_S)
        assert _runs(pml) == []
        end = time.monotonic() + TIMEOUT_S
        while is_running(run["pid"]):
            assert time.monotonic() < end


# --- logs


def test_the_last_lines_of_the_log_are_shown(pml: Pml, shop: Path, pml_home: Path) -> None:
    assert pml("servers", "logs", "odd").code == GONE
    path = log_path(pml_home, "odd", digest_of())
    path.parent.mkdir(mode=0o700)
    path.with_name(f"{path.name}.1").write_text("one\ntwo\n")
    path.write_text("three\nfour\n")
    assert pml("servers", "logs", "odd").out == "one\ntwo\nthree\nfour\n"
    assert pml("servers", "logs", "odd", "--lines", "3").out == "two\nthree\nfour\n"
    shape = pml("servers", "logs", "odd", "--lines", "1", "--json").json
    assert shape == {"name": "odd", "path": str(path), "lines": ["four"]}


def test_what_a_server_says_on_stderr_is_logged(pml: Pml, shop: Path) -> None:
    assert pml("call", "odd:bark").code == OK
    assert "\x1b[31mbark\x07\n" in run_process("servers", "logs", "odd").out


@promise("show:nothing-hidden")
def test_no_escape_sequence_of_a_log_reaches_a_terminal(pml: Pml, shop: Path) -> None:
    assert pml("call", "odd:bark").code == OK
    with on_terminal("servers", "logs", "odd", stdout_too=True) as terminal:
        assert terminal.end()[0] == OK
        assert "\\u{1b}[31mbark\\u{7}" in terminal.screen
        assert {char for char in terminal.screen if not char.isprintable()} == {"\n"}


def test_a_log_is_followed_also_where_it_begins_anew(pml: Pml, shop: Path, pml_home: Path) -> None:
    path = log_path(pml_home, "odd", digest_of())
    path.parent.mkdir(mode=0o700)
    path.write_text("one\ntwo\nhalf")
    process = spawn(["servers", "logs", "odd", "--follow", "--lines", "1", "--json"])
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"line": "two"}
        with path.open("a") as file:
            file.write(" and half\n")
        assert json.loads(process.stdout.readline()) == {"line": "half and half"}
        os.replace(path, path.with_name(f"{path.name}.1"))
        path.write_text("anew\n")
        assert json.loads(process.stdout.readline()) == {"line": "anew"}
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == INTERRUPTED
    finally:
        process.kill()
        process.communicate()


def test_a_log_that_does_not_exist_yet_is_followed_from_its_start(
    pml: Pml, shop: Path, pml_home: Path
) -> None:
    process = spawn(["servers", "logs", "odd", "--follow"])
    try:
        path = log_path(pml_home, "odd", digest_of())
        path.parent.mkdir(mode=0o700)
        path.write_text("one\n")
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
    finally:
        process.kill()
        process.communicate()


VERBS = ("list", "status", "stop", "logs")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples_of_itself(pml: Pml, verb: str) -> None:
    ran = pml("servers", verb, "--help")
    assert ran.code == OK
    assert f"  pml servers {verb}" in ran.out.partition("examples:\n")[2]
    assert "--json" in ran.out
    assert "--workspace" in ran.out
