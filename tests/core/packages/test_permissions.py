"""Permissions say plainly what a server may reach; what PML could not hold a server to is refused."""

from typing import Any

import pytest

from pml.core.errors import Invalid
from pml.core.packages.fields import Fields
from pml.core.packages.permissions import (
    FOLDER_RULE,
    HOST_RULE,
    NO_REACH,
    PROGRAM_RULE,
    Access,
    Containment,
    Permissions,
    permissions_in,
    permissions_json,
)
from pml.core.values import Json


def read_permissions(value: Json, *, what: str) -> Permissions:
    """Return what `value`, the permissions of an entry, says."""
    fields = Fields(what=what, value={"permissions": value}).section("permissions")
    assert fields is not None
    return permissions_in(fields)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, NO_REACH),
        ({"net": None, "read": None, "workspace": None}, NO_REACH),
        ({"net": True}, Permissions(net=True, workspace=Access.NONE)),
        ({"net": False}, NO_REACH),
        (
            {"net": ["api.x.test", "127.0.0.1:80", "[::1]:8080"], "workspace": "read"},
            Permissions(net=("api.x.test", "127.0.0.1:80", "[::1]:8080"), workspace=Access.READ),
        ),
        ({"workspace": "none"}, NO_REACH),
        ({"workspace": "write"}, Permissions()),
        (
            {"read": ["/a/b", "~/notes"], "write": ["/var/x y"], "run": ["git", "g++"]},
            Permissions(
                read=("/a/b", "~/notes"), write=("/var/x y",), run=("git", "g++"), workspace=Access.NONE
            ),
        ),
    ],
)
def test_a_server_of_a_registry_reaches_what_is_declared_and_no_more(
    value: Any, expected: Permissions
) -> None:
    assert read_permissions(value, what="it") == expected


@pytest.mark.parametrize(
    ("permissions", "reach_nothing"),
    [
        (NO_REACH, True),
        (Permissions(net=(), workspace=Access.NONE), True),
        (Permissions(net=True, workspace=Access.NONE), False),
        (Permissions(net=("x.test",), workspace=Access.NONE), False),
        (Permissions(read=("/a",), workspace=Access.NONE), False),
        (Permissions(write=("/a",), workspace=Access.NONE), False),
        (Permissions(run=("git",), workspace=Access.NONE), False),
        (Permissions(workspace=Access.READ), False),
        (Permissions(), False),
    ],
)
def test_only_permissions_without_any_reach_reach_nothing(
    permissions: Permissions, reach_nothing: bool
) -> None:
    assert permissions.reach_nothing is reach_nothing


def test_permissions_that_nobody_declared_are_told_as_none() -> None:
    assert permissions_json(None) is None
    assert permissions_json(Permissions()) == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, "it: `permissions` must be an object, not `7`"),
        ({"net": "all"}, "it: `permissions.net` must be true, false or an array of hosts, not `all`"),
        ({"net": 1}, "it: `permissions.net` must be true, false or an array of hosts, not `1`"),
        ({"net": [1]}, "it: `permissions.net[0]` must be a string, not `1`"),
        (
            {"workspace": "all"},
            'it: `permissions.workspace` must be `"none"` or `"read"` or `"write"`, not `all`',
        ),
        ({"read": "/a"}, "it: `permissions.read` must be an array, not `/a`"),
        (
            {"ffi": True},
            "it: `permissions.ffi` must be one of `net`, `workspace`, `read`, `write`, `run`, not `true`",
        ),
        ({"run": ["x"] * 101}, "it: `permissions.run` must be an array of at most 100, not of 101"),
    ],
)
def test_permissions_of_another_shape_are_refused_naming_the_field(value: Any, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_permissions(value, what="it")
    assert caught.value.message == expected


@pytest.mark.parametrize(
    ("key", "rule", "texts"),
    [
        (
            "net",
            HOST_RULE,
            (
                "*",
                "*.x.test",
                "a,b",
                "http://x.test",
                "x.test/a",
                "u@x.test",
                "x.test:99999",
                "x..test",
                "-x",
                "a b",
            ),
        ),
        *(
            (
                key,
                FOLDER_RULE,
                (
                    "/",
                    "//",
                    "/.",
                    "~",
                    "~/",
                    "~/.",
                    "~other/x",
                    "a",
                    "./a",
                    "/a/..",
                    "/a/../b",
                    "~/..",
                    "/a\u200bb",
                ),
            )
            for key in ("read", "write")
        ),
        ("run", PROGRAM_RULE, ("/bin/sh", "./x", "a b", "-x", "a,b", "..", "é")),
    ],
)
def test_what_reaches_more_than_it_seems_to_is_refused(key: str, rule: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        with pytest.raises(Invalid) as caught:
            read_permissions(
                {key: ["ok" if key == "run" else "/ok" if key != "net" else "ok", text]}, what="it"
            )
        assert caught.value.message.startswith(f"it: `permissions.{key}[1]` must be {rule}, not `"), text


def test_containment_knows_what_is_weaker() -> None:
    assert Containment.LANDLOCK.is_weaker_than(Containment.BUBBLEWRAP)
    assert Containment.NONE.is_weaker_than(Containment.LANDLOCK)
    assert not Containment.BUBBLEWRAP.is_weaker_than(Containment.BUBBLEWRAP)
