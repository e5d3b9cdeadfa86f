"""The copy of a workspace's file that boxes show in its place.

Bubblewrap finds the place by name, and another server may put a link there at that moment. A copy is another
file than what is in the workspace, so bubblewrap sees whether it lies where it should, and where it does not
makes no box. What the file says is not known here.
"""

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from pml.core.errors import ServerFailed
from pml.core.text import quote
from pml.host.disk import reason_of
from pml.host.private import private_directory
from pml.upstream.pinned import leads_to

_MOST_BYTES: Final = 4 * 1024 * 1024  # what is larger is no configuration, to PML either


def copy_of(path: str, *, home: str) -> str | None:
    """Return the path of a copy of the file at the real `path`, or None if no file of PML is there.

    Raises: ServerFailed if it leads elsewhere by now, or cannot be copied.
    """
    try:
        content = _read(path)
        return None if content is None else _keep(content, path, home=Path(home))
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as exc:
        raise ServerFailed(f"{quote(path)} cannot be protected: {reason_of(exc).lower()}") from exc


def _read(path: str) -> bytes | None:
    with open(path, "rb", opener=_open) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        if leads_to(file.fileno()) != path:
            raise ServerFailed(f"{quote(path)} leads elsewhere by now", hint="try again")
        content = file.read(_MOST_BYTES + 1)
    return content if len(content) <= _MOST_BYTES else None


def _keep(content: bytes, path: str, *, home: Path) -> str:
    """Write the copy, unless it is there: one that a box is just being made with stays where it is."""
    folder = private_directory(home / "run" / "boxes")
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    kept = folder / f"{name}.json"
    with contextlib.suppress(FileNotFoundError):
        if kept.read_bytes() == content:
            return os.path.realpath(kept)
    temporary = folder / f"{name}.{os.getpid()}.tmp"
    with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
    os.replace(temporary, kept)
    return os.path.realpath(kept)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
