"""What lies around a sandbox, and shows whether anybody touched it."""

import os
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from pml.core.values import Json

SECRET: Final = "canary-5f1d"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """A file, a folder, listeners and a variable that code must neither reach nor change."""

    folder: Path
    file: Path
    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket

    def told(self) -> dict[str, Json]:
        return {
            "file": str(self.file),
            "new": str(self.folder / "new"),
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "unix": str(self.folder / "unix"),
            "pid": os.getpid(),
        }

    def assert_untouched(self, said: object) -> None:
        assert SECRET not in repr(said)
        assert self.file.read_text() == SECRET
        assert sorted(path.name for path in self.folder.iterdir()) == ["secret", "unix"]
        for listener in (self.tcp, self.udp, self.unix):
            with pytest.raises(BlockingIOError):
                listener.recv(1) if listener is self.udp else listener.accept()


@contextmanager
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Surroundings]:
    monkeypatch.setenv("CANARY", SECRET)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    with ExitStack() as stack:
        tcp, udp, unix = (
            stack.enter_context(socket.socket(family, kind))
            for family, kind in (
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
            )
        )
        monkeypatch.chdir(folder)
        for listener, address in ((tcp, ("127.0.0.1", 0)), (udp, ("127.0.0.1", 0)), (unix, "unix")):
            listener.bind(address)
            listener.setblocking(False)
        tcp.listen()
        unix.listen()
        yield Surroundings(folder=folder, file=folder / "secret", tcp=tcp, udp=udp, unix=unix)
