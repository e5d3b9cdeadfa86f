"""Persons at a command: what tells that one is there, for commands that allow something or make a token.

An agent can have a command started so that it no longer runs beneath it. What it leaves behind, a mark in the
environment or no terminal and nobody above, is told here. A person's token stands for its holder.
"""

from typing import Final

import msgspec

from pml.core.errors import MayNotDecide, Unavailable
from pml.core.sessions.token import TokenRole, identify, read_token
from pml.host.private import read_private
from pml.service.context import Context
from pml.service.session_tree import guard_person

TOKEN_FILE: Final = "PML_TOKEN_FILE"
_HINT: Final = f"run it in a terminal of yours, or give a person's token in {TOKEN_FILE}"
_DETACHED: Final = "this command has no terminal, and what started it is gone: nobody is known to be there"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment tells: an agent's mark, in words, and the file with a person's token."""

    mark: str | None
    token_file: str | None


async def guard_loosening(context: Context, surroundings: Surroundings) -> None:
    """Raise MayNotDecide unless a person is there: none is beneath an agent, or proves it with a token."""
    await guard_person(context)
    why = _why_nobody(context, surroundings.mark)
    if why is None:
        return
    if surroundings.token_file is None:
        raise MayNotDecide(why, hint=_HINT)
    await prove_person(context, surroundings.token_file)


def _why_nobody(context: Context, mark: str | None) -> str | None:
    if mark is not None:
        return f"this command runs beneath an agent ({mark}), and an agent cannot decide for itself"
    return _DETACHED if context.processes.is_detached() else None


async def prove_person(context: Context, path: str) -> None:
    """Raise MayNotDecide unless the file holds a token of a person that is valid, and is private."""
    try:
        text = read_private(path)
    except Unavailable as exc:
        raise MayNotDecide(f"{TOKEN_FILE}: {exc.message}", hint=exc.hint) from exc
    read = read_token(text.strip())
    identity = None
    if read is not None:
        identity = identify(await context.store.tokens.get(read[0]), read[1], now=context.clock.now())
    if identity is None or identity.role is not TokenRole.PERSON:
        raise MayNotDecide(
            f"{TOKEN_FILE}: the file holds no token of a person, or one that has ended",
            hint="`pml token create --role person`, in a terminal of yours, makes one",
        )
