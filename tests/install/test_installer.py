"""The installer on a disk: whole or not at all, once, only what was named, and proven before each start."""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from pml.core.errors import (
    ArtefactChanged,
    Changed,
    ConfigInvalid,
    IntegrityFailed,
    Invalid,
    NotFound,
    Unavailable,
)
from pml.core.integrity import Algorithm, integrity_of
from pml.core.loading import Installed, Progress
from pml.core.permissions import Access, Containment, Permissions
from pml.core.servers import Artefact
from pml.install.installer import DiskInstaller
from pml.install.trees import MISSING
from tests.fakes import FakeClock
from tests.install.makers import (
    ARTEFACT,
    FILES,
    FakeEcosystem,
    ignore,
    make_dependency,
    make_installer,
    make_lock,
    make_plan,
    with_detail,
)
from tests.promises import promise

BOUND_S = 30.0
SHA256 = integrity_of(ARTEFACT, Algorithm.SHA256)
SHA512 = integrity_of(ARTEFACT, Algorithm.SHA512)
OTHER = integrity_of(b"another", Algorithm.SHA512)


@pytest.fixture
def pml_home(tmp_path: Path) -> Path:
    return tmp_path / "pml"


@pytest.fixture
def ecosystem() -> FakeEcosystem:
    return FakeEcosystem()


@pytest.fixture
def installer(pml_home: Path, ecosystem: FakeEcosystem) -> DiskInstaller:
    return make_installer(pml_home, ecosystem)


def left_behind(home: Path) -> list[str]:
    """Return all that an install that failed might have left."""
    servers = home / "servers"
    return sorted(str(path.relative_to(servers)) for path in servers.rglob("*") if path.name != ".staging")


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


async def prove(installer: DiskInstaller, installed: Installed) -> None:
    await installer.prove(installer.launch(installed, workspace="/repo"))


def overwrite(path: Path, content: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(content)
    path.chmod(0o400)


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
        containment=Containment.BUBBLEWRAP,
        installed_at=FakeClock().now(),
    )
    assert contents(place) == FILES
    assert (mode_of(place / "index.js"), mode_of(place)) == (0o400, 0o700)
    assert told == [Progress(done=1, total=2, message="filling")]
    assert os.listdir(pml_home / "servers" / ".staging") == []
    assert make_installer(pml_home).all_installed() == {"memory": installed}
    assert installer.accepted_lock("memory") == plan.lock.digest
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
        Unavailable, match=r"cannot install `memory@1\.2\.3`: `/disk/file`: No space"
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
    assert (installer.all_installed(), installer.accepted_lock("memory")) == ({}, None)
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
    with pytest.raises(Unavailable, match=r"cannot install `memory@1\.2\.3`: `.*/file/pml"):
        await installer.install(make_plan(), told=ignore)


