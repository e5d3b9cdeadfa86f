"""Joined paths: what a tool could put together of a call's arguments, a folder in one, the rest in another.

`{"cwd": "/home/me", "path": ".ssh/id"}` is one, and a tool may take three parts as well. Which of these paths
matter is not known here, and the file system is seen only through `Ground`.
"""

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

MAX_PARTS: Final = 4


class Kind(Enum):
    FOLDER = "folder"
    NOTHING = "nothing"
    OTHER = "other"


class Ground(Protocol):
    """The file system, and what is looked for in it."""

    def leads_to(self, path: str) -> str | None:
        """Return where the absolute path leads, or None when there is no telling."""
        ...

    def kind(self, real: str) -> Kind: ...

    def is_above(self, real: str) -> bool:
        """Tell whether what is looked for lies beneath, whether or not anything is there yet."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Where a text of the call leads by itself, without links."""

    real: str
    text: str


def joined_paths(
    texts: Mapping[str, int], parts: Iterable[Part], ground: Ground, *, starts: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield each path that two or more of the texts make, with the last of these texts.

    `texts` are all that may be paths, and how often each is there: none is used more often. From `starts` a
    path is read anyway. In what does not exist there are no links: only `..` leads out of it again.
    """
    relative = [text for text in texts if text[:1] not in ("/", "~")]
    climbing = [text for text in relative if ".." in text.split("/")]
    absolute = [text for text in texts if text.startswith("/")]
    todo: list[tuple[str, tuple[str, ...]]] = [(part.real, (part.text,)) for part in parts]
    done: set[tuple[str, tuple[str, ...]]] = set()
    for folder, used in todo:  # grows while it is read
        key = (folder, tuple(sorted(used)))
        if key in done:
            continue
        done.add(key)
        is_above = ground.is_above(folder)
        rests = () if folder in starts or not relative else relative
        if rests and not is_above:
            kind = ground.kind(folder)
            rests = relative if kind is Kind.FOLDER else climbing if kind is Kind.NOTHING else ()
        for text in (*rests, *absolute) if is_above else rests:
            if used.count(text) >= texts[text]:
                continue
            for path in _spelt(folder, text):
                yield path, text
                if len(used) + 1 < MAX_PARTS and (real := ground.leads_to(path)) is not None:
                    todo.append((real, (*used, text)))


def _spelt(folder: str, text: str) -> Iterable[str]:
    """Return the path as it is written, and tidied, which is another where a link comes before `..`."""
    written = f"{folder.rstrip('/')}/{text.lstrip('/')}"
    return dict.fromkeys((written, posixpath.normpath(written))) if ".." in text else (written,)
