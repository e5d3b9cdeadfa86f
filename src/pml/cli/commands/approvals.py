"""`pml approvals`: what waits, what became of it, answering it from a plain terminal, and `watch`.

The line of a new question in `watch` tells what is asked, as far as a line goes; `show` has all of it.
"""

import argparse
import json
from typing import TYPE_CHECKING, Final

from pml.cli.commands.sessions import find_session
from pml.cli.exits import Exit
from pml.cli.open_context import opened
from pml.cli.terminal.cards import glimpse, print_card, print_lines, session_title, short
from pml.cli.terminal.output import print_json, say, say_prose
from pml.cli.verbs.approvals_answer import ask, configure_ask, configure_decide, decide_each
from pml.cli.verbs.verbs import Verbs, page_size, run_verb
from pml.core.approvals.record import Approval, ApprovalId, SessionId, State
from pml.core.audit.chain import Link
from pml.core.errors import NotFound
from pml.core.ports.queries import ApprovalQuery, AuditQuery
from pml.core.ports.records import Session
from pml.core.text import visible
from pml.core.values import Json
from pml.core.wire import link_json, listed_json

if TYPE_CHECKING:
    from pml.core.cards.card import Card
    from pml.service.context import Context

EXAMPLES = """examples:
  pml approvals list                       what waits for an answer
  pml approvals show 3f2a                  all of one question; the start of its id is enough
  pml approvals allow 3f2a                 let it run, once
  pml approvals allow 3f2a --remember always
  pml approvals deny 3f2a --message 'use the staging database'
  pml approvals watch                      a line for everything that happens
  pml approvals ask github:create_issue '{"title": "Hi"}' --wait

exit codes: 0 ok, 1 failed, 2 usage, 3 denied, 4 pending, 5 expired or not found, 6 already decided"""
_LIST: Final = """examples:
  pml approvals list
  pml approvals list --all --newest --limit 20
  pml approvals list --all --search 'drop table' --workspace .
  pml approvals list --session nightly --json"""
_SHOW: Final = """examples:
  pml approvals show 3f2a
  pml approvals show 3f2a --json"""
_ALLOW: Final = """examples:
  pml approvals allow 3f2a 77b0
  pml approvals allow 3f2a --remember session
  pml approvals allow 3f2a --remember always --literal      only with these arguments
  pml approvals allow 3f2a --input '{"title": "Hello"}'     with other arguments
  pml approvals allow 3f2a --tools Read,Grep --parent-may nothing      a launch, with less"""
_DENY: Final = """examples:
  pml approvals deny 3f2a
  pml approvals deny 3f2a 77b0 --message 'use the staging database'"""
_WATCH: Final = """examples:
  pml approvals watch
  pml approvals watch --json | jq .kind"""
_LOOK_AGAIN_S = 5.0  # an expiry is written only when some process looks
_ASKED = "approval.requested"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    listing = verbs.add(
        "list",
        "list what waits for an answer, oldest first",
        list_approvals,
        epilog=_LIST,
        workspace="only of this workspace (default: of all)",
    )
    listing.add_argument("--all", action="store_true", help="also what is decided, expired or withdrawn")
    listing.add_argument(
        "--session", metavar="ID", help="only of this session: its name, its id, or the start of that"
    )
    listing.add_argument(
        "--search",
        metavar="TEXT",
        help="only with this text in the tool, its input, the session, who decided, or what they said",
    )
    listing.add_argument("--newest", action="store_true", help="newest first")
    listing.add_argument("--limit", type=page_size, default=100, metavar="N", help="at most N (default: 100)")
    listing.add_argument("--after", metavar="ID", help="only those after this approval: the next page")
    showing = verbs.add("show", "show one approval, whole", show_approval, epilog=_SHOW)
    showing.add_argument("id", metavar="ID", help="an id, or the start of one")
    configure_ask(verbs.add("ask", "ask for approval of a call that a script will make", ask))
    configure_decide(verbs.add("allow", "let calls run", decide_each, epilog=_ALLOW), allow=True)
    configure_decide(verbs.add("deny", "refuse calls", decide_each, epilog=_DENY), allow=False)
    verbs.add(
        "watch",
        "print a line for everything that happens, with --json an object a line",
        watch,
        epilog=_WATCH,
    )


run = run_verb


