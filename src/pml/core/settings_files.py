"""Settings files: what says what agents may do. Who writes one can undo a deny, so that is a person's.

The one table of them; another client's files are added here. Where they lie is told by the end of the path.
A folder that holds one is as good as the file: who moves, replaces or removes it does so to the file too.
"""

import re
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
    "Codex": (".codex/config.toml", ".codex/hooks.json", ".codex/rules/*.rules"),
    "Gemini CLI": (".gemini/settings.json",),
    "opencode": ("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
    "Cline": (".clinerules/hooks/*",),
    "Cursor": (".cursor/mcp.json", ".cursor/hooks.json", ".cursor/cli.json", ".cursor/permissions.json"),
    "VS Code": (".vscode/mcp.json", ".vscode/settings.json"),
    "Copilot": (".github/hooks/*.json",),
}
_SHARED_FOLDERS: Final = frozenset({".github"})  # mostly about other things
_ALL: Final = tuple(path for paths in SETTINGS_FILES.values() for path in paths)
_FOLDERS: Final = tuple(
    dict.fromkeys(
        path[:end]
        for path in _ALL
        for end, character in enumerate(path)
        if character == "/" and path[:end] not in _SHARED_FOLDERS
    )
)
_GLOBS: Final = tuple((path.count("/") + 1, Glob(path)) for path in _ALL)
_FOLDER_GLOBS: Final = tuple((path.count("/") + 1, Glob(path)) for path in _FOLDERS)
# a bare `*`, of a folder whose every file counts, would be every name
_LAST: Final = tuple(Glob(last) for path in _ALL if (last := path.rpartition("/")[2]) != "*")
_FIRST: Final = frozenset(path.partition("/")[0] for path in _ALL)  # none has a star
_DEPTH: Final = max(path.count("/") for path in _ALL) + 1
_MOST_CHARS: Final = 255  # of a name on disk


def _in_commands() -> re.Pattern[str]:
    files = "|".join(re.escape(path).replace(r"\*", r"[^/\s]*") for path in _ALL)
    folders = "|".join(map(re.escape, _FOLDERS))
    ends = rf"(?:{files})(?![a-z0-9])|(?:{folders})(?:/\.?)?(?![\w./-])|\.claude/settings"
    return re.compile(rf"(?<![a-z0-9])(?:{ends})")


IN_COMMANDS: Final = _in_commands()
"""What names a settings file, or a folder of them, in a command of lower case."""
HINTS: Final = tuple(dict.fromkeys((".json", *(path.partition("/")[0] for path in _FOLDERS), ".github/")))
"""One of these is in every such command, and they are sooner looked for."""


def settings_file(path: str) -> str | None:
    """Return the end of the path by which it is a settings file, or None if it is not one."""
    return _end_among(_GLOBS, path)


def settings_folder(path: str) -> str | None:
    """Return the end of the path by which it is a folder of settings files, or None if it is not one."""
    return _end_among(_FOLDER_GLOBS, path)


def is_named_like_one(text: str) -> bool:
    """Tell whether the text could be the bare name of such a file or folder."""
    if len(text) > _MOST_CHARS:
        return False
    name = fold(text)
    return name in _FOLDERS or any(glob.matches(name) for glob in _LAST)


def settings_files_in(folder: str) -> Iterator[str]:
    """Yield where the files would lie that belong to a workspace or a home."""
    return (f"{folder.rstrip('/')}/{path}" for path in _ALL if "*" not in path)


def settings_folders_in(folder: str) -> Iterator[str]:
    """Yield where the folders of such files would lie."""
    return (f"{folder.rstrip('/')}/{path}" for path in _FOLDERS)


def _end_among(globs: tuple[tuple[int, Glob], ...], path: str) -> str | None:
    parts = fold(path).rsplit("/", _DEPTH)[-_DEPTH:]
    if _FIRST.isdisjoint(parts) or len(parts[-1]) > _MOST_CHARS:
        return None
    for length, glob in globs:
        end = "/".join(parts[-length:])
        if glob.matches(end):
            return end
    return None
