"""One hub for each PML_HOME, and where it is: a lock that ends with its process, and a file beside it.

The file alone proves nothing, since a killed hub leaves it; the lock does.
"""

import contextlib
import os
from collections.abc import Callable, Generator
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import Conflict, Unavailable
from pml.host.disk import unavailable
from pml.host.locks import locked, open_lock_file, try_lock
from pml.host.private import private_directory
from pml.host.replace import replace_file

_LOCK_S: Final = 1.0  # a process that looks whether a hub runs holds the lock for an instant


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """Where the hub of a home is; `page`: where people open it, if that is elsewhere."""

    url: str
    pid: int
    started_at: datetime
    page: str | None = None


@contextlib.contextmanager
def sole_hub(home: Path) -> Generator[Callable[[Presence], None]]:
    """Be the hub of `home` for the block; what is yielded tells the others where it is.

    Raises: Conflict, naming it, if another is; Unavailable.
    """
    folder = _folder(home)
    try:
        private_directory(folder)
    except OSError as exc:
        raise unavailable(str(folder), exc) from exc
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / "hub.lock", timeout_s=_LOCK_S))
        except Unavailable as exc:
            raise _taken(home) or exc from exc
        _forget(home)  # a hub that was killed left its own
        stack.callback(_forget, home)
        yield lambda presence: _announce(home, presence)


def running_hub(home: Path) -> Presence | None:
    """Return where the hub of `home` is, while one runs."""
    try:
        descriptor = open_lock_file(str(_folder(home) / "hub.lock"), create=False)
    except OSError:
        return None
    try:
        if try_lock(descriptor):
            return None
    finally:
        os.close(descriptor)
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(_file(home).read_bytes(), type=Presence)
    return None  # it has not said yet where it is


def put_link(home: Path, link: str) -> Path:
    """Return a file, readable by its owner alone, that leads a browser to `link`. It goes with the hub.

    Raises: Unavailable.
    """
    path = _folder(home) / "link.html"
    page = f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={escape(link)}"><title>PML</title>\n'
    try:
        replace_file(path, page.encode(), mode=0o600)
    except OSError as exc:
        raise unavailable(str(path), exc) from exc
    return path


def _taken(home: Path) -> Conflict | None:
    other = running_hub(home)
    if other is None:
        return None
    return Conflict(
        f"the hub of this home runs already: process {other.pid} serves at {other.url}",
        hint="use that one, or end it first",
    )


def _announce(home: Path, presence: Presence) -> None:
    try:
        replace_file(_file(home), msgspec.json.encode(presence), mode=0o600)
    except OSError as exc:
        raise unavailable(str(_file(home)), exc) from exc


def _forget(home: Path) -> None:
    for path in (_file(home), _folder(home) / "link.html"):
        with contextlib.suppress(OSError):
            path.unlink()


def _folder(home: Path) -> Path:
    return home / "run"


def _file(home: Path) -> Path:
    return _folder(home) / "hub.json"