async def list_approvals(args: argparse.Namespace) -> int:
    from pml.app import find_place
    from pml.service.approvals.cards import cards
    from pml.service.approvals.lifecycle import find
    from pml.service.session_tree import session_of

    async with opened(args) as context:
        session_id = await _session_id(context, args.session) if args.session else None
        after = await find(context, args.after) if args.after else None
        query = ApprovalQuery(
            states=None if args.all else frozenset({State.PENDING}),
            session_id=session_id,
            workspace=None if args.workspace is None else str(find_place(args.workspace).workspace),
            search=args.search or None,
            newest=args.newest,
            after=None if after is None else (after.created_at, after.id),
            limit=args.limit,
        )
        found = await context.store.approvals.page(query)
        sessions = {each: await session_of(context, each) for each in {record.session_id for record in found}}
        drawn = await cards(context, found)
        now = context.clock.now()
    if args.json:
        pairs = zip(found, drawn, strict=True)
        print_json(
            {"approvals": [_listed_json(each, sessions[each.session_id], card) for each, card in pairs]}
        )
    elif not found:
        say(_nothing(args))
    else:
        print_lines(found, drawn, sessions, now=now)
        if len(found) == args.limit:
            say(f"there may be more: --after {short(found[-1].id)}")
    return Exit.OK


def _nothing(args: argparse.Namespace) -> str:
    if args.search or args.workspace or args.session or args.after:
        return "nothing like that here" if args.all else "nothing like that waits for an answer"
    return "nothing here yet" if args.all else "nothing waits for an answer"


async def _session_id(context: "Context", given: str) -> SessionId:
    """Return the session that is meant; one that has not begun has asked for nothing. Raises: Invalid."""
    try:
        return (await find_session(context, given)).id
    except NotFound:
        return SessionId(given)


def _listed_json(record: Approval, session: Session, card: "Card") -> dict[str, Json]:
    about = {"workspace": session.workspace, "session_name": session.name, **_told(card)}
    return listed_json(record) | about


def _told(card: "Card") -> dict[str, Json]:
    touches: dict[str, Json] = {} if card.touches is None else {"touches": card.touches}
    return {"sentence": card.sentence, **touches}


async def show_approval(args: argparse.Namespace) -> int:
    from pml.app import person
    from pml.service.approvals.cards import card
    from pml.service.approvals.lifecycle import find
    from pml.service.approvals.previews import preview

    async with opened(args) as context:
        shown = await preview(context, await find(context, args.id), by=person())
        drawn = await card(context, shown.record, whole=True)
        now = context.clock.now()
    if args.json:
        print_json(shown.json() | _told(drawn))
    else:
        print_card(
            shown.record,
            workspace=shown.workspace,
            session_name=shown.session_name,
            now=now,
            always=shown.always,
            covered=shown.covered,
            code=shown.code,
            card=drawn,
        )
    return Exit.OK


async def watch(args: argparse.Namespace) -> int:
    from pml.service.approvals.lifecycle import all_pending
    from pml.service.upkeep import sweep

    async with opened(args) as context:
        with context.store.changes.watch() as changes:
            seen = await context.store.audit.last_seq()
            async for record in all_pending(context):
                for link in await context.store.audit.list(AuditQuery(approval_id=record.id, limit=1)):
                    await _tell(context, link, as_json=args.json)
            while True:
                while links := await context.store.audit.list(AuditQuery(after=seen)):
                    for link in links:
                        seen = link.seq
                        if link.entry.approval_id is not None:
                            await _tell(context, link, as_json=args.json)
                if not await changes.wait(_LOOK_AGAIN_S):
                    await sweep(context)


async def _name(context: "Context", link: Link) -> str | None:
    session_id = link.entry.session_id
    session = None if session_id is None else await context.store.sessions.get(SessionId(session_id))
    return None if session is None else session.name


async def _asked(context: "Context", link: Link) -> Approval | None:
    """Return the question that the line is the first of, unless it was cleaned up since."""
    entry = link.entry
    if entry.kind != _ASKED or entry.approval_id is None:
        return None
    return await context.store.approvals.get(ApprovalId(entry.approval_id))


async def _tell(context: "Context", link: Link, *, as_json: bool) -> None:
    entry = link.entry
    name, asked = await _name(context, link), await _asked(context, link)
    if as_json:
        more = {} if asked is None else {"input": asked.tool_input}
        say(json.dumps(link_json(link) | {"session_name": name} | more))
        return
    kind = entry.kind.removeprefix("approval.")
    tool, session = visible(entry.tool or ""), session_title(entry.session_id or "", name)
    by = "" if entry.by is None else f" by {visible(str(entry.by))}"
    what = "" if asked is None else f"  {glimpse(asked)}"
    at = f"{entry.at.astimezone():%H:%M:%S}"
    say_prose(f"{at} {kind:<10} {short(entry.approval_id or '')} {tool} [{session}]{by}{what}")
