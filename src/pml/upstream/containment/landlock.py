"""A launcher that gives up, with Landlock, what a server may not reach, and then becomes the server.

Run as `python -I -S landlock.py RULES -- PROGRAM ARGUMENT…`. It starts nothing that it could not restrict.
Landlock only ever allows: it hides no name, and nothing inside a folder that is allowed. It knows nothing of
modes, owners and times, which a server can change wherever its user can, nor of most sockets: those a filter
of system calls refuses, on the machines whose numbers are known here.
"""

import contextlib
import ctypes
import errno
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
_NO_NEW_PRIVS, _SET_SECCOMP, _DROP_BOUNDING, _AMBIENT = 38, 22, 24, 47  # for prctl
_FILTER, _CLEAR_AMBIENT = 2, 4
_CAPABILITIES_V3, _MOST_CAPABILITIES = 0x20080522, 64

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_DEVICES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 3  # bind and connect
_SIGNALS = 2  # stay among the server's own processes
_SCOPES = 1 | _SIGNALS  # so do abstract sockets
_ALL_BY_ABI = {1: _REFER - 1, 2: _TRUNCATE - 1}  # older kernels know neither moving nor truncating
_ALL = (_TRUNCATE << 1) - 1

# What `os.uname` calls the machine: what the kernel calls it, and its number of `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP, _X32 = 425, 0x40000000  # the ways around a filter of `socket`
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_PASS, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_UNIX = 1


class _Instruction(ctypes.Structure):
    _fields_ = (
        *(("code", ctypes.c_uint16), ("then", ctypes.c_uint8), ("otherwise", ctypes.c_uint8)),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


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
    _confine(rules)
    _drop_capabilities()
    if rules["hidden"] is None and can_filter():
        _refuse_sockets(net=rules["net"])


def can_filter() -> bool:
    """Tell whether sockets other than TCP can be refused on this machine."""
    return os.uname().machine in _MACHINES and sys.maxsize > 2**32


def _confine(rules: Rules) -> None:
    version = abi()
    handled = _ALL_BY_ABI.get(version, _ALL)
    is_narrow = rules["hidden"] is None
    attributes = _Ruleset(
        handled,
        _TCP if version >= 4 and not rules["net"] else 0,
        0 if version < 6 else _SCOPES if is_narrow else _SIGNALS,
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    for path, access in _allowed(rules, handled):
        _allow(ruleset, path, access)
    _set(_NO_NEW_PRIVS, 1)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _drop_capabilities() -> None:
    """Give up all that root may beyond its own files: reading what other processes were given, for one."""
    _set(_AMBIENT, _CLEAR_AMBIENT)
    for capability in range(_MOST_CAPABILITIES):
        with contextlib.suppress(OSError):  # none of that number, or none to drop: then nothing gains any
            _set(_DROP_BOUNDING, capability)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    if _libc().capset(header, (ctypes.c_uint32 * 6)()):
        raise _error()


def _refuse_sockets(*, net: bool) -> None:
    """Refuse sockets of every family, or those to services of this machine. Pairs of them stay allowed.

    A service of the user, such as a message bus or a container engine, starts what it is asked to.
    """
    machine, socket_number = _MACHINES[os.uname().machine]
    checks = (
        *((_LOAD, _MACHINE_AT), (_IF_EQUAL, machine, 1, 0), (_RETURN, _REFUSE), (_LOAD, _NUMBER_AT)),
        *((_IF_AT_LEAST, _X32, 0, 1), (_RETURN, _REFUSE)),
        *((_IF_EQUAL, _IO_URING_SETUP, 0, 1), (_RETURN, _REFUSE)),
        *((_IF_EQUAL, socket_number, 1, 0), (_RETURN, _PASS)),
        *(((_LOAD, _FIRST_ARGUMENT_AT), (_IF_EQUAL, _UNIX, 1, 0), (_RETURN, _PASS)) if net else ()),
        (_RETURN, _REFUSE),
    )
    filled = [_Instruction(code, *(jumps or (0, 0)), value) for code, value, *jumps in checks]
    program = _Program(len(filled), (_Instruction * len(filled))(*filled))
    _set(_SET_SECCOMP, _FILTER, ctypes.byref(program))


def _allowed(rules: Rules, handled: int) -> Iterator[tuple[str, int]]:
    for path in rules["read"]:
        yield path, _READING
    for path in rules["write"]:
        yield path, handled & ~_MAKE_DEVICES
    if rules["hidden"] is not None:
        for path in beside(rules["hidden"]):
            yield path, handled & ~_MAKE_DEVICES
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
        if os.readlink(f"/proc/self/fd/{parent}") != path:  # a folder above it was replaced by a link
            return
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
        raise _error()
    return result


def _set(option: int, *values: object) -> None:
    """Call `prctl`, whose every argument is as wide as a register. Raises: OSError."""
    wide = (ctypes.c_ulong(value) if isinstance(value, int) else value for value in values)
    rest = (ctypes.c_ulong(0) for _ in range(4 - len(values)))
    if _libc().prctl(option, *wide, *rest):
        raise _error()


def _error() -> OSError:
    error = ctypes.get_errno()
    return OSError(error, os.strerror(error))


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
