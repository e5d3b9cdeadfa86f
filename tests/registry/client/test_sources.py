"""What capabilities there are, and their code: the catalog and a registry as the loader sees them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import Changed, NotFound, Unavailable
from pml.core.names import parse_tool
from pml.core.ports.loader import Found, Sources
from pml.registry.client.lookups import FRESH_S
from pml.registry.client.sources import CatalogAndRegistry
from tests.fakes import FakeClock
from tests.promises import promise
from tests.registry.liar import Liar, body
from tests.registry.places import CODE, GREET, PREFIX, TOOL, encoded, fill, hash_of
from tests.registry.serving import serving

OTHER = b"export function greet() { steal() }\n"


class Opened:
    """The sources of one home; `anew` is another process of the same."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = FakeClock()
        self.warnings: list[str] = []
        self.lines: list[str] = []
        self.sources = self.anew()

    def anew(self) -> Sources:
        self.sources = CatalogAndRegistry(
            self.home, clock=self.clock, warn=self.warnings.append, debug=self.lines.append
        )
        return self.sources

    async def found(self, registry: str) -> Found:
        found = await self.sources.find(TOOL, registries=[registry], prefix=PREFIX)
        assert found is not None
        return found

    async def code(self, registry: str) -> bytes:
        return await self.sources.code(await self.found(registry))

    def known(self, registry: str | None) -> list[str]:
        return names(self.sources.known([] if registry is None else [registry]))


@pytest.fixture
def opened(home: Path) -> Opened:
    return Opened(home / ".pml")


def names(known: Sequence[Found]) -> list[str]:
    return [str(each.metadata.fqdn) for each in known]


# --- code


@promise("registry:offline-code")
@pytest.mark.parametrize("more", [{}, {"code_integrity": hash_of(CODE)}], ids=["pinned", "hashed"])
async def test_code_that_was_used_once_is_there_without_the_registry(
    opened: Opened, tmp_path: Path, more: dict[str, Any]
) -> None:
    async with serving(fill(tmp_path / "registry", **more)) as served:
        assert await opened.code(served.url) == CODE
    opened.clock.advance(24 * FRESH_S)
    opened.anew()
    assert await opened.code(served.url) == CODE
    assert len(opened.warnings) == 1
    assert opened.known(served.url) == [GREET]


@promise("registry:offline-code")
@pytest.mark.parametrize("more", [{}, {"code_integrity": hash_of(CODE)}], ids=["pinned", "hashed"])
async def test_code_in_a_folder_needs_no_network(
    opened: Opened, tmp_path: Path, more: dict[str, Any]
) -> None:
    folder = str(fill(tmp_path / "registry", **more))
    assert await opened.code(folder) == CODE
    opened.anew()
    assert await opened.code(folder) == CODE


async def test_code_that_was_never_used_is_not_there_without_the_registry(
    opened: Opened, tmp_path: Path
) -> None:
    async with serving(fill(tmp_path / "registry")) as served:
        await opened.found(served.url)
    with pytest.raises(Unavailable, match="cannot be asked"):
        await opened.code(served.url)


@promise("code:pinned")
async def test_changed_code_without_a_hash_names_the_command_that_takes_it(
    opened: Opened, tmp_path: Path
) -> None:
    folder = fill(tmp_path / "registry")
    await opened.code(str(folder))
    fill(folder, code=OTHER)
    with pytest.raises(Changed) as caught:
        await opened.code(str(folder))
    assert f"pml capability accept {GREET}" in (caught.value.hint or "")


async def test_a_bundled_server_has_no_code(opened: Opened) -> None:
    with pytest.raises(NotFound, match="has no code"):
        await opened.sources.code(opened.sources.bundled()[0])


# --- what is known


def test_nothing_is_known_of_no_registry_and_of_a_folder_that_is_not_there(
    opened: Opened, tmp_path: Path
) -> None:
    assert opened.known(None) == []
    assert opened.known(str(tmp_path / "gone")) == []
    assert opened.known("https://registry.example") == []


