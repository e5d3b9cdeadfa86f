"""Configuration of a run: files that only their user reads, in a folder of the run's own.

They hold the run's token, so they lie in PML_HOME, of which no agent sees more than its own folder, and are
gone when the run is over. What is in them is not known here.
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pml.core.approvals.record import SessionId
from pml.core.errors import Unavailable
from pml.core.text import quote
from pml.host.disk import unavailable

FILES: Final = ("mcp.json", "settings.json")  # nothing else is ever written, or removed
_NAME: Final = re.compile(r"[0-9a-f]{32}")


def config_root(home: Path) -> Path:
    """Return the folder of all configurations in PML_HOME."""
    return home / "run" / "agents"


def folder_of(root: Path, session_id: SessionId) -> Path:
    """Return the folder of that session's run, there or not."""
    return root / hashlib.sha256(session_id.encode()).hexdigest()[:32]


def write_config(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder anew and write the files into it. Raises: Unavailable."""
    remove_config(folder)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder.parent):
            raise Unavailable(
                f"{quote(str(folder.parent))} is not a folder of this user alone",
                hint="remove it; PML makes it again",
            )
        folder.mkdir(mode=0o700)
        for name, content in files.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(content)
    except OSError as exc:
        raise unavailable(quote(str(folder)), exc, hint="`pml doctor` checks the setup") from exc


def remove_config(folder: Path) -> None:
    """Remove a run's folder and what was written there; whatever else the path names is left alone."""
    if not _NAME.fullmatch(folder.name) or not _is_private(folder):
        return
    for name in FILES:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_private(path: str | Path) -> bool:
    """Tell whether `path` is a folder, no link to one, that this user alone can reach."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