async def test_a_name_that_leads_elsewhere_is_refused(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    for name in ("../x", ".staging", "a/b", ""):
        dependency = make_dependency(name=name)
        with pytest.raises(Invalid, match="no name for a server"):
            await installer.resolve(dependency, told=ignore)
        with pytest.raises(Invalid, match="no name for a server"):
            await installer.install(make_plan(dependency), told=ignore)
    assert (ecosystem.resolved, ecosystem.installs) == (0, 0)


# Resolving


async def test_a_given_lock_is_used_and_nothing_is_looked_up(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    lock = make_lock()
    assert await installer.resolve(make_dependency(lock=lock), told=ignore) == lock
    assert ecosystem.resolved == 0


async def test_a_given_lock_of_another_package_is_refused(installer: DiskInstaller) -> None:
    with pytest.raises(Invalid, match=r"the lock is of `server-memory@1\.2\.4`"):
        await installer.resolve(make_dependency(lock=make_lock(version="1.2.4")), told=ignore)


async def test_a_given_digest_must_be_that_of_the_closure(installer: DiskInstaller) -> None:
    lock = make_lock()
    assert await installer.resolve(make_dependency(lock=lock.digest), told=ignore) == lock
    with pytest.raises(IntegrityFailed) as caught:
        await installer.resolve(make_dependency(lock="sha256:other"), told=ignore)
    assert caught.value.message == (
        f"Integrity check failed for memory@1.2.3: Expected sha256:other, got {lock.digest}"
    )


async def test_a_closure_is_the_same_for_an_hour_in_every_process(
    pml_home: Path, ecosystem: FakeEcosystem
) -> None:
    clock = FakeClock()
    first = await make_installer(pml_home, ecosystem, clock).resolve(make_dependency(), told=ignore)
    ecosystem.lock = with_detail(first, moved="yes")
    clock.advance(3600)
    other = make_installer(pml_home, ecosystem, clock)
    assert await other.resolve(make_dependency(), told=ignore) == first
    clock.advance(1)
    assert await other.resolve(make_dependency(), told=ignore) == ecosystem.lock
    assert ecosystem.resolved == 2


async def test_a_kept_closure_that_is_broken_old_or_another_packages_is_looked_up_again(
    installer: DiskInstaller, ecosystem: FakeEcosystem, pml_home: Path
) -> None:
    await installer.resolve(make_dependency(), told=ignore)
    (kept,) = (pml_home / "locks").glob("npm-*.json")
    whole = kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for text in ("", "{", "[]", "{}", whole.replace("1.2.3", "6.6.6"), whole.replace("2026-", "2027-")):
        kept.write_text(text)
        before = ecosystem.resolved
        assert await installer.resolve(make_dependency(), told=ignore) == make_lock()
        assert ecosystem.resolved == before + 1


@pytest.mark.parametrize("integrity", [str(SHA512), f"sha512-{SHA512.hex}"])
async def test_an_integrity_that_the_lock_has_is_proven_in_any_spelling(
    installer: DiskInstaller, ecosystem: FakeEcosystem, integrity: str
) -> None:
    await installer.resolve(make_dependency(integrity=integrity), told=ignore)
    assert ecosystem.fetched == 0


async def test_another_integrity_is_told_in_the_spelling_it_was_given_in(installer: DiskInstaller) -> None:
    for expected, got in ((str(OTHER), str(SHA512)), (f"sha512-{OTHER.hex}", f"sha512-{SHA512.hex}")):
        with pytest.raises(IntegrityFailed) as caught:
            await installer.resolve(make_dependency(integrity=expected), told=ignore)
        assert caught.value.message == (
            f"Integrity check failed for memory@1.2.3: Expected {expected}, got {got}"
        )


async def test_an_integrity_by_another_algorithm_is_proven_on_the_bytes_once(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    dependency = make_dependency(integrity=f"sha256-{SHA256.hex}")
    lock = await installer.resolve(dependency, told=ignore)
    await installer.install(make_plan(dependency, lock), told=ignore)
    assert ecosystem.fetched == 1


async def test_bytes_that_are_not_the_ones_named_are_refused(
    installer: DiskInstaller, ecosystem: FakeEcosystem, pml_home: Path
) -> None:
    ecosystem.artefact = b"another"
    other = integrity_of(b"another", Algorithm.SHA256)
    with pytest.raises(IntegrityFailed, match="Expected sha512-"):  # the metadata's, but not the lock's
        await installer.resolve(make_dependency(integrity=str(other)), told=ignore)
    ecosystem.artefact = ARTEFACT
    plan = make_plan(make_dependency(integrity=str(other)))
    with pytest.raises(IntegrityFailed, match="Expected sha256-"):
        await installer.install(plan, told=ignore)
    assert (ecosystem.installs, left_behind(pml_home)) == (0, [])


async def test_a_plan_with_another_lock_than_its_metadata_gives_is_refused(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    for given in (make_lock(other=b"x"), "sha256:other"):
        with pytest.raises(Changed, match="not the one its metadata gives"):
            await installer.install(make_plan(make_dependency(lock=given)), told=ignore)
    assert ecosystem.installs == 0


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
    assert installer.accepted_lock("memory") == first.lock
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


# Starting


async def test_the_same_server_in_the_same_workspace_is_the_same_spec(
    installer: DiskInstaller, pml_home: Path
) -> None:
    env = {"WHERE": "${workspace}/x", "STATE": "${state}", "DENO_DIR": "/tmp", "HOME": "/"}
    installed = await installer.install(make_plan(make_dependency(env=env)), told=ignore)
    spec = installer.launch(installed, workspace="/repo ${state}")
    state = str(pml_home / "state" / "memory")
    assert (spec.name, spec.command, spec.args) == ("memory", "/opt/runtime", (f"{installed.path}/index.js",))
    assert spec.env == {
        "WHERE": "/repo ${state}/x",
        "STATE": state,
        "HOME": state,
        "DENO_DIR": f"{state}/deno",
        "DENO_NO_UPDATE_CHECK": "1",
    }
    assert (spec.cwd, spec.source.file) == (None, str(pml_home / "deps.json"))
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
async def test_a_missing_folder_or_one_behind_a_link_stops_the_start(
    installer: DiskInstaller, tmp_path: Path
) -> None:
    installed = await installer.install(make_plan(), told=ignore)
    folder = Path(installed.path).parent
    folder.rename(tmp_path / "away")
    with pytest.raises(ArtefactChanged) as caught:
        await prove(installer, installed)
    assert caught.value.files == (MISSING,)
    folder.symlink_to(tmp_path / "away")
    with pytest.raises(ArtefactChanged) as caught:
        await prove(installer, installed)
    assert caught.value.files == ("its folder is reached through a link",)
    with pytest.raises(Changed):
        await installer.accept("memory", tree="")


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
    assert installer.accepted_lock("memory") == installed.lock
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
