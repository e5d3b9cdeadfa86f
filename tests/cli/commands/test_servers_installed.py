"""`pml servers` of what PML installed: listed, looked at, stopped, and its log, as those of files."""

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.offering import Registry
from tests.commands import TIMEOUT_S, Pml, spawn

OK, FAILED, GONE = 0, 1, 5


@pytest.fixture
def greeter(pml: Pml, registry: Registry) -> Registry:
    """The server `greeter`, installed, and allowed to be called."""
    registry.offer(lock=registry.locked())
    assert pml("rules", "allow", "greeter:*", "--user").code == OK
    assert pml("deps", "install", "greeter", "--yes").code == OK
    return registry


def listed(pml: Pml, *, code: int = OK) -> dict[str, dict[str, Any]]:
    ran = pml("servers", "list", "--json")
    assert ran.code == code
    return {server["name"]: server for server in ran.json["servers"]}


@contextlib.contextmanager
def running(pml: Pml) -> Generator["subprocess.Popen[str]"]:
    """Hold a call open, and with it its server."""
    process = spawn(["call", "greeter:hold"])
    try:
        end = time.monotonic() + TIMEOUT_S
        while listed(pml)["greeter"]["state"] != "running":
            assert time.monotonic() < end
            assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_an_installed_server_is_listed_before_and_after_its_first_start(pml: Pml, greeter: Registry) -> None:
    server = listed(pml)["greeter"]
    assert (server["state"], server["installed"], server["tools"]) == ("stopped", "greeter@1.0", None)
    assert server["containment"]
    assert "installed (deps.json)" in pml("servers", "list").out
    told = pml("servers", "status", "greeter").out
    assert "greeter@1.0" in told
    assert "not known before its first start" in told
    assert pml("call", "greeter:greet", '{"name": "Ada"}').code == OK
    assert listed(pml)["greeter"]["tools"] == ["greet", "hold"]


def test_one_that_runs_is_told_and_stopped_and_its_log_is_shown(pml: Pml, greeter: Registry) -> None:
    assert pml("servers", "stop", "greeter").code == GONE
    assert "written nothing yet" in pml("servers", "logs", "greeter").err
    with running(pml) as process:
        assert listed(pml)["greeter"]["runs"][0]["pid"] is not None
        ran = pml("servers", "stop", "greeter")
        assert (ran.code, ran.out.startswith("stopped greeter")) == (OK, True)
        process.communicate(timeout=TIMEOUT_S)
    assert listed(pml)["greeter"]["state"] == "stopped"
    assert "greeter is up" in pml("servers", "logs", "greeter").out


def test_one_that_cannot_be_started_is_refused_and_hides_no_other(
    pml: Pml, greeter: Registry, workspace: Path
) -> None:
    (workspace / ".pml.json").write_text(json.dumps({"mcpServers": {"odd": {"command": "odd"}}}))
    (greeter.home / "state").write_text("a file where a folder should be")
    found = listed(pml)
    assert sorted(found) == ["greeter", "odd"]
    assert (found["greeter"]["state"], found["greeter"]["launch"]) == ("refused", None)
    assert "state" in found["greeter"]["problem"]
    assert "refused" in pml("servers", "list").out
    assert found["greeter"]["problem"] in pml("servers", "status", "greeter").out
    ran = pml("servers", "logs", "greeter")
    assert (ran.code, "cannot be started" in ran.err) == (GONE, True)


def test_a_deps_file_that_cannot_be_understood_hides_no_server_of_the_files(
    pml: Pml, greeter: Registry, workspace: Path
) -> None:
    (workspace / ".pml.json").write_text(json.dumps({"mcpServers": {"odd": {"command": "odd"}}}))
    (greeter.home / "deps.json").write_text("{")
    assert list(listed(pml, code=FAILED)) == ["odd"]
    ran = pml("servers", "list")
    assert (ran.code, "odd" in ran.out, "deps.json" in ran.err) == (FAILED, True, True)


def test_one_whose_name_a_file_takes_is_told_as_unused(pml: Pml, greeter: Registry) -> None:
    config = greeter.home / "config.json"
    content = json.loads(config.read_text()) | {"mcpServers": {"greeter": {"command": "other"}}}
    config.write_text(json.dumps(content))
    servers = pml("servers", "list", "--json").json["servers"]
    assert {server["installed"]: server["state"] for server in servers} == {
        None: "stopped",
        "greeter@1.0": "refused",
    }


def test_where_there_is_nothing_status_and_list_say_where_servers_come_from(pml: Pml) -> None:
    for verb in ("list", "status"):
        ran = pml("servers", verb)
        assert ran.code == OK
        for words in ("mcpServers", "pml catalog list", "pml deps list"):
            assert words in ran.out


@pytest.mark.usefixtures("greeter")
def test_files_that_are_gone_are_told_by_doctor_and_by_the_call_with_the_way_out(
    pml: Pml, pml_home: Path
) -> None:
    shutil.rmtree(pml_home / "servers" / "greeter")

    checks = {each["name"]: each for each in pml("doctor", "--json").json["checks"]}
    called = pml("call", "greeter:greet", '{"name": "Ada"}')

    assert (checks["installed"]["status"], called.code) == ("warn", FAILED)
    for told in (checks["installed"]["hint"], called.err):
        assert "reinstall it with `pml deps install greeter`" in told
