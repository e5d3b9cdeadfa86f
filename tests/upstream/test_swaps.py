"""What another server puts in the way between PML's check of a path and the making of a box."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pml.core.errors import ServerFailed
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.upstream.board import list_servers
from pml.upstream.containment import bubblewrap, pinned
from tests.promises import promise
from tests.upstream.boxes import Prisoner, installed, need
from tests.upstream.fleets import Harbour, odd

SECRET = "the-person-said-no"
BUBBLEWRAP = Containment.BUBBLEWRAP

Swap = Callable[[str], None]


@pytest.fixture
def swap(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Swap:
    """Have a shell command run when all is checked, just before bwrap looks at anything."""
    need(BUBBLEWRAP)
    program = bubblewrap.find_bwrap()

    def put(command: str) -> None:
        script = tmp_path_factory.mktemp("swap") / "bwrap"
        script.write_text(f'#!/bin/sh\n{command}\nexec {program} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        monkeypatch.setattr(bubblewrap, "find_bwrap", lambda: str(script))

    return put


def prisoner(harbour: Harbour, permissions: Permissions | None = None) -> Prisoner:
    return Prisoner(harbour.fleet(containment=BUBBLEWRAP), installed(harbour, permissions=permissions))


@promise("contain:config-read-only")
async def test_a_box_shows_the_file_of_the_workspace_as_it_was_checked(harbour: Harbour, swap: Swap) -> None:
    config = harbour.workspace / ".pml.json"
    config.write_text("{}", encoding="utf-8")
    swap(f"echo {SECRET} > '{config}.new' && mv '{config}.new' '{config}'")
    assert (await prisoner(harbour).run("/bin/cat", str(config))) == (True, "{}")


@promise("contain:only-declared-folders")
@pytest.mark.parametrize("target", ["../home/.pml/pml.db", "{home}/.pml/pml.db", "victim", "{home}/new"])
@pytest.mark.parametrize("is_wide", [False, True])
async def test_a_link_in_place_of_the_file_of_the_workspace_starts_nothing(
    harbour: Harbour, home: Path, swap: Swap, target: str, is_wide: bool
) -> None:
    config, victim = harbour.workspace / ".pml.json", harbour.workspace / "victim"
    config.write_text("{}", encoding="utf-8")
    victim.write_text("safe", encoding="utf-8")
    harbour.home.mkdir(parents=True)
    (harbour.home / "pml.db").write_text(SECRET, encoding="utf-8")
    tally = harbour.workspace / "tally"
    spec = odd(f"tally={tally}") if is_wide else installed(harbour, f"tally={tally}")
    swap(f"ln -sfn '{target.format(home=home)}' '{config}'")
    with pytest.raises(ServerFailed, match="its last words: bwrap: "):
        await Prisoner(harbour.fleet(containment=BUBBLEWRAP), spec).sh("true")
    assert not tally.exists()
    assert victim.read_text("utf-8") == "safe"
    assert (harbour.home / "pml.db").read_text("utf-8") == SECRET


@promise("contain:only-declared-folders")
async def test_a_file_of_the_workspace_that_is_swapped_all_the_time_shows_nothing_else(
    harbour: Harbour, home: Path
) -> None:
    need(BUBBLEWRAP)
    config, other = harbour.workspace / ".pml.json", harbour.workspace / "other"
    config.write_text("{}", encoding="utf-8")
    harbour.home.mkdir(parents=True)
    (harbour.home / "pml.db").write_text(SECRET, encoding="utf-8")
    is_over = threading.Event()

    def swap_on() -> None:
        while not is_over.is_set():
            for make in (lambda: other.symlink_to(harbour.home / "pml.db"), lambda: other.write_text("{}")):
                make()
                os.replace(other, config)

    swapping = threading.Thread(target=swap_on)
    swapping.start()
    try:
        for _ in range(10):
            fleet = harbour.fleet(containment=BUBBLEWRAP)
            try:
                said = await Prisoner(fleet, installed(harbour)).sh(f"cat '{config}' '{other}' */* *")
                assert SECRET not in said[1]
            except ServerFailed:
                pass
            await fleet.close()
    finally:
        is_over.set()
        swapping.join()


@promise("contain:only-declared-folders")
@pytest.mark.parametrize("access", [Access.READ, Access.WRITE])
async def test_a_declared_folder_that_is_swapped_for_a_link_leads_nowhere_else(
    harbour: Harbour, home: Path, swap: Swap, access: Access
) -> None:
    (home / "diary").write_text(SECRET, encoding="utf-8")
    data = home / "shared" / "data"
    data.mkdir(parents=True)
    (data / "note").write_text("hello", encoding="utf-8")
    swap(f"mv '{data}' '{data}.old' && ln -s '{home}' '{data}'")
    declared = {"read": (str(data),)} if access is Access.READ else {"write": (str(data),)}
    server = prisoner(harbour, Permissions(workspace=Access.NONE, **declared))
    assert not await server.reads(data / "diary")
    assert not await server.reads(home / "diary")
    assert await server.reads(data / "note")


@promise("contain:only-declared-folders")
async def test_a_workspace_that_is_swapped_for_a_link_leads_nowhere_else(
    harbour: Harbour, home: Path, tmp_path: Path, swap: Swap
) -> None:
    (home / "diary").write_text(SECRET, encoding="utf-8")
    harbour.workspace = tmp_path / "projects" / "ws"
    harbour.workspace.mkdir(parents=True)
    above = harbour.workspace.parent
    swap(f"mv '{above}' '{above}.old' && mkdir '{above}' && ln -s '{home}' '{harbour.workspace}'")
    assert not await prisoner(harbour).reads(harbour.workspace / "diary")


def test_a_path_that_leads_elsewhere_when_it_is_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real" / "data").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").symlink_to("real/data")
    before = len(os.listdir("/proc/self/fd"))
    for path in (tmp_path / "link" / "data", tmp_path / "file", tmp_path / "missing"):
        words = ("--bind-fd", pinned.Pinned(str(tmp_path / "real")), "--bind-fd", pinned.Pinned(str(path)))
        with (
            pytest.raises(ServerFailed, match="server `odd` cannot be started"),
            pinned.opened("odd", words),
        ):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


@promise("contain:home-hidden")
@pytest.mark.parametrize("is_wide", [False, True])
async def test_no_server_moves_a_folder_that_the_home_of_pml_lies_in(
    harbour: Harbour, home: Path, is_wide: bool
) -> None:
    need(BUBBLEWRAP)
    harbour.workspace = home
    harbour.home = home / "deep" / "down" / "pml"
    harbour.home.mkdir(parents=True)
    (harbour.home / "pml.db").write_text(SECRET, encoding="utf-8")
    spec = odd() if is_wide else installed(harbour)
    server = Prisoner(harbour.fleet(containment=BUBBLEWRAP), spec)
    assert not await server.can(f"mv '{home}/deep/down' '{home}/deep/up'")
    assert not await server.can(f"mv '{home}/deep' '{home}/up'")
    assert await server.can(f"echo > '{home}/deep/new' && mv '{home}/deep/new' '{home}/new'")
    assert (harbour.home / "pml.db").read_text("utf-8") == SECRET


@pytest.mark.parametrize("is_wide", [False, True])
async def test_nothing_in_a_box_holds_a_descriptor_of_pml(harbour: Harbour, is_wide: bool) -> None:
    need(BUBBLEWRAP)
    (harbour.workspace / ".pml.json").write_text("{}", encoding="utf-8")
    fleet = harbour.fleet(containment=BUBBLEWRAP)
    await fleet.manifest(odd() if is_wide else installed(harbour))
    [posted] = list_servers(harbour.home)
    assert posted.process is not None
    inside = os.stat(f"/proc/{posted.process.pid}/ns/user").st_ino
    found = {
        pid: _descriptors(pid) for pid in filter(str.isdigit, os.listdir("/proc")) if _user(pid) == inside
    }
    assert len(found) >= (1 if is_wide else 2)
    for held in found.values():
        assert {kind.partition(":")[0] for kind in held} <= {"pipe", "anon_inode"}, found


def _user(pid: str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/user").st_ino
    except OSError:
        return None


def _descriptors(pid: str) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")]
