"""The hash of all that lies beneath a folder, and which files of it have changed since.

The list of files is kept beside the folder as `<tree>.files`; its hash is the hash of the tree, so no other
list can take its place. Files whose status is that of the last look are not read again. What a difference
means is not known here.
"""

import errno
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from pml.core.errors import Invalid
from pml.core.text import quote, visible
from pml.host.replace import replace_file


@cache
def boot_id() -> str | None:
    """Return a word that is the same until the machine starts again; None where the system does not tell."""
    if sys.platform == "linux":
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                return file.read().strip() or None
        except OSError:
            return None
    import psutil

    return str(int(psutil.boot_time()))


LIST: Final = ".files"
CACHE: Final = ".stat"
MISSING: Final = "its folder is missing"

_RACY_NS: Final = 50_000_000  # the clocks that stamp files tick every 1 to 10 ms
_COARSE_RACY_NS: Final = 2_000_000_000  # some file systems stamp whole seconds, FAT every other one
_SECOND_NS: Final = 1_000_000_000
_CHUNK: Final = 1 << 20
_FOLDER: Final = (stat.S_IFDIR, 0, 0, 0, 0)  # what lies in it is looked at anyway; its own times say nothing
_CLOSED: Final = (0, 0, 0, 0, 0)  # a folder that cannot be listed
_ODD: Final = b"?"

Stamp: TypeAlias = tuple[int, int, int, int, int]
"""Mode, size, mtime, ctime, inode. Whoever edits a file and restores its mtime cannot restore its ctime."""
Records: TypeAlias = Mapping[bytes, bytes]
"""By path: `f` or `x` (executable) and the hash, `l` and the target, `d`, or `?` and what is wrong."""


