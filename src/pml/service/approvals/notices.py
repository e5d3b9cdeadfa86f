"""Notices of the inbox: requests of which nobody was asked, because too many wait or they are too large."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from pml.core.approvals.record import SessionId, instant
from pml.core.audit.chain import Link
from pml.core.audit.entries import REFUSED
from pml.core.ports.queries import AuditQuery
from pml.core.text import visible
from pml.core.values import Json
from pml.service.context import Context

SHOWN_S: Final = 3600.0  # the audit log has them for as long as it is kept
_LOOKED_AT: Final = 10_000  # the newest entries of the log: reading them takes some milliseconds
_MOST: Final = 20


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What was refused of one session for one reason: how often, and the last of it."""

    session: SessionId
    session_name: str
    tool: str
    reason: str
    count: int
    at: datetime

    @property
    def text(self) -> str:
        again = "" if self.count == 1 else f" and {self.count - 1:,} more of its requests"
        return f"{self.tool} of {self.session_name}{again} was refused without asking: {self.reason}"

    def json(self) -> dict[str, Json]:
        return {**msgspec.structs.asdict(self), "at": instant(self.at), "text": self.text}


async def notices(context: Context) -> list[Notice]:
    """Return what was refused in the last hour, the newest first."""
    after = max(0, await context.store.audit.last_seq() - _LOOKED_AT)
    since = context.clock.now() - timedelta(seconds=SHOWN_S)
    query = AuditQuery(kind=REFUSED, after=after, since=since, limit=_LOOKED_AT)
    groups: dict[tuple[str, str], list[Link]] = {}
    for link in await context.store.audit.list(query):
        groups.setdefault((link.entry.session_id or "", str(link.entry.detail.get("why"))), []).append(link)
    newest = sorted(groups.values(), key=lambda links: -links[-1].seq)[:_MOST]
    return [await _notice(context, links) for links in newest]


async def _notice(context: Context, links: list[Link]) -> Notice:
    last = links[-1].entry
    session_id = SessionId(last.session_id or "")
    session = await context.store.sessions.get(session_id)
    return Notice(
        session=session_id,
        session_name=visible(session_id if session is None else session.name),
        tool=visible(last.tool or ""),
        reason=visible(str(last.detail.get("why"))),
        count=len(links),
        at=last.at,
    )
