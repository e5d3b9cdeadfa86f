"""One process of the system, told apart from a later one with the same number."""

import msgspec


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process, told apart from a later one with the same number by when it started."""

    pid: int
    started: float
