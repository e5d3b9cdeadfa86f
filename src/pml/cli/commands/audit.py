"""`pml audit`: what happened, filtered; and whether anybody changed the log afterwards."""

import argparse
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.terminal.cards import short
from pml.cli.terminal.output import (
    Shown,
    complain_prose,
    count,
    local_time,
    print_json,
    print_table,
    say,
)
from pml.cli.verbs.verbs import Verbs, page_size, place, run_verb
from pml.core.approvals.record import SessionId
from pml.core.audit.chain import Link
from pml.core.audit.entries import Entry
from pml.core.errors import Invalid, NotFound
from pml.core.names import parse_tool
from pml.core.ports.queries import AuditQuery
from pml.core.text import quote, visible, visible_json
from pml.core.wire import link_json

if TYPE_CHECKING:
    from pml.service.context import Context

LIST_EXAMPLES = """examples:
  pml audit list                                   the newest entries, oldest of them first
  pml audit list --since 2h --tool github:create_issue
  pml audit list --since 2027-01-31                from the start of that day, UTC
  pml audit list --since 2027-01-31T08:00:00Z --until 2027-01-31T18:00:00Z --decider ana
  pml audit list --after 0 --limit 1000 --json     everything, page by page"""
VERIFY_EXAMPLES = """examples:
  pml audit verify                                 exit 1 if an entry was edited, removed or moved
  pml audit verify --json | jq '.problems[]'"""
EXAMPLES = f"""{LIST_EXAMPLES}
  pml audit verify                                 exit 1 if an entry was edited, removed or moved"""

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d|w)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TOLD: Final = ("name", "path", "effect", "entry", "reason", "why", "scope", "count")  # of an entry's details


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    listing = verbs.add("list", "list what happened", list_entries, epilog=LIST_EXAMPLES)
    time = "a time like 2027-01-31T08:00:00Z, a day like 2027-01-31 (UTC), or how long ago: 30m, 2h, 7d"
    listing.add_argument("--since", metavar="T", help=f"from then on: {time}")
    listing.add_argument("--until", metavar="T", help="before then")
    listing.add_argument("--session", metavar="ID", help="only of this session")
    listing.add_argument("--tool", metavar="TOOL", help="only about this tool")
    listing.add_argument("--decider", metavar="D", help="only decided by: a name, or person, client, …")
    listing.add_argument("--approval", metavar="ID", help="only about this approval")
    listing.add_argument("--limit", type=page_size, default=100, metavar="N", help="at most N (default: 100)")
    listing.add_argument("--after", type=place, metavar="SEQ", help="the first ones after this place")
    verbs.add("verify", "find entries that were changed afterwards", verify_entries, epilog=VERIFY_EXAMPLES)


run = run_verb


async def list_entries(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_context

    async with open_context(find_place(args.workspace)) as context:
        now = context.clock.now()
        query = AuditQuery(
            since=None if args.since is None else _time(args.since, now=now),
            until=None if args.until is None else _time(args.until, now=now),
            session_id=None if args.session is None else await _session_id(context, args.session),
            tool=None if args.tool is None else str(parse_tool(args.tool)),
            decider=args.decider,
            approval_id=None if args.approval is None else await _approval_id(context, args.approval),
            after=args.after or 0,
            limit=args.limit,
            newest=args.after is None,
        )
        links = await context.store.audit.list(query)
        names = {
            each: await _session_name(context, each) for each in {link.entry.session_id for link in links}
        }
    if args.json:
        print_json({"entries": [link_json(link) for link in links]})
    elif not links:
        say("no entries")
    else:
        columns = ["SEQ", "TIME", "EVENT", "APPROVAL", "SESSION", "WHAT"]
        print_table(columns, [_row(link, names[link.entry.session_id]) for link in links])
    return Exit.OK


async def verify_entries(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_context
    from pml.service.audit import verify_audit
    from pml.service.shapes import verification_json

    async with open_context(find_place(args.workspace)) as context:
        verification = await verify_audit(context)
    problems = verification.problems()
    if args.json:
        print_json(verification_json(verification))
    else:
        for each in problems:
            say(f"chain {visible(each.chain)}: {each.what}")
        seen = f"{count(verification.entries, 'entry', 'entries')} in {count(verification.chains, 'chain')}"
        if problems:
            complain_prose(f"pml: the audit log was changed: {count(len(problems), 'problem')} among {seen}")
        else:
            say(f"ok: {seen}, none changed since they were written")
    return Exit.FAILED if problems else Exit.OK


def _time(text: str, *, now: datetime) -> datetime:
    """Return the instant that `text` names. Raises: Invalid."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(f"{text}T00:00Z" if _DAY.fullmatch(text) else text)
    except (ValueError, OverflowError):
        found = None
    if found is None or found.tzinfo is None:
        raise Invalid(
            f"{quote(text)} is not a time",
            hint="like 2027-01-31, 2027-01-31T08:00:00Z with its zone, or 30m, 2h, 7d ago",
        )
    return found


async def _approval_id(context: "Context", prefix: str) -> str:
    """Return the whole id; of an approval that was cleaned up only the log knows it. Raises: NotFound, …"""
    from pml.service.approvals.lifecycle import find

    try:
        return (await find(context, prefix)).id
    except NotFound:
        if not await context.store.audit.list(AuditQuery(approval_id=prefix.lower(), limit=1)):
            raise
        return prefix.lower()


async def _session_id(context: "Context", given: str) -> str:
    """Return the id of the session that is meant by its name or the start of its id, if one is."""
    from pml.cli.commands.sessions import find_session

    try:
        return (await find_session(context, given)).id
    except NotFound:
        return given


async def _session_name(context: "Context", session_id: str | None) -> str:
    session = None if session_id is None else await context.store.sessions.get(SessionId(session_id))
    return session_id or "" if session is None else session.name


def _row(link: Link, session_name: str) -> list[str]:
    entry = link.entry
    return [
        str(link.seq),
        local_time(entry.at),
        entry.kind,
        short(entry.approval_id or ""),
        session_name,
        _what(entry),
    ]


def _what(entry: Entry) -> Shown:
    """Return what the entry is about, and who decided; digests are for `--json`."""
    details = [entry.detail[key] for key in _TOLD if entry.detail.get(key) is not None]
    words = [] if entry.tool is None else [visible(entry.tool)]
    words += [visible(each) if isinstance(each, str) else visible_json(each, indent=None) for each in details]
    by = "" if entry.by is None else f", by {visible(str(entry.by))}"
    return Shown(" ".join(words) + by)
