"""Permissions: what a server may reach beside its own files and its own state: network, folders, programs.

What is not declared is not had. How it is enforced is the business of the part that starts the process.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

from pml.core.packages.fields import Fields
from pml.core.rules.readings import host_readings, normal
from pml.core.text import has_hidden
from pml.core.values import JsonObject

HOST_RULE: Final = "a host, such as `api.example.com` or `127.0.0.1:8080`"
FOLDER_RULE: Final = (
    "an absolute folder or one like `~/notes`, without `..`, and not `/`, `~` or the system's own"
)
PROGRAM_RULE: Final = "the name of a program, such as `git`"
NET_RULE: Final = "true, false or an array of hosts"

_KEYS: Final = ("net", "workspace", "read", "write", "run")
_SYSTEM: Final = frozenset({"proc", "sys", "dev", "run"})  # ways to other processes and to what listens
_MAX_ITEMS: Final = 100
_MAX_CHARS: Final = 1024
_HOST_CHARS: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:\]-]{0,252}")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")


class Access(StrEnum):
    """How much of the workspace a server sees."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


class Permissions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`net`: all of it, none, or these hosts; `read`, `write`: folders; `run`: programs that it starts.

    Where `workspace` is left out, `mcpServers` and what is stored mean that it may write there; a registry
    means that it may not (`permissions_in`).
    """

    net: bool | tuple[str, ...] = False
    workspace: Access = Access.WRITE
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    run: tuple[str, ...] = ()

    @property
    def reach_nothing(self) -> bool:
        """Whether they leave a server its own files and its own state only."""
        return not (self.net or self.read or self.write or self.run) and self.workspace is Access.NONE


NO_REACH: Final = Permissions(workspace=Access.NONE)


class Containment(StrEnum):
    """What holds a server to its permissions, strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"

    def is_weaker_than(self, other: "Containment") -> bool:
        order = list(Containment)
        return order.index(self) > order.index(other)

    @property
    def is_whole(self) -> bool:
        """Whether a server reaches nothing else: Landlock lets it change modes and times of any file."""
        return self is Containment.BUBBLEWRAP


def permissions_in(fields: Fields) -> Permissions:
    """Return the permissions that a registry declares. Raises: Invalid, also for a key that is unknown."""
    for key, value in fields.value.items():
        if key not in _KEYS:  # what PML does not know it cannot hold a server to
            fields.refuse(key, f"one of {', '.join(f'`{known}`' for known in _KEYS)}", value=value)
    net = fields.get("net")
    if net is not None and not isinstance(net, bool | list | tuple):
        fields.refuse("net", NET_RULE)
    return Permissions(
        net=bool(net) if net is None or isinstance(net, bool) else _texts(fields, "net"),
        workspace=fields.choice("workspace", Access) or Access.NONE,
        read=_texts(fields, "read"),
        write=_texts(fields, "write"),
        run=_texts(fields, "run"),
    )


def permissions_json(permissions: Permissions | None) -> JsonObject | None:
    """Return the permissions as they are written; what is the default is left out."""
    return None if permissions is None else msgspec.to_builtins(permissions)


def expected_in(key: str, text: str) -> str | None:
    """Return what an item of the array `key` of permissions must be, or None if `text` is that."""
    match key:
        case "net":
            return None if _is_host(text) else HOST_RULE
        case "run":
            return None if _PROGRAM.fullmatch(text) else PROGRAM_RULE
        case _:
            return None if _is_folder(text) else FOLDER_RULE


def _texts(fields: Fields, key: str) -> tuple[str, ...]:
    texts = fields.texts(key, most=_MAX_ITEMS, each=_MAX_CHARS)
    for index, text in enumerate(texts):
        if expected := expected_in(key, text):
            fields.refuse(f"{key}[{index}]", expected, value=text)
    return texts


def _is_host(text: str) -> bool:
    return bool(_HOST_CHARS.fullmatch(text)) and len(host_readings(f"https://{text}")) > 0


def _is_folder(text: str) -> bool:
    below = text[1:] if text.startswith("~/") else text
    return (
        below.startswith("/")
        and not has_hidden(text)
        and ".." not in below.split("/")
        and normal(below) != "/"
        and (text.startswith("~/") or normal(below).split("/")[1] not in _SYSTEM)
        and len(text) <= _MAX_CHARS
    )
