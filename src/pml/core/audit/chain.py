"""The audit log's chain of hashes: how an entry is linked to the one before, and how a change shows."""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from pml.core.audit.entries import Entry
from pml.core.values import Json, canonical

GENESIS: Final = ""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in its place: `seq` orders all chains of a store, `n` counts within one chain."""

    seq: int
    chain: str
    n: int
    entry: Entry
    prev: str
    hash: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a chain ends."""

    chain: str
    n: int
    hash: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong with a chain."""

    chain: str
    n: int
    what: str


def link_hash(chain: str, n: int, entry: Entry, prev: str) -> str:
    """Return the hash of `entry` in place `n` of `chain` after `prev`."""
    by = None if entry.by is None else [entry.by.kind, entry.by.id, entry.by.channel]
    body: list[Json] = [
        chain,
        n,
        entry.at.isoformat(),
        entry.kind,
        entry.approval_id,
        entry.session_id,
        entry.tool,
        by,
        entry.detail,
        prev,
    ]
    return hashlib.sha256(canonical(body)).hexdigest()


class Verification:
    """One walk through all links, by chain, then n; it holds the end of each chain and not the links.

    Finds an edited, removed, added or reordered entry, a tail that was cut off, and a lost head.
    """

    def __init__(self, kept: Mapping[str, Head]) -> None:
        self.entries = 0
        self._kept = kept
        self._ends: dict[str, Link] = {}
        self._problems: list[Problem] = []

    @property
    def chains(self) -> int:
        return len(self._ends)

    def see(self, link: Link) -> None:
        """Take the next link."""
        before = self._ends.get(link.chain)
        after_n, after_hash, after_seq = (before.n, before.hash, before.seq) if before else (0, GENESIS, 0)
        if link.n != after_n + 1:
            self._note(link, f"stands where entry {after_n + 1} should be")
        elif link.prev != after_hash:
            self._note(link, "does not follow the entry before it")
        if link_hash(link.chain, link.n, link.entry, link.prev) != link.hash:
            self._note(link, "was edited: its hash does not match")
        if link.seq <= after_seq:
            self._note(link, "was moved before an older one")
        head = self._kept.get(link.chain)
        if head is not None and head.n == link.n and head.hash != link.hash:
            self._note(link, "is not the entry whose hash was kept outside the database")
        self._ends[link.chain] = link
        self.entries += 1

    def problems(self) -> list[Problem]:
        """Return what is wrong with the links that were seen, if those were all."""
        lost = [
            Problem(chain=end.chain, n=end.n, what="the chain has no head kept outside the database")
            for end in self._ends.values()
            if end.chain not in self._kept
        ]
        cut = [
            Problem(
                chain=head.chain,
                n=head.n,
                what=f"the chain should reach entry {head.n}: its tail was cut off",
            )
            for head in self._kept.values()
            if head.n > (self._ends[head.chain].n if head.chain in self._ends else 0)
        ]
        return [*self._problems, *lost, *cut]

    def _note(self, link: Link, what: str) -> None:
        self._problems.append(Problem(chain=link.chain, n=link.n, what=f"entry {link.n} {what}"))
