"""Installed servers are proven before each start; a person accepts, removes and tidies up."""

import os
import stat
from pathlib import Path

import msgspec
import pytest

from pml.core.errors import (
    ArtefactChanged,
    Changed,
    ConfigInvalid,
    Invalid,
    NotFound,
)
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.permissions import Containment, Permissions
from pml.core.ports.loader import Accepted, Installed
from pml.core.servers.process_launch import Artefact
from pml.install.installer import DiskInstaller
from pml.install.tree.hashes import MISSING
from tests.builders import launch_of
from tests.install.makers import (
    ARTEFACT,
    FILES,
    FakeEcosystem,
    contents,
    ignore,
    left_behind,
    link_away,
    make_dependency,
    make_installer,
    make_lock,
    make_plan,
    mode_of,
    overwrite,
    prove,
)
from tests.promises import promise

BOUND_S = 30.0
SHA256 = integrity_of(ARTEFACT, Algorithm.SHA256)
SHA512 = integrity_of(ARTEFACT, Algorithm.SHA512)
OTHER = integrity_of(b"another", Algorithm.SHA512)


async def test_the_same_server_in_the_same_workspace_is_the_same_spec(
    installer: DiskInstaller, pml_home: Path
) -> None:
    env = {"WHERE": "${workspace}/x", "STATE": "${state}", "DENO_DIR": "/tmp", "HOME": "/"}
    installed = await installer.install(make_plan(make_dependency(env=env)), told=ignore)
    spec = installer.launch(installed, workspace="/repo ${state}")
    state = str(pml_home / "state" / "memory")
    assert (spec.name, launch_of(spec).command, launch_of(spec).args) == (
        "memory",
        "/opt/runtime",
        (f"{installed.path}/index.js",),
    )
    assert launch_of(spec).env == {
        "WHERE": "/repo ${state}/x",
        "STATE": state,
        "HOME": state,
        "DENO_DIR": f"{state}/deno",
        "DENO_NO_UPDATE_CHECK": "1",
    }
    assert (launch_of(spec).cwd, spec.source.file) == (None, str(pml_home / "deps.json"))
    assert spec.artefact == Artefact(
        version="1.2.3",
        terms=installed.terms,
        path=installed.path,
        tree=installed.tree,
        state=state,
        needs=("/opt/runtime",),
        env_required=("MEMORY_KEY",),
        containment=Containment.BUBBLEWRAP,
        is_accepted=False,
    )
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o700
    read_again = make_installer(pml_home).installed("memory")
    assert read_again is not None
    assert installer.launch(read_again, workspace="/repo ${state}") is spec
    assert installer.launch(installed, workspace="/other") is not spec


@promise("start:tree-verified")
async def test_one_changed_byte_stops_the_start_and_names_the_file(installer: DiskInstaller) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    await prove(installer, installed)
    overwrite(Path(installed.path) / "node_modules/left/index.js", b"module.exports = 2")
    with pytest.raises(ArtefactChanged) as caught:
        await prove(installer, installed)
    assert (caught.value.server, caught.value.files) == ("memory", ("~ node_modules/left/index.js",))
    assert caught.value.tree.startswith("sha256:")
    assert caught.value.tree != installed.tree


@promise("start:tree-verified")
async def test_a_missing_folder_stops_the_start_and_cannot_be_accepted(
    installer: DiskInstaller, tmp_path: Path
) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    os.rename(installed.path, tmp_path / "away")
    with pytest.raises(ArtefactChanged) as caught:
        await prove(installer, installed)
    assert caught.value.files == (MISSING,)
    with pytest.raises(Invalid, match="cannot be accepted: its folder is missing"):
        await installer.accept("memory", tree=caught.value.tree)
    await prove(installer, await installer.install(make_plan(), told=ignore))


@promise("start:tree-verified")
@pytest.mark.parametrize("replaced", ["the tree", "its parent"])
async def test_a_folder_that_became_a_link_stops_the_start_and_cannot_be_accepted(
    installer: DiskInstaller, tmp_path: Path, replaced: str
) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    tree = Path(installed.path)
    link_away(tree, tmp_path, replaced)
    with pytest.raises(ArtefactChanged) as caught:
        await prove(installer, installed)
    link = tree if replaced == "the tree" else tree.parent
    assert caught.value.files == (f"its folder {link} is a link",)
    with pytest.raises(Invalid, match=f"cannot be accepted: its folder {link} is a link"):
        await installer.accept("memory", tree=caught.value.tree)
    assert installer.installed("memory") == installed


@pytest.mark.parametrize("replaced", ["the tree", "its parent"])
async def test_removing_what_became_a_link_leaves_alone_what_is_behind_it(
    installer: DiskInstaller, pml_home: Path, tmp_path: Path, replaced: str
) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    away = link_away(Path(installed.path), tmp_path, replaced)
    before = contents(away)
    await installer.remove("memory")
    assert (installer.all_installed(), left_behind(pml_home)) == ({}, [])
    assert (contents(away), mode_of(away / "closed")) == (before, 0o500)


async def test_one_server_that_cannot_be_started_is_told_and_removed_like_any_other(
    installer: DiskInstaller,
) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    with pytest.raises(Invalid, match="a comma"):
        installer.launch(installed, workspace="/a,b")
    spec = installer.launch(installed, workspace="/repo")
    assert installer.target_digest(installed) == spec.target_digest
    _, change = await changed(installer)
    accepted = await installer.accept("memory", tree=change.tree)
    now = installer.launch(accepted, workspace="/repo").target_digest
    assert installer.target_digest(accepted) == now != spec.target_digest
    await installer.remove("memory")


