"""Sent lists: what each client was last sent of tools, prompts and resources.

Many clients list once and never again. What such a client was not sent, it cannot call by name, and it is
told of a change only where its list is no longer right. Clients of a handshake are told apart; modern
requests stand on their own, so those of one gateway are taken for one client.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from pml.core.values import JsonObject
from pml.downstream.protocol.connection import Exchange, Origin
from pml.downstream.protocol.eras import Era


@dataclass(kw_only=True)
class _Sent:
    """A list as a client has it. `told`: the digest of what it was sent or told of last."""

    names: frozenset[str]
    told: bytes


class SentLists:
    def __init__(self) -> None:
        self._legacy: WeakKeyDictionary[Origin, dict[str, _Sent]] = WeakKeyDictionary()
        self._modern: dict[str, _Sent] = {}

    def keep(self, exchange: Exchange, era: Era, kind: str, entries: Sequence[JsonObject]) -> None:
        """Remember that the client is sent these."""
        names = frozenset(str(entry.get("name")) for entry in entries)
        self._lists(exchange, era)[kind] = _Sent(names=names, told=_digest(entries))

    def names(self, exchange: Exchange, era: Era, kind: str) -> Collection[str]:
        """Return the names in the last list that the client was sent; none if it asked for none."""
        sent = self._lists(exchange, era).get(kind)
        return frozenset() if sent is None else sent.names

    def has(self, kind: str) -> bool:
        """Tell whether anybody was sent such a list."""
        return any(True for _ in self._all(kind))

    def outdate(self, kind: str, entries: Sequence[JsonObject], *, modern: bool) -> bool:
        """Tell whether a client has another list than these `entries`; it is taken to know them now.

        `modern`: a modern client listens for such changes. One that does not yet is told once it does.
        """
        now = _digest(entries)
        lists = (self._modern, *self._legacy.values()) if modern else tuple(self._legacy.values())
        behind = [each[kind] for each in lists if kind in each and each[kind].told != now]
        for sent in behind:
            sent.told = now
        return bool(behind)

    def _lists(self, exchange: Exchange, era: Era) -> dict[str, _Sent]:
        return self._modern if era.is_modern else self._legacy.setdefault(exchange.origin, {})

    def _all(self, kind: str) -> Iterable[_Sent]:
        return (lists[kind] for lists in (self._modern, *self._legacy.values()) if kind in lists)


def _digest(entries: Sequence[JsonObject]) -> bytes:
    return hashlib.sha256(msgspec.json.encode(entries)).digest()
