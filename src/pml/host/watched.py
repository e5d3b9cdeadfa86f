"""Whom the watchdog of this process ends, should this process end without doing so: all that it starts.

The watchdog is started by the first to need it, and ends with this process.
"""

import atexit
import contextlib
import functools
import subprocess
import sys
import threading
from collections.abc import Generator
from typing import Final

from pml.core.sessions.process import Process
from pml.host.watchdog import __file__ as script

_END_S: Final = 5.0  # for a watchdog without anybody to end to end itself: some milliseconds


class Watchdog:
    """Tells the watchdog of this process whom to end. It is started by the first to need it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, float] = {}
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have it run before there is anything to watch, so that no moment is left uncovered."""
        with self._lock:
            if self._running is None or self._running.poll() is not None:
                self._start()

    def watch(self, process: Process) -> None:
        with self._lock:
            self._watched[process.pid] = process.started
            self._tell(b"+", process)

    def release(self, process: Process) -> None:
        """Forget a process that has ended: its number may be another's soon."""
        with self._lock:
            if self._watched.get(process.pid) == process.started:
                del self._watched[process.pid]
                self._tell(b"-", process)

    def _tell(self, word: bytes, process: Process) -> None:
        try:
            self._write(word, process.pid, process.started)
        except (OSError, ValueError):  # it was ended
            self._start()

    def _start(self) -> None:
        """Start it, and tell all that is watched. What it misses is found by the next start of PML."""
        with contextlib.suppress(OSError):
            self._running = _spawn()
            atexit.register(_see_off, self._running)
            for pid, started in self._watched.items():
                self._write(b"+", pid, started)

    def _write(self, word: bytes, pid: int, started: float) -> None:
        if self._running is None or self._running.stdin is None:
            raise BrokenPipeError
        self._running.stdin.write(b"%s %d %r\n" % (word, pid, started))


@functools.cache
def watchdog() -> Watchdog:
    """Return the one of this process."""
    return Watchdog()


@contextlib.contextmanager
def watched(process: Process | None) -> Generator[None]:
    """Have `process` end with this one for as long as the block takes."""
    if process is None:  # it has ended already
        yield
        return
    watchdog().watch(process)
    try:
        yield
    finally:
        watchdog().release(process)


def _spawn() -> "subprocess.Popen[bytes]":
    # Elsewhere than on Linux it needs psutil to tell processes apart.
    alone = ("-I", "-S") if sys.platform == "linux" else ("-I",)
    return subprocess.Popen(
        [sys.executable, *alone, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/" if sys.platform != "win32" else None,
        start_new_session=True,
    )


def _see_off(running: "subprocess.Popen[bytes]") -> None:
    assert running.stdin is not None
    running.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(_END_S)
