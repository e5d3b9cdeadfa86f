"""Real paths that are opened once: the holder of the descriptor has what was checked, come what may.

Between a check and a mount another server could put a link where it may write. A path that leads elsewhere
when it is opened starts nothing. Which paths may be reached is decided before.
"""

import contextlib
import os
import stat
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from pml.core.errors import ServerFailed
from pml.core.text import quote


@dataclass(frozen=True, slots=True)
class Pinned:
    """A real path among arguments; what is executed gets the number of a descriptor in its place."""

    path: str


@contextlib.contextmanager
def opened(server: str, words: Sequence[str | Pinned]) -> Generator[tuple[list[str], tuple[int, ...]]]:
    """Give `words` with descriptors for paths, and these descriptors. Raises: ServerFailed."""
    with contextlib.ExitStack() as kept:
        descriptors: list[int] = []
        written: list[str] = []
        for word in words:
            if isinstance(word, Pinned):
                descriptors.append(_open(server, word.path))
                kept.callback(os.close, descriptors[-1])
                word = str(descriptors[-1])
            written.append(word)
        yield written, tuple(descriptors)


def leads_to(descriptor: int) -> str:
    """Return the real path of what is open. Raises: OSError."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _open(server: str, path: str) -> int:
    start = f"server `{server}` cannot be started: {quote(path)}"
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        raise ServerFailed(f"{start}: {(exc.strerror or 'it cannot be opened').lower()}") from exc
    try:
        is_same = leads_to(descriptor) == path and not stat.S_ISLNK(os.fstat(descriptor).st_mode)
    except OSError:
        is_same = False
    if not is_same:
        os.close(descriptor)
        raise ServerFailed(f"{start} leads elsewhere by now", hint="a link was put there: try again")
    return descriptor
