"""Marks of agents: variables by which a command can tell that an agent had it started.

PML sets its own for all that it starts; `agents/<client>` has those that a client sets for its shells and
servers. A variable that editors also set in the terminals of people (`CURSOR_TRACE_ID`, `TERM_PROGRAM`) is
not among them. Whoever runs commands can remove a variable: a mark tells of an agent, its absence tells
nothing.
"""

from collections.abc import Mapping
from typing import Final

MARK: Final = "PML_AGENT"  # PML's own
SET: Final = {MARK: "1"}


def find_mark(environ: Mapping[str, str], marks: Mapping[str, str]) -> str | None:
    """Return in words which mark the environment carries, None if it has none; an empty one is none.

    `marks` are those of clients, each with whom it tells of.
    """
    known = {MARK: "PML", **marks}
    name = next((name for name in known if environ.get(name)), None)
    return None if name is None else f"`{name}` is set, as {known[name]} does for what it starts"
