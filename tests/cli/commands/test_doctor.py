"""`pml doctor`: everything that could be wrong is told in one line with its next step; it mends nothing."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import apsw
import pytest

from pml.cli.checks.setup import Status, check_database, check_remembered
from pml.store.sqlite.connection import Health
from tests.builders import make_intent
from tests.commands import Pml


def found(pml: Pml, name: str, *, code: int = 0) -> list[tuple[str, str]]:
    """Return status and message of the checks with this name."""
    ran = pml("doctor", "--json")
    assert (ran.code, ran.json["ok"]) == (code, code == 0)
    return [(each["status"], each["message"]) for each in ran.json["checks"] if each["name"] == name]


def one(pml: Pml, name: str, *, code: int = 0) -> tuple[str, str]:
    (check,) = found(pml, name, code=code)
    return check


def write_user_file(pml_home: Path, content: Any) -> None:
    pml_home.mkdir(mode=0o700, exist_ok=True)
    (pml_home / "config.json").write_text(json.dumps(content))


def test_where_nothing_was_used_yet_nothing_is_wrong_and_nothing_is_created(
    pml: Pml, pml_home: Path, workspace: Path
) -> None:
    ran = pml("doctor", "--json")
    assert (ran.code, ran.json["ok"]) == (0, True)
    assert all(set(check) == {"name", "status", "message", "hint"} for check in ran.json["checks"])
    assert not pml_home.exists()
    assert list(workspace.iterdir()) == []


def test_a_sound_set_up_is_well(pml: Pml) -> None:
    pml("init")
    pml.ask("fs:read")
    ran = pml("doctor")
    assert ran.code == 0
    assert "✗" not in ran.out
    assert "no problems" in ran.out
    assert one(pml, "trust") == ("ok", "the workspace's file is trusted as it is now")
    assert one(pml, "audit") == ("ok", "3 entries in 1 chain, none changed since they were written")


def test_a_broken_file_fails_with_its_place(pml: Pml, workspace: Path) -> None:
    (workspace / ".pml.json").write_text("{\n  oops")
    status, message = one(pml, "workspace file", code=1)
    assert (status, message.startswith(f"{workspace / '.pml.json'}:2:3: ")) == ("fail", True)
    assert "✗ workspace file" in pml("doctor").out


def test_what_does_not_count_in_a_file_is_a_warning(pml: Pml, workspace: Path) -> None:
    (workspace / ".pml.json").write_text('{"approval": {"enabled": false}, "permissons": {}}')
    warnings = [message for status, message in found(pml, "workspace file") if status == "warn"]
    assert len(warnings) == 2
    assert "`approval` at line 1 applies only in the user's file" in warnings[0]
    assert "`permissons`" in warnings[1]
    assert one(pml, "asking")[0] == "ok"


def test_a_file_that_needs_trust_is_a_warning(pml: Pml, workspace: Path) -> None:
    (workspace / ".pml.json").write_text('{"permissions": {"allow": ["*"]}}')
    assert one(pml, "trust")[0] == "warn"
    (workspace / ".pml.json").write_text('{"permissions": {"deny": ["*"]}}')
    assert one(pml, "trust")[0] == "ok"


def test_a_server_that_two_files_define_is_a_warning(pml: Pml, workspace: Path, pml_home: Path) -> None:
    servers = {"mcpServers": {"github": {"command": "gh"}}}
    write_user_file(pml_home, servers)
    (workspace / ".pml.json").write_text(json.dumps(servers))
    pml("trust", "--yes")
    status, message = one(pml, "servers")
    assert (status, "`github` is defined twice" in message) == ("warn", True)


@pytest.mark.parametrize(
    ("enabled", "status", "words"),
    [
        (True, "ok", "on"),
        (False, "warn", "ASKING IS OFF: everything that no rule denies runs without asking"),
        ({"until": "2999-01-01T00:00:00Z"}, "warn", "ASKING IS OFF until 2999-01-01T00:00:00Z"),
        ({"until": "2001-01-01T00:00:00Z"}, "ok", "on"),
    ],
)
def test_asking_that_is_off_is_loud(pml: Pml, pml_home: Path, enabled: Any, status: str, words: str) -> None:
    write_user_file(pml_home, {"approval": {"enabled": enabled}})
    assert one(pml, "asking")[0] == status
    assert words in pml("doctor").out


@pytest.mark.parametrize(("value", "status"), [("if_no_form", "ok"), ("never", "ok"), ("always", "warn")])
def test_what_a_model_may_approve_is_told(pml: Pml, pml_home: Path, value: str, status: str) -> None:
    write_user_file(pml_home, {"approval": {"model_may_approve": value}})
    found_status, message = one(pml, "model_may_approve")
    assert (found_status, message.startswith(f"{value}: a model ")) == (status, True)


def test_a_webhook_that_lacks_its_secret_is_a_warning_and_nothing_is_sent(pml: Pml, pml_home: Path) -> None:
    assert found(pml, "webhook") == []
    write_user_file(pml_home, {"notify": {"webhook": "https://hooks.example/a/secret/path"}})
    status, message = one(pml, "webhook")
    assert (status, "there is no secret PML_WEBHOOK_SECRET" in message) == ("warn", True)
    assert "`pml secrets set PML_WEBHOOK_SECRET` stores one" in pml("doctor").out

    index = {"version": 1, "secrets": {"PML_WEBHOOK_SECRET": {"in": "file", "value": "x"}}}
    (pml_home / "secrets.json").write_text(json.dumps(index))
    (pml_home / "secrets.json").chmod(0o600)
    told = "while a hub runs, new questions are sent to `https://hooks.example`, signed"
    assert one(pml, "webhook") == ("ok", told)


def test_a_webhook_in_plain_http_is_a_warning(pml: Pml, pml_home: Path) -> None:
    write_user_file(pml_home, {"notify": {"webhook": "http://hooks.example/x"}})
    status, message = one(pml, "webhook")
    assert (status, "plain http" in message) == ("warn", True)


def test_a_home_that_others_can_reach_fails(pml: Pml, pml_home: Path) -> None:
    pml("init")
    pml_home.chmod(0o755)
    status, message = one(pml, "home", code=1)
    assert (status, message) == ("fail", f"others can reach {pml_home}")
    assert f"chmod 700 {pml_home}" in pml("doctor").out


def test_a_file_that_others_can_read_is_a_warning(pml: Pml, pml_home: Path) -> None:
    pml("init")
    (pml_home / "pml.db").chmod(0o644)
    assert ("warn", "others may read pml.db") in found(pml, "home")


def test_what_servers_left_in_a_home_that_is_closed_is_nobody_elses_to_read(pml: Pml, pml_home: Path) -> None:
    pml.ask("fs:read")
    for folder in ("state", "servers", "cache"):
        (pml_home / folder / "deep").mkdir(parents=True, mode=0o755)
        (pml_home / folder / "deep" / "file").write_text("")
        (pml_home / folder / "deep" / "file").chmod(0o644)
    assert one(pml, "home") == ("ok", f"{pml_home}, only for this user")
    pml_home.chmod(0o755)
    (status, _), (_, message) = found(pml, "home", code=1)
    assert (status, "state/deep" in message or "cache/deep" in message) == ("fail", True)


def test_the_sockets_of_a_hub_that_runs_are_covered_by_a_home_that_is_closed(
    pml: Pml, pml_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pml("init")
    (pml_home / "run").mkdir(mode=0o700, exist_ok=True)
    monkeypatch.chdir(pml_home / "run")  # a socket's whole path may be too long
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("hub.sock")
        Path("hub.sock").chmod(0o755)
        monkeypatch.chdir(pml_home.parent)
        assert one(pml, "home") == ("ok", f"{pml_home}, only for this user")
        pml_home.chmod(0o755)
        assert ("warn", "others may read run/hub.sock") in found(pml, "home", code=1)


def test_a_home_that_is_read_only_is_told_as_such(
    pml: Pml, pml_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pml_home.mkdir(mode=0o755)
    access = os.access

    def as_mounted_so(path: str, mode: int) -> bool:  # no mode of a folder stops root
        return Path(path) != pml_home and access(path, mode)

    monkeypatch.setattr(os, "access", as_mounted_so)
    status, message = one(pml, "home", code=1)
    assert (status, "read-only" in message) == ("fail", True)
    assert "chmod" not in pml("doctor").out


@pytest.mark.parametrize(
    ("registry", "is_there"), [("none", False), ("there", True), ("https://registry.example", True)]
)
def test_a_registry_folder_that_is_not_there_is_a_warning_with_the_file_that_names_it(
    pml: Pml, workspace: Path, registry: str, is_there: bool
) -> None:
    (workspace / "there").mkdir()
    (workspace / ".pml.json").write_text(json.dumps({"registry": registry}))
    ran = pml("doctor", "--json")
    told = [check for check in ran.json["checks"] if check["name"] == "registry"]
    if is_there:
        assert told == []
    else:
        assert [(check["status"], str(workspace / "none") in check["message"]) for check in told] == [
            ("warn", True)
        ]
        assert str(workspace / ".pml.json") in told[0]["hint"]


def test_everything_pml_creates_is_private(pml: Pml, pml_home: Path) -> None:
    before = os.umask(0)
    try:
        pml("init")
        pml("rules", "deny", "Bash", "--user")
        pml.ask("fs:read")
    finally:
        os.umask(before)
    assert found(pml, "home") == [("ok", f"{pml_home}, only for this user")]


def test_a_home_that_is_no_directory_fails(pml: Pml, pml_home: Path) -> None:
    pml_home.write_text("")
    assert one(pml, "home", code=1) == ("fail", f"{pml_home} is not a directory")
    assert found(pml, "database", code=1) == []


@pytest.mark.parametrize("home", ["/proc/nope", "/dev/null/deep/er"])
def test_a_home_that_cannot_be_created_fails(pml: Pml, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("PML_HOME", home)
    status, message = one(pml, "home", code=1)
    assert (status, message.startswith(f"{home} cannot be created: ")) == ("fail", True)
    assert "set PML_HOME to a directory that this user can write" in pml("doctor").out


def test_a_home_that_can_be_created_is_not_and_leaves_nothing_behind(
    pml: Pml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(tmp_path.iterdir())
    monkeypatch.setenv("PML_HOME", str(tmp_path / "far" / "away"))
    assert one(pml, "home") == ("ok", f"{tmp_path}/far/away does not exist yet; first use creates it")
    assert sorted(tmp_path.iterdir()) == before


def test_garbage_in_the_place_of_the_database_fails_and_is_kept(pml: Pml, pml_home: Path) -> None:
    pml_home.mkdir(mode=0o700)
    (pml_home / "pml.db").write_bytes(b"garbage " * 1000)
    status, message = one(pml, "database", code=1)
    assert (status, "not a database" in message) == ("fail", True)
    assert (pml_home / "pml.db").read_bytes() == b"garbage " * 1000


def test_a_damaged_database_fails(pml: Pml, pml_home: Path) -> None:
    pml("init")
    for _ in range(3):
        pml.ask("fs:read")
    path = pml_home / "pml.db"
    damaged = bytearray(path.read_bytes())
    damaged[8192:] = b"\xff" * (len(damaged) - 8192)
    path.write_bytes(damaged)
    assert one(pml, "database", code=1)[0] == "fail"


def test_a_database_of_a_newer_pml_fails_and_says_to_upgrade(pml: Pml, pml_home: Path) -> None:
    pml("init")
    connection: Any = apsw.Connection(str(pml_home / "pml.db"))
    connection.execute("PRAGMA user_version = 9999")
    connection.close()
    status, message = one(pml, "database", code=1)
    assert (status, "newer PML" in message) == ("fail", True)


@pytest.mark.parametrize(
    ("version", "safe"), [("3.51.2", False), ("3.9.10", False), ("3.51.3", True), ("3.100.0", True)]
)
def test_a_sqlite_that_can_corrupt_a_shared_database_is_known(version: str, safe: bool) -> None:
    assert Health(sqlite=version, problems=()).sqlite_is_safe is safe


def test_the_sqlite_in_use_is_safe_and_named(pml: Pml, pml_home: Path) -> None:
    pml("init")
    check = check_database(pml_home / "pml.db")
    assert (check.status, check.message) == (Status.OK, f"sound; SQLite {apsw.sqlite_lib_version()}")


def test_an_audit_log_that_was_changed_fails(pml: Pml, pml_home: Path) -> None:
    pml("init")
    connection: Any = apsw.Connection(str(pml_home / "pml.db"))
    connection.execute("DROP TRIGGER audit_is_not_removed; DELETE FROM audit")
    connection.close()
    status, message = one(pml, "audit", code=1)
    assert (status, "its tail was cut off" in message) == ("fail", True)


def test_an_always_that_could_not_be_written_is_a_warning(pml: Pml, workspace: Path) -> None:
    asked = pml.ask("fs:read")
    (workspace / ".pml.json").write_text("{")
    pml("approvals", "allow", asked, "--remember", "always")
    status, message = one(pml, "remembered", code=1)
    assert (status, '"fs:read"' in message) == ("warn", True)


def test_a_long_list_is_cut_and_counted() -> None:
    check = check_remembered([make_intent(n, entry=f"a:{n}") for n in range(7)])
    assert check.message.endswith('"a:4" and 2 more')


def test_what_waits_is_told(pml: Pml) -> None:
    asked = pml.ask("fs:read")
    assert one(pml, "waiting") == ("ok", f"1 question waiting: {asked[:8]} fs:read")


def test_a_program_that_is_missing_is_a_warning_with_how_to_get_it(
    pml: Pml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "elsewhere" / "python"))
    checks = {each["name"]: each for each in pml("doctor", "--json").json["checks"]}
    for name, how in (("deno", "pip install deno"), ("uv", "pip install uv")):
        assert (checks[name]["status"], how in checks[name]["hint"]) == ("warn", True)


def test_a_program_beside_python_is_found_though_it_is_not_on_the_path(
    pml: Pml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert one(pml, "uv") == ("ok", str(uv))


def test_a_server_whose_command_is_not_there_is_a_warning(pml: Pml, pml_home: Path) -> None:
    write_user_file(pml_home, {"mcpServers": {"a": {"command": "no-such-command"}, "b": {"command": "sh"}}})
    assert one(pml, "servers") == ("warn", "command `no-such-command` of server `a` was not found")


def test_a_deps_file_that_cannot_be_understood_is_a_problem_and_stays_as_it_is(
    pml: Pml, pml_home: Path
) -> None:
    pml_home.mkdir(mode=0o700)
    (pml_home / "deps.json").write_text('{"version": 1,')
    (pml_home / "deps.json").chmod(0o600)

    checks = {each["name"]: each for each in pml("doctor", "--json").json["checks"]}

    assert checks["installed"]["status"] == "fail"
    assert f"{pml_home / 'deps.json'}:1:" in checks["installed"]["message"]
    assert (pml_home / "deps.json").read_text() == '{"version": 1,'
