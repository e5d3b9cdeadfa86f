"""`pml token`: who may speak to the hub, and as whom. The text of a token is shown once, when it is made."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import local_time, print_json, print_table, say, say_prose
from pml.cli.verbs.verbs import Verbs, run_verb
from pml.core.approvals.record import SessionId
from pml.core.errors import Invalid, NotFound
from pml.core.sessions.token import Token, TokenRole, read_token
from pml.core.text import quote, visible
from pml.core.wire import token_json

if TYPE_CHECKING:
    from pml.service.context import Context

EXAMPLES = """A person's token decides anything and calls no tool. A session's calls tools, launches agents
and decides for those beneath it. A child's calls tools and asks.

examples:
  pml token create --role person                      for scripts and the API
  pml token create --role session --session nightly   for an agent that you connect yourself
  pml token create --role child --session helper --parent nightly
  pml token list
  pml token revoke 3f2a9c0d1e4b                       within a second, also where it is in use"""
_CREATE: Final = """examples:
  pml token create --role person --name phone --ttl 86400
  pml token create --role person --ttl never          until it is revoked
  pml token create --role session --session nightly --json
  pml token create --role session --session desk --forms    for a client with a person before it"""
_LIST: Final = """examples:
  pml token list
  pml token list --all                     also what is revoked or expired
  pml token list --json | jq '.tokens[].id'"""
_REVOKE: Final = """A session that was started for the token ends with it.

