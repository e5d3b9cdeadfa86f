"""The lock of a dependency: what is given, kept and looked up, and that an integrity binds the bytes."""

import stat
from pathlib import Path

import pytest

from pml.core.errors import (
    Changed,
    IntegrityFailed,
    Invalid,
)
from pml.core.integrity import Algorithm, integrity_of
from pml.install.installer import DiskInstaller
from tests.fakes import FakeClock
from tests.install.makers import (
    ARTEFACT,
    FakeEcosystem,
    ignore,
    left_behind,
    make_dependency,
    make_installer,
    make_lock,
    make_plan,
    with_detail,
)

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
