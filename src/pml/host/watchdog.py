"""A watchdog: a small process that ends what this one started, when this one has ended without doing so.

It runs as `python -I -S watchdog.py` and is told on its standard input whom to end. The end of that input is
the end of its owner, also by `kill -9`. A box that ends with its owner by itself needs none. What has let
itself be adopted by the system before that is out of reach. Imports nothing that is not Python's own.
"""

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from pml.core.processes import Process

Tree: TypeAlias = list[tuple[int, float]]  # processes, by number and start
_ASK_S: Final = 1.0  # for what is asked to end, before it must: five seconds is what PML promises
_LOOK_S: Final = 0.02
KILL: Final = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL  # there both end it at once
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

    def watch(self, process: "Process") -> None:
        with self._lock:
            self._watched[process.pid] = process.started
            self._tell(b"+", process)

    def release(self, process: "Process") -> None:
        """Forget a process that has ended: its number may be another's soon."""
        with self._lock:
            if self._watched.get(process.pid) == process.started:
                del self._watched[process.pid]
                self._tell(b"-", process)

    def _tell(self, word: bytes, process: "Process") -> None:
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
def watched(process: "Process | None") -> Generator[None]:
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
        [sys.executable, *alone, __file__],
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


def end_tree(pid: int, started: float, how: signal.Signals, *, group: bool = True) -> Tree:
    """Send a signal to a process, the group that it leads, and all that it started; return whom it met."""
    tree = _tree_of(pid, started)
    if tree and group and sys.platform != "win32":
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, how)
    end_each(tree, how)
    return tree


def end_each(tree: Tree, how: signal.Signals) -> None:
    """Send a signal to each of the processes that still runs."""
    for pid, started in tree:
        with contextlib.suppress(OSError):
            if _started(pid) == started:
                os.kill(pid, how)


def _tree_of(pid: int, started: float) -> Tree:
    """Return the process and all that it started, and they, as it is now; none if it does not run."""
    if _started(pid) != started:
        return []
    children: defaultdict[int, Tree] = defaultdict(list)
    for each, parent, since in _all():
        children[parent].append((each, since))
    tree = [(pid, started)]
    for each, _ in tree:  # it grows while it is walked
        tree += children[each]
    return tree


if sys.platform == "linux":

    def _all() -> Iterator[tuple[int, int, float]]:
        """Yield the number of each process, that of its parent, and its start."""
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _fields(int(name))):
                yield int(name), int(fields[1]), float(fields[19])

    def _started(pid: int) -> float | None:
        fields = _fields(pid)
        return float(fields[19]) if fields and fields[0] not in (b"Z", b"X") else None

    def _fields(pid: int) -> list[bytes]:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rpartition(b") ")[2].split()  # a name in front may hold anything
        except OSError:
            return []
else:

    def _all() -> Iterator[tuple[int, int, float]]:
        """Yield the number of each process, that of its parent, and its start."""
        import psutil

        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                yield process.pid, process.ppid(), process.create_time()

    def _started(pid: int) -> float | None:
        import psutil

        try:
            found = psutil.Process(pid)
            return None if found.status() == psutil.STATUS_ZOMBIE else found.create_time()
        except psutil.Error:
            return None


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its owner, not with the terminal's wish
    left: dict[int, float] = {}
    for line in sys.stdin.buffer:
        word, pid, started = line.split()
        if word == b"+":
            left[int(pid)] = float(started)
        else:
            left.pop(int(pid), None)
    asked = [end_tree(pid, started, signal.SIGTERM) for pid, started in left.items()]
    until = time.monotonic() + _ASK_S
    while any(_started(pid) == since for tree in asked for pid, since in tree) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    for pid, started in left.items():
        end_tree(pid, started, KILL)  # with what was started meanwhile
    for tree in asked:
        end_each(tree, KILL)


if __name__ == "__main__":
    main()
