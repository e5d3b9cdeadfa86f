"""The checks of `pml doctor` that concern persons' tokens: which end soon, and the one that is given."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from pml.cli.checks import Check, Status
from pml.cli.output import count
from pml.core.approvals import instant
from pml.core.errors import MayNotDecide
from pml.core.identity import Token, TokenRole
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.service.desk import Desk

_SOON: Final = timedelta(days=7)
_ANOTHER: Final = "`pml token create --role person` makes another, `pml inbox --link` logs a browser in again"


def check_tokens(tokens: Sequence[Token], now: datetime) -> Iterator[Check]:
    """Yield whether tokens of people are about to end, and which never do."""
    valid = [token for token in tokens if token.role is TokenRole.PERSON and token.is_live(now)]
    soon = [token for token in valid if _ends_soon(token, now)]
    endless = [token for token in valid if token.expires_at is None]
    for token in soon:
        message = f"{_named(token)} ends at {instant(token.expires_at or now)}"
        yield Check(name="tokens", status=Status.WARN, message=message, hint=_ANOTHER)
    for token in endless:
        message = f"{_named(token)} decides anything and has no end"
        hint = f"`pml token revoke {token.id}` ends it"
        yield Check(name="tokens", status=Status.OK, message=message, hint=hint)
    if not soon and not endless:
        message = f"{count(len(valid), 'token')} of people, none about to end"
        yield Check(name="tokens", status=Status.OK, message=message)


async def check_token_file(desk: "Desk", path: str | None) -> list[Check]:
    """Return whether the token that is given in a file is that of a person; nothing where none is given."""
    from pml.service.persons import TOKEN_FILE, prove_person

    if path is None:
        return []
    try:
        await prove_person(desk, path)
    except MayNotDecide as exc:
        return [Check(name="token file", status=Status.WARN, message=visible(exc.message), hint=exc.hint)]
    return [Check(name="token file", status=Status.OK, message=f"{TOKEN_FILE} holds a person's token")]


def _ends_soon(token: Token, now: datetime) -> bool:
    """Tell whether it ends within a week, and most of its time is over: some are made for an hour."""
    if token.expires_at is None:
        return False
    left = token.expires_at - now
    return left <= _SOON and left <= (token.expires_at - token.created_at) / 4


def _named(token: Token) -> str:
    return f"the token {token.id} of {visible(token.name)}"
