"""Log of a server: its stderr and what PML notes about it, in a private, capped file.

The values of the server's declared variables are masked, here and in all that PML tells of the server in its
own name: they may be secrets. Those that it requires are secrets, however short. What a server writes in
pieces, or in another form, is not recognised. Several gateways may write to one file.
"""

import contextlib
import os
import re
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pml.core.text import visible
from pml.host.private import private_directory
from pml.upstream.limits import Limits

_LINE_BYTES: Final = 8 * 1024  # a longer line is broken: memory stays bounded without a newline in sight
_SHOWN_CHARS: Final = 200  # of one line in an error
_SECRET_CHARS: Final = 8  # a shorter value is a switch or a number, and would mask innocent words
_DECORATION: Final = re.compile(  # colours and cursor moves, titles and links, other escapes
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-Z\\^-~]"
)


def log_path(home: Path, server: str, target_digest: str) -> Path:
    """Return where the server's log is; an older part of it is beside it, with `.1` at the end."""
    return home / "logs" / f"{server}-{target_digest.removeprefix('sha256:')[:12]}.log"


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
        self._names = {
            **_names(secrets, at_least=_SECRET_CHARS),
            **_names(required or {}, at_least=1),
        }
        longest_first = sorted(self._names, key=len, reverse=True)
        self._longest = len(longest_first[0]) if longest_first else 0
        names = dict.fromkeys(self._names.values())  # what is masked stays as it is when it is told further
        self._values = re.compile(b"|".join(map(re.escape, (*names, *longest_first))) or b"(?!)")
        self._tail: deque[bytes] = deque(maxlen=limits.tail_lines)
        self._partial = b""
        self._fd = -1
        with contextlib.suppress(OSError):
            private_directory(path.parent)
            self._fd = _open(path)

    @property
    def tail(self) -> list[str]:
        """The last lines on stderr, each safe to show."""
        lines = [*self._tail, *filter(None, [self._plain(self._partial)])][-self._limits.tail_lines :]
        texts = [visible(line.decode(errors="replace")) for line in lines]
        return [text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…" for text in texts]

    def mask(self, text: str) -> str:
        """Return `text` with the names of variables in place of their values."""
        return self._mask(text.encode(errors="surrogatepass")).decode(errors="replace")

    def feed(self, data: bytes) -> None:
        """Take in what the server wrote on stderr."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        while len(self._partial) > _LINE_BYTES + self._longest:
            at = self._cut(self._partial)
            lines.append(self._partial[:at])
            self._partial = self._partial[at:]
        if lines:
            self._tail.extend(filter(None, map(self._plain, lines)))
            self._write(b"".join(self._mask(line) + b"\n" for line in lines))

    def note(self, text: str) -> None:
        """Write down what PML noticed about the server, in one line."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._write(f"[pml {at}] {visible(self.mask(text))}\n".encode())

    def close(self) -> None:
        if self._partial:
            self._write(self._mask(self._partial) + b"\n")
            self._tail.extend(filter(None, [self._plain(self._partial)]))
            self._partial = b""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _mask(self, line: bytes) -> bytes:
        return self._values.sub(lambda found: self._names.get(found[0], found[0]), line)

    def _cut(self, line: bytes) -> int:
        """Return where a line that is too long is broken: in no value, for its halves would not be masked."""
        for found in self._values.finditer(line, 0, _LINE_BYTES + self._longest):
            if found.start() < _LINE_BYTES < found.end():
                return found.end()
        return _LINE_BYTES

    def _plain(self, line: bytes) -> bytes:
        """Return the line as a terminal would show it at last, masked after: colours may part a value."""
        shown = _DECORATION.sub(b"", line).strip().rpartition(b"\r")[2]
        return self._mask(shown)[:_LINE_BYTES]

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


def _names(values: Mapping[str, str], *, at_least: int) -> dict[bytes, bytes]:
    """Return each line of the values, for logs are written by lines, and what is written instead of it.

    Also as PML writes it, where that differs: text of a server is made visible before it is told.
    """
    lines = ((line, name) for name, value in values.items() for line in {value, *value.splitlines()})
    return {
        form.encode(errors="surrogateescape"): f"<{name}>".encode()
        for line, name in ((line.strip(), name) for line, name in lines)
        if len(line) >= at_least
        for form in (line, visible(line))
    }


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0), 0o600)
