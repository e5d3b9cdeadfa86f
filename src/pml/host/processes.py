"""Processes of this machine, told apart by number and start, so that a reused number is not mistaken."""

import os

import psutil

from pml.core.ports import Process


class SystemProcesses:
    def running(self, process: Process) -> bool:
        """Tell whether this very process still runs. One that we may not look at counts as running."""
        try:
            found = psutil.Process(process.pid)
            return found.create_time() == process.started and found.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True

    def ancestors(self) -> list[Process]:
        """Return this process and all above it, nearest first."""
        found: list[Process] = []
        process: psutil.Process | None = psutil.Process(os.getpid())
        try:
            while process is not None:
                found.append(Process(pid=process.pid, started=process.create_time()))
                process = process.parent()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            pass  # what lies above cannot be seen; what was seen still counts
        return found

    def parent(self) -> Process | None:
        """Return the process that started this one, if it still runs."""
        above = self.ancestors()[1:]
        return above[0] if above else None
