"""The installer on a disk: whole or not at all, once, and again where it is damaged or other terms hold."""

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from pml.core.errors import (
    ConfigInvalid,
    IntegrityFailed,
    Invalid,
    Unavailable,
)
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.ports.loader import Accepted, Installed, Progress
from pml.install.installer import DiskInstaller
from tests.builders import launch_of
from tests.fakes import FakeClock
from tests.install.makers import (
    ARTEFACT,
    FILES,
    RUNTIME,
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


async def test_an_install_stands_in_its_place_read_only_and_is_recorded_whole(
    installer: DiskInstaller, pml_home: Path
) -> None:
    plan = make_plan()
    told: list[Progress] = []
    installed = await installer.install(plan, told=told.append)
    place = Path(installed.path)
    assert installed == Installed(
        dependency=msgspec.structs.replace(plan.dependency, lock=plan.lock.digest),
        lock=plan.lock.digest,
        terms=plan.terms,
        tree=installed.tree,
        path=str(pml_home / "servers/memory" / f"1.2.3-{installed.tree.removeprefix('sha256:')[:12]}"),
        entry="index.js",
        runtime=RUNTIME,
        containment=Containment.BUBBLEWRAP,
        installed_at=FakeClock().now(),
    )
    assert contents(place) == FILES
    assert (mode_of(place / "index.js"), mode_of(place)) == (0o400, 0o700)
    assert told == [Progress(done=1, total=2, message="filling")]
    assert os.listdir(pml_home / "servers" / ".staging") == []
    assert make_installer(pml_home).all_installed() == {"memory": installed}
    assert installer.accepted("memory") == Accepted(lock=plan.lock.digest, terms=plan.terms)
    await prove(installer, installed)


@promise("install:once")
async def test_many_who_ask_at_once_install_once(installer: DiskInstaller, ecosystem: FakeEcosystem) -> None:
    async with asyncio.timeout(BOUND_S):
        found = await asyncio.gather(*(installer.install(make_plan(), told=ignore) for _ in range(5)))
    assert ecosystem.installs == 1
    assert [each == found[0] for each in found] == [True] * 5


async def test_whoever_waits_for_another_install_is_told_so(
    installer: DiskInstaller, ecosystem: FakeEcosystem, pml_home: Path
) -> None:
    ecosystem.may_end.clear()
    told: list[str] = []
    waits = asyncio.Event()

    def tell(progress: Progress) -> None:
        told.append(progress.message)
        waits.set()

    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        group.create_task(installer.install(make_plan(), told=ignore))
        await ecosystem.is_filling.wait()
        group.create_task(make_installer(pml_home).install(make_plan(), told=tell))
        await waits.wait()
        ecosystem.may_end.set()
    assert told == ["waiting for another install of memory"]


async def fails_with_an_error(installer: DiskInstaller, ecosystem: FakeEcosystem) -> None:
    ecosystem.error = IntegrityFailed("memory@1.2.3", expected="a", got="b")
    with pytest.raises(IntegrityFailed):
        await installer.install(make_plan(), told=ignore)


async def fails_on_a_full_disk(installer: DiskInstaller, ecosystem: FakeEcosystem) -> None:
    ecosystem.error = OSError(errno.ENOSPC, "No space left on device", "/disk/file")
    with pytest.raises(
        Unavailable, match=r"cannot install `memory@1\.2\.3`: `/disk/file`: the disk is full"
    ) as caught:
        await installer.install(make_plan(), told=ignore)
    assert caught.value.hint == "free some space on that disk, then try again"


async def is_cancelled(installer: DiskInstaller, ecosystem: FakeEcosystem) -> None:
    ecosystem.may_end.clear()
    task = asyncio.ensure_future(installer.install(make_plan(), told=ignore))
    await ecosystem.is_filling.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ecosystem.may_end.set()


async def brings_a_link_out(installer: DiskInstaller, ecosystem: FakeEcosystem) -> None:
    ecosystem.links["out"] = "../../../config.json"
    with pytest.raises(Invalid, match="`out` is a link that leaves the folder"):
        await installer.install(make_plan(), told=ignore)
    ecosystem.links.clear()


async def has_no_entry(installer: DiskInstaller, ecosystem: FakeEcosystem) -> None:
    for entry in ("missing.js", "../../x", "/bin/sh", "node_modules"):
        ecosystem.entry = entry
        with pytest.raises(Invalid, match="to start"):
            await installer.install(make_plan(), told=ignore)
    ecosystem.entry = "index.js"


@promise("install:atomic")
@pytest.mark.parametrize(
    "attempt", [fails_with_an_error, fails_on_a_full_disk, is_cancelled, brings_a_link_out, has_no_entry]
)
async def test_an_install_that_does_not_succeed_leaves_nothing_and_can_be_tried_again(
    installer: DiskInstaller,
    ecosystem: FakeEcosystem,
    pml_home: Path,
    attempt: Callable[[DiskInstaller, FakeEcosystem], "asyncio.Future[None]"],
) -> None:
    async with asyncio.timeout(BOUND_S):
        await attempt(installer, ecosystem)
    assert left_behind(pml_home) == []
    assert (installer.all_installed(), installer.accepted("memory")) == ({}, None)
    ecosystem.error = None
    await prove(installer, await installer.install(make_plan(), told=ignore))


@promise("install:atomic")
@pytest.mark.parametrize("call", ["fsync", "rename", "replace", "chmod"])
async def test_a_disk_that_fails_at_any_step_leaves_nothing(
    installer: DiskInstaller, pml_home: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real: Callable[..., object] = getattr(os, call)
    for failing in range(1, 20):
        calls = 0

        def fail(*args: object, failing: int = failing, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls == failing:
                raise OSError(errno.EROFS, "Read-only file system", "/disk")
            return real(*args, **more)

        with monkeypatch.context() as patched:
            patched.setattr(os, call, fail)
            with suppress(Unavailable):
                await installer.install(make_plan(), told=ignore)
            if calls < failing:
                break
        if (found := installer.installed("memory")) is None:
            assert left_behind(pml_home) == []
        else:  # only the sync after `deps.json` had been replaced failed
            await prove(installer, found)
            await installer.remove("memory")
    await prove(installer, await installer.install(make_plan(), told=ignore))


@promise("install:atomic")
async def test_an_install_cancelled_while_it_is_put_in_place_is_not_recorded(
    installer: DiskInstaller, pml_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    real = os.rename

    def cancel_first(source: Path, target: Path) -> None:
        real(source, target)
        asyncio.run_coroutine_threadsafe(cancel(), loop).result(BOUND_S)

    async def cancel() -> None:
        task.cancel()
        await asyncio.sleep(0)  # the cancellation arrives
        await asyncio.sleep(0)

    monkeypatch.setattr(os, "rename", cancel_first)
    task = asyncio.ensure_future(installer.install(make_plan(), told=ignore))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (installer.all_installed(), left_behind(pml_home)) == ({}, [])


async def test_a_home_that_cannot_be_made_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    installer = make_installer(tmp_path / "file" / "pml")
    with pytest.raises(Unavailable, match=r"`.*/file/pml/deps\.json`: Not a directory"):
        await installer.install(make_plan(), told=ignore)


async def test_a_name_that_leads_elsewhere_is_refused(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    for name in ("../x", ".staging", "a/b", ""):
        dependency = make_dependency(name=name)
        with pytest.raises(Invalid, match="not a name for a server"):
            await installer.resolve(dependency, told=ignore)
        with pytest.raises(Invalid, match="not a name for a server"):
            await installer.install(make_plan(dependency), told=ignore)
    assert (ecosystem.resolved, ecosystem.installs) == (0, 0)


@pytest.mark.parametrize("name", ["con", "NUL", "Com1", "lpt9"])
async def test_a_name_that_is_a_device_on_windows_is_refused(
    installer: DiskInstaller, ecosystem: FakeEcosystem, name: str
) -> None:
    dependency = make_dependency(name=name)
    for attempt in (
        lambda: installer.resolve(dependency, told=ignore),
        lambda: installer.install(make_plan(dependency), told=ignore),
    ):
        with pytest.raises(Invalid, match=f"`{name}` is not a name for a server: on Windows it is a device"):
            await attempt()
    assert (ecosystem.resolved, ecosystem.installs) == (0, 0)


async def test_a_name_that_differs_only_in_case_from_an_installed_one_is_refused(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    await installer.install(make_plan(), told=ignore)
    dependency = make_dependency(name="Memory")
    for attempt in (
        lambda: installer.resolve(dependency, told=ignore),
        lambda: installer.install(make_plan(dependency), told=ignore),
    ):
        with pytest.raises(Invalid, match="`Memory` differs only in case from `memory`"):
            await attempt()
    assert (ecosystem.resolved, ecosystem.installs) == (0, 1)


# Installing again


async def test_new_terms_for_the_same_lock_are_recorded_without_a_download(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    first = await installer.install(make_plan(), told=ignore)
    wider = make_dependency(permissions=Permissions(net=True, workspace=Access.NONE))
    moved = await installer.install(make_plan(wider, containment=Containment.NONE), told=ignore)
    assert ecosystem.installs == 1
    assert (moved.path, moved.tree, moved.containment) == (first.path, first.tree, Containment.NONE)
    assert moved.terms == make_plan(wider).terms != first.terms
    assert installer.installed("memory") == moved


async def test_new_terms_with_another_integrity_are_proven_first(installer: DiskInstaller) -> None:
    first = await installer.install(make_plan(), told=ignore)
    with pytest.raises(IntegrityFailed):
        await installer.install(make_plan(make_dependency(integrity=str(OTHER))), told=ignore)
    assert installer.installed("memory") == first


async def test_a_damaged_install_is_made_anew_beside_the_damaged_one(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    first = await installer.install(make_plan(), told=ignore)
    overwrite(Path(first.path) / "index.js", b"evil")
    again = await installer.install(make_plan(), told=ignore)
    assert ecosystem.installs == 2
    assert (again.tree, again.path) == (first.tree, f"{first.path}.1")
    assert (Path(first.path) / "index.js").read_bytes() == b"evil"
    await prove(installer, again)


async def test_an_older_tree_is_kept_and_used_again_when_it_is_whole(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    first = await installer.install(make_plan(), told=ignore)
    ecosystem.files["index.js"] = b"newer"
    newer = make_plan(make_dependency(version="2.0.0"), make_lock(version="2.0.0"))
    second = await installer.install(newer, told=ignore)
    assert set(os.listdir(second.path)) == set(os.listdir(first.path))
    assert installer.accepted("memory") == Accepted(lock=second.lock, terms=second.terms)
    ecosystem.files["index.js"] = FILES["index.js"]
    assert (await installer.install(make_plan(), told=ignore)).path == first.path


async def test_a_broken_record_stops_an_install_before_anything_is_fetched(
    installer: DiskInstaller, ecosystem: FakeEcosystem, pml_home: Path
) -> None:
    os.mkdir(pml_home)
    (pml_home / "deps.json").write_text("{")
    with pytest.raises(ConfigInvalid):
        await installer.install(make_plan(), told=ignore)
    assert (ecosystem.installs, (pml_home / "deps.json").read_text()) == (0, "{")


@promise("install:atomic")
async def test_what_a_killed_install_left_is_removed_by_the_next_and_what_is_under_way_is_not(
    installer: DiskInstaller, ecosystem: FakeEcosystem, pml_home: Path
) -> None:
    dead = pml_home / "servers" / ".staging" / "dead"
    (dead / "tree" / "sub").mkdir(parents=True)
    (dead / "tree" / "sub" / "file").touch()
    (dead / "tree" / "sub").chmod(0o500)
    dead.with_name("dead.lock").touch()
    dead.with_name("orphan").mkdir()
    ecosystem.may_end.clear()
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        task = group.create_task(installer.install(make_plan(), told=ignore))
        await ecosystem.is_filling.wait()
        other = make_installer(pml_home)
        await other.install(make_plan(make_dependency(name="other")), told=ignore)
        under_way = os.listdir(dead.parent)
        assert len(under_way) == 2  # its folder and its lock
        await other.sweep()
        assert os.listdir(dead.parent) == under_way
        ecosystem.may_end.set()
    await prove(installer, task.result())
    assert os.listdir(dead.parent) == []


async def test_another_program_of_the_same_lock_is_chosen_by_a_new_install(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    first = await installer.install(make_plan(), told=ignore)
    plan = make_plan(make_dependency(tool="bin/run"))
    second = await installer.install(plan, told=ignore)
    assert (ecosystem.installs, first.entry, second.entry) == (2, "index.js", "bin/run")
    assert (second.path, second.terms) == (first.path, plan.terms)
    assert launch_of(installer.launch(second, workspace="/repo")).args == (f"{second.path}/bin/run",)
    with pytest.raises(Invalid, match="no file `bin/none` to start"):
        await installer.install(make_plan(make_dependency(tool="bin/none")), told=ignore)
    assert installer.installed("memory") == second


async def test_what_was_installed_for_another_runtime_is_installed_anew(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    await installer.install(make_plan(), told=ignore)
    ecosystem.runtime = "runtime2"
    ecosystem.files["index.js"] = b"for runtime2"
    again = await installer.install(make_plan(), told=ignore)
    assert (ecosystem.installs, again.runtime) == (2, "runtime2")
    assert (Path(again.path) / "index.js").read_bytes() == b"for runtime2"


@pytest.mark.parametrize("replaced", ["the tree", "its parent"])
async def test_an_install_whose_folder_became_a_link_is_mended_and_what_is_behind_it_left_alone(
    installer: DiskInstaller, tmp_path: Path, replaced: str
) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    away = link_away(Path(installed.path), tmp_path, replaced)
    before = contents(away)
    again = await installer.install(make_plan(), told=ignore)
    await prove(installer, again)
    assert not Path(again.path).parent.is_symlink()
    await installer.gc()
    await prove(installer, again)
    assert (contents(away), mode_of(away / "closed")) == (before, 0o500)


async def test_a_home_reached_through_a_link_is_the_same_home(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    by_link, by_path = make_installer(link), make_installer(real)
    installed = await by_link.install(make_plan(), told=ignore)
    assert Path(installed.path).is_relative_to(real)
    await prove(by_link, installed)
    assert by_path.all_installed() == by_link.all_installed() == {"memory": installed}
    await prove(by_path, installed)
    assert (await by_path.install(make_plan(), told=ignore)) == installed
