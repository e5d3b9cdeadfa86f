"""Links: where a path leads, a link at a time, and which of those links could lead elsewhere a moment later.

What a process finds beneath `/proc/self` or `/dev/fd` depends on the process, so such a path is not followed.
The file system is seen through `Disk` only.
"""

import errno
from collections.abc import MutableMapping
from typing import Final, NamedTuple, Protocol

MAX_LINKS: Final = 40  # what Linux follows in one path
_PROCESSES: Final = "/proc"
_OWN_NAMES: Final = frozenset({"self", "thread-self"})
# by descriptor, or by number on a volume: no name of the file is in the path
_NAMELESS: Final = frozenset({"/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/.vol"})


class Disk(Protocol):
    """The file system, as far as rules need it."""

    @property
    def home(self) -> str: ...

    def real(self, path: str) -> str:
        """Return where the absolute `path` leads, links followed; a tail that does not exist is kept.

        Raises: OSError, ValueError.
        """
        ...

    def link(self, path: str) -> str | None:
        """Return the target of the link at `path`, None if something else is there.

        Raises: FileNotFoundError if nothing is; OSError, ValueError.
        """
        ...

    def is_writable(self, folder: str) -> bool:
        """Tell whether this user, and so what an agent starts, can put other things into the folder."""
        ...

    def is_folder(self, path: str) -> bool: ...


class Followed(NamedTuple):
    """Where a path leads. `loose`: through a link that the agent's side can exchange for another."""

    real: str
    loose: bool


Known = MutableMapping[str, "str | None"]
"""What is at a path that was looked at: the target of a link, None for all else, "" for nothing."""


def follow(path: str, disk: Disk, known: Known) -> Followed:
    """Return where the absolute `path` leads; a tail that does not exist is kept.

    Raises: ValueError for a place that is another one in another process; OSError.
    """
    here, loose, links = "", False, 0
    todo = path.split("/")[::-1]
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        step = f"{here}/{part}"
        if _is_of_process(here, part, step):
            raise ValueError(f"{step} depends on who opens it")
        target = _link(step, here, disk, known)
        if not target:
            here = step
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links", path)
        # what lies in the root folder itself, such as `/tmp` and `/home`, is the system's also for root
        loose = loose or (bool(here) and disk.is_writable(here))
        here = "" if target.startswith("/") else here
        todo += target.split("/")[::-1]
    return Followed(here or "/", loose)


def is_there(path: str, disk: Disk, known: Known) -> bool:
    """Tell whether anything is at the absolute `path`, whose folder has no links, or may be."""
    try:
        return _link(path, path.rpartition("/")[0], disk, known) != ""
    except (OSError, ValueError):
        return True


def _link(step: str, here: str, disk: Disk, known: Known) -> str | None:
    if known.get(here) == "":  # nothing is in what is not there
        known[step] = ""
    elif step not in known:
        try:
            known[step] = disk.link(step)
        except FileNotFoundError:
            known[step] = ""
    return known[step]


def _is_of_process(here: str, part: str, step: str) -> bool:
    if here == _PROCESSES:
        return part in _OWN_NAMES or part.isdecimal()
    return step.lower() in _NAMELESS
