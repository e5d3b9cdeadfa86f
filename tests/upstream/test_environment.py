"""What a server finds in its environment, and who can read what it says."""

import os
import stat
import sys
from pathlib import Path

import pytest

from pml.core.errors import ServerFailed, ServerRefused
from pml.core.sessions.agent_marks import MARK
from pml.upstream.board import list_servers
from pml.upstream.limits import Limits
from pml.upstream.log import ServerLog, log_path
from pml.upstream.preflight import environment_of
from tests.builders import launch_of
from tests.promises import promise
from tests.upstream.fleets import Harbour, all_beneath, odd, until, use

SECRETS = {
    "GITHUB_TOKEN": "ghp_secret",
    "AWS_SECRET_ACCESS_KEY": "aws",
    "PML_HOME": "/home/ana/.pml",
    "PML_TOKEN_FILE": "/home/ana/token",
    "LD_PRELOAD": "/tmp/evil.so",
    "LD_LIBRARY_PATH": "/tmp",
    "DYLD_INSERT_LIBRARIES": "/tmp/evil.dylib",
    "NODE_OPTIONS": "--require /tmp/evil.js",
    "PYTHONPATH": "/tmp",
    "PYTHONSTARTUP": "/tmp/evil.py",
    "BASH_ENV": "/tmp/evil.sh",
    "SSH_AUTH_SOCK": "/tmp/agent",
}
SK = "sk-very-secret-" + "x" * 600  # longer than what is quoted of anything
PASSED = {"HOME": "/home/ana", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@promise("server:env-allow-list")
async def test_a_server_gets_the_allow_list_and_what_is_declared_and_nothing_else(harbour: Harbour) -> None:
    fleet = harbour.fleet(environ={**SECRETS, **PASSED})
    found = await use(fleet, odd(env={"API_KEY": "declared"}), "env")
    made_by_the_system = {"__CF_USER_TEXT_ENCODING", "PWD"}  # bwrap tells where it starts the server
    assert {name: value for name, value in found.items() if name not in made_by_the_system} == {
        **PASSED,
        "API_KEY": "declared",
        MARK: "1",
    }


def test_what_is_declared_wins_over_what_is_inherited() -> None:
    assert environment_of(launch_of(odd(env={"TZ": "Asia/Tokyo"})), PASSED)["TZ"] == "Asia/Tokyo"


@promise("agent:marked")
def test_nothing_that_is_declared_takes_the_mark_off_a_server() -> None:
    assert environment_of(launch_of(odd(env={MARK: ""})), PASSED)[MARK] == "1"


def test_a_relative_entry_of_the_path_is_dropped() -> None:
    found = environment_of(launch_of(odd()), {"PATH": ".:/usr/bin::bin:/bin"})
    assert found == {"PATH": "/usr/bin:/bin", MARK: "1"}


async def test_a_program_in_the_workspace_is_not_found_by_a_relative_path(harbour: Harbour) -> None:
    program = harbour.workspace / "planted"
    program.write_text(f"#!{sys.executable}\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(ServerFailed, match="command `planted` was not found"):
        await harbour.fleet(environ={"PATH": f".{os.pathsep}/usr/bin"}).manifest(odd(command="planted"))


async def test_a_server_inherits_no_descriptor(harbour: Harbour, tmp_path: Path) -> None:
    inheritable = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(inheritable, True)
    try:
        await harbour.fleet().manifest(odd())
        [pid] = harbour.pids()
        assert sorted(os.listdir(f"/proc/{all_beneath(pid)[-1]}/fd")) == ["0", "1", "2"]
    finally:
        os.close(inheritable)


async def test_declared_values_are_masked_in_the_log_and_in_errors(harbour: Harbour) -> None:
    spec = odd(env={"API_KEY": "sk-very-secret", "MODE": "fast"})
    with pytest.raises(ServerFailed) as caught:
        await use(harbour.fleet(), spec, "die", last_words="bad key sk-very-secret in fast mode")
    assert "its last words: bad key <API_KEY> in fast mode" in caught.value.message
    assert "sk-very-secret" not in harbour.log()


async def test_what_a_server_says_on_stderr_is_in_a_private_file(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    await use(fleet, spec, "bark")
    [path] = (harbour.home / "logs").iterdir()
    assert path == log_path(harbour.home, "odd", (await fleet.manifest(spec)).target_digest)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "\x1b[31mbark\x07\n" in path.read_text("utf-8")


def test_a_log_is_capped_and_one_older_part_kept(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "odd.log"
    log = ServerLog(path, secrets={}, limits=Limits(log_bytes=1_000))
    for n in range(1_000):
        log.feed(b"line %d\n" % n)
    log.feed(b"y" * 100_000)
    log.close()
    assert sorted(found.name for found in path.parent.iterdir()) == ["odd.log", "odd.log.1"]
    assert all(found.stat().st_size <= 1_000 for found in path.parent.iterdir())


def test_two_gateways_share_one_log(tmp_path: Path) -> None:
    path = tmp_path / "odd.log"
    limits = Limits(log_bytes=1_000)
    one, two = (ServerLog(path, secrets={}, limits=limits) for _ in range(2))
    for n in range(200):
        one.feed(b"one %d\n" % n)
        two.feed(b"two %d\n" % n)
    one.close()
    two.close()
    assert path.read_text("utf-8").endswith("one 199\ntwo 199\n")


def test_the_last_lines_are_bounded_and_safe_to_show(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "odd.log", secrets={}, limits=Limits(tail_lines=3))
    log.feed(b"a\nb\n\nc\nd\n\x1b[0m\n" + b"z" * 5_000 + b"\n\xff\x07")
    assert log.tail == ["d", "z" * 200 + "…", "�\\u{7}"]
    log.close()
    assert log.tail == ["d", "z" * 200 + "…", "�\\u{7}"]


def test_the_last_lines_are_as_a_terminal_would_leave_them(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "odd.log", secrets={"KEY": "sk-very-secret"}, limits=Limits())
    log.feed(b"\x1b]0;title\x07\x1b[1;31merror\x1b[0m: no key\r\n\n10 %\r100 %\nsk-\x1b[1mvery-secret\n \n")
    assert log.tail == ["error: no key", "100 %", "<KEY>"]
    log.close()


@promise("secrets:never-shown")
@pytest.mark.parametrize("before", [8 * 1024 - 7, 2 * 8 * 1024 - 1, 8 * 1024])
@pytest.mark.parametrize("size", [1_000, 8 * 1024 + 1, 64 * 1024])
def test_a_value_is_masked_wherever_a_long_line_is_broken(tmp_path: Path, before: int, size: int) -> None:
    path = tmp_path / "odd.log"
    log = ServerLog(path, secrets={"KEY": "sk-very-secret", "OTHER": "y" * 100}, limits=Limits())
    data = b"z" * before + b"sk-very-secret" + b"z" * 20_000
    for at in range(0, len(data), size):
        log.feed(data[at : at + size])
    log.feed(b"\n")
    log.close()
    written = path.read_bytes()
    assert b"<KEY>" in written
    assert b"secret" not in written.replace(b"\n", b"")
    assert max(map(len, written.splitlines())) <= 8 * 1024 + 100


def test_what_is_masked_stays_so_when_it_is_masked_again(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "odd.log", secrets={}, required={"A": "A", "B": "x\ty"}, limits=Limits())
    assert log.mask(log.mask("A: x\ty x\\ty")) == "<A>: <B> <B>"
    log.close()


@promise("secrets:never-shown")
def test_what_pml_notes_of_a_server_is_masked(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "odd.log", secrets={"KEY": "sk-very\tsecret"}, limits=Limits())
    log.note("refused: sk-very\tsecret, `sk-very\\tsecret`")
    log.close()
    assert (tmp_path / "odd.log").read_text("utf-8").endswith("] refused: <KEY>, `<KEY>`\n")


@promise("secrets:never-shown")
@pytest.mark.parametrize("how", ["refuse=initialize", "refuse=tools/list", "version", "key=initialize"])
async def test_what_a_server_says_of_its_secrets_as_it_starts_is_not_told(harbour: Harbour, how: str) -> None:
    spec = odd(how if "=" in how else f"{how}={SK}", f"said={SK}", env={"API_KEY": SK})
    with pytest.raises(ServerFailed) as caught:
        await harbour.fleet(limits=Limits(backoff_wait_s=0)).manifest(spec)
    await until(lambda: bool(list_servers(harbour.home)) and list_servers(harbour.home)[0].process is None)
    [posted] = list_servers(harbour.home)
    told = f"{caught.value.message} {caught.value.hint} {posted} {harbour.log()}"
    assert SK not in told
    assert "sk-very" not in told
    assert posted.last_error == caught.value.message
    assert "<API_KEY>" in told


@promise("secrets:never-shown")
async def test_the_refusal_of_a_call_is_told_masked_and_passed_on_as_it_is(harbour: Harbour) -> None:
    spec = odd(f"said={SK}", env={"API_KEY": SK})
    with pytest.raises(ServerRefused) as caught:
        await use(harbour.fleet(), spec, "refuse")
    assert SK not in caught.value.message
    assert "<API_KEY>" in caught.value.message
    assert SK.encode() in caught.value.error


def test_a_home_that_cannot_be_written_costs_only_the_log(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way", encoding="utf-8")
    log = ServerLog(tmp_path / "logs" / "odd.log", secrets={}, limits=Limits())
    log.feed(b"last words\n")
    assert log.tail == ["last words"]
    log.close()
