"""Limits of one program, and the kernel's part in keeping it to them. What it does is not known here.

V8's own limit leaves out array buffers, so the kernel bounds the data of the process as well; where it cannot
(outside Linux), the watch over its resident memory is what holds.
"""

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import Final

from pml.core.values import MAX_DEPTH

_FILES: Final = 64  # pipes, timers and threads of the runtime; a program opens none
_STARTUP_CPU_S: Final = 1  # what getting ready may have cost by then


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one program. A turn is what it does between two replies."""

    turn_s: float = 30.0
    cpu_s: int = 60  # in the whole run; it also ends a loop whose host was killed
    heap_mb: int = 256
    memory_mb: int = 512
    open_requests: int = 1000
    requests: int = 10_000
    result_bytes: int = 10 * 1024 * 1024
    line_bytes: int = 16 * 1024 * 1024  # all that is said in one turn, and one reply
    log_bytes: int = 256 * 1024
    message_chars: int = 4000
    sleep_s: float = 24 * 3600.0

    def told(self) -> dict[str, float]:
        """Return what the runner itself must heed."""
        return {
            "open": self.open_requests,
            "requests": self.requests,
            "result": self.result_bytes,
            "line": self.line_bytes,
            "logs": self.log_bytes,
            "message": self.message_chars,
            "sleep": self.sleep_s,
            "depth": MAX_DEPTH,
        }


if sys.platform == "linux":
    import resource

    def bound(pid: int, limits: Limits) -> None:
        """Have the kernel hold the process to `limits`. It has run nothing but the runner yet."""
        cpu_s = limits.cpu_s + _STARTUP_CPU_S
        data = _data_bytes(pid) + limits.memory_mb * 1024 * 1024
        bounds = {
            resource.RLIMIT_DATA: data,
            resource.RLIMIT_CPU: cpu_s,
            resource.RLIMIT_NOFILE: _FILES,
            resource.RLIMIT_FSIZE: 0,
            resource.RLIMIT_CORE: 0,
        }
        # Not the number of processes: the kernel counts those of the user, not of one process.
        for kind, most in bounds.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, kind, (most, most))

    def resident_bytes(pid: int) -> int:
        """Return the memory that the process holds; 0 once it is gone."""
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def _data_bytes(pid: int) -> int:
        """Return what is part of RLIMIT_DATA already: V8 sets some 550 MB aside that it never uses."""
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmData:"):
                    return int(line.split()[1]) * 1024
        return 1024**3

else:

    def bound(pid: int, limits: Limits) -> None:
        """Other systems set no limits from outside: V8's own, the clock and the watch remain."""

    def resident_bytes(pid: int) -> int:
        """Return the memory that the process holds; 0 once it is gone."""
        import psutil

        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
