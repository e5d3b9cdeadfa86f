"""`pml approvals watch`: a plain line, or a JSON line, for everything that happens to approvals."""

import argparse
import json
from typing import TYPE_CHECKING

from pml.cli.cards import session_title, short
from pml.cli.opening import opened
from pml.cli.output import say
from pml.core.approvals import SessionId
from pml.core.audit import Link
from pml.core.ports import AuditQuery
from pml.core.text import visible
from pml.core.wire import link_json

if TYPE_CHECKING:
    from pml.service.desk import Desk

_LOOK_AGAIN_S = 5.0  # expiry is nobody's commit until somebody looks


async def watch(args: argparse.Namespace) -> int:
    from pml.service.approvals import all_pending
    from pml.service.upkeep import sweep

    async with opened(args) as desk:
        with desk.store.changes.watch() as changes:
            seen = await desk.store.audit.last_seq()
            async for record in all_pending(desk):
                for link in await desk.store.audit.list(AuditQuery(approval_id=record.id, limit=1)):
                    _tell(link, await _name(desk, link), as_json=args.json)
            while True:
                while links := await desk.store.audit.list(AuditQuery(after=seen)):
                    for link in links:
                        seen = link.seq
                        if link.entry.approval_id is not None:
                            _tell(link, await _name(desk, link), as_json=args.json)
                if not await changes.wait(_LOOK_AGAIN_S):
                    await sweep(desk)


async def _name(desk: "Desk", link: Link) -> str | None:
    session_id = link.entry.session_id
    session = None if session_id is None else await desk.store.sessions.get(SessionId(session_id))
    return None if session is None else session.name


def _tell(link: Link, name: str | None, *, as_json: bool) -> None:
    entry = link.entry
    if as_json:
        say(json.dumps(link_json(link) | {"session_name": name}))
        return
    kind = entry.kind.removeprefix("approval.")
    tool, session = visible(entry.tool or ""), session_title(entry.session_id or "", name)
    by = "" if entry.by is None else f" by {visible(str(entry.by))}"
    say(f"{entry.at:%H:%M:%SZ} {kind:<10} {short(entry.approval_id or '')} {tool} [{session}]{by}")
