"""`pml approvals watch`: a plain line, or a JSON line, for everything that happens to approvals."""

import argparse
import json

from pml.cli.cards import short
from pml.cli.opening import opened
from pml.cli.output import say
from pml.core.audit import Link
from pml.core.ports import AuditQuery
from pml.core.text import visible
from pml.core.wire import link_json

_LOOK_AGAIN_S = 5.0  # expiry is nobody's commit until somebody looks


async def watch(args: argparse.Namespace) -> int:
    from pml.service.approvals import all_pending
    from pml.service.upkeep import sweep

    async with opened(args) as desk:
        with desk.store.changes.watch() as changes:
            seen = await desk.store.audit.last_seq()
            async for record in all_pending(desk):
                for link in await desk.store.audit.list(AuditQuery(approval_id=record.id, limit=1)):
                    _tell(link, as_json=args.json)
            while True:
                while links := await desk.store.audit.list(AuditQuery(after=seen)):
                    for link in links:
                        seen = link.seq
                        if link.entry.approval_id is not None:
                            _tell(link, as_json=args.json)
                if not await changes.wait(_LOOK_AGAIN_S):
                    await sweep(desk)


def _tell(link: Link, *, as_json: bool) -> None:
    entry = link.entry
    if as_json:
        say(json.dumps(link_json(link)))
        return
    kind = entry.kind.removeprefix("approval.")
    tool, session = visible(entry.tool or ""), visible(entry.session_id or "")
    by = "" if entry.by is None else f" by {visible(str(entry.by))}"
    say(f"{entry.at:%H:%M:%SZ} {kind:<10} {short(entry.approval_id or '')} {tool} [{session}]{by}")
