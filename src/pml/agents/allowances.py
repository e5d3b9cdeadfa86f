"""Allowances: entries in Claude Code's settings by which it lets tools of PML's gateway run without a prompt.

Right only while PML asks about those tools itself. A file that cannot be read has none here; `pml doctor`
tells of it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pml.agents.claude_code.settings import allowed_in, read_settings
from pml.core.errors import PmlError


def allowances(path: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the entries of a settings file that let tools of these servers run, each with its server."""
    try:
        text = read_settings(path)
        allowed = [] if text is None else allowed_in(text, path)
    except PmlError:
        return []
    entries = [entry for entry in allowed if isinstance(entry, str)]
    return [(name, entry) for name in names for entry in entries if _covers(entry, name)]


def is_left_to_pml(files: Iterable[Path], names: Sequence[str]) -> bool:
    """Tell whether settings let all tools of one of these servers run, so that the client asks about none."""
    return any(
        entry in (f"mcp__{name}", f"mcp__{name}__*")
        for path in files
        for name, entry in allowances(path, names)
    )


def _covers(entry: str, name: str) -> bool:
    return entry == f"mcp__{name}" or entry.startswith(f"mcp__{name}__")
