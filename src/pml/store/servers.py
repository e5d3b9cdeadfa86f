"""Rules for manifests and pins that every store shares: how a manifest is written, and when a pin is set.

A manifest is a cache, so one that cannot be read counts as absent. A pin is not: only a person changes it.
Does not know where either is stored.
"""

from typing import Any, Final

import msgspec

from pml.core.approvals.record import Decider
from pml.core.audit import entries as audit
from pml.core.audit.entries import Entry
from pml.core.errors import Conflict
from pml.core.ports.records import Pin
from pml.core.servers.manifest import Manifest
from pml.core.text import quote

MANIFESTS_KEPT: Final = 200  # many more than a user's servers; old targets of them go first


class _Offer(msgspec.Struct, frozen=True, kw_only=True):
    capabilities: dict[str, Any]
    instructions: str | None
    tools: tuple[dict[str, Any], ...]
    prompts: tuple[dict[str, Any], ...]
    resources: tuple[dict[str, Any], ...]
    templates: tuple[dict[str, Any], ...]


def manifest_text(manifest: Manifest) -> str:
    """Return what the server offers as JSON."""
    return msgspec.json.encode({key: getattr(manifest, key) for key in _Offer.__struct_fields__}).decode()


def manifest_of(server: str, target_digest: str, text: str) -> Manifest | None:
    """Return the manifest that `text` spells, None if it spells none."""
    try:
        offer = msgspec.json.decode(text, type=_Offer)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Manifest(server=server, target_digest=target_digest, **msgspec.structs.asdict(offer))


def pinning(pin: Pin, known: str | None, by: Decider | None) -> Entry | None:
    """Return the entry that tells of `pin` in place of the digest `known`; None if it stands already.

    Raises: Conflict if it would change a pin and nobody accepted that: another process pinned it first.
    """
    if by is not None:
        return audit.tool_repinned(
            pin.server, pin.action, pin.digest, target_digest=pin.target_digest, at=pin.pinned_at, by=by
        )
    if known is None:
        return audit.tool_pinned(
            pin.server, pin.action, pin.digest, target_digest=pin.target_digest, at=pin.pinned_at
        )
    if known != pin.digest:
        raise Conflict(
            f"tool {quote(f'{pin.server}:{pin.action}')} is pinned to another definition",
            hint="call it again to be asked about the change",
        )
    return None
