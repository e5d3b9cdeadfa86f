"""Which folders declared permissions mean, and what will hold a server that has them."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pml.core.errors import Invalid, ServerFailed
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.upstream.board import list_servers
from tests.promises import promise
from tests.upstream.boxes import Prisoner, box, installed, need
from tests.upstream.fleets import Harbour

BUBBLEWRAP, LANDLOCK, NONE = Containment


def note_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "note"
    note.write_text("dear diary", encoding="utf-8")
    return note


@promise("contain:only-declared-folders")
@pytest.mark.parametrize("access", [Access.WRITE, Access.NONE])
async def test_a_folder_of_the_user_is_in_the_home_and_never_one_of_that_name_in_the_workspace(
    harbour: Harbour, home: Path, kind: Containment, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, other, diary = note_in(home / "x"), note_in(home / "y"), note_in(home / "diary")
    planted = harbour.workspace / "~"
    planted.mkdir()
    for name in ("x", "y"):
        (planted / name).symlink_to(diary.parent)
    monkeypatch.chdir(harbour.workspace)
    permissions = Permissions(read=("~/x",), write=("~/y",), workspace=access)
    server = box(harbour, kind, installed(harbour, permissions=permissions))
    assert await server.reads(notes)
    assert not await server.writes(notes)
    assert await server.writes(other)
    assert not await server.reads(diary)
    assert not await server.reads(planted / "x" / "note")
    assert not await server.writes(planted / "y" / "note")


async def test_the_home_is_that_of_the_gateways_environment(
    harbour: Harbour, kind: Containment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    note = note_in(elsewhere / "x")
    fleet = harbour.fleet(containment=kind, environ={**os.environ, "HOME": str(elsewhere)})
    spec = installed(harbour, permissions=Permissions(read=("~/x",)))
    assert await Prisoner(fleet, spec).reads(note)


@promise("contain:only-declared-folders")
@pytest.mark.parametrize("containment", Containment)
@pytest.mark.parametrize("folder", ["x", "./~/x", "~ana/x", "~"])
async def test_a_server_that_declares_a_relative_folder_is_not_started(
    harbour: Harbour, containment: Containment, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_in(harbour.workspace / folder)
    monkeypatch.chdir(harbour.workspace)
    for permissions in (Permissions(read=(folder,)), Permissions(write=(folder,))):
        fleet = harbour.fleet(containment=containment)
        with pytest.raises(ServerFailed, match=r"cannot be started: `.*` is not a folder .*: it is relative"):
            await fleet.manifest(installed(harbour, permissions=permissions))
        with pytest.raises(Invalid, match="it is relative"):
            fleet.containment_of(permissions)
    assert list_servers(harbour.home) == []


@promise("contain:only-declared-folders")
async def test_a_link_in_the_workspace_leads_nowhere_however_the_folder_is_spelled(
    harbour: Harbour, home: Path, kind: Containment
) -> None:
    diary = note_in(home / "diary")
    (harbour.workspace / "data").symlink_to(diary.parent)
    (home / "alias").symlink_to(harbour.workspace)
    (home / "indirect").symlink_to(harbour.workspace / "data")
    (home / "chosen").symlink_to(diary.parent)
    links = ("~/alias/data", "~/indirect")
    for permissions in (
        *(Permissions(read=(link,), workspace=access) for link in links for access in Access),
        Permissions(write=("~/alias/data",), read=("~/indirect",)),
    ):
        server = box(harbour, kind, installed(harbour, permissions=permissions))
        assert not await server.reads(diary), permissions
    chosen = Permissions(read=("~/chosen",))  # that link is the user's own
    assert await box(harbour, kind, installed(harbour, permissions=chosen)).reads(diary)


def test_a_folder_that_shows_the_home_of_pml_leaves_a_server_less_than_landlock(
    harbour: Harbour, home: Path
) -> None:
    (home / "notes").mkdir()
    harbour.home.mkdir()
    (home / "notes" / "up").symlink_to(home)
    harbour.home = home / "inner" / ".pml"
    harbour.home.mkdir(parents=True)

    def found(kind: Containment, read: Sequence[str] = (), write: Sequence[str] = ()) -> Containment:
        permissions = Permissions(read=tuple(read), write=tuple(write))
        return harbour.fleet(containment=kind).containment_of(permissions)

    for folders in ((str(home),), ("~/inner",), ("/",), ("~/notes/up",)):
        assert found(LANDLOCK, read=folders) is NONE
        assert found(LANDLOCK, write=folders) is NONE
        assert found(BUBBLEWRAP, read=folders, write=folders) is BUBBLEWRAP
        assert found(NONE, read=folders) is NONE
    for folders in ((), ("~/notes",), ("~/missing",), ("~/inner/.pml",)):
        assert found(LANDLOCK, read=folders, write=folders) is LANDLOCK


@pytest.mark.parametrize("access", Access)
def test_a_workspace_around_the_home_of_pml_counts_if_it_is_given(
    harbour: Harbour, home: Path, access: Access
) -> None:
    harbour.home.mkdir()
    harbour.workspace = home
    found = harbour.fleet(containment=LANDLOCK).containment_of(Permissions(workspace=access))
    assert found is (LANDLOCK if access is Access.NONE else NONE)


@promise("contain:never-weaker-unasked")
async def test_what_is_told_before_an_install_is_what_holds_the_server_then(
    harbour: Harbour, home: Path
) -> None:
    need(LANDLOCK)
    harbour.home.mkdir()
    (home / "notes").mkdir()
    for permissions in (Permissions(read=("~/notes",)), Permissions(read=(str(home),))):
        fleet = harbour.fleet(containment=LANDLOCK)
        told = fleet.containment_of(permissions)
        await fleet.manifest(installed(harbour, permissions=permissions, containment=told))
        [posted] = list_servers(harbour.home)
        assert posted.containment is not None
        assert posted.containment.kind is told
        await fleet.close()
