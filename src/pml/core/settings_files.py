"""Settings files: what says what agents may do. Who writes one can undo a deny, so that is a person's.

The one table of them; another client's files are added here. Where they lie is told by the end of the path.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pml.core.globs import Glob
from pml.core.readings import fold

SETTINGS_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "PML": (".pml.json",),
    "Claude Code": (
        ".mcp.json",
        ".claude.json",
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".claude/settings*.json",
    ),
}
_ALL: Final = tuple(path for paths in SETTINGS_FILES.values() for path in paths)
_GLOBS: Final = tuple((path.count("/") + 1, Glob(path)) for path in _ALL)
_LAST: Final = tuple(Glob(path.rpartition("/")[2]) for path in _ALL)
_MOST_CHARS: Final = 255  # of a name on disk


def settings_file(path: str) -> str | None:
    """Return the end of the path by which it is a settings file, or None if it is not one."""
    parts = fold(path).split("/")
    if len(parts[-1]) > _MOST_CHARS:
        return None
    for length, glob in _GLOBS:
        end = "/".join(parts[-length:])
        if glob.matches(end):
            return end
    return None


def is_named_like_one(text: str) -> bool:
    """Tell whether the text could be the bare name of such a file."""
    return len(text) <= _MOST_CHARS and any(glob.matches(fold(text)) for glob in _LAST)


def settings_files_in(folder: str) -> Iterator[str]:
    """Yield where the files would lie that belong to a workspace or a home."""
    return (f"{folder.rstrip('/')}/{path}" for path in _ALL if "*" not in path)
