"""A lock has a hash of every package, or it is none; its digest covers what decides what is installed."""

import base64
import json
from typing import Any

import msgspec
import pytest

from pml.core.errors import Invalid
from pml.core.packages.lock import (
    MAX_PACKAGES,
    Ecosystem,
    Lock,
    Locked,
    check_lock,
    check_lock_of,
    lock_json,
    parse_lock,
)
from tests.promises import promise

ONE = f"sha512-{base64.b64encode(b'1' * 64).decode()}"
TWO = f"sha256-{base64.b64encode(b'2' * 32).decode()}"
THREE = f"sha256-{base64.b64encode(b'3' * 32).decode()}"
INNER = Locked(key="inner@2.0.0", name="inner", version="2.0.0", integrity=(TWO, THREE))
ROOT = Locked(
    key="name@1.2.3",
    name="name",
    version="1.2.3",
    integrity=(ONE,),
    detail={"dependencies": ["inner@2.0.0"]},
    has_scripts=True,
)
LOCK = Lock(
    ecosystem=Ecosystem.NPM,
    name="name",
    version="1.2.3",
    root="name@1.2.3",
    packages=(INNER, ROOT),
    size=10,
    released_at="2026-01-31T12:00:00Z",
)

UNSORTED = "the packages of the lock must be sorted by key, each once"


def changed(lock: Lock = LOCK, **values: Any) -> Lock:
    return msgspec.structs.replace(lock, **values)


def with_root(**values: Any) -> Lock:
    return changed(packages=(INNER, msgspec.structs.replace(ROOT, **values)))


def refusal(lock: Lock) -> str:
    with pytest.raises(Invalid) as caught:
        check_lock(lock)
    return caught.value.message


@promise("lock:every-package-hashed")
@pytest.mark.parametrize("name", ["inner", "name"])
def test_a_lock_with_a_package_that_has_no_hash_is_refused_naming_it(name: str) -> None:
    packages = tuple(
        msgspec.structs.replace(each, integrity=()) if each.name == name else each for each in LOCK.packages
    )
    version = {"inner": "2.0.0", "name": "1.2.3"}[name]
    expected = f"`{name}@{version}` has no hash in the lock: it cannot be verified"
    assert refusal(changed(packages=packages)) == expected


@promise("lock:every-package-hashed")
@pytest.mark.parametrize("text", ["", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", f"{ONE} {ONE}", "sha512-AAAA"])
def test_a_lock_with_a_weak_or_broken_hash_is_refused_naming_the_package(text: str) -> None:
    message = refusal(with_root(integrity=(ONE, text)))
    assert message.startswith("the hash of `name@1.2.3` in the lock must be `sha512-<base64>`")


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        (changed(packages=()), "the lock has 0 packages: expected 1 to 5,000"),
        (changed(packages=(ROOT,) * (MAX_PACKAGES + 1)), "the lock has 5,001 packages: expected 1 to 5,000"),
        (
            changed(packages=(ROOT, INNER)),
            f"{UNSORTED}: `inner@2.0.0` comes after `name@1.2.3`",
        ),
        (
            changed(packages=(INNER, ROOT, ROOT)),
            f"{UNSORTED}: `name@1.2.3` comes after `name@1.2.3`",
        ),
        (changed(root="x"), "the lock has no package with the key `x`, which is its `root`"),
        (changed(root="inner@2.0.0"), "the lock is of `name@1.2.3`, but its `root` is `inner@2.0.0`"),
        (with_root(version="1.2.4"), "the lock is of `name@1.2.3`, but its `root` is `name@1.2.4`"),
        (
            changed(packages=(msgspec.structs.replace(INNER, name="../inner"), ROOT)),
            "`../inner@2.0.0` in the lock is not a package of npm at one exact version",
        ),
        (
            changed(packages=(msgspec.structs.replace(INNER, version="^2"), ROOT)),
            "`inner@^2` in the lock is not a package of npm at one exact version",
        ),
        (
            changed(packages=(msgspec.structs.replace(INNER, key="inner\n"), ROOT)),
            "the key `inner\\n` of the lock has hidden characters",
        ),
    ],
)
def test_a_lock_that_is_not_sound_is_refused_with_its_reason(lock: Lock, expected: str) -> None:
    assert refusal(lock) == expected


