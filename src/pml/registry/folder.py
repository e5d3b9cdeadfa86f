"""A folder as a registry: `{fqdn}.json` beside `{fqdn}.ts` or `.py`; `{namespace}.json` where one is wanted.

A namespace without a file of its own means the one entry `org.project.{namespace}`. Only plain files in the
folder itself are read: no link leads out of it. That the whole folder is not there is told apart from all
else that goes wrong. Whether metadata is sound is not known here.
"""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Final

from pml.core.errors import Conflict, Invalid, Unavailable
from pml.core.text import quote
from pml.registry.entry_forms import MAX_BYTES, SUFFIX, EntryName, Form, entry_name
from pml.registry.plain_files import read_plain

_GONE: Final = {  # removed or not mounted; the rest is what disks and shares say that were lost while mounted
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EIO,
    errno.ENODEV,
    errno.ENXIO,
    errno.ENOTCONN,
    errno.ESTALE,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ETIMEDOUT,
}


class FolderGone(Unavailable):
    """The whole folder is not there: it says nothing of its entries, not even that there are none."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"registry folder `{path}` is not there", hint="`registry` in .pml.json names it")


class RegistryFolder:
    """Reads the entries of the folder at `path`; each time anew, since files change."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: EntryName, form: Form) -> bytes | None:
        """Return the entry in `form`, None if there is none.

        Raises: Conflict if several entries have the namespace; Invalid for what is not a plain file of a fair
        size; FolderGone; Unavailable if the folder is there and cannot be read.
        """
        try:
            found = self._found(name, form)
        except Unavailable as exc:
            if self.is_there():
                raise
            raise FolderGone(self.path) from exc
        if found is None and not self.is_there():  # asked last: a folder that goes meanwhile has not said no
            raise FolderGone(self.path)
        return found

    def is_there(self) -> bool:
        """Tell whether there is a folder; one that this user may not look at is there."""
        try:
            return stat.S_ISDIR(os.stat(self.path).st_mode)
        except OSError as exc:
            return exc.errno not in _GONE

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

    def _found(self, name: EntryName, form: Form) -> bytes | None:
        found = self._content(name, form)
        if found is None and "." not in name:
            whole = self._named(name)
            return None if whole is None else self._content(whole, form)
        return found

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
