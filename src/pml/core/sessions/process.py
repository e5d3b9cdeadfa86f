"""One process of the system, distinguishable from a later one with the same number."""

import msgspec


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process, distinguishable from a later one with the same number by when it started."""

    pid: int
    started: float