examples:
  pml token revoke 3f2a9c0d1e4b
  pml token revoke 3f2a                    the start of its id is enough"""

_ID_LENGTH: Final = 12
_NEVER: Final = "never"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    create = verbs.add("create", "make a token and show it, once", create_token, epilog=_CREATE)
    roles = ["person", "session", "child"]  # a login's is part of a link
    create.add_argument("--role", choices=roles, required=True, help="what it may do")
    create.add_argument(
        "--session",
        metavar="ID",
        help="the session it speaks for, started if needed (default: a new one)",
    )
    create.add_argument("--parent", metavar="ID", help="the session above the one that is started")
    create.add_argument("--name", metavar="N", help="what lists and decisions call its holder")
    create.add_argument(
        "--ttl",
        type=_lasting,
        metavar="SECONDS",
        help="how long it is valid, or `never` for no end (default: a person's 30 days, others no end)",
    )
    create.add_argument(
        "--forms",
        action="store_true",
        help="its client shows forms to a person: for plain calls their answers apply (never for commands, "
        "installs, launches or trust)",
    )
    listing = verbs.add("list", "list tokens, oldest first, without their text", list_tokens, epilog=_LIST)
    listing.add_argument("--all", action="store_true", help="also those that are revoked or have expired")
    revoke = verbs.add("revoke", "end a token", revoke_one, epilog=_REVOKE)
    revoke.add_argument("id", metavar="ID", help="the token's id, or the start of it")
    revoke.set_defaults(is_hushed=True)  # somebody may give the token itself


run = run_verb


async def create_token(args: argparse.Namespace) -> int:

    async with opened(args) as context:
        await guard(context, args)
        token, text = await _create(context, args)
    if args.json:
        print_json({"token": text, **token_json(token)})
        return Exit.OK
    say(text)
    say(f"  token {token.id}, role {token.role}" + _whose(token))
    say("  it has no end" if token.expires_at is None else f"  it ends at {local_time(token.expires_at)}")
    say_prose("  it is shown only now; send it as `Authorization: Bearer …`")
    if token.role is not TokenRole.PERSON:
        say_prose("  for an MCP client: the hub's URL with /mcp, and that header")
    say(f"  `pml token revoke {token.id}` ends it")
    return Exit.OK


async def _create(context: "Context", args: argparse.Namespace) -> tuple[Token, str]:
    from pml.app import find_place, person, user_name
    from pml.service.sessions import tokens

    role = TokenRole(args.role)
    if role is TokenRole.PERSON:
        if args.session is not None or args.parent is not None:
            raise Invalid("a person's token speaks for no session")
        if args.forms:
            raise Invalid("--forms goes with --role session: a person decides in the inbox")
        return await tokens.create_token(
            context, role=role, name=args.name or user_name(), ttl_s=_ttl_s(args, role), by=person()
        )
    session_id = SessionId(context.ids.new() if args.session is None else args.session)
    return await tokens.create_agent_token(
        context,
        role=role,
        name=args.name or session_id,
        session_id=session_id,
        parent_id=None if args.parent is None else SessionId(args.parent),
        workspace=str(find_place(args.workspace).workspace),
        ttl_s=_ttl_s(args, role),
        forms=args.forms,
        by=person(),
    )


def _session(token: Token, names: Mapping[SessionId, str]) -> str:
    return "-" if token.session_id is None else names.get(token.session_id, token.session_id)


async def list_tokens(args: argparse.Namespace) -> int:

    async with opened(args) as context:
        await guard(context, args)
        now = context.clock.now()
        every = await context.store.tokens.all()
        names = {session.id: session.name for session in await context.store.sessions.live()}
    found = [token for token in every if args.all or token.is_live(now)]
    if args.json:
        print_json({"tokens": [token_json(token) for token in found]})
    elif not found and every:
        say("no token is valid: `--all` shows those that were")
    elif not found:
        say("no tokens yet: `pml token create --role person` makes one")
    else:
        columns = ["TOKEN", "ROLE", "NAME", "SESSION", "CREATED", "STATE"]
        print_table(
            columns,
            [
                [each.id, each.role, each.name, _session(each, names), local_time(each.created_at), state]
                for each in found
                for state in [
                    "valid" if each.is_live(now) else "expired" if each.revoked_at is None else "revoked"
                ]
            ],
        )
    return Exit.OK


async def revoke_one(args: argparse.Namespace) -> int:
    """Raises: NotFound."""
    from pml.app import person
    from pml.service.sessions.tokens import revoke_token

    async with opened(args) as context:
        await guard(context, args)
        found = await _find(context, args.id)
        lived = await _is_living(context, found.session_id)
        token = await revoke_token(context, found.id, by=person())
        has_ended = lived and not await _is_living(context, found.session_id)
    if args.json:
        print_json(token_json(token))
        return Exit.OK
    say(f"revoked {token.id}{_whose(token)}")
    if has_ended:
        say_prose(f"  the session {visible(token.session_id or '')} ended with it")
    return Exit.OK


async def _find(context: "Context", given: str) -> Token:
    """Return the token with this text, this id or this start of its id. Raises: NotFound, Invalid."""
    read = read_token(given)
    wanted = given if read is None else read[0]
    tokens = await context.store.tokens.all()
    found = [token for token in tokens if token.id == wanted] or [
        token for token in tokens if read is None and wanted and token.id.startswith(wanted)
    ]
    shown = quote(wanted) if len(wanted) <= _ID_LENGTH else "with that id"  # it may be a token's own text
    if not found:
        raise NotFound(f"no token {shown}", hint="`pml token list --all` shows their ids")
    if len(found) > 1:
        raise Invalid(f"{len(found)} tokens begin with {shown}", hint="give more of the id")
    return found[0]


async def _is_living(context: "Context", session_id: SessionId | None) -> bool:
    session = None if session_id is None else await context.store.sessions.get(session_id)
    return session is not None and session.ended_at is None


def _ttl_s(args: argparse.Namespace, role: TokenRole) -> int | None:
    """Return how long the token is valid, None for no end, which of a person's must be said."""
    from pml.service.sessions.tokens import PERSON_TTL_S

    if args.ttl is None:
        return PERSON_TTL_S if role is TokenRole.PERSON else None
    return None if args.ttl == _NEVER else args.ttl


def _lasting(text: str) -> int | str:
    from pml.service.sessions.tokens import MAX_TTL_S

    if text == _NEVER:
        return text
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) <= MAX_TTL_S):
        raise argparse.ArgumentTypeError(f"must be a number of seconds from 1 to {MAX_TTL_S}, or `never`")
    return int(text)


def _whose(token: Token) -> str:
    session = "" if token.session_id is None else f", for the session {visible(token.session_id)}"
    return f", {visible(token.name)}{session}"
