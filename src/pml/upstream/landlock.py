"""A launcher that gives up, with Landlock, what a server may not reach, and then becomes the server.

Run as `python -I -S landlock.py RULES -- PROGRAM ARGUMENT…`. It starts nothing that it could not restrict.
Landlock only ever allows: it hides no name, and nothing inside a folder that is allowed.
"""

import ctypes
import functools
import json
import os
import stat
import sys
from collections.abc import Iterator
from typing import TypedDict


class Rules(TypedDict):
    """`hidden` None: only `read` and `write` are reached; else all but `hidden` is."""

    read: list[str]
    write: list[str]
    hidden: str | None
    net: bool


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 3  # bind and connect
_SCOPES = 3  # abstract sockets and signals stay among the server's own processes
_ALL_BY_ABI = {1: _REFER - 1, 2: _TRUNCATE - 1}  # older kernels know neither moving nor truncating
_ALL = (_TRUNCATE << 1) - 1


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the version of Landlock that the kernel offers; 0: none."""
    try:
        return _call(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict(rules: Rules) -> None:
    """Take from this process, for good, all that `rules` do not allow. Raises: OSError."""
    version = abi()
    handled = _ALL_BY_ABI.get(version, _ALL)
    is_narrow = rules["hidden"] is None
    attributes = _Ruleset(
        handled,
        _TCP if version >= 4 and not rules["net"] else 0,
        _SCOPES if version >= 6 and is_narrow else 0,
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    for path, access in _allowed(rules, handled):
        _allow(ruleset, path, access)
    if _libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allowed(rules: Rules, handled: int) -> Iterator[tuple[str, int]]:
    for path in rules["read"]:
        yield path, _READING
    for path in rules["write"]:
        yield path, handled
    if rules["hidden"] is not None:
        for path in beside(rules["hidden"]):
            yield path, handled
        yield "/", _READ_DIR  # else no folder on the way to the hidden one could be listed


def beside(hidden: str) -> Iterator[str]:
    """Yield all that lies beside the folders on the way down to `hidden`, which is a real path."""
    folder = "/"
    for part in hidden.strip("/").split("/"):
        for name in os.listdir(folder):
            if name != part:
                yield os.path.join(folder, name)
        folder = os.path.join(folder, part)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:  # a link itself, not where it leads: that is allowed by its own path, or not at all
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it is gone, or its folder is closed to this user
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(parent).st_mode)
        rule = _Beneath(access if is_folder else access & _OF_FILES, parent)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(parent)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _call(number: int, *arguments: object) -> int:
    result: int = _libc().syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def main() -> None:
    rules: Rules = json.loads(sys.argv[1])
    argv = sys.argv[3:]
    try:
        restrict(rules)
    except OSError as exc:
        sys.exit(f"pml: it cannot be contained with Landlock: {exc.strerror}")
    try:
        os.execv(argv[0], argv)
    except OSError as exc:
        sys.exit(f"pml: {argv[0]}: {exc.strerror}")


if __name__ == "__main__":
    main()
