"""Tokens of the hub and the roles they give. A token is shown once and kept only as a hash.

    person    decides anything, sees everything, calls no tool
    session   calls tools, launches children, decides for its descendants
    child     calls tools and asks, nothing else
    login     is exchanged once for a person's, nothing else

Where a token comes from and how it travels is not known here.
"""

import hashlib
import hmac
import re
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType

import msgspec

from pml.core.approvals.record import SessionId

TokenId = NewType("TokenId", str)

SECRET_BYTES: Final = 32
_TOKEN: Final = re.compile(r"pml_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class TokenRole(StrEnum):
    PERSON = "person"
    SESSION = "session"
    CHILD = "child"
    LOGIN = "login"


class ParentMay(StrEnum):
    """What the sessions above one may answer for it, from least to most; a person gave them that.

    Never more than the user's `approval.parent_may_decide` says at the time.
    """

    NOTHING = "nothing"
    LISTED = "listed"  # what the user's file lists
    UNLISTED = "unlisted"  # also what no rule names
    ALL = "all"  # also what an `ask` rule names


def least(*powers: ParentMay) -> ParentMay:
    """Return the narrowest."""
    return min(powers, key=[*ParentMay].index)


AGENT_ROLES: Final = frozenset({TokenRole.SESSION, TokenRole.CHILD})  # only these speak for a session


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a token. `session_id` is the session it speaks for; only an agent's has one.

    `forms`: its maker says that its client shows forms to a person, so that their answers apply.
    """

    id: TokenId
    role: TokenRole
    name: str
    hash: str
    session_id: SessionId | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    forms: bool = False

    def is_live(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def ends_at(self) -> datetime | None:
        """When it ends, or ended; None if it has no end."""
        return min(filter(None, (self.revoked_at, self.expires_at)), default=None)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The maker of a request, by its token."""

    token_id: TokenId
    role: TokenRole
    name: str
    session_id: SessionId | None
    forms: bool = False


def token_text(token_id: TokenId, secret: str) -> str:
    """Return the token as its holder keeps it."""
    return f"pml_{token_id}_{secret}"


def read_token(text: str) -> tuple[TokenId, str] | None:
    """Return the id and the secret of a token, None for what is none."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else (TokenId(found[1]), found[2])


def secret_hash(secret: str) -> str:
    """Return what is kept of a secret: it is 256 random bits, so a plain hash tells nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_proven(token: Token | None, secret: str) -> bool:
    """Tell whether `secret` is the token's, in the same time for all; it may have ended."""
    kept = "" if token is None else token.hash
    return hmac.compare_digest(kept, secret_hash(secret))


def hub_proof(token: Token, *, nonce: str, host: str) -> str:
    """Return what only a hub that keeps the token, and only at `host`, can answer to `nonce`."""
    return hmac.new(token.hash.encode(), f"{nonce}\n{host}".encode(), hashlib.sha256).hexdigest()


def identify(token: Token | None, secret: str, *, now: datetime) -> Identity | None:
    """Return whose token this is, in the same time for all; None if unknown, wrong, revoked or over."""
    if not is_proven(token, secret) or token is None or not token.is_live(now):
        return None
    return Identity(
        token_id=token.id,
        role=token.role,
        name=token.name,
        session_id=token.session_id,
        forms=token.forms,
    )
