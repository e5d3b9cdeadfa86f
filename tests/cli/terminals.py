"""A terminal of its own for a `pml` that asks: what it shows is read, what a person types is written."""

import contextlib
import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Generator
from typing import Any

from tests.commands import TIMEOUT_S


class Terminal:
    """`pml` on a terminal; its standard output is a pipe, as in `pml … | jq`, unless told otherwise."""

    def __init__(self, process: "subprocess.Popen[str]", screen_fd: int) -> None:
        self.process = process
        self.screen = ""
        self._fd = screen_fd
        self._seen = 0

    def until(self, text: str) -> str:
        """Return what is shown up to and with `text`, after what was waited for before."""
        while text not in self.screen[self._seen :]:
            assert self._read(), f"ended without {text!r}: {self.screen}"
        end = self.screen.index(text, self._seen) + len(text)
        shown, self._seen = self.screen[self._seen : end], end
        return shown

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._fd)

    def end(self) -> tuple[int, str]:
        """Return the exit code and what was written to standard output."""
        while self._read():
            pass
        out, _ = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out

    def _read(self) -> bool:
        ready, _, _ = select.select([self._fd], [], [], TIMEOUT_S)
        assert ready, f"nothing more is shown: {self.screen}"
        try:
            data = os.read(self._fd, 4096)
        except OSError:  # the other side is closed
            return False
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@contextlib.contextmanager
def on_terminal(*argv: str, typed: str = "", stdout_too: bool = False) -> Generator[Terminal]:
    """Run `pml` on a terminal; `typed` is there before it begins."""
    mine, theirs = pty.openpty()
    os.write(mine, typed.encode())
    process = subprocess.Popen(
        [sys.executable, "-m", "pml", *argv],
        text=True,
        stdin=theirs,
        stdout=theirs if stdout_too else subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb"},  # no colours
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
    )
    os.close(theirs)
    try:
        yield Terminal(process, mine)
    finally:
        process.kill()
        process.communicate()
        os.close(mine)
