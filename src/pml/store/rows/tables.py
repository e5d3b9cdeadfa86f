"""Tables of the store, each with the mapper of its rows, under the name that statements give it.

A column is declared by its field in `core` and by a migration; only those of another name are told here.
"""

from collections.abc import Mapping
from typing import Any, Final

from pml.core.approvals.record import Approval, Decider
from pml.core.audit.chain import Link
from pml.core.audit.entries import Entry
from pml.core.code.journal import CodeRun, Step
from pml.core.ports.records import Content, Grant, Held, Intent, Pin, Session, Trust, Workflow
from pml.core.ports.session_store import Receipt
from pml.core.sessions.agent import Message, Run
from pml.core.sessions.process import Process
from pml.core.sessions.token import Token
from pml.store.rows.mapper import EPOCH, Mapper
from pml.store.sqlite.database import Row, Value

APPROVALS: Final = Mapper(Approval)
HELD: Final = Mapper(Held)
SESSIONS: Final = Mapper(Session, process=Mapper(Process, started="process_started"))
GRANTS: Final = Mapper(Grant, by="decider")
WORKFLOWS: Final = Mapper(Workflow)
TRUSTS: Final = Mapper(Trust, by="decider")
CONTENTS: Final = Mapper(Content)
INTENTS: Final = Mapper(Intent)
PINS: Final = Mapper(Pin, target_digest="launch")
TOKENS: Final = Mapper(Token)
RUNS: Final = Mapper(Run, order="ordered")
MESSAGES: Final = Mapper(Message)
RECEIPTS: Final = Mapper(Receipt)
CODE_RUNS: Final = Mapper(CodeRun)
CODE_STEPS: Final = Mapper(Step)
ENTRIES: Final = Mapper(Entry, by=Mapper(Decider, kind="by_kind", id="by_id", channel="by_channel"))
LINKS: Final = Mapper(Link, entry=ENTRIES)

BY_NAME: Final[Mapping[str, Mapper[Any]]] = {
    "approvals": APPROVALS,
    "held": HELD,
    "sessions": SESSIONS,
    "grants": GRANTS,
    "workflows": WORKFLOWS,
    "trusts": TRUSTS,
    "contents": CONTENTS,
    "intents": INTENTS,
    "pins": PINS,
    "tokens": TOKENS,
    "runs": RUNS,
    "messages": MESSAGES,
    "receipts": RECEIPTS,
    "code_runs": CODE_RUNS,
    "code_steps": CODE_STEPS,
    "entries": ENTRIES,
    "links": LINKS,
}


def link_values(chain: str, n: int, entry: Entry, prev: str, hashed: str) -> tuple[Value, ...]:
    """Return the values of `insert_audit`; the store gives the link its `seq`."""
    return (chain, n, prev, hashed, *ENTRIES.values(entry))


def link_of(row: Row) -> Link:
    """Return the row's link; one whose columns make no sense has an entry that fits no hash."""
    try:
        return LINKS.read(row)
    except (ValueError, TypeError, OverflowError):
        known = dict(zip(LINKS.names, row, strict=True))
        place = {name: known[name] for name in ("seq", "chain", "n", "prev", "hash")}
        return Link(**place, entry=Entry(at=EPOCH, kind="unreadable"))
