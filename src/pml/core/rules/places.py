"""Surroundings of a call for one judgement: the folders a path may start from, and where each path leads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pml.core.rules.any_argument import Guess, guesses, values_in
from pml.core.rules.arguments import names_base
from pml.core.rules.joined_paths import Joined, Kind, Part, join
from pml.core.rules.links import Disk, Followed, Known, follow, is_there
from pml.core.rules.readings import path_readings
from pml.core.values import Json, JsonObject


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
class CallContext:
    """What one judgement sees around the call; a path is followed once for all of its rules.

    `arguments` are the call's own. `unsure` fills with paths that a deny did not match, though by a link that
    may lead elsewhere soon.
    """

    cwd: str | None
    paths: Disk
    starts: Starts = Starts()
    arguments: JsonObject = field(default_factory=dict[str, "Json"], compare=False)
    unsure: set[str] = field(default_factory=set[str], compare=False)
    _followed: dict[str, Followed | None] = field(
        default_factory=dict[str, "Followed | None"], init=False, compare=False
    )
    _known: Known = field(default_factory=dict[str, "str | None"], init=False, compare=False)
    _folders: list[str] = field(default_factory=list[str], init=False, compare=False)
    _guesses: dict[str, list[Guess]] = field(
        default_factory=dict[str, "list[Guess]"], init=False, compare=False
    )
    _joined: list[tuple[Counter[str], Joined | None]] = field(
        default_factory=list[tuple["Counter[str]", "Joined | None"]], init=False, compare=False
    )
    _bases: "list[tuple[str, Sequence[str]]]" = field(
        default_factory=list[tuple[str, "Sequence[str]"]], init=False, compare=False
    )
    _kinds: dict[str, Kind] = field(default_factory=dict[str, Kind], init=False, compare=False)

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

    def guesses(self, text: str) -> Sequence[Guess]:
        """Return every path that a tool could make of `text`, or none when there is no telling."""
        if text not in self._guesses:
            self._guesses[text] = guesses(text, folders=self.folders(), homes=self.homes())
        return self._guesses[text]

    def joined(self, texts: Counter[str]) -> Joined | None:
        """Return the paths that these texts of the call make together, or None if they are too many."""
        for known, joined in self._joined:
            if known == texts:
                return joined
        starts = {real for folder in self.folders() if (real := self.leads_to(folder)) is not None}
        parts = [
            Part(real, text)
            for text in texts
            for guess in self.guesses(text)
            if not guess.is_open and (real := self.leads_to(guess.path)) is not None
        ]
        self._joined.append((texts, join(texts, parts, self, starts=starts)))
        return self._joined[-1][1]

    def leads_to(self, path: str) -> str | None:
        """Return where the absolute path leads, or None when there is no telling."""
        place = self.follow(path)
        return None if place is None else place.real

    def kind(self, real: str) -> Kind:
        """Return what is at a path that was followed."""
        if real not in self._kinds:
            is_nothing = self._known.get(real) == ""
            is_folder = not is_nothing and self.paths.is_folder(real)
            self._kinds[real] = Kind.NOTHING if is_nothing else Kind.FOLDER if is_folder else Kind.OTHER
        return self._kinds[real]

    def is_there(self, path: str) -> bool:
        """Tell whether anything is at a path whose folder has no links, or may be."""
        return is_there(path, self.paths, self._known)

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

    def based(self, text: str) -> tuple[str, ...] | None:
        """Return what `text` is in the folders that other arguments name; None when there is no telling."""
        if text.startswith(("/", "~")):
            return ()
        found: list[str] = []
        for base, folders in self._based():
            readings = [path_readings(text, cwd=folder, home=self.paths.home) for folder in folders]
            if base != text and not all(readings):
                return None
            found += [path for reading in readings if base != text for path in reading]
        return tuple(found)

    def _based(self) -> "list[tuple[str, Sequence[str]]]":
        if not self._bases:
            texts = {
                value
                for name, value in values_in(self.arguments)
                if name is not None and isinstance(value, str) and value and names_base(name)
            }
            self._bases.append(("", ()))
            for base in sorted(texts):
                is_sure = base.startswith(("/", "~"))  # others may be names of something else
                folders = [each for each in self.readings(base) if is_sure or self.paths.is_folder(each)]
                self._bases.append((base, folders))
        return self._bases
