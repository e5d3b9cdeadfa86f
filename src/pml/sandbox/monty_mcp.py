"""`mcp` as Python code sees it: objects that hold nothing, and what is read off them or called on them.

An object's id follows from its path, so that an execution that was dumped finds its objects in another
process. Who answers a call is not known here.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast
from uuid import UUID

from pydantic_monty import ClassInstance, ClassType

from pml.sandbox.monty_limits import LimitReached

Path = tuple[str, ...]

_MOST_LETTERS: Final = 256  # of a name; no tool has a longer one


class mcp:  # the code sees this name when it asks for the type
    """Stands for `mcp` and everything read off it."""


class Misused(Exception):
    """`mcp` was called otherwise than it can be; the message is for the code."""


class McpTree:
    """The objects that the code of one run has got."""

    def __init__(self, paths: Iterable[Sequence[str]], *, most: int) -> None:
        self._type = ClassType(mcp, id=_id_of(("type",) * 4))
        self._most = most
        self._paths: dict[UUID, Path] = {}
        self._objects: dict[UUID, ClassInstance] = {}
        for path in paths:
            self._object(tuple(path))

    @property
    def root(self) -> ClassInstance:
        return self._object(())

    @property
    def paths(self) -> list[Path]:
        return list(self._paths.values())

    def read(self, holder: UUID, name: str) -> ClassInstance | None:
        """Return what `name` is on the object `holder`; None if it has no such attribute."""
        path = self._paths.get(holder)
        if path is None or len(path) > 1 or len(name) > _MOST_LETTERS or name.startswith("__"):
            return None
        return self._object((*path, name))

    def called(self, holder: UUID, method: str) -> tuple[str, str]:
        """Return namespace and action of a call. Raises: Misused."""
        path = self._paths.get(holder, ())
        path = path if method == "__call__" else (*path, method)
        if len(path) != 2:
            raise Misused(f"`{'.'.join(('mcp', *path))}` cannot be called: call `mcp.namespace.action(...)`")
        return path[0], path[1]

    def _object(self, path: Path) -> ClassInstance:
        id = _id_of(path)
        if id not in self._objects:
            if len(self._objects) >= self._most:
                raise LimitReached(f"the code reads more than {self._most:,} names off `mcp`")
            self._paths[id] = path
            self._objects[id] = ClassInstance(mcp(), id=id, class_type=self._type)
        return self._objects[id]


def _id_of(path: Path) -> UUID:
    named = b"".join(len(name.encode()).to_bytes(4) + name.encode() for name in path)
    return UUID(bytes=hashlib.sha256(b"mcp" + named).digest()[:16])


def arguments_of(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call: keywords, or one dict. Raises: Misused."""
    if not args:
        return kwargs
    if len(args) == 1 and not kwargs and isinstance(args[0], dict):
        return cast(dict[str, Any], args[0])
    raise Misused("a tool takes keyword arguments, or one dict with them")
