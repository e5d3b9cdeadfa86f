"""The two boxes that bubblewrap makes: a narrow one by declared permissions, and a wide one.

In neither is `PML_HOME` to be seen, but for an installed server's own files, and `.pml.json` is read-only as
it is at the start, in folders that cannot be moved away. A file that is made in its place later can be
written, and what was written is not trusted. Bubblewrap gets descriptors of what was checked, not names that
may lead elsewhere by then. A box that cannot be made ends bubblewrap before the server begins.
"""

import contextlib
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pml.core.errors import ServerFailed
from pml.core.text import quote, visible
from pml.host.disk import reason_of
from pml.host.folders import absolute_only
from pml.host.private import private_directory
from pml.upstream.containment.pinned import Pinned, leads_to, opened
from pml.upstream.containment.reach import CONFIG, SYSTEM, SYSTEM_FILES, Reach, within, within_any

_MOST_BYTES: Final = 4 * 1024 * 1024  # what is larger is not a configuration, to PML either


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
        # Checked on the descriptor: a folder above could have become a link since the path was resolved.
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
    os.replace(temporary, kept)  # a box that is made now finds the old copy or the new one, never half of it
    return os.path.realpath(kept)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


# In front of the user's own search path, so that no variable leads to another bwrap, or to none.
_SYSTEM_PATH: Final = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
_TRIAL_S: Final = 10.0  # it takes some 10 ms; a machine under load takes longer, a broken one for ever

NEW_SESSION: Final = "--new-session"
DIE_WITH_PARENT: Final = "--die-with-parent"
# A user namespace of its own also for root: without it, `/proc/PID/root` of a process outside leads out.
# A session of its own, so that signals meet the server's group and bwrap lives to tell how it ended.
# Processes of its own, so that nothing in it can signal or see what is outside, and all of it ends with its
# first process; and that one ends with the thread that spawned the box, the event loop's.
_COMMON: Final = (*("--unshare-user", "--cap-drop", "ALL", NEW_SESSION, DIE_WITH_PARENT, "--unshare-pid"),)
_NARROW: Final = (*_COMMON, "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")

Box = tuple[str | Pinned, ...]
_Mount = tuple[str, Box]


def find_bwrap() -> str | None:
    import shutil

    users = absolute_only(os.environ.get("PATH", ""))
    return shutil.which("bwrap", path=_SYSTEM_PATH) or shutil.which("bwrap", path=users)


