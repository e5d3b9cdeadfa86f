"""What the hub needs of a store beside approvals: tokens, launched agents and what they said, receipts.

As in `core.ports`, every method that changes something is one transaction with its audit entry.
"""

from datetime import datetime
from typing import Protocol

import msgspec

from pml.core.approvals.record import Decider, SessionId
from pml.core.sessions.agent import Message, Run, RunState
from pml.core.sessions.token import Token, TokenId


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a request with an idempotency key was answered; without `body` it is still being answered."""

    principal: str
    key: str
    request: str  # the digest of what was asked
    body: bytes | None = None
    status: int = 0
    made_at: datetime


class Tokens(Protocol):
    async def add(self, token: Token, *, by: Decider | None) -> None: ...

    async def get(self, token_id: TokenId) -> Token | None: ...

    async def all(self) -> list[Token]:
        """Return every token, oldest first."""
        ...

    async def revoke(self, token_id: TokenId, *, at: datetime, by: Decider | None) -> None:
        """Let the token count no longer; one that was revoked before stays as it is. Raises: NotFound."""
        ...

    async def exchange(self, token_id: TokenId, new: Token, *, by: Decider) -> bool:
        """Revoke the token and add `new`, in one step.

        False, and nothing has changed, if the token is not there or counted no longer when `new` was made.
        """
        ...

    async def revoke_of(self, session_id: SessionId, *, at: datetime) -> None:
        """Revoke every token that speaks for the session."""
        ...

    async def forget(self, *, older_than: datetime) -> None:
        """Delete those that ceased to count before that and speak for no session; the log stays."""
        ...


class Runs(Protocol):
    async def add(self, run: Run) -> None: ...

    async def get(self, session_id: SessionId) -> Run | None: ...

    async def live(self) -> list[Run]:
        """Return the runs that have not ended."""
        ...

    async def move(
        self,
        session_id: SessionId,
        state: RunState,
        *,
        at: datetime,
        exit_code: int | None = None,
        result: str | None = None,
    ) -> Run:
        """Move the run to `state`. Raises: NotFound, IllegalEvent; then nothing has changed."""
        ...

    async def count(self, session_id: SessionId, *, turns: int, cost_usd: float) -> None: ...

    async def say(self, message: Message) -> Message:
        """Store the message and return it with its place."""
        ...

    async def messages(self, session_id: SessionId, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Return what the run said after that place, oldest first."""
        ...

    async def tell(self, session_id: SessionId, *, up_to: int) -> None:
        """Remember up to which message its parent was told."""
        ...

    async def forget_config(self, session_id: SessionId) -> None:
        """Remember that the run's configuration was removed."""
        ...

    async def leftovers(self) -> list[Run]:
        """Return ended runs whose configuration still stands."""
        ...


class Receipts(Protocol):
    async def begin(self, receipt: Receipt) -> Receipt | None:
        """Store the receipt; or return the one with its principal and key that exists."""
        ...

    async def close(self, receipt: Receipt) -> None:
        """Store the answer with its receipt."""
        ...

    async def forget(self, *, older_than: datetime) -> None: ...