async def test_a_spec_of_what_is_no_longer_installed_is_not_proven(installer: DiskInstaller) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    spec = installer.launch(installed, workspace="/repo")
    wider = make_dependency(permissions=Permissions(net=True))
    await installer.install(make_plan(wider), told=ignore)
    with pytest.raises(Changed, match="no longer the one"):
        await installer.prove(spec)
    await installer.remove("memory")
    with pytest.raises(Changed, match="no longer the one"):
        await installer.prove(spec)


# Accepting, removing


async def changed(installer: DiskInstaller) -> tuple[Installed, ArtefactChanged]:
    installed = await installer.install(make_plan(), told=ignore)
    overwrite(Path(installed.path) / "index.js", b"edited")
    with pytest.raises(ArtefactChanged) as caught:
        await prove(installer, installed)
    return installed, caught.value


async def test_files_that_a_person_accepted_are_proven_from_then_on(installer: DiskInstaller) -> None:
    installed, change = await changed(installer)
    accepted = await installer.accept("memory", tree=change.tree)
    assert accepted == msgspec.structs.replace(installed, tree=change.tree, accepted=True)
    assert installer.installed("memory") == accepted
    await prove(installer, accepted)
    overwrite(Path(installed.path) / "index.js", b"edited again")
    with pytest.raises(ArtefactChanged) as caught:
        await prove(installer, accepted)
    assert caught.value.files == ("~ index.js",)


@promise("start:tree-verified")
async def test_files_that_changed_after_they_were_shown_are_not_accepted(installer: DiskInstaller) -> None:
    installed, change = await changed(installer)
    overwrite(Path(installed.path) / "index.js", b"edited again")
    with pytest.raises(Changed, match="have changed again"):
        await installer.accept("memory", tree=change.tree)
    assert installer.installed("memory") == installed


async def test_what_no_package_may_bring_cannot_be_accepted(installer: DiskInstaller) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    (Path(installed.path) / "out").symlink_to("/etc")
    with pytest.raises(ArtefactChanged) as caught:
        await prove(installer, installed)
    with pytest.raises(Invalid, match="`out` is a link"):
        await installer.accept("memory", tree=caught.value.tree)
    assert installer.installed("memory") == installed


async def test_accepted_files_do_not_pass_for_those_of_the_lock_under_new_terms(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    _, change = await changed(installer)
    accepted = await installer.accept("memory", tree=change.tree)
    assert await installer.install(make_plan(), told=ignore) == accepted
    wider = make_dependency(permissions=Permissions(net=True))
    again = await installer.install(make_plan(wider), told=ignore)
    assert (ecosystem.installs, again.accepted) == (2, False)
    assert (Path(again.path) / "index.js").read_bytes() == FILES["index.js"]


async def test_removing_takes_the_files_and_keeps_the_state_and_the_accepted_lock(
    installer: DiskInstaller, pml_home: Path
) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    installer.launch(installed, workspace="/repo")
    await installer.remove("memory")
    assert (installer.all_installed(), left_behind(pml_home)) == ({}, [])
    assert installer.accepted("memory") == Accepted(lock=installed.lock, terms=installed.terms)
    assert (pml_home / "state" / "memory").is_dir()
    with pytest.raises(NotFound, match="`memory` is not installed"):
        await installer.remove("memory")


async def test_gc_removes_what_is_neither_installed_nor_in_use(
    installer: DiskInstaller, ecosystem: FakeEcosystem, pml_home: Path
) -> None:
    places: list[str] = []
    for version in ("1.0.0", "2.0.0", "3.0.0"):
        ecosystem.files["index.js"] = version.encode() * 100
        plan = make_plan(make_dependency(version=version), make_lock(version=version))
        places.append((await installer.install(plan, told=ignore)).path)
    assert await installer.gc(keep_in_use={places[1]}) > 500
    folder = pml_home / "servers" / "memory"
    names = [Path(place).name for place in places]
    assert sorted(os.listdir(folder)) == sorted(
        [names[1], names[1] + ".files", names[2], names[2] + ".files"]
    )
    await installer.gc()
    assert sorted(os.listdir(folder)) == [names[2], names[2] + ".files"]
    found = installer.installed("memory")
    assert found is not None
    await prove(installer, found)


async def test_gc_leaves_folders_alone_that_are_no_servers(installer: DiskInstaller, pml_home: Path) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    other = pml_home / "servers" / "lost+found" / "file"
    other.parent.mkdir()
    other.touch()
    assert await installer.gc() == 0
    assert other.exists()
    await prove(installer, installed)


async def test_removing_keeps_the_trees_that_are_in_use_until_they_are_tidied_up(
    installer: DiskInstaller, ecosystem: FakeEcosystem, pml_home: Path
) -> None:
    first = await installer.install(make_plan(), told=ignore)
    ecosystem.files["index.js"] = b"newer"
    newer = make_plan(make_dependency(version="2.0.0"), make_lock(version="2.0.0"))
    await installer.install(newer, told=ignore)
    assert await installer.remove("memory", {first.path}) == [first.path]
    assert installer.all_installed() == {}
    assert contents(Path(first.path)) == FILES
    assert len(left_behind(pml_home)) > 0
    await installer.gc()
    assert left_behind(pml_home) == []


async def test_gc_removes_nothing_when_the_record_is_broken(installer: DiskInstaller, pml_home: Path) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    (pml_home / "deps.json").write_text("{")
    with pytest.raises(ConfigInvalid):
        await installer.gc()
    assert os.listdir(installed.path)


async def test_verifying_everything_reads_every_file_and_says_which_differ(installer: DiskInstaller) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    await installer.install(make_plan(make_dependency(name="other")), told=ignore)
    overwrite(Path(installed.path) / "index.js", b"edited")
    found = await installer.verify_all()
    assert found["other"] is None
    assert found["memory"] is not None
    assert found["memory"].files == ("~ index.js",)
