"""Pinned code beside what its registry has now, for a person who is to accept the one in place of the other.

Nothing is pinned or kept here, and nothing that was kept stands in for a registry that cannot be asked.
"""

import hashlib
from pathlib import Path

import msgspec

from pml.core.capability import CapabilityMetadata
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.text import quote
from pml.registry.cache import Cache, Key
from pml.registry.entries import EntryName, Form, MetadataReader, code_form
from pml.registry.folder import RegistryFolder
from pml.registry.pins import Pin
from pml.registry.web import Outcome, Patience, get


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