class TreeHash(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    records: Records


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What is not as expected: `+` added, `-` removed, `~` modified.

    `tree` is the hash of what is there; empty if there is no folder that could be hashed, and `files` say so.
    """

    files: tuple[str, ...]
    tree: str


class _Cache(msgspec.Struct, frozen=True, kw_only=True):
    """With these stamps the files were those of `tree`; only stamps that a change must alter are kept."""

    tree: str
    boot: str
    stamps: dict[bytes, Stamp]


def hash_tree(tree: Path) -> TreeHash:
    """Return the hash of all that lies beneath `tree`, every file read.

    Raises: Invalid for anything but files, folders and links that stay within; FileNotFoundError.
    """
    top = os.fsencode(tree)
    records = {path: _record(top, path, stamp) for path, stamp in _scan(top).items()}
    for path, record in records.items():
        if record.startswith(_ODD):
            raise Invalid(f"{quote(os.fsdecode(path))} {record[1:].decode()}")
    return TreeHash(digest=_digest(records), records=records)


def keep_list(tree: Path, hashed: TreeHash) -> None:
    """Keep the list of files beside `tree`, durably. Raises: OSError."""
    replace_file(_beside(tree, LIST), _encode(hashed.records), mode=0o600)


def verify(tree: Path, expected: str, *, read_all: bool = False) -> Difference | None:
    """Return what is not as in the tree with the hash `expected`, or None; `read_all`: no cache is used."""
    top = os.fsencode(tree)
    try:
        seen = _scan(top)
    except OSError:
        return Difference(files=(MISSING,), tree="")
    known = {} if read_all else _known(tree, expected)
    if known and known == seen:
        return None
    listed = _listed(tree, expected)
    moment = _moment(tree.parent)
    records = {
        path: listed[path]
        if listed is not None and path in listed and known.get(path) == stamp
        else _record(top, path, stamp)
        for path, stamp in seen.items()
    }
    found = TreeHash(digest=_digest(records), records=records)
    if found.digest != expected:
        return Difference(files=_differences(listed, records), tree=found.digest)
    with suppress(OSError):  # without a cache the next look takes longer, and no more
        if listed is None:
            keep_list(tree, found)
        _keep_stamps(tree, expected, seen, moment)
    return None


def make_read_only(tree: Path) -> None:
    """Take the right to write from every file, and from none of the folders: they are removed one day.

    Raises: OSError.
    """
    top = os.fsencode(tree)
    for path, (mode, *_) in _scan(top).items():
        if stat.S_ISDIR(mode):
            os.chmod(os.path.join(top, path), 0o700)
        elif stat.S_ISREG(mode):
            os.chmod(os.path.join(top, path), 0o500 if mode & 0o111 else 0o400)


def _scan(top: bytes) -> dict[bytes, Stamp]:
    """Return the stamp of everything beneath `top`, no link followed. Raises: OSError if not a folder."""
    if not stat.S_ISDIR(os.lstat(top).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fsdecode(top))
    found: dict[bytes, Stamp] = {}
    folders = [b""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(top + b"/" + folder) as entries:
                for entry in entries:
                    path = folder + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        found[path] = _FOLDER
                        folders.append(path + b"/")
                    else:
                        at = entry.stat(follow_symlinks=False)
                        found[path] = (at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)
        except OSError:
            if not folder:
                raise
            found[folder[:-1]] = _CLOSED
    return found


def _record(top: bytes, path: bytes, stamp: Stamp) -> bytes:
    mode = stamp[0]
    try:
        if stat.S_ISREG(mode):
            return (b"x" if mode & 0o111 else b"f") + _content(os.path.join(top, path), stamp[1])
        if stat.S_ISLNK(mode):
            target = os.readlink(os.path.join(top, path))
            return b"l" + target if _stays_within(path, target) else b"?is a link that leaves the folder"
    except OSError as exc:
        return b"?cannot be read: " + str(exc.strerror).encode()
    if stamp == _CLOSED:
        return b"?is a folder that cannot be read"
    return b"d" if stat.S_ISDIR(mode) else b"?is neither a file nor a folder nor a link"


def _content(path: bytes, size: int) -> bytes:
    """Return the hash of a regular file. What took its place since the scan is not followed or waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    fd = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        hashed = hashlib.sha256()
        while chunk := os.read(fd, min(size + 1, _CHUNK)):
            hashed.update(chunk)
        return hashed.hexdigest().encode()
    finally:
        os.close(fd)


def _stays_within(path: bytes, target: bytes) -> bool:
    """Tell whether a link can lead nowhere but beneath the top.

    `..` is accepted only in front, where it leaves real folders: behind a name it would leave what a link of
    that name leads to.
    """
    words = [word for word in target.split(b"/") if word not in (b"", b".")]
    up = next((n for n, word in enumerate(words) if word != b".."), len(words))
    return not target.startswith(b"/") and b".." not in words[up:] and up <= path.count(b"/")


def _encode(records: Records) -> bytes:
    """Return the list of files; neither paths nor targets can hold the NUL that ends them."""
    return b"".join(b"%b\0%b\0" % (path, records[path]) for path in sorted(records))


def _digest(records: Records) -> str:
    return f"sha256:{hashlib.sha256(_encode(records)).hexdigest()}"


def _listed(tree: Path, expected: str) -> Records | None:
    """Return the list of files as kept, if it is the one with the hash `expected`."""
    try:
        content = _beside(tree, LIST).read_bytes()
    except OSError:
        return None
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != expected:
        return None
    words = content.split(b"\0")
    return dict(zip(words[:-1:2], words[1::2], strict=True))


def _differences(listed: Records | None, found: Records) -> tuple[str, ...]:
    if listed is None:
        return ("the list of its files is lost: nobody can tell which have changed",)
    signs = [
        (path, "+" if path not in listed else "-" if path not in found else "~")
        for path in listed.keys() | found.keys()
        if listed.get(path) != found.get(path)
    ]
    return tuple(f"{sign} {visible(os.fsdecode(path))}" for path, sign in sorted(signs))


def _known(tree: Path, expected: str) -> dict[bytes, Stamp]:
    """Return the stamps with which files are known to be those of `expected`.

    After a loss of power a file may have its size and times but not its content, so no stamp outlives a boot.
    """
    try:
        kept = msgspec.msgpack.decode(_beside(tree, CACHE).read_bytes(), type=_Cache)
    except (OSError, msgspec.DecodeError):
        return {}
    return kept.stamps if (kept.tree, kept.boot) == (expected, boot_id()) else {}


def _keep_stamps(tree: Path, expected: str, seen: Mapping[bytes, Stamp], moment: int) -> None:
    boot = boot_id()
    if sys.platform == "win32" or boot is None:  # there ctime is the time of creation, and shows no edit
        return
    stamps = {path: stamp for path, stamp in seen.items() if _is_settled(stamp, moment)}
    content = msgspec.msgpack.encode(_Cache(tree=expected, boot=boot, stamps=stamps))
    replace_file(_beside(tree, CACHE), content, mode=0o600)


def _is_settled(stamp: Stamp, moment: int) -> bool:
    """Tell whether any change after `moment`, before the file was read, must give it another stamp."""
    changed_ns = max(stamp[2], stamp[3])
    return moment - changed_ns > (_RACY_NS if changed_ns % _SECOND_NS else _COARSE_RACY_NS)


def _moment(folder: Path) -> int:
    """Return the time by the clock that stamps files in `folder`; 0, before any file, if none can be made."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return 0


def _beside(tree: Path, ending: str) -> Path:
    return tree.with_name(tree.name + ending)
