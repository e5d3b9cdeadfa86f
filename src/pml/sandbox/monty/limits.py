"""Limits of Python code, and what it is told when it has reached one."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class MontyLimits:
    """One turn is what the code does between two replies; time that it waits is not included."""

    turn_s: float = 30.0
    memory_bytes: int = 256 * 1024 * 1024
    recursion: int = 1_000
    code_bytes: int = 1024 * 1024
    open_requests: int = 1_000
    requests: int = 10_000
    arguments_bytes: int = 10 * 1024 * 1024  # of all calls in one turn
    names: int = 2_000  # read off `mcp`
    result_bytes: int = 10 * 1024 * 1024
    logs_bytes: int = 256 * 1024
    sleep_s: float = 24 * 3600.0
    random_bytes: int = 1024 * 1024  # of one `os.urandom`
    dump_bytes: int = 32 * 1024 * 1024  # a larger one is not made: the run is replayed instead
    runs: int = 256  # at once; each has a process of some 6 MB


class LimitReached(Exception):
    """The code has used up what it may use; the message says what."""
