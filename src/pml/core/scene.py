"""What one judgement sees around a call: the folders a path may start from, and where each path leads."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pml.core.links import Disk, Followed, Known, follow
from pml.core.readings import path_readings


@dataclass(frozen=True, kw_only=True, slots=True)
class Starts:
    """Where a server's relative paths may begin: `named` are those among its arguments that are folders.

    `homes` are what `~` stands for to it, beside the user's own. `own` is the folder that PML made for it.
    """

    folders: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    own: str | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What one judgement sees around the call; a path is followed once for all of its rules.

    `unsure` fills with paths that a deny did not match, though by a link that may lead elsewhere soon.
    """

    cwd: str | None
    paths: Disk
    starts: Starts = Starts()
    unsure: set[str] = field(default_factory=set[str], compare=False)
    _followed: dict[str, Followed | None] = field(
        default_factory=dict[str, "Followed | None"], init=False, compare=False
    )
    _known: Known = field(default_factory=dict[str, "str | None"], init=False, compare=False)
    _folders: list[str] = field(default_factory=list[str], init=False, compare=False)

    def follow(self, path: str) -> Followed | None:
        """Return where the absolute `path` leads, or None when there is no telling."""
        if path not in self._followed:
            try:
                self._followed[path] = follow(path, self.paths, self._known)
            except (OSError, ValueError):
                self._followed[path] = None
        return self._followed[path]

    def folders(self) -> Sequence[str]:
        """Return every folder that a relative path could be opened from; none if that is not known."""
        if not self._folders and self.cwd is not None and self.cwd.startswith("/"):
            named = filter(self.paths.is_folder, self.starts.named)
            self._folders.extend(dict.fromkeys([self.cwd, *self.starts.folders, *named]))
        return self._folders

    def homes(self) -> Sequence[str]:
        """Return all that `~` could stand for."""
        return (self.paths.home, *self.starts.homes)

    def readings(self, text: str) -> tuple[str, ...]:
        """Return the absolute paths that `text` can stand for, or () when there is no telling."""
        if text.startswith("/"):
            return path_readings(text, cwd=None, home=self.paths.home)
        found: list[str] = []
        for folder in self.folders() or (None,):
            for home in self.homes():
                readings = path_readings(text, cwd=folder, home=home)
                if not readings:
                    return ()
                found += readings
        return tuple(dict.fromkeys(found))
