"""Log file of a server as people read it: its last lines, and those that come."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import BinaryIO, Final

_LOOK_S: Final = 0.2  # a log is read by people; nobody sees a shorter wait


class LogFile:
    """The log and the older part beside it; both are small."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> str:
        return str(self._path)

    def exists(self) -> bool:
        return self._path.exists()

    def tail(self, count: int) -> list[str]:
        """Return the last lines; none if nothing was written yet."""
        lines: list[str] = []
        for part in (self._older, self._path):
            with contextlib.suppress(FileNotFoundError), part.open("rb") as file:
                lines += _whole_lines(file)
        return lines[-count:]

    async def follow(self, count: int) -> AsyncGenerator[str]:
        """Yield the last lines and then those that come; a log that begins anew is followed on."""
        before = LogFile(self._older).tail(count)
        limit: int | None = count
        while True:
            with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
                while True:
                    lines = [*before, *_whole_lines(file)]
                    for line in lines if limit is None else lines[-limit:]:
                        yield line
                    before, limit = [], None
                    if not _is_same(self._path, file):
                        break
                    await asyncio.sleep(_LOOK_S)
            await asyncio.sleep(_LOOK_S)

    @property
    def _older(self) -> Path:
        return self._path.with_name(f"{self._path.name}.1")


def _whole_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines that have been written to their end; the rest is read again."""
    while (line := file.readline()).endswith(b"\n"):
        yield line[:-1].decode(errors="replace")
    file.seek(-len(line), 1)


def _is_same(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
