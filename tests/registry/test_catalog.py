"""The bundled catalog: complete, pinned, with locks that belong to it, and verified by its own script."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import Invalid
from pml.core.packages.integrity import parse_integrity
from pml.core.packages.lock import Lock
from pml.core.packages.package import Ecosystem
from pml.core.packages.permissions import Access
from pml.registry.catalog import LOCKS, Catalog
from tests.promises import promise

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "src" / "pml" / "registry" / "bundled"
SCRIPT = ROOT / "scripts" / "catalog"
SURE = {"everything", "fetch", "filesystem", "git", "memory", "sequential-thinking", "time"}
NAMES = sorted(path.stem for path in BUNDLED.glob("*.json"))
Change = Callable[[dict[str, Any]], object]
VERIFY_S = 60  # it takes a second; more is a machine that stands still


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A catalog that a test can damage."""
    return shutil.copytree(BUNDLED, tmp_path / "catalog")


def problems_of(folder: Path) -> list[str]:
    """Return what `scripts/catalog verify` complains of."""
    loader = SourceFileLoader("catalog_script", str(SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    script = module_from_spec(spec)
    sys.modules[loader.name] = script  # its dataclasses look themselves up
    loader.exec_module(script)
    return script.verify(folder)


def edit(path: Path, change: Change) -> None:
    shape = json.loads(path.read_text(encoding="utf-8"))
    change(shape)
    path.write_text(json.dumps(shape), encoding="utf-8")


def whole(name: str) -> Lock:
    found = Catalog().find(name)
    assert found is not None
    dependency = found.metadata.dependency(name)
    assert dependency is not None
    assert isinstance(dependency.lock, Lock)
    return dependency.lock


def test_the_catalog_has_the_well_known_servers_by_name() -> None:
    found = Catalog().bundled()
    assert [each.metadata.mcp_deps[0].name for each in found] == NAMES
    assert set(NAMES) >= SURE


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_pinned_proven_and_tells_its_tools(name: str) -> None:
    found = Catalog().find(name)
    assert found is not None
    [dependency] = found.metadata.mcp_deps
    lock = whole(name)
    assert (str(found.metadata.fqdn), found.source) == (f"pml.catalog.{name}", "catalog")
    assert dependency.version in dependency.install
    assert (dependency.integrity,) == lock.artefact
    assert all(tool.get("inputSchema") for tool in found.metadata.tools)
    assert found.metadata.tools
    assert found.metadata.description
    assert lock.size
    assert lock.released_at


@pytest.mark.parametrize("name", NAMES)
def test_no_lock_or_install_line_says_where_packages_come_from(name: str) -> None:
    entry = json.loads((BUNDLED / f"{name}.json").read_text(encoding="utf-8"))
    lock = (BUNDLED / LOCKS / f"{name}.json").read_text(encoding="utf-8")
    assert not re.search(r"://|resolved|tarball", lock + json.dumps(entry["mcp_deps"]))


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_of_python_packages_has_the_wheels_of_every_platform(name: str) -> None:
    lock = whole(name)
    if lock.ecosystem is Ecosystem.PYPI:
        [core] = [package for package in lock.packages if package.name == "pydantic-core"]
        assert len(core.integrity) > 10
    for package in lock.packages:
        assert [str(parse_integrity(text, what=name)) for text in package.integrity] == [*package.integrity]


WHOLE_WEB = {"duckduckgo", "fetch", "wikipedia"}  # what they read may lie anywhere


def test_only_what_works_on_files_of_the_workspace_sees_it_and_only_the_web_ones_the_network() -> None:
    declared = {each.mcp_deps[0].name: each.mcp_deps[0].permissions for each in
                (found.metadata for found in Catalog().bundled())}  # fmt: skip
    sees = {name for name, permissions in declared.items() if permissions.workspace is not Access.NONE}
    assert sees == {"filesystem", "git"}
    assert {name for name, permissions in declared.items() if permissions.net is True} == WHOLE_WEB
    assert not any(permissions.read or permissions.write for permissions in declared.values())


def test_listing_reads_no_lock_and_a_server_is_read_once(copy: Path) -> None:
    catalog = Catalog(copy)
    first = catalog.find("time")
    shutil.rmtree(copy / LOCKS)
    assert [each.metadata.mcp_deps[0].name for each in catalog.bundled()] == NAMES
    assert catalog.find("time") is first
    assert catalog.find("nobody") is None


UNNAMED: dict[str, tuple[Change, str]] = {
    "a package less": (lambda lock: lock["packages"].pop(0), "not the one that its entry names"),
    "another version": (
        lambda lock: lock["packages"][0].update(version="9.9.9"),
        "not the one that its entry names",
    ),
    "no hash": (lambda lock: lock["packages"][0].update(integrity=[]), "no hash"),
}


@promise("catalog:locks-belong")
@pytest.mark.parametrize(("change", "said"), [*UNNAMED.values()], ids=[*UNNAMED])
def test_a_lock_that_its_entry_does_not_name_is_refused(copy: Path, change: Change, said: str) -> None:
    edit(copy / LOCKS / "time.json", change)
    with pytest.raises(Invalid, match=said):
        Catalog(copy).find("time")


def test_an_entry_without_its_lock_is_refused(copy: Path) -> None:
    (copy / LOCKS / "time.json").unlink()
    with pytest.raises(Invalid, match="cannot be read"):
        Catalog(copy).find("time")


# --- scripts/catalog verify


def test_the_catalog_that_ships_is_sound() -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT, "verify"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=VERIFY_S,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


DAMAGE: list[tuple[str, Change, str]] = [
    ("time.json", lambda entry: entry.update(fqdn="pml.catalog.other"), "fqdn"),
    ("time.json", lambda entry: entry["mcp_deps"][0].update(permissions={"net": True}), "recipe"),
    ("time.json", lambda entry: entry["mcp_deps"][0].update(integrity="sha256-" + "0" * 64), "integrity"),
    ("time.json", lambda entry: entry.update(tools=[]), "no tools"),
    ("time.json", lambda entry: entry.update(surprise=entry.pop("type")), "type"),
    ("locks/time.json", lambda lock: lock["packages"].pop(), "not the one that its entry names"),
    ("locks/time.json", lambda lock: lock.update(note="https://packages.example.com"), "address"),
    ("locks/time.json", lambda lock: lock.pop("size"), "size"),
    ("locks/time.json", lambda lock: lock["packages"][0].update(integrity=["md5-0"]), "hash of"),
]


@pytest.mark.parametrize(("file", "change", "said"), DAMAGE, ids=[f"{d[0]} {d[2]}" for d in DAMAGE])
def test_verifying_finds_what_was_changed_by_hand(copy: Path, file: str, change: Change, said: str) -> None:
    edit(copy / file, change)
    [problem, *_] = problems_of(copy)
    assert problem.startswith("time: ")
    assert said in problem


def test_verifying_finds_files_that_are_missing_or_too_many(copy: Path) -> None:
    (copy / LOCKS / "git.json").unlink()
    shutil.copy(copy / "time.json", copy / "other.json")
    assert problems_of(copy) == [
        "git: an entry or a lock without the other",
        "other: an entry or a lock without the other",
        "other: made, but there is no recipe",
    ]
