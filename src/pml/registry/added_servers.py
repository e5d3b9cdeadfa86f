"""Servers that the user added: a folder of registry entries, `PML_HOME/added`, each with its whole lock.

What a name means here, it means before the catalog and any registry. Writing it is a person's: who may is
not known here.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import Invalid, PmlError
from pml.core.packages.capability import CapabilityMetadata, metadata_json, parse_metadata
from pml.core.ports.loader import ADDED, Found
from pml.core.servers.spec import server_name_problem
from pml.core.text import quote, visible
from pml.host.disk import unavailable
from pml.host.private import private_directory
from pml.host.replace import replace_file, sync_directory
from pml.registry.entry_forms import MAX_BYTES, SUFFIX, Form
from pml.registry.plain_files import read_plain

ADDED_FOLDER: Final = "added"
_SUFFIX: Final = SUFFIX[Form.METADATA]


class AddedServers:
    """The added servers of one `PML_HOME`; a file is parsed again when it has changed."""

    def __init__(self, home: Path, *, warn: Callable[[str], None] = lambda _: None) -> None:
        self._folder = home / ADDED_FOLDER
        self._warn = warn
        self._parsed: dict[str, tuple[tuple[int, int, int], Found]] = {}
        self._warned: set[str] = set()

    def all(self) -> Sequence[Found]:
        """Return the servers, by name; one whose file is not sound is told of and left out."""
        try:
            files = sorted(os.listdir(self._folder))
        except OSError:
            return ()
        found: list[Found] = []
        for file in files:
            name = file.removesuffix(_SUFFIX)
            if name == file or server_name_problem(name):
                continue
            try:
                each = self.find(name)
            except PmlError as exc:
                if exc.message not in self._warned:
                    self._warned.add(exc.message)
                    self._warn(visible(exc.message))
                continue
            found += [] if each is None else [each]
        return found

    def is_there(self, name: str) -> bool:
        """Tell whether there is a file of the server, sound or not."""
        return not server_name_problem(name) and os.path.lexists(self._path(name))

    def find(self, name: str) -> Found | None:
        """Return the server, None if none of that name was added. Raises: Invalid, Unavailable."""
        if server_name_problem(name):
            return None
        path = self._path(name)
        try:
            status = os.lstat(path)
        except OSError:
            self._parsed.pop(name, None)
            return None
        mark = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._parsed.get(name)
        if known is not None and known[0] == mark:
            return known[1]
        body = read_plain(path, limit=MAX_BYTES[Form.METADATA])
        if body is None:
            return None
        metadata = parse_metadata(body, what=str(path))
        if [dependency.name for dependency in metadata.mcp_deps] != [name]:
            raise Invalid(f"{quote(str(path))} is not about a server `{name}`", hint=f"pml remove {name}")
        found = Found(metadata=metadata, source=ADDED)
        self._parsed[name] = mark, found
        return found

    def write(self, metadata: CapabilityMetadata) -> Path:
        """Keep the server, durably, and return its file. Raises: Invalid, Unavailable."""
        [dependency] = metadata.mcp_deps
        path = self._path(dependency.name)
        body = msgspec.json.format(msgspec.json.encode(metadata_json(metadata)), indent=2) + b"\n"
        if len(body) > MAX_BYTES[Form.METADATA]:
            raise Invalid(f"server `{dependency.name}` depends on more packages than PML keeps")
        parse_metadata(body, what=str(path))
        try:
            private_directory(self._folder)
            replace_file(path, body, mode=0o600)
        except OSError as exc:
            raise unavailable(f"keep server `{dependency.name}`", exc) from exc
        return path

    def remove(self, name: str) -> bool:
        """Forget the server; False if it was not added. Raises: Unavailable."""
        if server_name_problem(name):
            return False
        try:
            self._path(name).unlink()
            sync_directory(self._folder)
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise unavailable(f"remove server `{name}`", exc) from exc
        return True

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"
