"""A lock that a stranger wrote is either one that Deno installs exactly, or refused."""

import json
from typing import Any

import msgspec
import pytest

from pml.core.errors import Invalid
from pml.core.packages.lock import Lock, Locked
from pml.core.packages.package import Ecosystem, Package
from pml.install.npm.denolock import read_lock, split_key, write_lock

HASH = "sha512-" + "A" * 86 + "=="
SRV = Package(ecosystem=Ecosystem.NPM, name="srv", version="1.0.0")


def locked(key: str = "srv@1.0.0", **changes: Any) -> Locked:
    name, version = split_key(key)
    return msgspec.structs.replace(Locked(key=key, name=name, version=version, integrity=(HASH,)), **changes)


def lock_of(*packages: Locked, root: str = "srv@1.0.0") -> Lock:
    return Lock(ecosystem=Ecosystem.NPM, name="srv", version="1.0.0", root=root, packages=packages)


def deno_lock(entry: dict[str, Any], **changes: Any) -> bytes:
    whole = {
        "version": "5",
        "specifiers": {"npm:srv@1.0.0": "1.0.0_peer@2.0.0"},
        "npm": {"srv@1.0.0_peer@2.0.0": {"integrity": HASH, **entry}},
    }
    return json.dumps({**whole, **changes}).encode()


def test_a_lock_comes_back_as_it_was_written() -> None:
    root = "srv@1.0.0_peer@2.0.0"
    lock = lock_of(
        locked("@a/b@0.1.0-beta.1", detail={"os": ["linux", "!win32"], "cpu": ["x64"]}),
        locked("peer@2.0.0"),
        locked(root, detail={"dependencies": ["@a/b", "alias@npm:peer@2.0.0"], "bin": True}),
        root=root,
    )
    assert read_lock(write_lock(lock, tarballs={}), SRV, origin=lambda _: None) == lock


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("a@1.0.0", ("a", "1.0.0")),
        ("@s/a_b@1.0.0-x.1_@t+u@2.0.0__c@3.0.0", ("@s/a_b", "1.0.0-x.1")),
    ],
)
def test_a_key_has_a_name_and_a_version(key: str, parts: tuple[str, str]) -> None:
    assert split_key(key) == parts


@pytest.mark.parametrize("key", ["", "a", "a@", "@a@1.0.0", "a@1.0.0/x", "../a@1.0.0", "a@1_x/../y"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(Invalid, match="is not `name@version`"):
        split_key(key)


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "srv@1.0.0_.."},
        {"key": "srv@1.0.0_\\x"},
        {"key": "srv@1.0.0_x y"},
        {"key": "other@1.0.0"},
        {"integrity": ()},
        {"integrity": (HASH, "sha512-" + "B" * 85 + "A==")},
        {"integrity": ("sha256-" + "A" * 43 + "=",)},
        {"integrity": ("sha1-qqqqqqqqqqqqqqqqqqqqqqqqqqo=",)},
        {"detail": {"tarball": "https://elsewhere.invalid/x.tgz"}},
        {"detail": {"scripts": True}},
        {"detail": {"integrity": "sha512-other"}},
        {"detail": {"bin": "yes"}},
        {"detail": {"dependencies": "dep"}},
        {"detail": {"dependencies": ["../dep"]}},
        {"detail": {"dependencies": ["dep@file:../x"]}},
        {"detail": {"dependencies": ["dep@file:x"]}},
        {"detail": {"dependencies": [1]}},
    ],
)
def test_a_given_lock_that_says_more_than_what_to_install_is_refused(changes: dict[str, Any]) -> None:
    package = locked(**changes)
    with pytest.raises(Invalid):
        write_lock(lock_of(package, root=package.key), tarballs={})


@pytest.mark.parametrize(
    "text",
    [
        deno_lock({"surprise": 1}),
        deno_lock({"tarball": "https://elsewhere.invalid/x.tgz"}),
        deno_lock({"tarball": 1}),
        deno_lock({}, version="6"),
        deno_lock({}, jsr={"@std/x@1.0.0": {}}),
        deno_lock({}, remote={"https://x.invalid/": "a"}),
        deno_lock({}, specifiers={"npm:srv@1.0.0": "1.0.1"}),
        deno_lock({}, specifiers={"npm:other@1.0.0": "1.0.0"}),
        deno_lock({}, npm=[]),
        deno_lock({}, npm={}),
    ],
)
def test_a_lock_from_deno_that_is_not_understood_whole_is_refused(text: bytes) -> None:
    with pytest.raises(Invalid):
        read_lock(text, SRV, origin=lambda _: "https://registry.invalid")


def test_a_tarball_of_the_registry_itself_leaves_no_trace_in_the_lock() -> None:
    text = deno_lock({"tarball": "https://Registry.invalid/x.tgz", "scripts": True, "deprecated": True})
    lock = read_lock(text, SRV, origin=lambda _: "https://registry.invalid")
    assert lock.packages == (locked("srv@1.0.0_peer@2.0.0", has_scripts=True),)
