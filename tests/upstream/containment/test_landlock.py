"""What a server that Landlock holds cannot do beyond reaching files, and what it still can."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pml.core.packages.permissions import Containment, Permissions
from pml.upstream.containment import landlock
from tests.promises import promise
from tests.upstream.boxes import Prisoner, installed, need
from tests.upstream.fleets import Harbour, odd

LANDLOCK = Containment.LANDLOCK


@pytest.fixture(autouse=True)
def _can_be_had() -> None:
    need(LANDLOCK)


@pytest.fixture(params=[False, True], ids=["narrow", "wide"])
def server(harbour: Harbour, request: pytest.FixtureRequest) -> Prisoner:
    return Prisoner(harbour.fleet(containment=LANDLOCK), odd() if request.param else installed(harbour))


def narrow(harbour: Harbour, *, net: bool) -> Prisoner:
    spec = installed(harbour, permissions=Permissions(net=net))
    return Prisoner(harbour.fleet(containment=LANDLOCK), spec)


def need_filter() -> None:
    if not landlock.can_filter():
        pytest.skip("system calls are filtered on 64-bit x86 and ARM only")


@promise("contain:no-privileges")
async def test_a_server_of_root_has_no_capability(server: Prisoner) -> None:
    _, said = await server.sh("grep -E '^(Cap|NoNewPrivs)' /proc/self/status")
    found = {name: int(value, 16) for name, value in (line.split(":\t") for line in said.splitlines())}
    gone = ["CapInh", "CapPrm", "CapEff", "CapAmb"]
    if os.geteuid() == 0:
        gone.append("CapBnd")
    assert {name: found[name] for name in (*gone, "NoNewPrivs")} == dict.fromkeys(gone, 0) | {"NoNewPrivs": 1}


@promise("contain:no-privileges")
async def test_a_server_does_not_read_what_pml_was_given_in_its_environment(server: Prisoner) -> None:
    assert not await server.can(f"cat /proc/{os.getpid()}/environ")
    assert not await server.can(f"cat /proc/{os.getpid()}/maps")
    assert await server.can("cat /proc/self/environ")


@promise("contain:no-privileges")
async def test_a_server_makes_no_devices(server: Prisoner, harbour: Harbour) -> None:
    for kind in ("c 1 3", "b 7 0"):
        assert not await server.can(f"mknod {harbour.workspace}/device {kind}")
    assert await server.can(f"mkfifo {harbour.workspace}/pipe")


def test_no_folder_is_opened_for_devices(tmp_path: Path) -> None:
    """Also where a capability were left: what is asked of the kernel, for none is left to try it with."""
    made: list[int] = []
    rules = landlock.Rules(read=[], write=[str(tmp_path)], hidden=str(tmp_path / "hidden"), net=True)
    (tmp_path / "hidden").mkdir()
    made.extend(access for _, access in landlock._allowed(rules, (1 << 15) - 1))  # pyright: ignore[reportPrivateUsage]
    assert made
    assert not any(access & (1 << 6 | 1 << 11) for access in made)


@promise("contain:no-undeclared-network")
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET"])
@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_STREAM", "SOCK_RAW"])
async def test_a_server_without_network_makes_no_socket(harbour: Harbour, family: str, kind: str) -> None:
    need_filter()
    code = f"import socket; socket.socket(socket.{family}, socket.{kind})"
    made, said = await narrow(harbour, net=False).run(sys.executable, "-c", code)
    assert not made
    assert "PermissionError" in said


async def test_a_server_without_network_has_pairs_of_sockets(harbour: Harbour) -> None:
    code = "import asyncio, socket; socket.socketpair(); asyncio.run(asyncio.sleep(0))"
    assert await narrow(harbour, net=False).run(sys.executable, "-c", code) == (True, "")


@promise("contain:only-declared-folders")
@pytest.mark.parametrize("net", [False, True])
async def test_no_narrow_server_asks_a_service_of_its_user(harbour: Harbour, near: Path, net: bool) -> None:
    need_filter()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(near / "s"))
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(near / 's')!r})"
        made, said = await narrow(harbour, net=net).run(sys.executable, "-c", code)
    assert not made
    assert "PermissionError" in said


@promise("contain:no-undeclared-network")
async def test_no_other_way_leads_around_the_filter(harbour: Harbour) -> None:
    need_filter()
    code = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); "
    ring = code + "print(libc.syscall(425, 1, ctypes.create_string_buffer(120)), ctypes.get_errno())"
    x32 = code + "print(libc.syscall(0x40000000 + 39), ctypes.get_errno())"
    server = narrow(harbour, net=False)
    assert await server.run(sys.executable, "-c", ring) == (True, "-1 13\n")
    if os.uname().machine == "x86_64":
        assert await server.run(sys.executable, "-c", x32) == (True, "-1 13\n")


async def test_a_narrow_server_sends_no_signal_to_other_processes(harbour: Harbour) -> None:
    if landlock.abi() < 6:
        pytest.skip("Landlock knows nothing of signals before Linux 6.12")
    server = narrow(harbour, net=True)
    assert not await server.can(f"kill -0 {os.getpid()}")
    assert await server.can("kill -0 $$")


@promise("contain:only-declared-folders")
async def test_a_folder_above_what_is_allowed_that_became_a_link_opens_nothing(
    harbour: Harbour, home: Path
) -> None:
    (home / "real" / "data").mkdir(parents=True)
    (home / "real" / "data" / "note").write_text("hello", encoding="utf-8")
    (home / "link").symlink_to("real")
    rules = landlock.Rules(
        read=["/usr", "/lib", "/lib64", "/bin", str(home / "link" / "data")], write=[], hidden=None, net=True
    )
    code = (
        "import json, sys\n"
        "from pml.upstream.containment import landlock\n"
        "landlock.restrict(json.loads(sys.argv[1]))\n"
        "open(sys.argv[2]).read()\n"
    )
    assert "PermissionError" in _run(code, rules, home)
    rules["read"][-1] = str(home / "real" / "data")
    assert _run(code, rules, home) == ""


def _run(code: str, rules: landlock.Rules, home: Path) -> str:
    argv = [sys.executable, "-c", code, json.dumps(rules), str(home / "real" / "data" / "note")]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stderr
