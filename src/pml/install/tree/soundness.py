"""A freshly unpacked tree made sound: only folders, files of its own and links that stay within it.

Whatever else a package brought is refused. What the files say, and whether they are the right ones, is not
known here.
"""

import os
import shutil
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from pml.core.errors import Invalid
from pml.core.text import quote

_FILE, _PROGRAM, _FOLDER = 0o644, 0o755, 0o755


def make_sound(tree: Path) -> None:
    """Give each file of `tree` one name and plain rights. Raises: Invalid for what no package may bring."""
    top = os.path.realpath(tree)
    for folder, entries in _folders(top):
        _check_names(entries, os.path.relpath(folder, top))
        for entry in entries:
            _make_sound(entry, top)


def _make_sound(entry: os.DirEntry[str], top: str) -> None:
    at = entry.stat(follow_symlinks=False)
    shown = quote(os.path.relpath(entry.path, top), limit=200)
    if stat.S_ISLNK(at.st_mode):
        target = os.readlink(entry.path)
        led = os.path.realpath(entry.path)
        if os.path.isabs(target) or not (led == top or led.startswith(top + os.sep)):
            raise Invalid(f"the package has a link that leads out of its folder: {shown}")
    elif stat.S_ISREG(at.st_mode):
        if at.st_nlink > 1:
            _copy_in_place(entry.path)
        _set_mode(entry.path, at.st_mode, _PROGRAM if at.st_mode & 0o100 else _FILE)
    elif stat.S_ISDIR(at.st_mode):
        _set_mode(entry.path, at.st_mode, _FOLDER)
    else:
        raise Invalid(f"the package has something that is neither file nor folder: {shown}")


def _folders(top: str) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    todo = [top]
    while todo:
        folder = todo.pop()
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        yield folder, entries
        todo.extend(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def _check_names(entries: Iterable[os.DirEntry[str]], folder: str) -> None:
    """Refuse two names that one file has where case and composition are ignored: either could be found."""
    seen: dict[str, str] = {}
    for entry in entries:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", entry.name).casefold())
        if folded in seen:
            raise Invalid(
                f"the package has both {quote(seen[folded])} and {quote(entry.name)} in "
                f"{quote(folder, limit=200)}: on some systems they are one file"
            )
        seen[folded] = entry.name


def _copy_in_place(path: str) -> None:
    """Take the file out of reach of its other names."""
    copy = f"{path}.pml-copy"
    if os.path.lexists(copy):
        raise Invalid(f"the package has a file that is in the way: {quote(copy)}")
    shutil.copy2(path, copy, follow_symlinks=False)
    os.replace(copy, path)


def _set_mode(path: str, mode: int, wanted: int) -> None:
    if stat.S_IMODE(mode) != wanted:
        os.chmod(path, wanted)
