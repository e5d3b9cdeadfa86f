"""Facts of a server that is reached by URL, for whoever decides about it: where it is and what it is sent.

They are stored with the question, so they are told of JSON, which an earlier version may have written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pml.core.text import visible
from pml.core.values import Json

UNPROVEN: Final = "runs elsewhere: its code is not proven"


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFacts:
    """An address that trusting a file would let PML send calls to.

    Of headers only the names, for values are secrets. `sent_to` is the origin that a URL with variables has
    with their values. `entry` is the digest of the whole entry: another header value is another entry.
    """

    name: str
    url: str
    transport: str
    header_names: tuple[str, ...]
    variables: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    insecure: bool = False
    private: bool = False
    oauth: bool = False
    sent_to: str | None = None
    entry: str = ""


def remote_lines(told: Mapping[str, Json]) -> list[str]:
    """Return what would be reached, one thing a line."""
    lines = [f"{visible(str(told.get('name')))}: {visible(str(told.get('url')))}", f"  {UNPROVEN}"]
    if told.get("sent_to") is not None:
        lines.append(f"  it is now {visible(str(told['sent_to']))}")
    if told.get("insecure") is True:
        lines.append("  plain http is allowed: others on the way can read and change what is sent")
    if told.get("private") is True:
        lines.append("  its name may lead to a private address")
    if names := _texts(told.get("header_names")):
        lines.append(f"  is sent the headers {', '.join(visible(name) for name in names)}")
    unset = _texts(told.get("unset"))
    if given := [name for name in _texts(told.get("variables")) if name not in unset]:
        lines.append(f"  is sent {', '.join(map(visible, given))} from your environment or `pml secrets`")
    if unset:
        lines.append(f"  cannot be reached until {', '.join(map(visible, unset))} is set")
    return lines


def _texts(values: Json) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list | tuple) else []
