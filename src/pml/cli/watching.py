"""`pml approvals watch`: a plain line, or a JSON line, for everything that happens to approvals.

The line of a new question also tells what is asked, as far as a line goes; `show` has all of it.
"""

import argparse
import json
from typing import TYPE_CHECKING

from pml.cli.cards import glimpse, session_title, short
from pml.cli.opening import opened
from pml.cli.output import say
from pml.core.approvals import Approval, ApprovalId, SessionId
from pml.core.audit import Link
from pml.core.ports import AuditQuery
from pml.core.text import visible
from pml.core.wire import link_json

if TYPE_CHECKING:
    from pml.service.desk import Desk

_LOOK_AGAIN_S = 5.0  # expiry is nobody's commit until somebody looks
_ASKED = "approval.requested"


async def watch(args: argparse.Namespace) -> int:
    from pml.service.approvals import all_pending
    from pml.service.upkeep import sweep

    async with opened(args) as desk:
        with desk.store.changes.watch() as changes:
            seen = await desk.store.audit.last_seq()
            async for record in all_pending(desk):
                for link in await desk.store.audit.list(AuditQuery(approval_id=record.id, limit=1)):
                    await _tell(desk, link, as_json=args.json)
            while True:
                while links := await desk.store.audit.list(AuditQuery(after=seen)):
                    for link in links:
                        seen = link.seq
                        if link.entry.approval_id is not None:
                            await _tell(desk, link, as_json=args.json)
                if not await changes.wait(_LOOK_AGAIN_S):
                    await sweep(desk)


async def _name(desk: "Desk", link: Link) -> str | None:
    session_id = link.entry.session_id
    session = None if session_id is None else await desk.store.sessions.get(SessionId(session_id))
    return None if session is None else session.name


async def _asked(desk: "Desk", link: Link) -> Approval | None:
    """Return the question that the line is the first of, unless it was cleaned up since."""
    entry = link.entry
    if entry.kind != _ASKED or entry.approval_id is None:
        return None
    return await desk.store.approvals.get(ApprovalId(entry.approval_id))


async def _tell(desk: "Desk", link: Link, *, as_json: bool) -> None:
    entry = link.entry
    name, asked = await _name(desk, link), await _asked(desk, link)
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
