"""The bundled catalog: well-known servers, pinned, with the locks of their closures. Needs no network.

One small file tells of each server; its lock is read only when that server is asked for. `scripts/catalog`
makes the files and verifies them.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from pml.core.errors import Invalid
from pml.core.packages.capability import CapabilityMetadata, metadata_in
from pml.core.packages.fields import Fields
from pml.core.packages.lock import Lock, parse_lock
from pml.core.ports.loader import Found
from pml.core.values import loads

SOURCE: Final = "catalog"
LOCKS: Final = "locks"

_BUNDLED: Final = Path(__file__).with_name("bundled")


class Catalog:
    """The catalog in `folder`; the default is the one that ships with PML."""

    def __init__(self, folder: Path = _BUNDLED) -> None:
        self._folder = folder
        self._whole: dict[str, Found] = {}

    def bundled(self) -> Sequence[Found]:
        """Return every server, by name; of the locks only the digests. Raises: Invalid."""
        return tuple(self._index.values())

    def find(self, name: str) -> Found | None:
        """Return the server with its whole lock. Raises: Invalid if its files do not belong together."""
        if name not in self._whole:
            light = self._index.get(name)
            if light is None:
                return None
            whole = tuple(
                replace(dependency, lock=self._lock(dependency.name, dependency.lock))
                for dependency in light.metadata.mcp_deps
            )
            self._whole[name] = replace(light, metadata=replace(light.metadata, mcp_deps=whole))
        return self._whole[name]

    @cached_property
    def _index(self) -> Mapping[str, Found]:
        found = [
            Found(metadata=_metadata(path), source=SOURCE) for path in sorted(self._folder.glob("*.json"))
        ]
        return {dependency.name: each for each in found for dependency in each.metadata.mcp_deps}

    def _lock(self, name: str, digest: Lock | str | None) -> Lock:
        what = f"the catalog's lock of `{name}`"
        try:
            content = (self._folder / LOCKS / f"{name}.json").read_bytes()
        except OSError as exc:
            raise Invalid(f"{what} cannot be read: {exc.strerror}") from exc
        lock = parse_lock(loads(content, what=what), what=what)
        if lock.digest != digest:
            raise Invalid(f"{what} is not the one that its entry names")
        return lock


def _metadata(path: Path) -> CapabilityMetadata:
    """Return an entry. It is part of PML and verified when it is made: not each of its texts is looked at."""
    what = f"the catalog's {path.name}"
    try:
        value = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Invalid(f"{what} is not JSON: {exc}") from exc
    return metadata_in(Fields(what=what, value=value))
