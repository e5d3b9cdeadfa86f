"""`pml approvals`: what waits, what became of it, and answering it from a plain terminal."""

import argparse

from pml.cli.approving import ask, configure_ask, configure_decide, decide_each
from pml.cli.cards import print_card, print_lines, short
from pml.cli.exits import Exit
from pml.cli.output import print_json, say
from pml.cli.verbs import Verbs, run_verb
from pml.cli.watching import watch
from pml.core.approvals import Approval, SessionId, State, Subject
from pml.core.memory import META_TOOLS, always_entry
from pml.core.ports import ApprovalQuery
from pml.core.values import Json
from pml.core.wire import approval_json

EXAMPLES = """examples:
  pml approvals list                       what waits for an answer
  pml approvals show 3f2a                  all of one question; the start of its id is enough
  pml approvals allow 3f2a                 let it run, once
  pml approvals allow 3f2a --remember always
  pml approvals deny 3f2a --message 'use the staging database'
  pml approvals watch                      a line for everything that happens
  pml approvals ask github:create_issue '{"title": "Hi"}' --wait

exit codes: 0 ok, 1 failed, 2 usage, 3 denied, 4 pending, 5 expired or not found, 6 already decided"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    listing = verbs.add("list", "list what waits for an answer, oldest first", list_approvals)
    listing.add_argument("--all", action="store_true", help="also what is decided, expired or cancelled")
    listing.add_argument("--session", metavar="ID", help="only of this session")
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="at most N (default: 100)")
    listing.add_argument("--after", metavar="ID", help="only those after this approval: the next page")
    showing = verbs.add("show", "show one approval, whole", show_approval)
    showing.add_argument("id", metavar="ID", help="an id, or the start of one")
    configure_ask(verbs.add("ask", "ask for approval of a call that a script will make", ask))
    configure_decide(verbs.add("allow", "let calls run", decide_each), allow=True)
    configure_decide(verbs.add("deny", "refuse calls", decide_each), allow=False)
    verbs.add("watch", "print a line for everything that happens", watch)


run = run_verb


async def list_approvals(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk
    from pml.service.approvals import find
    from pml.service.upkeep import sweep

    async with open_desk(find_place(args.workspace)) as desk:
        await sweep(desk)
        after = await find(desk, args.after) if args.after else None
        query = ApprovalQuery(
            states=None if args.all else frozenset({State.PENDING}),
            session_id=SessionId(args.session) if args.session else None,
            after=None if after is None else (after.created_at, after.id),
            limit=args.limit,
        )
        found = await desk.store.approvals.page(query)
        now = desk.clock.now()
    if args.json:
        print_json({"approvals": [approval_json(record) for record in found]})
    elif not found:
        say("nothing here yet" if args.all else "nothing waits for an answer")
    else:
        print_lines(found, now=now)
        if len(found) == args.limit:
            say(f"there may be more: --after {short(found[-1].id)}")
    return Exit.OK


async def show_approval(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk
    from pml.core.approvals import Scope
    from pml.service.approvals import all_pending, find
    from pml.service.remembering import covered_by, memory_of
    from pml.service.sessions import session_of
    from pml.service.upkeep import sweep

    async with open_desk(find_place(args.workspace)) as desk:
        await sweep(desk)
        record = await find(desk, args.id)
        always = _always(record)
        covered: list[Approval] = []
        if always is not None and record.status is State.PENDING:
            from pml.app import person

            session = await session_of(desk, record.session_id)
            memory = memory_of(
                desk,
                record,
                session,
                person(),
                Scope.ALWAYS,
                arguments=record.tool_input,
                literal=False,
            )
            if memory is not None:
                covered = await covered_by(desk, memory, all_pending(desk))
        now = desk.clock.now()
    if args.json:
        print_json(approval_json(record) | {"always": always, "covers": [other.id for other in covered]})
    else:
        print_card(record, now=now, always=always, covered=covered)
    return Exit.OK


def _always(record: Approval) -> Json:
    """Return the entry that "always" would write, or None where there is nothing to remember."""
    if record.subject is not Subject.TOOL_CALL or record.tool_name in META_TOOLS:
        return None
    return always_entry(record.tool_name, record.tool_input)
