"""Advisory file locks that end with the process that holds them, also when it is killed."""

import os
import sys

if sys.platform == "win32":
    import msvcrt

    def try_lock(fd: int) -> bool:
        """Take the exclusive lock on an open file; False when another process holds it."""
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def try_lock(fd: int) -> bool:
        """Take the exclusive lock on an open file; False when another process holds it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def open_lock_file(path: str, *, create: bool) -> int:
    """Return a descriptor of the lock file that no child process inherits. Raises: FileNotFoundError."""
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags | (os.O_CREAT if create else 0), 0o600)


def is_same_file(fd: int, path: str) -> bool:
    """Tell whether `path` still names the open file: another process may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
