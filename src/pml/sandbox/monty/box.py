"""The box of the interpreter's processes: started with limits, and contained where the system can.

The interpreter itself gives the code nothing of the system. This is for the day that it is broken: no file
but its own program and the system's libraries, no network, no other process, no environment. On systems
other than Linux there is only the empty environment.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pml.host.folders import absolute_only
from pml.host.private import private_directory
from pml.host.replace import replace_file

_SYSTEM_PATH: Final = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
_INSIDE: Final = "/monty"
_LIBRARIES: Final = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64", "/nix/store")
_DATA: Final = ("/usr/share/zoneinfo", "/etc/ld.so.cache")
_BOX: Final = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"),
    *("--unshare-cgroup-try", "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--clearenv"),
)
_SPARE: Final = 4  # times the memory that the code may have: a parsed program and its result come on top
_FILES: Final = 64


def interpreter() -> str | None:
    """Return the path of the interpreter's program, which was installed with its package."""
    import shutil
    import sysconfig

    own = Path(sysconfig.get_path("scripts")) / ("monty.exe" if sys.platform == "win32" else "monty")
    return str(own) if own.is_file() else shutil.which("monty")


def launchers(home: Path, program: str, *, memory_bytes: int) -> Iterator[str]:
    """Yield what may start the interpreter, the safest first; one that does not work here fails at once."""
    import shutil

    if sys.platform == "linux":
        users = absolute_only(os.environ.get("PATH", ""))
        bwrap = shutil.which("bwrap", path=_SYSTEM_PATH) or shutil.which("bwrap", path=users)
        if bwrap is not None:
            yield _written(home, _script([bwrap, *_box(program), _INSIDE], memory_bytes))
        yield _written(home, _script([program], memory_bytes))
    yield program


def _script(command: list[str], memory_bytes: int) -> str:
    import shlex

    kilobytes = memory_bytes * _SPARE // 1024
    limits = (f"ulimit -d {kilobytes}", f"ulimit -n {_FILES}", "ulimit -f 0", "ulimit -c 0")
    return "\n".join(
        (
            "#!/bin/sh",
            "set -e",
            "cd /",
            *limits,
            "unset OLDPWD PWD",
            "exec 2>/dev/null",
            f'exec {shlex.join(command)} "$@"',
            "",
        )
    )


def _box(program: str) -> Iterator[str]:
    yield from _BOX
    for path in _LIBRARIES:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for path in _DATA:
        yield from ("--ro-bind-try", path, path)
    yield from ("--ro-bind", os.path.realpath(program), _INSIDE, "--remount-ro", "/", "--chdir", "/")


def _written(home: Path, script: str) -> str:
    """Return the path of a file with this script; the name says what is in it."""
    content = script.encode()
    name = f"monty-{hashlib.sha256(content).hexdigest()[:16]}.sh"
    path = private_directory(home / "run") / name
    if not path.exists() or path.read_bytes() != content:
        replace_file(path, content, mode=0o700)
    return str(path)
