"""Code that came without a hash is pinned on first use: what comes later under its name is the same code.

Pins lie outside the cache, which may be removed at any time. A pin is made once, and is replaced only for a
person who accepts other code: by the hash of exactly that.
"""

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import Changed, Conflict, Invalid, NotFound, Unavailable
from pml.core.packages.capability import CapabilityMetadata
from pml.core.text import quote, visible
from pml.host.disk import unavailable
from pml.host.private import private_directory
from pml.host.replace import create_file, replace_file
from pml.registry.client.cache import Cache, Key
from pml.registry.client.web import Outcome, Patience, get
from pml.registry.entry_forms import EntryName, Form, MetadataReader, code_form
from pml.registry.folder import RegistryFolder
from pml.registry.plain_files import read_plain

_MAX_BYTES: Final = 16 * 1024


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    registry: str
    fqdn: str
    sha256: str
    pinned_at: datetime


class CodePins:
    """The pins beneath `home`."""

    def __init__(self, home: Path) -> None:
        self._place = home / "pins" / "code"

    def has(self, *, registry: str, fqdn: str) -> bool:
        """Tell whether code is pinned under that name."""
        return self._path(registry, fqdn).exists()

    def check(self, *, registry: str, fqdn: str, code: bytes) -> None:
        """Return if `code` is pinned, or nothing is. Raises: Changed for other code; Invalid."""
        pin = _read(self._path(registry, fqdn))
        if pin is None:
            return
        found = hashlib.sha256(code).hexdigest()
        if (pin.registry, pin.fqdn, pin.sha256) != (registry, fqdn, found):
            raise Changed(
                f"the code of {visible(fqdn)} has changed: sha256 was {pin.sha256}, is {found}",
                hint="it came without `code_integrity`; a person who trusts the new code runs "
                f"`pml capability accept {visible(fqdn)}`",
            )

    def add(self, *, registry: str, fqdn: str, code: bytes, pinned_at: datetime) -> None:
        """Pin `code`. Raises: Changed if other code is pinned; Unavailable if it cannot be kept."""
        pin = Pin(registry=registry, fqdn=fqdn, sha256=hashlib.sha256(code).hexdigest(), pinned_at=pinned_at)
        path = self._path(registry, fqdn)
        try:
            private_directory(self._place)
            create_file(path, msgspec.json.encode(pin), mode=0o600)
        except FileExistsError:
            self.check(registry=registry, fqdn=fqdn, code=code)
        except OSError as exc:
            raise Unavailable(
                f"cannot pin the code of {visible(fqdn)}: {exc.strerror}",
                hint="make PML_HOME a directory that this user can write",
            ) from exc

    def of(self, fqdn: str) -> list[Pin]:
        """Return what is pinned under that name, of every registry. Raises: Invalid."""
        pins = [_read(path) for path in sorted(self._place.glob("*.json"))]
        return [pin for pin in pins if pin is not None and pin.fqdn == fqdn]

    def replace(self, pin: Pin, *, sha256: str, pinned_at: datetime) -> None:
        """Pin the code with this hash in place of what `pin` pins. Raises: Unavailable."""
        accepted = msgspec.structs.replace(pin, sha256=sha256, pinned_at=pinned_at)
        try:
            replace_file(self._path(pin.registry, pin.fqdn), msgspec.json.encode(accepted), mode=0o600)
        except OSError as exc:
            raise unavailable(f"cannot pin the code of {visible(pin.fqdn)}", exc) from exc

    def _path(self, registry: str, fqdn: str) -> Path:
        digest = hashlib.sha256(f"{registry}\n{fqdn}".encode()).hexdigest()
        return self._place / f"{digest}.json"


def _read(path: Path) -> Pin | None:
    """Return the pin at `path`, None if there is none. Raises: Invalid."""
    content = read_plain(path, limit=_MAX_BYTES)
    try:
        return None if content is None else msgspec.json.decode(content, type=Pin)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Invalid(f"the pin `{path}` cannot be read", hint="look at it, then remove it") from exc


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """The code as it is now; `before` is the pinned code, if it is still kept."""

    code: bytes
    before: bytes | None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.code).hexdigest()


async def look_again(home: Path, pin: Pin) -> Offered:
    """Return what the registry of `pin` has now.

    Raises: NotFound; Conflict if it is known by `code_integrity` now; Invalid; Unavailable.
    """
    name = EntryName(pin.fqdn)
    body = await _entry(pin.registry, name, Form.METADATA, address=None)
    metadata = MetadataReader().read(body, name, source=pin.registry)
    form = code_form(metadata)
    if form is None:
        raise Invalid(f"{quote(pin.fqdn)} is a server now and has no code of its own")
    if metadata.code_integrity is not None:
        raise Conflict(f"{quote(pin.fqdn)} has `code_integrity` now: there is nothing to accept")
    code = await _entry(pin.registry, name, form, address=_address(metadata, pin.registry))
    kept = Cache(home, debug=lambda line: None).look(Key(registry=pin.registry, name=name, form=form).file)
    is_pinned = kept is not None and kept[0].sha256 == pin.sha256
    return Offered(code=code, before=kept[1] if kept is not None and is_pinned else None)


async def _entry(registry: str, name: EntryName, form: Form, *, address: str | None) -> bytes:
    if "://" not in registry:
        body = RegistryFolder(Path(registry)).read(name, form)
    else:
        url = address or f"{registry}/mcp/{name}"
        answer = await get(url, form, etag=None, patience=Patience(), sent_by=registry)
        body = answer.body if answer.outcome is Outcome.FOUND else None
    if body is None:
        raise NotFound(f"registry {quote(registry)} has no {form.value} for {quote(name)} now")
    return body


def _address(metadata: CapabilityMetadata, registry: str) -> str | None:
    given = metadata.code_url
    return given if given is None or "://" in given else f"{registry}/{given.lstrip('/')}"
