"""A folder as a registry: the same checks as by URL, and no way out of it."""

import os
from pathlib import Path

import pytest

from pml.core.errors import Conflict, Invalid, Unavailable
from pml.core.names import parse_tool
from pml.registry.entry_forms import MAX_BYTES, Form, entry_name
from pml.registry.folder import RegistryFolder
from tests.promises import promise
from tests.registry.places import GREET, Reader, encoded, fill


async def test_a_tool_is_found_by_fqdn_then_by_namespace(reader: Reader, tmp_path: Path) -> None:
    folder = fill(tmp_path / "registry")
    fill(folder, "acme.tools.bank", type="server")
    assert await reader.find(str(folder)) == GREET
    assert await reader.find(str(folder), tool=parse_tool("bank:pay")) == "acme.tools.bank"
    assert await reader.find(str(folder), tool=parse_tool("bank:pay"), prefix=None) == "acme.tools.bank"
    assert await reader.find(str(folder), tool=parse_tool("other:pay")) is None


async def test_a_namespace_may_have_a_file_of_its_own(reader: Reader, tmp_path: Path) -> None:
    folder = fill(tmp_path / "registry", "acme.tools.bank")
    fill(folder, "other.tools.bank")
    with pytest.raises(Conflict, match=r"`acme\.tools\.bank`, `other\.tools\.bank`"):
        await reader.find(str(folder), tool=parse_tool("bank:pay"))
    (folder / "bank.json").write_bytes(encoded("other.tools.bank"))
    assert await reader.find(str(folder), tool=parse_tool("bank:pay")) == "other.tools.bank"


@promise("registry:no-lies")
async def test_a_file_about_another_capability_is_refused(reader: Reader, tmp_path: Path) -> None:
    folder = fill(tmp_path / "registry")
    (folder / f"{GREET}.json").write_bytes(encoded("acme.tools.text.other"))
    with pytest.raises(Invalid, match="is about"):
        await reader.find(str(folder))


@promise("registry:no-lies")
@pytest.mark.parametrize("form", [Form.METADATA, Form.TYPESCRIPT])
def test_a_link_is_not_followed_out_of_the_folder(tmp_path: Path, form: Form) -> None:
    folder = fill(tmp_path / "registry")
    registry = RegistryFolder(folder)
    path = registry.file(entry_name(GREET), form)
    outside = tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(Invalid, match="not a plain file"):
        registry.read(entry_name(GREET), form)


@pytest.mark.parametrize("kind", ["pipe", "directory", "large"])
def test_what_is_no_plain_file_of_a_fair_size_is_refused(tmp_path: Path, kind: str) -> None:
    registry = RegistryFolder(tmp_path)
    path = registry.file(entry_name(GREET), Form.METADATA)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            path.write_bytes(b" " * (MAX_BYTES[Form.METADATA] + 1))
    with pytest.raises(Invalid, match=r"not a plain file|more than"):
        registry.read(entry_name(GREET), Form.METADATA)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a\0b",
        "a.b",
        "a.b.c.d.e",
        "a..b.c",
        "a b",
        "é",
        "x\n",
    ],
)
def test_a_name_that_could_be_a_path_is_no_name(name: str) -> None:
    with pytest.raises(Invalid):
        entry_name(name)


async def test_a_folder_that_is_not_there_is_told(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="is not there"):
        await reader.find(str(tmp_path / "none"))


def test_a_name_too_long_for_a_file_is_not_there(tmp_path: Path) -> None:
    name = entry_name(".".join(["a" * 64] * 4))
    assert RegistryFolder(tmp_path).read(name, Form.METADATA) is None
