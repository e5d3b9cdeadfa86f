"""What a server says on stderr, and what PML notes about it: a private, capped file and the last lines.

The values of the server's declared variables are masked: they may be secrets, and the last lines are told
to whoever called the server. Those that it requires are secrets, however short. Several gateways may write
to one file.
"""

import contextlib
import os
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pml.core.text import visible
from pml.host.private import private_directory
from pml.upstream.limits import Limits

_LINE_BYTES: Final = 8 * 1024  # a longer line is broken: memory stays bounded without a newline in sight
_SHOWN_CHARS: Final = 300  # of one line in an error
_SECRET_CHARS: Final = 8  # a shorter value is a switch or a number, and would mask innocent words


def log_path(home: Path, server: str, launch: str) -> Path:
    """Return where the server's log is; an older part of it is beside it, with `.1` at the end."""
    return home / "logs" / f"{server}-{launch.removeprefix('sha256:')[:12]}.log"


class ServerLog:
    """The log of one run of a server. A disk that is full or gone costs the file, never the server."""

    def __init__(
        self,
        path: Path,
        *,
        secrets: Mapping[str, str],
        limits: Limits,
        required: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        self._limits = limits
        self._masks = [*_masks(required or {}, at_least=1), *_masks(secrets, at_least=_SECRET_CHARS)]
        self._tail: deque[bytes] = deque(maxlen=limits.tail_lines)
        self._partial = b""
        self._fd = -1
        with contextlib.suppress(OSError):
            private_directory(path.parent)
            self._fd = _open(path)

    @property
    def tail(self) -> list[str]:
        """The last lines on stderr, each safe to show."""
        lines = [*self._tail, self._partial] if self._partial.strip() else list(self._tail)
        texts = [visible(self._mask(line).decode(errors="replace")) for line in lines]
        return [text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…" for text in texts]

    def feed(self, data: bytes) -> None:
        """Take in what the server wrote on stderr."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        while len(self._partial) > _LINE_BYTES:
            lines.append(self._partial[:_LINE_BYTES])
            self._partial = self._partial[_LINE_BYTES:]
        if lines:
            self._tail.extend(line[:_LINE_BYTES] for line in lines if line.strip())
            self._write(b"".join(self._mask(line) + b"\n" for line in lines))

    def note(self, text: str) -> None:
        """Write down what PML noticed about the server, in one line."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._write(self._mask(f"[pml {at}] {visible(text)}\n".encode()))

    def close(self) -> None:
        if self._partial:
            self._write(self._mask(self._partial) + b"\n")
            self._tail.append(self._partial)
            self._partial = b""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _mask(self, line: bytes) -> bytes:
        for value, name in self._masks:
            line = line.replace(value, name)
        return line

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size + len(data) > self._limits.log_bytes:
                self._rotate()
            os.write(self._fd, data[: self._limits.log_bytes])

    def _rotate(self) -> None:
        """Begin a new file, unless another gateway just has: then go on in that one."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._fd), os.stat(self._path)):
                os.replace(self._path, f"{self._path}.1")
        fresh = _open(self._path)
        os.close(self._fd)
        self._fd = fresh


def _masks(values: Mapping[str, str], *, at_least: int) -> list[tuple[bytes, bytes]]:
    """Return each line of the values, for logs are written by lines, and what is written instead of it."""
    lines = ((line, name) for name, value in values.items() for line in {value, *value.splitlines()})
    return [
        (line.encode(errors="surrogateescape"), f"<{name}>".encode())
        for line, name in sorted(lines, key=lambda item: -len(item[0]))
        if len(line.strip()) >= at_least
    ]


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0), 0o600)
