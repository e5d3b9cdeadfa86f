"""Rules for sessions, tokens and launched agents that every store shares: what it refuses, how a run changes.

States are in `core.sessions.agent`. Does not know where any of this is stored.
"""

from datetime import datetime

import msgspec

from pml.core.errors import Invalid
from pml.core.ports.records import Session
from pml.core.sessions.agent import ENDED_RUN, Message, Run, RunState
from pml.core.sessions.token import AGENT_ROLES, Token, TokenRole
from pml.core.values import check


def check_token(token: Token) -> None:
    """Raise Invalid for a token that nobody could prove to hold, or that has what its role has not."""
    if not token.hash:
        raise Invalid(f"token `{token.id}` has no hash")
    if token.role not in AGENT_ROLES and token.session_id is not None:
        raise Invalid(f"token `{token.id}` is a person's and cannot speak for session `{token.session_id}`")
    if token.forms and token.role is not TokenRole.SESSION:
        raise Invalid(f"token `{token.id}` is a {token.role}'s, and forms decide nothing there")
    if token.role is TokenRole.LOGIN and token.expires_at is None:
        raise Invalid(f"token `{token.id}` is for a login and must have an end")


def check_session(session: Session) -> None:
    """Raise Invalid for a session with a role that only a link has."""
    if session.role is TokenRole.LOGIN:
        raise Invalid(f"session `{session.id}` cannot have the role {session.role}")


def check_run(run: Run) -> None:
    """Raise Invalid for an order that cannot be stored exactly."""
    check(msgspec.to_builtins(run.order), what="the order")


def check_message(message: Message) -> None:
    """Raise Invalid for a text that cannot be stored exactly."""
    check(message.text, what="the message")


def moved(run: Run, state: RunState, *, at: datetime, exit_code: int | None, result: str | None) -> Run:
    """Return the run in `state`, ended if that is an end; what is not told stays. Raises: IllegalEvent."""
    return msgspec.structs.replace(
        run.moved_to(state),
        exit_code=run.exit_code if exit_code is None else exit_code,
        result=run.result if result is None else result,
        ended_at=at if state in ENDED_RUN else None,
    )
