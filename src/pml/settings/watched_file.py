"""Reading one configuration file: whatever is wrong with it becomes a located error, and a change is noticed.

An unchanged file costs one `stat`. A file that changed so shortly before it was read that another change
could bear the same time stamps is read again.
"""

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from pml.core.config.file import ConfigFile
from pml.core.errors import ConfigInvalid
from pml.core.ports.world import FileState

MAX_BYTES: Final = 4 * 1024 * 1024
RACY_NS: Final = 50_000_000  # the clocks that stamp files tick every 1 to 10 ms
COARSE_RACY_NS: Final = 2_000_000_000  # some file systems stamp whole seconds, FAT every other one

Signature: TypeAlias = tuple[int, int, int, int, int]


class WatchedFile:
    """One file, parsed again only when it has changed."""

    def __init__(self, path: Path, parse: Callable[[str], ConfigFile], *, now_ns: Callable[[], int]) -> None:
        self._path = path
        self._parse = parse
        self._now_ns = now_ns
        self._state: FileState | None = None
        self._seen: Signature | None = None
        self._settled = False

    def read(self) -> FileState:
        """Return the file as it is now; the same object as long as it does not change."""
        if self._state is not None and self._settled and self._signature() == self._seen:
            return self._state
        started_ns = self._now_ns()
        try:
            found = read_bytes(self._path)
        except ConfigInvalid as exc:
            self._settled = False  # a fixed permission may leave no trace in the time stamps
            return FileState(path=str(self._path), error=exc)
        content, status = found or (None, None)
        self._seen = signature_of(status) if status else None
        self._settled = status is None or _is_settled(status, started_ns)
        digest = None if content is None else digest_of(content)
        if self._state is None or self._state.digest != digest:
            self._state = self._parsed(content, digest)
        return self._state

    def forget(self) -> None:
        """Have the file parsed at the next look, also if it has not changed."""
        self._state, self._settled = None, False

    def _signature(self) -> Signature | None:
        try:
            return signature_of(os.stat(self._path))
        except FileNotFoundError:
            return None
        except OSError:
            return (-1, -1, -1, -1, -1)

    def _parsed(self, content: bytes | None, digest: str | None) -> FileState:
        path = str(self._path)
        if content is None:
            return FileState(path=path)
        text = None
        try:
            text = decode(content, path=self._path)
            return FileState(path=path, digest=digest, text=text, config=self._parse(text))
        except ConfigInvalid as exc:
            return FileState(path=path, digest=digest, text=text, error=exc)


def read_bytes(path: Path) -> tuple[bytes, os.stat_result] | None:
    """Return the content of `path` and its status from before the reading, or None if it does not exist.

    Raises: ConfigInvalid if it is not a regular file, too large or unreadable.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _unreadable(path, "is not a regular file")
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as exc:
        if os.path.islink(path):
            raise _unreadable(path, "is a link that leads nowhere") from exc
        return None
    except OSError as exc:
        reason = "is a directory" if isinstance(exc, IsADirectoryError) else f"cannot be read: {exc.strerror}"
        raise _unreadable(path, reason) from exc
    if len(content) > MAX_BYTES:
        raise _unreadable(path, f"is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return content, status


def decode(content: bytes, *, path: Path) -> str:
    """Return `content` as text, every character as it is. Raises: ConfigInvalid if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        lines = content[: exc.start].decode().split("\n")
        problem = f"byte 0x{content[exc.start]:02x} is not UTF-8"
        raise ConfigInvalid(str(path), len(lines), len(lines[-1]) + 1, problem) from exc


def digest_of(content: bytes) -> str:
    """Return `sha256:<hex>` of the exact bytes of a file."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def signature_of(status: os.stat_result) -> Signature:
    """Return what changes when a file does."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open so that a FIFO in the place of the file cannot hang us before we see that it is one."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_settled(status: os.stat_result, read_ns: int) -> bool:
    """Tell whether any change after the reading must get other time stamps than `status` has."""
    changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
    is_coarse = status.st_mtime_ns % 1_000_000_000 == 0 and status.st_ctime_ns % 1_000_000_000 == 0
    return read_ns - changed_ns > (COARSE_RACY_NS if is_coarse else RACY_NS)


def _unreadable(path: Path, reason: str) -> ConfigInvalid:
    return ConfigInvalid(str(path), 1, 1, f"the file {reason}")
