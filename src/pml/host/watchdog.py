"""A watchdog: a small process that ends what another started, when that one has ended without doing so.

It runs as `python -I -S watchdog.py` and is told on its standard input whom to end. The end of that input is
the end of its owner, also by `kill -9`. Found is all that a process started, by who started whom and by its
session; what has left both before is out of reach. Imports little: it starts with the first server.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Tree: TypeAlias = list[tuple[int, float]]  # processes, by number and start

_ASK_S = 1.0  # for what is asked to end, before it must: five seconds is what PML promises
_LOOK_S = 0.02
KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL  # there both end it at once


def end_tree(pid: int, started: float, how: signal.Signals, *, group: bool = True) -> "Tree":
    """Send a signal to a process, the group that it leads, and all that it started; return whom it met."""
    tree = _tree_of(pid, started)
    if tree and group and sys.platform != "win32":
        try:
            if os.getpgid(pid) == pid:
                os.killpg(pid, how)
        except OSError:  # it is gone
            pass
    end_each(tree, how)
    return tree


def end_each(tree: "Tree", how: signal.Signals) -> None:
    """Send a signal to each of the processes that still runs."""
    for pid, started in tree:
        try:
            if _started(pid) == started:
                os.kill(pid, how)
        except OSError:  # it is gone
            pass


def _tree_of(pid: int, started: float) -> "Tree":
    """Return the process, what is left of the session that it led, and all that they started.

    The number of a session is not reused while anything is left of it, also if its leader is gone.
    """
    if _started(pid) not in (started, None):
        return []
    tree: Tree = []
    children: dict[int, Tree] = {}
    for each, parent, session, since in _all():
        children.setdefault(parent, []).append((each, since))
        if each == pid or session == pid:
            tree.append((each, since))
    for each, _ in tree:  # it grows while it is walked
        tree += [child for child in children.get(each, ()) if child not in tree]
    return tree


if sys.platform == "linux":

    def _all() -> Iterator[tuple[int, int, int, float]]:
        """Yield the number of each process, those of its parent and its session, and its start."""
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _fields(int(name))):
                yield int(name), int(fields[1]), int(fields[3]), float(fields[19])

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

    def _all() -> Iterator[tuple[int, int, int, float]]:
        """Yield the number of each process, those of its parent and its session, and its start."""
        import psutil

        for process in psutil.process_iter():
            try:
                yield process.pid, process.ppid(), _session(process.pid), process.create_time()
            except (psutil.Error, OSError):
                continue

    def _session(pid: int) -> int:
        return 0 if sys.platform == "win32" else os.getsid(pid)

    def _started(pid: int) -> float | None:
        import psutil

        try:
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
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
