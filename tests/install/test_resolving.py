"""The lock of a dependency: what is given, kept and looked up, and that an integrity binds the bytes."""

import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from pml.core.errors import (
    Changed,
    IntegrityFailed,
    Invalid,
)
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.lock import Ecosystem, Lock
from pml.core.ports.loader import Installed
from pml.install.installer import DiskInstaller
from tests.fakes import FakeClock
from tests.install.makers import (
    ARTEFACT,
    FakeEcosystem,
    contents,
    ignore,
    left_behind,
    make_dependency,
    make_installer,
    make_lock,
    make_plan,
    with_detail,
)
from tests.install.pypi_bench import hello_dependency, pypi_installer, pypi_package, sha256
from tests.install.python_index import PythonIndex, make_wheel
from tests.promises import promise

BOUND_S = 30.0
SHA256 = integrity_of(ARTEFACT, Algorithm.SHA256)
SHA512 = integrity_of(ARTEFACT, Algorithm.SHA512)
OTHER = integrity_of(b"another", Algorithm.SHA512)


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


WHEELS = (b"for this machine", b"for another", b"for all")


def wheels(*data: bytes) -> Lock:
    """Return a closure whose package itself has one artefact for each of `data`."""
    lock = make_lock()
    hashes = tuple(sorted(str(integrity_of(each, Algorithm.SHA256)) for each in data))
    first, root = lock.packages
    return msgspec.structs.replace(lock, packages=(first, msgspec.structs.replace(root, integrity=hashes)))


@pytest.fixture
def several(ecosystem: FakeEcosystem) -> Lock:
    ecosystem.lock, ecosystem.artefact = wheels(*WHEELS), WHEELS[0]
    return ecosystem.lock


@promise("install:only-proven-bytes")
@pytest.mark.parametrize("wheel", WHEELS)
async def test_of_several_artefacts_the_lock_has_only_the_one_that_is_named(
    installer: DiskInstaller, ecosystem: FakeEcosystem, several: Lock, wheel: bytes
) -> None:
    dependency = make_dependency(integrity=f"sha256-{integrity_of(wheel, Algorithm.SHA256).hex}")
    lock = await installer.resolve(dependency, told=ignore)
    assert (lock, ecosystem.fetched) == (wheels(wheel), 0)
    assert await installer.resolve(dependency, told=ignore) == lock  # kept whole, and cut again
    assert (await installer.install(make_plan(dependency, lock), told=ignore)).lock == lock.digest


@promise("install:only-proven-bytes")
async def test_of_several_artefacts_one_named_by_another_algorithm_is_found_by_its_bytes(
    installer: DiskInstaller, ecosystem: FakeEcosystem, several: Lock
) -> None:
    dependency = make_dependency(integrity=str(integrity_of(WHEELS[0], Algorithm.SHA512)))
    lock = await installer.resolve(dependency, told=ignore)
    assert lock == wheels(WHEELS[0])
    await installer.install(make_plan(dependency, lock), told=ignore)
    assert ecosystem.fetched == 1
    other = str(integrity_of(WHEELS[1], Algorithm.SHA512))
    with pytest.raises(IntegrityFailed, match="Expected sha512-"):
        await installer.resolve(make_dependency(integrity=other), told=ignore)


@promise("install:only-proven-bytes")
async def test_a_plan_that_leaves_open_which_artefact_is_installed_is_refused(
    installer: DiskInstaller, ecosystem: FakeEcosystem, several: Lock
) -> None:
    dependency = make_dependency(integrity=str(integrity_of(WHEELS[0], Algorithm.SHA256)))
    with pytest.raises(Changed, match="more artefacts than the one its metadata names"):
        await installer.install(make_plan(dependency, several), told=ignore)
    assert ecosystem.installs == 0


async def test_a_lock_that_was_published_keeps_all_its_artefacts(
    installer: DiskInstaller, several: Lock
) -> None:
    integrity = str(integrity_of(WHEELS[1], Algorithm.SHA256))
    cut = wheels(WHEELS[1])
    for given, expected in ((several, several), (several.digest, several), (cut.digest, cut)):
        dependency = make_dependency(integrity=integrity, lock=given)
        assert await installer.resolve(dependency, told=ignore) == expected
    assert await installer.resolve(make_dependency(), told=ignore) == several  # unverified: nothing is named