def test_a_sound_lock_is_read_back_from_its_json() -> None:
    text = json.dumps(lock_json(LOCK))
    assert parse_lock(json.loads(text), what="the lock") == LOCK
    assert parse_lock(lock_json(LOCK), what="the lock").digest == LOCK.digest


def test_hashes_spelled_in_hex_or_in_another_order_make_the_same_lock() -> None:
    inner = msgspec.structs.replace(INNER, integrity=(f"sha256-{(b'3' * 32).hex()}", TWO))
    assert check_lock(changed(packages=(inner, ROOT))) == LOCK


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], "the lock must be an object, not `[]`"),
        ({}, 'the lock: `ecosystem` is missing: expected `"npm"` or `"pypi"`'),
        (
            {"ecosystem": "cargo"},
            'the lock: `ecosystem` must be `"npm"` or `"pypi"` or `"mcpb"`, not `cargo`',
        ),
        ({"ecosystem": "npm", "name": 1}, "the lock: `name` must be a string, not `1`"),
        ({**lock_json(LOCK), "size": -1}, "the lock: `size` must be a whole number of 0 or more, not `-1`"),
        ({**lock_json(LOCK), "packages": [1]}, "the lock: `packages[0]` must be an object, not `1`"),
        (
            {**lock_json(LOCK), "packages": [{"key": "a"}]},
            "the lock: `packages[0].name` is missing: expected a string",
        ),
        (
            {
                **lock_json(LOCK),
                "packages": [{"key": "a", "name": "a", "version": "1.0.0", "integrity": "x"}],
            },
            "the lock: `packages[0].integrity` must be an array, not `x`",
        ),
        (
            {**lock_json(LOCK), "packages": [None] * (MAX_PACKAGES + 1)},
            "the lock: `packages` must be an array of at most 5,000, not of 5,001",
        ),
        (
            {**lock_json(LOCK), "root": "x"},
            "the lock: the lock has no package with the key `x`, which is its `root`",
        ),
    ],
)
def test_json_that_is_no_lock_is_refused_naming_the_field(value: Any, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_lock(value, what="the lock")
    assert caught.value.message == expected


@pytest.mark.parametrize(
    "other",
    [
        changed(ecosystem=Ecosystem.PYPI),
        with_root(integrity=(TWO,)),
        with_root(detail={}),
        with_root(version="1.2.4"),
        changed(packages=(ROOT,)),
        changed(root="inner@2.0.0"),
    ],
)
def test_whatever_decides_what_is_installed_changes_the_digest(other: Lock) -> None:
    assert other.digest != LOCK.digest


def test_facts_for_people_do_not_change_the_digest() -> None:
    assert changed(size=11, released_at=None).digest == LOCK.digest
    assert with_root(has_scripts=False).digest == LOCK.digest


def test_a_lock_tells_the_hashes_of_its_own_package_and_who_has_scripts() -> None:
    assert LOCK.artefact == (ONE,)
    assert LOCK.with_scripts == ("name",)


def test_a_lock_is_of_exactly_its_package() -> None:
    check_lock_of(LOCK, ecosystem=Ecosystem.NPM, name="name", version="1.2.3")
    python = changed(ecosystem=Ecosystem.PYPI, name="Some_Name", version="1.0")
    check_lock_of(python, ecosystem=Ecosystem.PYPI, name="some-name", version="1.0.0")
    for ecosystem, name, version in [
        (Ecosystem.PYPI, "name", "1.2.3"),
        (Ecosystem.NPM, "other", "1.2.3"),
        (Ecosystem.NPM, "name", "1.2.4"),
    ]:
        with pytest.raises(Invalid, match=r"the lock is of `name@1\.2\.3` from npm, not of"):
            check_lock_of(LOCK, ecosystem=ecosystem, name=name, version=version)
