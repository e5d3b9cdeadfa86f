"""The files of an MCP bundle: a zip that is read within bounds and unpacked where it cannot lead out.

Links, devices, `..`, absolute names, names twice and encrypted entries are refused, and so is more than the
bounds allow, counted in bytes that really came out. Nothing of it runs here.
"""

import io
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import Invalid
from pml.core.packages.bundle import MANIFEST
from pml.core.text import has_hidden, quote

_PIECE: Final = 1 << 20
_MAX_MANIFEST: Final = 1 << 20


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle may be, packed and unpacked; the largest that are in use have a tenth of it."""

    packed_bytes: int = 512 * 1024**2
    unpacked_bytes: int = 2 * 1024**3
    entries: int = 50_000


def read_manifest(data: bytes, *, what: str) -> bytes:
    """Return the manifest of a bundle. Raises: Invalid."""
    with _opened(data, what) as archive:
        try:
            info = archive.getinfo(MANIFEST)
        except KeyError as exc:
            raise Invalid(f"{what} has no `{MANIFEST}`, so it is not an MCP bundle") from exc
        if info.file_size > _MAX_MANIFEST:
            raise Invalid(f"the `{MANIFEST}` of {what} has more than {_MAX_MANIFEST:,} bytes")
        pieces = _Unpacked(limit=_MAX_MANIFEST, what=what)
        return b"".join(pieces.pieces(archive, info))


def unpack(data: bytes, tree: Path, *, what: str, bounds: Bounds) -> int:
    """Unpack the bundle into the empty folder `tree`; return how many bytes that is.

    Raises: Invalid for what no bundle may bring; `tree` is then worthless.
    """
    with _opened(data, what) as archive:
        entries = archive.infolist()
        if len(entries) > bounds.entries:
            raise Invalid(f"{what} has {len(entries):,} files, more than {bounds.entries:,}")
        pieces = _Unpacked(limit=bounds.unpacked_bytes, what=what)
        seen: set[str] = set()
        for info in entries:
            path = _path(info, what)
            if path in seen:
                raise Invalid(f"{what} has {quote(path)} twice")
            seen.add(path)
            _write(archive, info, tree / path, pieces)
        return pieces.count


class _Unpacked:
    """Counts the bytes that come out: what a zip says of itself may be a lie."""

    def __init__(self, *, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self.count = 0

    def pieces(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the bytes of one file. Raises: Invalid."""
        try:
            with archive.open(info) as file:
                while piece := file.read(_PIECE):
                    self.count += len(piece)
                    if self.count > self._limit:
                        raise Invalid(f"{self._what} unpacks to more than {self._limit:,} bytes")
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as exc:
            raise Invalid(f"{quote(info.filename)} in {self._what} cannot be unpacked: {exc}") from exc


def _path(info: zipfile.ZipInfo, what: str) -> str:
    """Return where an entry belongs. Raises: Invalid for what leads out, or is not plain."""
    name = info.orig_filename
    parts = name.rstrip("/").split("/")
    is_sound = name and not name.startswith("/") and "\\" not in name and ":" not in parts[0]
    if not is_sound or has_hidden(name) or any(part in ("", ".", "..") for part in parts):
        raise Invalid(f"{what} has a file whose path leads out of it: {quote(name)}")
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Invalid(f"{what} has something that is neither file nor folder: {quote(name)}")
    if info.flag_bits & 0x1:
        raise Invalid(f"{what} has an encrypted file: {quote(name)}")
    return "/".join(parts)


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, unpacked: _Unpacked) -> None:
    if info.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        return
    is_program = bool((info.external_attr >> 16) & 0o100)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o755 if is_program else 0o644)
    except (FileExistsError, NotADirectoryError) as exc:
        raise Invalid(f"a bundle has two files in one place: {quote(info.filename)}") from exc
    with os.fdopen(descriptor, "wb") as file:
        for piece in unpacked.pieces(archive, info):
            file.write(piece)


def _opened(data: bytes, what: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError) as exc:
        raise Invalid(f"{what} is not a zip file, so it is not an MCP bundle") from exc
