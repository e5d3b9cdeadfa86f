"""Denials that are held for a moment, so that they can be undone; until they are sent the request waits.

Instants are those of `Ticks`. Sends nothing, and knows no screen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from pml.core.approvals.record import ApprovalId
from pml.core.cards.card import Card
from pml.service.approvals.lifecycle import Decision

HOLD_S: Final = 4.0
_MARGIN_S: Final = 1.0  # a request that runs out is denied before, not after


@dataclass(frozen=True, kw_only=True)
class Denial:
    """An answer that is not sent yet; those made as one have the same `group`."""

    decision: Decision
    until: float
    group: int


class Denials:
    """What is held, in the order in which it was denied."""

    def __init__(self) -> None:
        self._held: dict[ApprovalId, Denial] = {}
        self._groups = 0

    def __contains__(self, approval_id: object) -> bool:
        return approval_id in self._held

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, decisions: Mapping[ApprovalId, Decision], *, at: float, for_s: float = HOLD_S) -> int:
        """Hold these as one; return what names them together."""
        self._groups += 1
        for approval_id, decision in decisions.items():
            self._held[approval_id] = Denial(decision=decision, until=at + for_s, group=self._groups)
        return self._groups

    def leave_out(self, card: Card) -> Card:
        """Return the card without what is held among the requests that "always" would cover."""
        covers = tuple(other for other in card.covers if other.id not in self._held)
        return msgspec.structs.replace(card, covers=covers)

    def seconds_left(self, approval_id: ApprovalId, *, at: float) -> float | None:
        """Return how long it can still be undone, None if it is not held."""
        denial = self._held.get(approval_id)
        return None if denial is None else max(0.0, denial.until - at)

    def undo(self, group: int) -> list[ApprovalId]:
        """Forget what was denied as one, as far as it is still held."""
        found = [approval_id for approval_id, denial in self._held.items() if denial.group == group]
        for approval_id in found:
            del self._held[approval_id]
        return found

    def drop(self, approval_id: ApprovalId) -> None:
        """Forget one that somebody else has answered."""
        self._held.pop(approval_id, None)

    def take(self, *, at: float = float("inf")) -> dict[ApprovalId, Decision]:
        """Return those whose time is over `at` that instant, and hold them no longer."""
        due = {key: denial.decision for key, denial in self._held.items() if denial.until <= at}
        for approval_id in due:
            del self._held[approval_id]
        return due


def holding_s(expire_in_s: float) -> float:
    """Return how long a denial is held of requests the first of which runs out in so many seconds."""
    return max(0.0, min(HOLD_S, expire_in_s - _MARGIN_S))
