"""Processes of this machine, told apart by number and start, so that a reused number is not mistaken.

On Linux the start is the kernel's own count, which no change of the clock moves. psutil serves elsewhere.
"""

import os
import sys
from typing import Final

from pml.core.ports import Process

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh", "fish"})
_LAUNCHERS: Final = frozenset({"env", "uv", "uvx", "pipx", "nice", "timeout", "nohup", "stdbuf", "cmd"})


class SystemProcesses:
    def running(self, process: Process) -> bool:
        """Tell whether this very process still runs."""
        found = _look_up(process.pid)
        return found is not None and found[0] == process

    def find(self, pid: int) -> Process | None:
        """Return the running process with this number."""
        found = _look_up(pid)
        return None if found is None else found[0]

    def ancestors(self) -> list[Process]:
        """Return this process and all above it, nearest first."""
        above: list[Process] = []
        pid = os.getpid()
        while pid and (found := _look_up(pid)) is not None:
            process, pid = found
            if process in above:
                break
            above.append(process)
        return above

    def client(self) -> Process:
        """Return the nearest process above this one that is no mere launcher, such as `sh -c` or `uv run`."""
        above = self.ancestors()
        started_by = above[1:] or above
        return next((process for process in started_by if not _launches(_words(process.pid))), started_by[-1])

    def leader(self) -> Process:
        """Return the leader of the terminal or job that this process belongs to; else its parent."""
        found = None if sys.platform == "win32" else _look_up(os.getsid(0))
        above = self.ancestors()
        return found[0] if found is not None else above[min(1, len(above) - 1)]


def _launches(words: list[str]) -> bool:
    """Tell whether a command line only starts another. A shell without `-c` is a person's, or a script's."""
    name = os.path.basename(words[0]).lower().removesuffix(".exe") if words else ""
    if name in _SHELLS:
        return any(word.startswith("-") and "c" in word for word in words[1:])
    return name in _LAUNCHERS


if sys.platform == "linux":

    def _words(pid: int) -> list[str]:
        """Return the command line of the process."""
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return [os.fsdecode(word) for word in file.read().split(b"\0") if word]
        except OSError:
            return []

    def _look_up(pid: int) -> tuple[Process, int] | None:
        """Return the running process and the number of its parent, or None."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()  # a name in front may hold anything
        except OSError:
            return None
        if fields[0] in (b"Z", b"X"):
            return None
        return Process(pid=pid, started=float(fields[19])), int(fields[1])
else:

    def _words(pid: int) -> list[str]:
        """Return the command line of the process."""
        import psutil

        try:
            return psutil.Process(pid).cmdline()
        except psutil.Error:
            return []

    def _look_up(pid: int) -> tuple[Process, int] | None:
        """Return the running process and the number of its parent, or None."""
        import psutil

        try:
            found = psutil.Process(pid)
            if found.status() == psutil.STATUS_ZOMBIE:
                return None
            return Process(pid=pid, started=found.create_time()), found.ppid()
        except psutil.Error:
            return None
