"""Joined paths: what a tool could put together of a call's arguments, a folder in one, the rest in another.

`{"cwd": "/home/me", "path": ".ssh/id"}` is one, and a tool may take three parts as well. Which of these paths
matter is not known here, and the file system is seen only through `Ground`.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeAlias

MAX_PARTS: Final = 4
MAX_PAIRS: Final = 3_000  # of a folder and a step of a path, looked at once for all rules
_MAX_WAYS: Final = 2  # to one folder: what is used up by one way to it may follow the other
_NOT_PLAIN: Final = re.compile(r"[%\\*?\[{$]")

Way: TypeAlias = tuple[str, tuple[str, ...]]  # a folder, and the texts that led to it


class Kind(Enum):
    FOLDER = "folder"
    NOTHING = "nothing"
    OTHER = "other"


class Ground(Protocol):
    """The file system."""

    def leads_to(self, path: str) -> str | None:
        """Return where the absolute path leads, or None when there is no telling."""
        ...

    def kind(self, real: str) -> Kind:
        """Return what is at a path that has no links."""
        ...

    def is_there(self, path: str) -> bool:
        """Tell whether anything is at a path whose folder has no links, or may be."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Where a text of the call leads by itself, without links."""

    real: str
    text: str


@dataclass(frozen=True, slots=True)
class Joined:
    """What the texts of a call make together: `paths` where something is, each with the last of its texts."""

    texts: Mapping[str, int]
    starts: Collection[str]
    paths: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    ways: list[Way] = field(default_factory=list[Way])

    def toward(self, is_above: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
        """Yield the paths from folders above something, which need not be there, as `paths` need."""
        todo = [way for way in self.ways if is_above(way[0])]
        for folder, used in todo:  # grows while it is read
            for text in self.texts:
                is_read_anyway = folder in self.starts and not text.startswith("/")
                if is_read_anyway or text.startswith("~") or used.count(text) >= self.texts[text]:
                    continue
                for path in _spelt(folder, text):
                    yield path, text
                    tidied = posixpath.normpath(path)
                    if len(used) + 1 < MAX_PARTS and tidied != folder and is_above(tidied):
                        todo.append((tidied, (*used, text)))


def join(
    texts: Mapping[str, int], parts: Iterable[Part], ground: Ground, *, starts: Collection[str]
) -> Joined | None:
    """Return what the texts that may be paths make together, or None if it is too much to look at.

    `texts` tells how often each is there: none is used more often. From `starts` a path is read anyway. In
    what does not exist there are no links: only `..` leads out of it again.
    """
    joined = Joined(texts, starts)
    relative = [text for text in texts if text[:1] not in ("/", "~")]
    climbing = [text for text in relative if ".." in text]
    todo: list[Way] = [(part.real, (part.text,)) for part in parts]
    ways: dict[str, set[tuple[str, ...]]] = {}
    steps = {Kind.FOLDER: _steps(relative), Kind.NOTHING: _steps(climbing), Kind.OTHER: 0}
    left = max(MAX_PAIRS, 4 * steps[Kind.FOLDER])
    for folder, used in todo:  # grows while it is read
        known = ways.setdefault(folder, set())
        if len(known) >= _MAX_WAYS or used in known:
            continue
        known.add(used)
        joined.ways.append((folder, used))
        kind = Kind.OTHER if folder in starts or not relative else ground.kind(folder)
        rests = relative if kind is Kind.FOLDER else climbing if kind is Kind.NOTHING else []
        left -= steps[kind]
        if left < 0:
            return None
        for text in rests:
            if used.count(text) >= texts[text] or not _may_be_there(folder, text, ground):
                continue
            for path in _spelt(folder, text):
                joined.paths.append((path, text))
                if len(used) + 1 < MAX_PARTS and (real := ground.leads_to(path)) is not None:
                    todo.append((real, (*used, text)))
    return joined


def _steps(texts: Iterable[str]) -> int:
    return sum(text.count("/") + 1 for text in texts)


def _may_be_there(folder: str, text: str, ground: Ground) -> bool:
    """Say whether the first step leads to something, or may: else the path stays where it begins."""
    first = text.partition("/")[0]
    if first in ("", ".") or ".." in text or _NOT_PLAIN.search(first):
        return True
    return ground.is_there(f"{folder.rstrip('/')}/{first}")


def _spelt(folder: str, text: str) -> Iterable[str]:
    """Return the path as it is written, and tidied, which is another where a link comes before `..`."""
    written = f"{folder.rstrip('/')}/{text.lstrip('/')}"
    return dict.fromkeys((written, posixpath.normpath(written))) if ".." in text else (written,)