async def test_the_sound_entries_of_a_folder_are_known_each_once(opened: Opened, tmp_path: Path) -> None:
    folder = fill(tmp_path / "registry")
    fill(folder, "acme.tools.bank", type="server")
    (folder / "bank.json").write_bytes(encoded("acme.tools.bank", type="server"))
    (folder / "alone.json").write_bytes(encoded("acme.tools.alone"))
    (folder / "acme.tools.wrong.json").write_bytes(encoded("acme.tools.other"))
    (folder / "acme.tools.broken.json").write_text("{}")
    (folder / "package.json").write_text("{}")
    (folder / "acme.tools.linked.json").symlink_to(folder / "alone.json")
    (folder / "acme.tools.pipe.json").mkdir()
    assert opened.known(str(folder)) == ["acme.tools.alone", "acme.tools.bank", GREET]
    assert {each.source for each in opened.sources.known([str(folder)])} == {str(folder)}
    for each in opened.sources.known([str(folder)]):
        tool = parse_tool(f"{each.metadata.fqdn.namespace}:greet")
        assert await opened.sources.find(tool, registries=[str(folder)], prefix=PREFIX) == each


async def test_what_changes_in_a_folder_is_known_at_once_and_nothing_else_is_read_again(
    opened: Opened, tmp_path: Path
) -> None:
    folder = fill(tmp_path / "registry")
    (folder / "acme.tools.broken.json").write_text("{}")
    assert opened.known(str(folder)) == [GREET]
    told = [line for line in opened.lines if "broken" in line]
    assert opened.known(str(folder)) == [GREET]
    assert [line for line in opened.lines if "broken" in line] == told
    fill(folder, "acme.tools.bank", type="server")
    assert opened.known(str(folder)) == ["acme.tools.bank", GREET]
    (folder / f"{GREET}.json").unlink()
    assert opened.known(str(folder)) == ["acme.tools.bank"]
    fill(folder, "acme.tools.bank", type="server", description="of the river")
    assert [each.metadata.description for each in opened.sources.known([str(folder)])] == ["of the river"]


@promise("registry:known-silent")
async def test_of_a_url_is_known_what_was_used_without_a_request(opened: Opened, liar: Liar) -> None:
    liar.say(f"/mcp/{GREET}", body(encoded()))
    liar.say("/mcp/bank", body(encoded("acme.tools.bank", type="server")))
    assert opened.known(liar.url) == []
    await opened.found(f"{liar.url}/")
    await opened.sources.find(parse_tool("bank:pay"), registries=[liar.url], prefix=None)
    asked = len(liar.asked)
    assert opened.known(liar.url) == ["acme.tools.bank", GREET]
    assert opened.known("http://127.0.0.1:1") == []
    assert {each.source for each in opened.sources.known([f"{liar.url}/"])} == {f"{liar.url}/"}
    assert len(liar.asked) == asked


async def test_of_two_answers_about_one_capability_the_newer_is_known(opened: Opened, liar: Liar) -> None:
    liar.say("/mcp/text", body(encoded(description="old")))
    await opened.sources.find(TOOL, registries=[liar.url], prefix=None)
    opened.clock.advance(10)
    liar.say(f"/mcp/{GREET}", body(encoded(description="new")))
    await opened.found(liar.url)
    assert [each.metadata.description for each in opened.sources.known([liar.url])] == ["new"]


async def test_what_the_cache_holds_and_nobody_can_read_is_not_known(opened: Opened, liar: Liar) -> None:
    liar.say(f"/mcp/{GREET}", body(encoded()))
    await opened.found(liar.url)
    cache = opened.home / "cache" / "registry"
    (index,) = cache.glob("*.json")
    (cache / f"{'0' * 64}.json").write_bytes(index.read_bytes())  # under a name that is not its own
    (cache / "junk.json").write_text("{")
    assert opened.known(liar.url) == [GREET]
    (kept,) = cache.glob("*.body")
    kept.write_bytes(encoded(description="forged"))
    os.utime(index)
    assert opened.known(liar.url) == []
