"""`pml approvals watch`: a plain line, or a JSON line, for everything that happens to approvals.

The line of a new question also tells what is asked, as far as a line goes; `show` has all of it.
"""

import argparse
import json
from typing import TYPE_CHECKING

from pml.cli.open_context import opened
from pml.cli.terminal.cards import glimpse, session_title, short
from pml.cli.terminal.output import say
from pml.core.approvals.record import Approval, ApprovalId, SessionId
from pml.core.audit.chain import Link
from pml.core.ports.queries import AuditQuery
from pml.core.text import visible
from pml.core.wire import link_json

if TYPE_CHECKING:
    from pml.service.context import Context

_LOOK_AGAIN_S = 5.0  # an expiry is written only when some process looks
_ASKED = "approval.requested"


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
    say(f"{at} {kind:<10} {short(entry.approval_id or '')} {tool} [{session}]{by}{what}")
