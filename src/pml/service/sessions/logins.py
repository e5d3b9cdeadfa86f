"""Logging in by a link: it holds a token that is exchanged once, within an hour, for a person's.

Whoever proves to hold a link that is spent is told so; nobody else learns that there was one. How the link
reaches a person, and where their token is kept, is not known here.
"""

from typing import Final

from pml.core.approvals.record import Channel, Decider, DeciderKind
from pml.core.errors import Conflict, NotFound, PmlError
from pml.core.sessions.token import Identity, Token, TokenRole, is_proven
from pml.service.context import Context
from pml.service.sessions.tokens import PERSON_TTL_S, create_token, new_token, new_token_id, read_bearer

LINK_S: Final = 3600  # a link is opened soon, or lies about in a terminal's history
VISIT_S: Final = PERSON_TTL_S  # how long a browser stays logged in
_HINT: Final = "`pml inbox --link` prints another"


async def make_login(context: Context, *, name: str, by: Decider) -> str:
    """Return the text of a new token that logs `name` in, once. Raises: Invalid."""
    _, text = await create_token(context, role=TokenRole.LOGIN, name=name, ttl_s=LINK_S, by=by)
    return text


def login_link(url: str, text: str) -> str:
    """Return the link for a browser: what follows the `#` it keeps to itself and the page."""
    return f"{url}/#login={text}"


async def log_in(context: Context, identity: Identity) -> tuple[Token, str]:
    """Exchange a login for a person's token, and return that with its text.

    Raises: Conflict if another was first; NotFound if its time is over.
    """
    by = Decider(kind=DeciderKind.PERSON, id=identity.name, channel=Channel.INBOX)
    token, text = new_token(
        role=TokenRole.PERSON,
        name=identity.name,
        session_id=None,
        ttl_s=VISIT_S,
        token_id=new_token_id(),
        at=context.clock.now(),
    )
    if not await context.store.tokens.exchange(identity.token_id, token, by=by):
        raise _spent(await context.store.tokens.get(identity.token_id))
    return token, text


async def why_spent(context: Context, header: str | None) -> PmlError | None:
    """Return why the login that an `Authorization` header bears is spent; None if it is not, or is none."""
    read = read_bearer(header)
    token = None if read is None else await context.store.tokens.get(read[0])
    if read is None or not is_proven(token, read[1]) or token is None or token.role is not TokenRole.LOGIN:
        return None
    return None if token.is_live(context.clock.now()) else _spent(token)


def _spent(token: Token | None) -> PmlError:
    if token is None or token.revoked_at is not None:
        return Conflict("this link was used already, or revoked: it opens once", hint=_HINT)
    return NotFound("this link is over: it opens within an hour", hint=_HINT)
