"""Tokens: making them, telling whose a request is, revoking them. The text of one is shown once.

A token speaks for a person, or for a session, and ends with it. How it travels is not known here.
"""

import re
import secrets
from datetime import datetime, timedelta
from typing import Final

from pml.core.approvals.record import Decider, SessionId
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.ports.records import Session
from pml.core.sessions.token import (
    AGENT_ROLES,
    SECRET_BYTES,
    Identity,
    ParentMay,
    Token,
    TokenId,
    TokenRole,
    identify,
    read_token,
    secret_hash,
    token_text,
)
from pml.core.text import has_hidden, quote
from pml.core.values import check
from pml.service.context import Context
from pml.service.session_tree import session_of
from pml.service.upkeep import end_session

MAX_NAME: Final = 100
MAX_TTL_S: Final = 10 * 365 * 24 * 3600  # longer than that is for ever: leave it out
PERSON_TTL_S: Final = 30 * 24 * 3600  # a person's token decides anything: one that is forgotten must end
_ID_BYTES: Final = 6
_PRINCIPAL: Final = "token:"
_BEARER: Final = re.compile(r"bearer +(\S+)", re.IGNORECASE)


async def create_token(
    context: Context,
    *,
    role: TokenRole,
    name: str,
    session_id: SessionId | None = None,
    ttl_s: int | None = None,
    forms: bool = False,
    by: Decider | None,
    token_id: TokenId | None = None,
) -> tuple[Token, str]:
    """Store a new token and return it with its text, which nobody can show again.

    Raises: Invalid; NotFound or Conflict if the session is not there, has ended, or has another role.
    """
    await _check(context, role, name, session_id, ttl_s)
    await _check_forms(context, role, session_id, forms=forms)
    token, text = new_token(
        role=role,
        name=name,
        session_id=session_id,
        ttl_s=ttl_s,
        forms=forms,
        token_id=token_id or new_token_id(),
        at=context.clock.now(),
    )
    await context.store.tokens.add(token, by=by)
    return token, text


async def create_agent_token(
    context: Context,
    *,
    role: TokenRole,
    name: str,
    session_id: SessionId,
    parent_id: SessionId | None,
    workspace: str,
    ttl_s: int | None,
    forms: bool = False,
    by: Decider,
) -> tuple[Token, str]:
    """As `create_token`, for a session that is started with it if there is none.

    One that was started for a token and has ended begins anew, without memory. Raises: the same.
    """
    token_id = new_token_id()
    check([session_id, name], what="the session's name")
    before = await context.store.sessions.get(session_id)
    if before is not None and parent_id not in (None, before.parent_id):
        raise Conflict(f"session {quote(session_id)} exists already, and keeps the parent it has")
    if before is None or (before.ended_at is not None and _is_of_token(before)):
        parent_id = parent_id if before is None else before.parent_id
        parent = None if parent_id is None else await session_of(context, parent_id)
        if parent is not None:
            _refuse_ended(parent)
        _check_lasting(name, ttl_s)
        await context.store.sessions.start(
            Session(
                id=session_id,
                name=name,
                principal=token_principal(token_id) if before is None else before.principal,
                workspace=workspace,
                parent_id=parent_id,
                is_agent=True,
                role=role,
                parent_may=ParentMay.NOTHING if parent is None else parent.gives,  # a person named it
                started_at=context.clock.now(),
            )
        )
    return await create_token(
        context,
        role=role,
        name=name,
        session_id=session_id,
        ttl_s=ttl_s,
        forms=forms,
        by=by,
        token_id=token_id,
    )


def read_bearer(header: str | None) -> tuple[TokenId, str] | None:
    """Return the id and the secret that an `Authorization` header bears, None for every other."""
    found = _BEARER.fullmatch(header or "")
    return None if found is None else read_token(found[1])


async def identify_bearer(context: Context, header: str | None) -> Identity | None:
    """Return whose token an `Authorization` header bears; None for every other, whatever is wrong with it."""
    read = read_bearer(header)
    if read is None:
        return None
    token_id, secret = read
    identity = identify(await context.store.tokens.get(token_id), secret, now=context.clock.now())
    if identity is None or identity.session_id is None:
        return identity
    session = await context.store.sessions.get(identity.session_id)
    return None if session is None or session.ended_at is not None else identity