def why_not(program: str) -> str | None:
    """Return why no box can be made on this machine; None if one was just made."""
    root = _bind("--ro-bind", "/")[1]
    box: Box = (*_NARROW, "--unshare-net", *root, "--dev", "/dev", "--proc", "/proc")
    try:
        with opened("bwrap", box) as (words, pinned):
            tried = subprocess.run(
                [program, *words, "--tmpfs", "/tmp", program, "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={},
                pass_fds=pinned,
                timeout=_TRIAL_S,
                check=False,
            )
    except ServerFailed as exc:
        return exc.message
    except (OSError, subprocess.TimeoutExpired) as exc:
        return "it cannot be run" if isinstance(exc, OSError) else f"it hangs for {_TRIAL_S:g} s"
    if tried.returncode == 0:
        return None
    said = tried.stderr.decode(errors="replace").strip().splitlines()
    return visible(said[-1]) if said else f"exit code {tried.returncode}"


def narrow(reach: Reach, *, home: str, workspace: str, masked: tuple[str, ...], has_net: bool) -> Box:
    """Return the arguments for a box with the system, what is within reach but not `masked`, and no more."""
    # PML_HOME is covered by an empty folder at the end, and the server's own folders in it come after that.
    hidden = os.path.realpath(home)
    own = [
        *(("--ro-bind", path) for path in reach.own_read),
        *(("--bind", path) for path in reach.own_write),
    ]
    mounts = [
        *_system(reach.folders),
        *(("/proc", ("--proc", "/proc")), ("/dev", ("--dev", "/dev"))),
        *(() if within_any("/tmp", reach.folders) else (("/tmp", ("--tmpfs", "/tmp")),)),
        *(_bind("--ro-bind", path) for path in reach.read),
        *(_bind("--bind", path) for path in reach.write),
        *(_bind(how, path) for how, path in own if not within(path, hidden)),
        *_config(workspace, seen=reach.folders, home=hidden),
        *_ways((hidden, *masked, *_config_paths(workspace)), writable=reach.write),
        *((path, ("--tmpfs", path)) for path in masked),
    ]
    mounts.sort(key=lambda mount: len(mount[0].rstrip("/").split("/")))  # a folder, then what lies in it
    return (
        *_NARROW,
        *(() if has_net else ("--unshare-net",)),
        *(word for _, words in mounts for word in words),
        *_links(reach, (*reach.folders, *SYSTEM)),
        *("--tmpfs", hidden),
        *(word for how, path in own if within(path, hidden) for word in _bind(how, path)[1]),
        *(word for path in (hidden, *masked) for word in ("--remount-ro", path)),
        # Else what is written where nothing is shown would seem to be kept, and be lost.
        *(() if "/" in reach.folders else ("--remount-ro", "/")),
    )


def wide(*, home: str, workspace: str, shown: str | None = None) -> Box:
    """Return the arguments for a box with all that its user has but `PML_HOME`; of that only `shown`."""
    hidden = os.path.realpath(home)
    ways = _ways((hidden, *_config_paths(workspace)), writable=("/",))
    mounts = (*ways, *_config(workspace, seen=("/",), home=hidden))
    seen = () if shown is None else _bind("--ro-bind", os.path.realpath(shown))[1]
    masked = ("--tmpfs", hidden, *seen, "--remount-ro", hidden)
    inside = (word for _, words in mounts for word in words)
    whole = ("--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc")
    return (*_COMMON, *whole, *inside, *masked)


def _bind(how: str, path: str) -> _Mount:
    return path, (f"{how}-fd", Pinned(path), path)


def _ways(hidden: Sequence[str], *, writable: Sequence[str]) -> list[_Mount]:
    """Return each folder on the way to what is hidden or read-only, from the top: no mount can be moved away.

    Else that would be found under another path, and something else in its place.
    """
    found: set[str] = set()
    for path in hidden:
        folder = os.path.dirname(path)
        while folder != "/" and within_any(above := os.path.dirname(folder), writable):
            if os.access(above, os.W_OK) and not within_any(folder, hidden):
                found.add(folder)
            folder = above
    return [_bind("--bind", folder) for folder in sorted(found)]


def _system(declared: Sequence[str]) -> Iterator[_Mount]:
    for path in (*SYSTEM, *SYSTEM_FILES):
        if not os.path.exists(path) or within_any(path, declared):
            continue
        if os.path.islink(path) and within(os.path.realpath(path), "/usr"):
            yield path, ("--symlink", os.readlink(path), path)  # the name of a time zone is read from a link
        else:
            yield path, ("--ro-bind", path, path)


def _config_paths(workspace: str) -> tuple[str, ...]:
    """Return where the workspace's file is, or would be: in the workspace, and where a link leads."""
    given = os.path.join(os.path.realpath(workspace), CONFIG)
    return given, os.path.realpath(given)


def _config(workspace: str, *, seen: Sequence[str], home: str) -> Iterator[_Mount]:
    try:
        path = os.path.realpath(os.path.join(workspace, CONFIG))
    except OSError as exc:  # somebody exchanges it just now
        raise ServerFailed(f"{CONFIG} of the workspace cannot be read: {exc.strerror}") from exc
    if within_any(path, seen) and not within(path, home) and (copy := copy_of(path, home=home)) is not None:
        yield path, ("--ro-bind-fd", Pinned(copy), path)


def _links(reach: Reach, seen: Sequence[str]) -> Iterator[str]:
    """Yield links to what was given by a path that is none in the box."""
    made: list[str] = []
    for given, real in sorted(reach.links):
        if not within_any(given, (*seen, *made)):
            made.append(given)
            yield from ("--symlink", real, given)
