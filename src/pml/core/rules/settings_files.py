"""Settings files: what says what agents may do. Who writes one can undo a deny, so that is a person's.

Which they are is told by each client's table; where they lie is told by the end of the path. A folder that
holds one is as good as the file: who moves, replaces or removes it does so to the file too.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from pml.core.rules.globs import Glob, has_wildcard
from pml.core.rules.readings import fold

_SHARED_FOLDERS: Final = frozenset({".github", ".config", "code", "code/user"})  # mostly about other things
_MOST_CHARS: Final = 255  # of a name on disk


class SettingsFiles:
    """The table of all settings files, made once: `paths` are ends of paths.

    `named_by` are texts that are enough to name one in a command.
    """

    def __init__(self, paths: Sequence[str], *, named_by: Sequence[str]) -> None:
        """Raises: ValueError for a star in the first part of a path: such a file would not be found."""
        firsts = [path.partition("/")[0] for path in paths]
        if any("*" in first for first in firsts):
            raise ValueError("the first part of a settings file's path has no star")
        self._paths = tuple(paths)
        self._folders = _folders_of(paths)
        self._globs = tuple((path.count("/") + 1, Glob(path)) for path in paths)
        self._folder_globs = tuple((path.count("/") + 1, Glob(path)) for path in self._folders)
        # a bare `*`, of a folder whose every file counts, would be every name
        last = {name for path in paths if (name := path.rpartition("/")[2]) != "*"}
        self._names = frozenset((*(name for name in last if not has_wildcard(name)), *self._folders))
        globs = [name for name in sorted(last) if has_wildcard(name)]
        self._name_globs = tuple(map(Glob, globs))
        ends = {name.rpartition("*")[2] for name in globs}
        self._name_ends = tuple("" if has_wildcard(end) else end for end in ends)  # every text ends with ""
        self._first = frozenset(firsts)
        self._depth = max(path.count("/") for path in paths) + 1
        self.in_commands: Final = _in_commands(paths, self._folders, named_by)
        """What names a settings file, or a folder of them, in a command of lower case."""
        hints = {".json", *firsts, *named_by}
        self.hints: Final = tuple(
            sorted(each for each in hints if not any(o in each for o in hints - {each}))
        )
        """One of these is in every such command, and they are sooner looked for."""

    def file(self, path: str) -> str | None:
        """Return the end of the path by which it is a settings file, or None if it is not one."""
        return self._end_among(self._globs, path)

    def folder(self, path: str) -> str | None:
        """Return the end of the path by which it is a folder of settings files, or None if it is not one."""
        return self._end_among(self._folder_globs, path)

    def is_named_like_one(self, text: str) -> bool:
        """Tell whether the text could be the bare name of such a file or folder."""
        if len(text) > _MOST_CHARS:
            return False
        name = fold(text)
        if name in self._names:
            return True
        return name.endswith(self._name_ends) and any(glob.matches(name) for glob in self._name_globs)

    def files_in(self, folder: str) -> Iterator[str]:
        """Yield where the files would lie that belong to a workspace or a home."""
        return (f"{folder.rstrip('/')}/{path}" for path in self._paths if "*" not in path)

    def folders_in(self, folder: str) -> Iterator[str]:
        """Yield where the folders of such files would lie."""
        return (f"{folder.rstrip('/')}/{path}" for path in self._folders)

    def _end_among(self, globs: tuple[tuple[int, Glob], ...], path: str) -> str | None:
        parts = fold(path).rsplit("/", self._depth)[-self._depth :]
        if self._first.isdisjoint(parts) or len(parts[-1]) > _MOST_CHARS:
            return None
        for length, glob in globs:
            end = "/".join(parts[-length:])
            if glob.matches(end):
                return end
        return None


def _folders_of(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            path[:end]
            for path in paths
            for end, character in enumerate(path)
            if character == "/" and path[:end] not in _SHARED_FOLDERS
        )
    )


def _in_commands(paths: Sequence[str], folders: Sequence[str], named_by: Sequence[str]) -> re.Pattern[str]:
    files = "|".join(re.escape(path).replace(r"\*", r"[^/\s]*") for path in paths)
    ends = [rf"(?:{files})(?![a-z0-9])"]
    if folders:
        ends.append(rf"(?:{'|'.join(map(re.escape, folders))})(?:/\.?)?(?![\w./-])")
    ends += map(re.escape, named_by)
    return re.compile(rf"(?<![a-z0-9])(?:{'|'.join(ends)})")