async def is_live_token(context: Context, token_id: TokenId) -> bool:
    """Tell whether a token that was let in still counts; those of a session are revoked at its end."""
    token = await context.store.tokens.get(token_id)
    return token is not None and token.is_live(context.clock.now())


async def revoke_token(context: Context, token_id: TokenId, *, by: Decider) -> Token:
    """Let the token count no longer; a session that was started for it ends. Raises: NotFound."""
    await context.store.tokens.revoke(token_id, at=context.clock.now(), by=by)
    token = await context.store.tokens.get(token_id)
    if token is None:
        raise NotFound(f"no token {quote(token_id)}")
    session = None if token.session_id is None else await context.store.sessions.get(token.session_id)
    if session is not None and session.ended_at is None and await _ends_with(context, session, token_id):
        await end_session(context, session)
    return token


async def _ends_with(context: Context, session: Session, token_id: TokenId) -> bool:
    """Tell whether it was started for this token, or for one of those that have all ceased to count."""
    if session.principal == token_principal(token_id):
        return True
    now = context.clock.now()
    others = [each for each in await context.store.tokens.all() if each.session_id == session.id]
    return _is_of_token(session) and not any(each.is_live(now) for each in others)


def new_token_id() -> TokenId:
    return TokenId(secrets.token_hex(_ID_BYTES))


def new_token(
    *,
    role: TokenRole,
    name: str,
    session_id: SessionId | None,
    ttl_s: int | None,
    forms: bool = False,
    token_id: TokenId,
    at: datetime,
) -> tuple[Token, str]:
    """Return a token that is not stored yet, and its text."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    token = Token(
        id=token_id,
        role=role,
        name=name,
        hash=secret_hash(secret),
        session_id=session_id,
        created_at=at,
        expires_at=None if ttl_s is None else at + timedelta(seconds=ttl_s),
        forms=forms,
    )
    return token, token_text(token.id, secret)


def token_principal(token_id: TokenId) -> str:
    """Return who asks over HTTP: the token."""
    return f"{_PRINCIPAL}{token_id}"


def _is_of_token(session: Session) -> bool:
    return session.principal.startswith(_PRINCIPAL)


async def _check(
    context: Context, role: TokenRole, name: str, session_id: SessionId | None, ttl_s: int | None
) -> None:
    _check_lasting(name, ttl_s)
    if role not in AGENT_ROLES:
        if session_id is not None:
            raise Invalid("a person's token speaks for no session")
        return
    if session_id is None:
        raise Invalid(f"a token of role {role} speaks for a session; which?")
    session = await session_of(context, session_id)
    _refuse_ended(session)
    if session.role is not role:
        raise Conflict(f"session {quote(session_id)} has the role {session.role}, so its tokens have it too")


async def _check_forms(
    context: Context, role: TokenRole, session_id: SessionId | None, *, forms: bool
) -> None:
    """Refuse a token whose answers would mean something else than those of the session's other tokens."""
    if forms and role is not TokenRole.SESSION:
        raise Invalid(f"forms go with the role {TokenRole.SESSION}: a {role} decides nothing by form")
    now = context.clock.now()
    others = [
        token.forms
        for token in await context.store.tokens.all()
        if session_id is not None and token.session_id == session_id and token.is_live(now)
    ]
    if (not forms) in others:
        has = "without" if forms else "with"
        raise Conflict(
            f"session {quote(session_id or '')} has tokens {has} forms, so all of its tokens are",
            hint="name another session, or revoke the others first",
        )


def _check_lasting(name: str, ttl_s: int | None) -> None:
    check(name, what="the token's name")
    if not name or len(name) > MAX_NAME or has_hidden(name):
        raise Invalid(f"a token's name has 1 to {MAX_NAME} characters that can be seen")
    if ttl_s is not None and not 0 < ttl_s <= MAX_TTL_S:
        raise Invalid(f"a token lasts from 1 to {MAX_TTL_S} seconds, or has no end")


def _refuse_ended(session: Session) -> None:
    if session.ended_at is not None:
        raise Conflict(
            f"session {quote(session.id)} has ended", hint="name another, or leave `--session` out"
        )
