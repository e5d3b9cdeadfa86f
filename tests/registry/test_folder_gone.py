"""A folder that is not there: what was used of it goes on, and what it said last counts."""

from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import Changed, Invalid, NotFound, Unavailable
from pml.core.names import parse_tool
from pml.registry.client.lookups import FRESH_S
from pml.registry.entry_forms import EntryName, Form, entry_name
from pml.registry.folder import FolderGone, RegistryFolder
from tests.promises import promise
from tests.registry.places import CODE, GREET, PREFIX, TOOL, Reader, encoded, fill, hash_of

OTHER = b"export function greet() { steal() }\n"
BANK = parse_tool("bank:pay")
HASHES = pytest.mark.parametrize("more", [{}, {"code_integrity": hash_of(CODE)}], ids=["pinned", "hashed"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "registry")


def lose(folder: Path) -> Path:
    return folder.rename(folder.with_name("elsewhere"))


def put_in_place(folder: Path, kind: str) -> None:
    """Lose the folder, and have something else under its name."""
    lose(folder)
    match kind:
        case "file":
            folder.write_text("")
        case "dangling link":
            folder.symlink_to(folder.with_name("nowhere"))
        case _:
            folder.symlink_to(folder)


class Going(RegistryFolder):
    """A folder that is lost as soon as it was listed."""

    def names(self) -> list[EntryName]:
        names = super().names()
        lose(self.path)
        return names


def bring_back(folder: Path) -> None:
    folder.with_name("elsewhere").rename(folder)


def known(reader: Reader, folder: Path) -> list[str]:
    return [str(each.metadata.fqdn) for each in reader.client.known(str(folder))]


def kept(reader: Reader) -> dict[str, tuple[int, int]]:
    """Return the files of the cache; each that is written anew is another."""
    place = reader.home / "cache" / "registry"
    files = place.iterdir() if place.exists() else ()
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


# --- what was used


@promise("registry:offline-code")
@HASHES
async def test_what_was_used_of_a_folder_is_there_without_it(
    reader: Reader, folder: Path, more: dict[str, Any]
) -> None:
    fill(folder, **more)
    assert await reader.code(str(folder)) == CODE
    lose(folder)
    reader.fresh()
    reader.clock.advance(24 * FRESH_S)
    assert await reader.code(str(folder)) == CODE
    assert await reader.code(str(folder)) == CODE
    assert reader.warnings == [f"registry folder `{folder}` is not there; what it answered before is used"]
    assert known(reader, folder) == [GREET]


async def test_a_server_that_was_found_by_its_namespace_is_found_without_the_folder(
    reader: Reader, folder: Path
) -> None:
    fill(folder, "acme.tools.bank", type="server", code=None)
    assert await reader.find(str(folder), tool=BANK) == "acme.tools.bank"
    lose(folder)
    reader.fresh()
    assert await reader.find(str(folder), tool=BANK) == "acme.tools.bank"
    assert await reader.find(str(folder), tool=BANK, prefix=None) == "acme.tools.bank"


async def test_what_was_never_used_is_not_there_without_the_folder(reader: Reader, folder: Path) -> None:
    fill(folder, "acme.tools.bank", type="server", code=None)
    assert known(reader, folder) == ["acme.tools.bank", GREET]
    assert kept(reader) == {}
    found = await reader.client.find(TOOL, registry=str(folder), prefix=PREFIX)
    assert found is not None
    lose(folder)
    with pytest.raises(Unavailable, match="is not there"):
        await reader.client.code(found)
    with pytest.raises(Unavailable, match="is not there"):
        await reader.find(str(folder), tool=BANK)
    assert known(reader, folder) == [GREET]


@pytest.mark.parametrize("kind", ["file", "dangling link"])
async def test_what_is_no_folder_is_none(reader: Reader, folder: Path, kind: str) -> None:
    await reader.code(str(folder))
    put_in_place(folder, kind)
    assert await reader.code(str(folder)) == CODE


async def test_a_folder_beneath_what_is_no_folder_is_none(reader: Reader, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    folder = fill(disk / "registry")
    await reader.code(str(folder))
    put_in_place(disk, "file")
    assert await reader.code(str(folder)) == CODE


# --- a folder that is there


async def test_a_folder_that_is_there_counts_whatever_is_kept(reader: Reader, folder: Path) -> None:
    fill(folder, description="old", code_integrity=hash_of(CODE))
    await reader.code(str(folder))
    fill(folder, code=OTHER, description="new", code_integrity=hash_of(OTHER))
    assert await reader.code(str(folder)) == OTHER
    (folder / f"{GREET}.ts").unlink()
    with pytest.raises(NotFound):
        await reader.code(str(folder))
    (folder / f"{GREET}.json").unlink()
    assert await reader.find(str(folder)) is None
    assert known(reader, folder) == []
    assert reader.warnings == []


async def test_a_folder_that_comes_back_counts_again(reader: Reader, folder: Path) -> None:
    await reader.code(str(folder))
    lose(folder)
    await reader.code(str(folder))
    bring_back(folder)
    (folder / f"{GREET}.json").unlink()
    assert await reader.find(str(folder)) is None
    assert known(reader, folder) == []


@pytest.mark.parametrize("anew", [False, True], ids=["one process", "two processes"])
async def test_what_a_folder_was_seen_to_have_no_more_does_not_come_back_without_it(
    reader: Reader, folder: Path, anew: bool
) -> None:
    await reader.code(str(folder))
    (folder / f"{GREET}.json").unlink()
    if anew:
        reader.fresh()
    assert await reader.find(str(folder)) is None
    lose(folder)
    reader.fresh()
    with pytest.raises(Unavailable, match="is not there"):
        await reader.find(str(folder))
    assert known(reader, folder) == []


async def test_what_changed_is_kept_as_it_was_last(reader: Reader, folder: Path) -> None:
    for code in (CODE, OTHER, CODE, OTHER):
        fill(folder, code=code, code_integrity=hash_of(code))
        assert await reader.code(str(folder)) == code
    lose(folder)
    reader.fresh()
    assert await reader.code(str(folder)) == OTHER


async def test_a_folder_that_cannot_be_read_is_there(reader: Reader, folder: Path) -> None:
    await reader.code(str(folder))
    put_in_place(folder, "loop")
    with pytest.raises(Invalid):
        await reader.find(str(folder))
    assert known(reader, folder) == []


def test_a_folder_that_goes_while_it_is_read_has_not_said_no(folder: Path) -> None:
    fill(folder, "acme.tools.bank")
    with pytest.raises(FolderGone):
        Going(folder).read(entry_name("bank"), Form.METADATA)


# --- pins and hashes


@promise("code:pinned")
async def test_kept_code_whose_pin_was_removed_is_not_given(reader: Reader, folder: Path) -> None:
    await reader.code(str(folder))
    (pin,) = (reader.home / "pins" / "code").iterdir()
    pin.unlink()
    lose(folder)
    with pytest.raises(Unavailable, match="is not there"):
        await reader.code(str(folder))


@promise("code:pinned")
async def test_code_that_its_pin_refuses_is_not_kept(reader: Reader, folder: Path) -> None:
    await reader.code(str(folder))
    fill(folder, code=OTHER)
    with pytest.raises(Changed):
        await reader.code(str(folder))
    lose(folder)
    assert await reader.code(str(folder)) == CODE


@promise("registry:no-lies")
@HASHES
async def test_kept_code_that_is_other_code_is_not_given(
    reader: Reader, folder: Path, more: dict[str, Any]
) -> None:
    fill(folder, **more)
    await reader.code(str(folder))
    lose(folder)
    (forged,) = [path for path in (reader.home / "cache" / "registry").iterdir() if path.read_bytes() == CODE]
    forged.write_bytes(OTHER)
    with pytest.raises(Unavailable, match="is not there"):
        await reader.code(str(folder))


@promise("registry:no-lies")
async def test_kept_code_that_the_metadata_no_longer_names_is_not_given(reader: Reader, folder: Path) -> None:
    await reader.code(str(folder))
    (folder / f"{GREET}.json").write_bytes(encoded(code_integrity=hash_of(OTHER)))
    await reader.find(str(folder))
    lose(folder)
    with pytest.raises(Unavailable, match="is not there"):
        await reader.code(str(folder))


# --- what it costs


async def test_what_is_kept_already_is_not_written_again(reader: Reader, folder: Path) -> None:
    await reader.code(str(folder))
    before = kept(reader)
    assert len(before) == 4
    await reader.code(str(folder))
    reader.clock.advance(2 * FRESH_S)
    await reader.code(str(folder))
    reader.fresh()
    await reader.code(str(folder))
    assert kept(reader) == before


async def test_a_cache_that_was_emptied_is_filled_again_within_the_hour(reader: Reader, folder: Path) -> None:
    await reader.code(str(folder))
    for path in (reader.home / "cache" / "registry").iterdir():
        path.unlink()
    reader.clock.advance(FRESH_S)
    await reader.code(str(folder))
    lose(folder)
    assert await reader.code(str(folder)) == CODE


async def test_a_cache_that_cannot_be_written_keeps_nothing_and_stops_nothing(
    reader: Reader, folder: Path
) -> None:
    reader.home.mkdir()
    (reader.home / "cache").write_text("a file in its place")
    assert await reader.code(str(folder)) == CODE
    lose(folder)
    with pytest.raises(Unavailable, match="is not there"):
        await reader.code(str(folder))