async def test_an_artefact_that_was_added_lately_is_looked_up_although_a_closure_is_kept(
    installer: DiskInstaller, ecosystem: FakeEcosystem, several: Lock
) -> None:
    ecosystem.lock = wheels(WHEELS[0])
    await installer.resolve(make_dependency(), told=ignore)
    ecosystem.lock = several
    dependency = make_dependency(integrity=str(integrity_of(WHEELS[1], Algorithm.SHA256)))
    assert await installer.resolve(dependency, told=ignore) == wheels(WHEELS[1])


# With wheels of a real index


@pytest.fixture
def from_index(index: PythonIndex, pml_home: Path) -> DiskInstaller:
    return DiskInstaller(pml_home, {Ecosystem.PYPI: pypi_installer(index)}, FakeClock())


def offer_two(index: PythonIndex, *, other: str) -> tuple[bytes, bytes]:
    """Offer the server `hello` for every machine, and with other files for those with the tag `other`."""
    found = [
        make_wheel("hello", "1.0", files={"hello.py": f"WHICH = {n}"}, scripts={"hello": "hello:main"})
        for n in range(2)
    ]
    index.add("hello", "1.0", found[0])
    index.add("hello", "1.0", found[1], tag=other)
    return found[0], found[1]


def python_tag(more: int = 0) -> str:
    """Return the tag of wheels for this Python, or for one that is `more` newer."""
    return f"cp{sys.version_info[0]}{sys.version_info[1] + more}-none-any"


async def install_named(installer: DiskInstaller, integrity: str) -> Installed:
    dependency = msgspec.structs.replace(hello_dependency(pypi_package("hello")), integrity=integrity)
    lock = await installer.resolve(dependency, told=ignore)
    return await installer.install(make_plan(dependency, lock), told=ignore)


@promise("install:only-proven-bytes")
@pytest.mark.parametrize("which", [0, 1])
async def test_of_two_wheels_for_this_machine_the_named_one_is_installed(
    from_index: DiskInstaller, index: PythonIndex, which: int
) -> None:
    wheel = offer_two(index, other=python_tag())[which]
    installed = await install_named(from_index, sha256(wheel))
    assert contents(Path(installed.path))["site/hello.py"] == f"WHICH = {which}".encode()


@promise("install:only-proven-bytes")
async def test_a_named_wheel_that_is_for_another_machine_is_told_as_that(
    from_index: DiskInstaller, index: PythonIndex, pml_home: Path
) -> None:
    fitting, elsewhere = offer_two(index, other=python_tag(1))
    with pytest.raises(Invalid, match=r"wheel of `hello==1\.0` that is named is not for this machine"):
        await install_named(from_index, sha256(elsewhere))
    assert left_behind(pml_home) == []
    index.bodies["hello-1.0-py3-none-any.whl"] = make_wheel("hello", "1.0", files={"hello.py": "EVIL = 1"})
    with pytest.raises(IntegrityFailed):
        await install_named(from_index, sha256(fitting))


@promise("install:only-proven-bytes")
async def test_a_wheel_named_by_sha512_is_the_only_one_that_stays_in_the_lock(
    from_index: DiskInstaller, index: PythonIndex
) -> None:
    fitting, elsewhere = offer_two(index, other=python_tag(1))
    integrity = str(integrity_of(fitting, Algorithm.SHA512))
    dependency = msgspec.structs.replace(hello_dependency(pypi_package("hello")), integrity=integrity)
    lock = await from_index.resolve(dependency, told=ignore)
    assert lock.artefact == (sha256(fitting),)
    with pytest.raises(IntegrityFailed):
        await install_named(from_index, str(integrity_of(elsewhere, Algorithm.SHA512)))


@promise("install:young-is-a-persons")
async def test_the_age_is_looked_up_once_and_not_known_where_that_fails(
    installer: DiskInstaller, ecosystem: FakeEcosystem
) -> None:
    lock = make_lock()
    ecosystem.error = Invalid("there is no such package")
    assert await installer.youngest_at(lock) is None
    ecosystem.error, ecosystem.youngest = None, datetime(2026, 1, 2, tzinfo=UTC)
    for _ in range(2):
        assert await installer.youngest_at(lock) == datetime(2026, 1, 2, tzinfo=UTC)
    assert ecosystem.aged == 2
