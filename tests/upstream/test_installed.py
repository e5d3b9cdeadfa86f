"""Before an installed server is started: its files are proven, and it gets the values that it declares."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import ArtefactChanged, EnvMissing, ServerFailed
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.servers.run import ServerRun
from pml.core.sessions.agent_marks import MARK
from pml.upstream.board import ask_stop, list_servers
from pml.upstream.limits import Limits
from pml.upstream.preflight import environment_of
from tests.builders import launch_of, relaunched
from tests.promises import promise
from tests.upstream.boxes import RUNTIME, Prisoner, installed, need
from tests.upstream.fleets import ODD, Harbour, all_beneath, odd, runs, until, use

SECRET = "sk-live-0123456789"


def nothing_started(harbour: Harbour) -> bool:
    return list_servers(harbour.home) == [] and not (harbour.home / "logs").exists()


@promise("prove:before-start")
async def test_a_server_whose_files_have_changed_is_not_started(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(crash_loop=1)), installed(harbour)
    harbour.changed = ArtefactChanged("odd", files=("odd.py",), tree="sha256:other")
    for _ in range(3):
        with pytest.raises(ArtefactChanged) as caught:
            await fleet.manifest(spec)
        assert caught.value is harbour.changed
        assert nothing_started(harbour)
    harbour.changed = None
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}


@promise("prove:before-start")
async def test_an_installed_server_is_proven_before_each_start(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(backoff_s=0.001)), installed(harbour)
    await fleet.manifest(spec)
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "die")
    await fleet.manifest(spec)
    await fleet.manifest(odd(name="configured"))
    assert harbour.proven == ["odd", "odd", "configured"]  # whose programs may lie in the workspace


@promise("env:required-first")
async def test_a_server_without_a_variable_that_it_requires_is_not_started(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), installed(harbour, env_required=["A_KEY", "B_KEY", "C_KEY"])
    harbour.variables.everywhere = {"B_KEY": SECRET}
    with pytest.raises(EnvMissing) as caught:
        await fleet.manifest(spec)
    assert caught.value.names == ("A_KEY", "C_KEY")
    assert nothing_started(harbour)


@promise("env:only-declared")
async def test_a_server_gets_the_values_that_it_declares_and_nothing_of_its_user(harbour: Harbour) -> None:
    outside = {"A_KEY": "of the user", "OTHER": "x", "USER": "ana", "PATH": "/planted", "LANG": "C.UTF-8"}
    harbour.variables.everywhere = {"A_KEY": SECRET, "OTHER": "y"}
    spec = installed(harbour, env_required=["A_KEY"])
    found = await use(harbour.fleet(environ=outside), spec, "env")
    assert {name: value for name, value in found.items() if name not in {"PWD", "TMPDIR"}} == {
        "A_KEY": SECRET,
        "HOME": str(harbour.home / "state" / "odd"),
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        MARK: "1",
    }


@promise("env:only-declared")
def test_a_value_that_is_not_declared_never_reaches_a_server(harbour: Harbour) -> None:
    spec = installed(harbour, env_required=["A_KEY"])
    values = {"A_KEY": SECRET, "OTHER": "y", "HOME": "/root", "LD_PRELOAD": "/tmp/evil.so"}
    found = environment_of(launch_of(spec), {}, values=values)
    assert found == {
        "A_KEY": SECRET,
        "HOME": str(harbour.home / "state" / "odd"),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        MARK: "1",
    }


async def test_values_are_read_anew_at_each_start_and_those_of_a_workspace_only_if_it_is_trusted(
    harbour: Harbour,
) -> None:
    fleet, spec = harbour.fleet(limits=Limits(backoff_s=0.001)), installed(harbour, env_required=["A_KEY"])
    harbour.variables.in_workspace = {"A_KEY": "first"}
    with pytest.raises(EnvMissing):
        await fleet.manifest(spec)
    harbour.is_trusted = True
    assert (await use(fleet, spec, "env"))["A_KEY"] == "first"
    harbour.variables.in_workspace = {"A_KEY": "second"}
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "die")
    assert (await use(fleet, spec, "env"))["A_KEY"] == "second"


async def test_other_servers_answer_while_a_value_is_waited_for(harbour: Harbour) -> None:
    """A keyring that is locked waits for its user."""
    fleet, spec = harbour.fleet(), installed(harbour, env_required=["A_KEY"])
    harbour.variables.everywhere = {"A_KEY": SECRET}
    harbour.variables.unlocked.clear()
    starting = asyncio.ensure_future(use(fleet, spec, "env"))
    assert await use(fleet, odd(name="configured"), "echo", a=1) == {"a": 1}
    assert not starting.done()
    harbour.variables.unlocked.set()
    assert (await starting)["A_KEY"] == SECRET


@promise("env:values-never-shown")
@pytest.mark.parametrize("secret", [SECRET, "7f", "-----BEGIN KEY-----\nabcdefgh\n-----END KEY-----"])
async def test_a_value_is_in_no_log_error_list_of_processes_or_file(harbour: Harbour, secret: str) -> None:
    harbour.variables.everywhere = {"A_KEY": secret}
    fleet, spec = harbour.fleet(), installed(harbour, env_required=["A_KEY"])
    await fleet.manifest(spec)
    [posted] = list_servers(harbour.home)
    assert secret.encode() not in b"".join(map(_command_line, _all_in_box(posted)))
    with pytest.raises(ServerFailed) as caught:
        await use(fleet, spec, "die", last_words=f"key {secret} is bad")
    shown = [caught.value.message, harbour.log(), str(list_servers(harbour.home)), repr(spec)]
    assert "<A_KEY>" in caught.value.message
    for line in secret.split("\n"):
        assert [text for text in shown if line in text.replace(str(harbour.home), "")] == []


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


# --- ending what is in a box


@pytest.fixture(params=["installed", "configured"])
def is_installed(request: pytest.FixtureRequest) -> bool:
    need(Containment.BUBBLEWRAP)
    return request.param == "installed"


@promise("server:killed-whole")
async def test_stopping_ends_all_that_runs_in_a_box(harbour: Harbour, is_installed: bool) -> None:
    fleet = harbour.fleet(limits=Limits(stop_s=0.1))
    spec = installed(harbour, "stubborn") if is_installed else odd("stubborn")
    escape: dict[str, Any] = {"escape": True} if is_installed else {}  # a narrow box ends whole
    await use(fleet, spec, "fork", **escape)
    [posted] = list_servers(harbour.home)
    inside = _all_in_box(posted)
    assert len(inside) >= 2
    await fleet.close()
    assert [pid for pid in inside if runs(pid)] == []


async def test_a_server_in_a_box_is_asked_before_it_is_killed(harbour: Harbour, is_installed: bool) -> None:
    letter = harbour.workspace / "letter"
    for stop in ("by closing", "by a person"):
        fleet = harbour.fleet(limits=Limits(stop_s=0.2))
        spec = installed(harbour) if is_installed else odd()
        await use(fleet, spec, "part", letter=str(letter))
        [posted] = list_servers(harbour.home)
        if stop == "by a person":
            assert await asyncio.to_thread(ask_stop, harbour.home, posted)
        await fleet.close()
        assert letter.read_text("utf-8") == "farewell", stop
        letter.unlink()


async def test_the_end_of_a_server_in_a_box_is_told_as_it_was(harbour: Harbour, is_installed: bool) -> None:
    fleet = harbour.fleet(limits=Limits(backoff_s=0.001))
    spec = installed(harbour) if is_installed else odd()
    with pytest.raises(ServerFailed, match="ended with exit code 7; its last words: on fire"):
        await use(fleet, spec, "die", code=7, last_words="on fire")
    with pytest.raises(ServerFailed, match="was ended by signal SIGKILL"):
        await use(fleet, spec, "die_by_signal")


@promise("server:killed-whole")
async def test_a_killed_gateway_leaves_nothing_of_an_installed_server(harbour: Harbour) -> None:
    """Nobody need come after it: the box ends with the gateway."""
    need(Containment.BUBBLEWRAP)
    code = (
        "import asyncio, sys, os, signal; from pathlib import Path\n"
        "from tests.upstream.boxes import installed\n"
        "from tests.upstream.fleets import Harbour, use\n"
        "async def main():\n"
        "    harbour = Harbour(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "    fleet, spec = harbour.fleet(), installed(harbour, 'stubborn')\n"
        "    await use(fleet, spec, 'fork', escape=True)\n"
        "    print(harbour.pids()[0], flush=True)\n"
        "    sys.stdin.read()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    gateway = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, str(harbour.home), str(harbour.workspace)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert gateway.stdout is not None
    pid = int(await gateway.stdout.readline())
    inside = all_beneath(pid)
    assert len(inside) == 3
    await gateway.communicate(b"")
    assert gateway.returncode == -signal.SIGKILL
    await until(lambda: not any(runs(each) for each in inside))


def _all_in_box(posted: ServerRun) -> list[int]:
    """Return the processes of the server, and the one that started its box."""
    assert posted.process is not None
    parent = int(Path(f"/proc/{posted.process.pid}/stat").read_text("utf-8").rpartition(") ")[2].split()[1])
    return [*all_beneath(posted.process.pid), *([parent] if parent != os.getpid() else [])]


@promise("rules:paths-from-every-folder")
@pytest.mark.parametrize("kind", list(Containment))
@pytest.mark.parametrize("access", list(Access))
@pytest.mark.parametrize("is_installed", [True, False])
async def test_rules_know_the_folder_that_a_server_really_works_in(
    harbour: Harbour, home: Path, kind: Containment, access: Access, is_installed: bool
) -> None:
    need(kind)
    permissions = Permissions(workspace=access, read=tuple(map(str, (ODD.parent, *RUNTIME))))
    spec = installed(harbour, permissions=permissions)
    if not is_installed:
        spec = relaunched(odd(), permissions=permissions)
    works_in = (await Prisoner(harbour.fleet(containment=kind), spec).run("/bin/pwd", "-P"))[1].strip()
    starts = spec.target.starts(workspace=str(harbour.workspace), home=str(home))
    assert works_in in map(os.path.realpath, starts.folders)
