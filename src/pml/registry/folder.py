"""A folder as a registry: `{fqdn}.json` beside `{fqdn}.ts` or `.py`; `{namespace}.json` where one is wanted.

A namespace without a file of its own means the one entry `org.project.{namespace}`. Only plain files in the
folder itself are read: no link leads out of it. Whether metadata is sound is not known here.
"""

import os
import re
from pathlib import Path

from pml.core.errors import Conflict, Invalid, Unavailable
from pml.core.text import quote
from pml.registry.entries import MAX_BYTES, SUFFIX, EntryName, Form, entry_name
from pml.registry.files import read_plain


class RegistryFolder:
    """Reads the entries of the folder at `path`; each time anew, since files change."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: EntryName, form: Form) -> bytes | None:
        """Return the entry in `form`, None if there is none.

        Raises: Conflict if several entries have the namespace; Invalid for what is no plain file of a fair
        size; Unavailable if the folder cannot be read.
        """
        found = self._content(name, form)
        if found is None and "." not in name:
            whole = self._named(name)
            return None if whole is None else self._content(whole, form)
        if found is None and not self.path.is_dir():
            raise Unavailable(
                f"registry folder `{self.path}` is not there", hint="`registry` in .pml.json names it"
            )
        return found

    def names(self) -> list[EntryName]:
        """Return the names of all entries, sorted. Raises: Unavailable if the folder cannot be read."""
        try:
            files = sorted(os.listdir(self.path))
        except OSError as exc:
            raise Unavailable(f"registry folder `{self.path}`: {exc.strerror}") from exc
        names: list[EntryName] = []
        for file in files:
            stem = file.removesuffix(SUFFIX[Form.METADATA])
            try:
                names += [entry_name(stem)] if stem != file else []
            except Invalid:  # another file of the publisher's
                continue
        return names

    def file(self, name: EntryName, form: Form) -> Path:
        """Return where the entry is in `form`, if it is."""
        return self.path / f"{name}{SUFFIX[form]}"

    def _content(self, name: EntryName, form: Form) -> bytes | None:
        return read_plain(self.file(name, form), limit=MAX_BYTES[form])

    def _named(self, namespace: EntryName) -> EntryName | None:
        whole = re.compile(rf"[^.]+\.[^.]+\.{re.escape(namespace)}")
        found = [name for name in self.names() if whole.fullmatch(name)]
        if len(found) > 1:
            some = ", ".join(f"`{name}`" for name in found[:3])
            raise Conflict(
                f"several entries are named {quote(namespace)}: {some}",
                hint=f"give the whole name, or add `{namespace}.json` to the folder",
            )
        return found[0] if found else None
