"""The folders above an installed server's files out of which code that nobody proved could be loaded.

Deno and node look for a package in every `node_modules` from the file that asks for it up to the root, and
Deno does so whatever it may read. A package that is missing among the proven files is taken from there.
"""

import os
from collections.abc import Iterator
from typing import Final

from pml.core.errors import ServerFailed
from pml.core.servers import Artefact
from pml.core.text import quote
from pml.upstream.reach import SYSTEM, Reach, within, within_any

_MODULES: Final = "node_modules"


def strays_of(artefact: Artefact | None) -> tuple[str, ...]:
    """Return the `node_modules` above the server's files, by the path of these as given and the real one."""
    if artefact is None or not os.path.isdir(os.path.join(artefact.path, _MODULES)):
        return ()
    tree = os.path.normpath(artefact.path)
    above = dict.fromkeys((*_above(tree), *_above(os.path.realpath(tree))))
    paths = (os.path.join(folder, _MODULES) for folder in above)
    return tuple(path for path in paths if os.path.isdir(path) or os.path.islink(path))


def refuse_strays(server: str, strays: tuple[str, ...]) -> None:
    """Raises: ServerFailed if there is one.

    Landlock is no reason to pass it: it hides no link, and one in there may lead to what is within reach.
    """
    if strays:
        raise ServerFailed(
            f"server `{server}` cannot be started: code in {quote(strays[0])} could be loaded unproven",
            hint="move that folder away",
        )


def strays_to_mask(server: str, strays: tuple[str, ...], reach: Reach, *, hidden: str) -> tuple[str, ...]:
    """Return those of `strays` that a box would show, and that can be masked. Raises: ServerFailed."""
    outside = [path for path in strays if not within(path, hidden)]
    given = (*reach.read, *reach.write, *(link for link, _ in reach.links))
    seen = [path for path in outside if within_any(path, (*reach.folders, *SYSTEM))]
    refuse_strays(
        server,
        (
            *(path for path in outside if any(within(each, path) for each in given)),
            *(path for path in seen if os.path.islink(path)),
        ),
    )
    return tuple(path for path in seen if os.path.realpath(path) == path)


def _above(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent
