"""What the tests of rules share: file systems to follow links in, and single matchers put to a value."""

import os
from dataclasses import dataclass, field

from pml.core.rules.matchers import AnyArgument, Matcher, Reach, parse_matcher
from pml.core.rules.places import CallContext
from pml.core.values import Json

NARROW, WIDE = Reach.NARROW, Reach.WIDE


@dataclass
class FakePaths:
    """A file system of links, given by their paths; paths in `broken` cannot be followed.

    Nobody can exchange the links, but for those in the folders `writable`. Only `missing` is not there.
    """

    home: str = "/home/ada"
    links: dict[str, str] = field(default_factory=dict[str, str])
    broken: frozenset[str] = frozenset()
    writable: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()

    def link(self, path: str) -> str | None:
        if path in self.missing:
            raise FileNotFoundError(path)
        if path in self.broken:
            raise OSError(f"cannot follow {path}")
        return self.links.get(path)

    def is_writable(self, folder: str) -> bool:
        return folder in self.writable

    def is_folder(self, path: str) -> bool:
        return path in self.folders

    def real(self, path: str) -> str:
        if path in self.broken:
            raise OSError(f"cannot follow {path}")
        place = ""
        for segment in path.split("/"):
            if segment == "..":
                place = place.rpartition("/")[0]
            elif segment not in ("", "."):
                place = self.links.get(f"{place}/{segment}", f"{place}/{segment}")
        return place or "/"


@dataclass
class RealPaths:
    """The real file system, in which nobody exchanges links."""

    home: str

    def real(self, path: str) -> str:
        return os.path.realpath(path)

    def link(self, path: str) -> str | None:
        try:
            return os.readlink(path)
        except FileNotFoundError:
            raise
        except OSError:
            return None

    def is_writable(self, folder: str) -> bool:
        return False

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)


PATHS = FakePaths()


def meets(
    reach: Reach,
    spec: Json,
    value: Json,
    *,
    cwd: str | None = "/repo",
    paths: FakePaths | RealPaths = PATHS,
) -> bool:
    matcher = parse_matcher("it", spec, reach=reach, base_dir="/repo", home=paths.home)
    return matcher.matches({"it": value}, reach=reach, context=CallContext(cwd, paths))


def allows(
    spec: Json, value: Json, *, cwd: str | None = "/repo", paths: FakePaths | RealPaths = PATHS
) -> bool:
    return meets(NARROW, spec, value, cwd=cwd, paths=paths)


def denies(
    spec: Json, value: Json, *, cwd: str | None = "/repo", paths: FakePaths | RealPaths = PATHS
) -> bool:
    return meets(WIDE, spec, value, cwd=cwd, paths=paths)


def parse(argument: str, spec: Json, *, reach: Reach = NARROW) -> Matcher | AnyArgument:
    return parse_matcher(argument, spec, reach=reach, base_dir="/repo", home="/home/ada")
