"""Look-ups within a budget: where paths lead, each prefix looked up once for all paths of a call.

What exceeds the budget has no answer, and the caller must treat it as in doubt. Which paths matter is not
known here, and the file system is seen only through `Tree`.
"""

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from pml.core.rules.links import MAX_LINKS, Disk

Identity: TypeAlias = tuple[int, int]  # device and number of a file, which all of its names share
Look: TypeAlias = "str | Identity | None"  # what a link says, which file it is, or that there is none


class OverBudget(Exception):
    """There is more to look at than may be looked at."""


class Tree(Disk, Protocol):
    """The file system, looked at one name at a time."""

    def look(self, path: str) -> Look:
        """Return what lies at the absolute `path`, whose folders are no links. Never raises."""
        ...


@dataclass(kw_only=True, slots=True)
class Budget:
    """What one look at a call may cost: values and texts, segments of paths walked, names looked up."""

    values: int
    texts: int
    chars: int
    segments: int
    lookups: int

    def take(
        self, *, values: int = 0, texts: int = 0, chars: int = 0, segments: int = 0, lookups: int = 0
    ) -> None:
        """Pay. Raises: OverBudget."""
        self.values -= values
        self.texts -= texts
        self.chars -= chars
        self.segments -= segments
        self.lookups -= lookups
        if min(self.values, self.texts, self.chars, self.segments, self.lookups) < 0:
            raise OverBudget


@dataclass(slots=True)
class Walk:
    """Follows paths. What does not exist leads to its own name, as for `os.path.realpath`."""

    tree: Tree
    budget: Budget
    _looked: dict[str, Look] = field(default_factory=dict[str, "Look"], init=False)

    def follow(self, path: str) -> tuple[str, Identity | None]:
        """Return where the absolute `path` leads, and which file that is, None if it does not exist.

        Raises: OverBudget; OSError and ValueError for what no system can open.
        """
        if "\0" in path or not path.startswith("/"):
            raise ValueError("expected an absolute path without NUL")
        kept, missing = [""], 0  # the prefixes down to here; from how many of them on nothing exists
        todo = path.split("/")[::-1]
        self.budget.take(segments=len(todo))
        links = 0
        while todo:
            segment = todo.pop()
            if segment in ("", "."):
                continue
            if segment == "..":
                del kept[-1:]
                kept = kept or [""]
                missing = missing if len(kept) > missing else 0
                continue
            here = f"{kept[-1]}/{segment}"
            look = None if missing else self._look(here)
            if isinstance(look, str):
                links += 1
                if links > MAX_LINKS:
                    raise OSError("too many links")
                steps = look.split("/")
                self.budget.take(segments=len(steps))
                todo += steps[::-1]
                kept = [""] if look.startswith("/") else kept
                continue
            missing = missing or (len(kept) if look is None else 0)
            kept.append(here)
        real = kept[-1] or "/"
        look = None if missing else self._look(real)
        return real, None if isinstance(look, str) else look

    def is_there(self, path: str) -> bool:
        """Tell whether anything is at the absolute `path`, whose folders are no links. Raises: OverBudget."""
        return self._look(path) is not None

    def _look(self, path: str) -> Look:
        if path not in self._looked:
            self.budget.take(lookups=1)
            self._looked[path] = self.tree.look(path)
        return self._looked[path]
