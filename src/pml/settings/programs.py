"""Programs of servers on disk: the hashes of those that lie in the workspace, or are reached through it."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from typing import Final

from pml.core.programs import expanded_parts, program_names
from pml.core.readings import is_under
from pml.core.servers import ServerSpec

_PIECE: Final = 1024 * 1024
_UNREADABLE: Final = "unreadable"


def programs_in(workspace: str, spec: ServerSpec) -> Mapping[str, str]:
    """Return the hash of each program of the server in the workspace, by path; `-`: it is not there.

    Beside them, the parts of its entry that variables decide.
    """
    real_workspace = os.path.realpath(workspace)
    found = {
        path: _hash(path)
        for path in map(os.path.normpath, _paths(workspace, spec))
        if is_under(path, workspace) or is_under(os.path.realpath(path), real_workspace)
        if not os.path.isdir(path)
    }
    return {**found, **expanded_parts(spec)}


def _paths(workspace: str, spec: ServerSpec) -> Iterator[str]:
    names = program_names(spec, cwd=spec.cwd or workspace)
    yield from names.certain
    yield from filter(os.path.isfile, names.perhaps)
    if "/" not in spec.command:
        searched = shutil.which(spec.command, path=spec.env.get("PATH"))
        if searched is not None and os.path.isabs(searched):
            yield searched


def _hash(path: str) -> str:
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return _UNREADABLE
            found = hashlib.sha256()
            while piece := file.read(_PIECE):
                found.update(piece)
    except FileNotFoundError:
        return "-"
    except OSError:
        return _UNREADABLE
    return f"sha256:{found.hexdigest()}"


_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
