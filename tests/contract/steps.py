"""Steps that the tests of every store share."""

from datetime import datetime
from typing import Final

from pml.core.approvals.events import Cancelled, Completed, Event, Expired, Failed, Lost
from pml.core.approvals.record import Approval, ApprovalId, State
from pml.core.audit.chain import Link
from pml.core.audit.entries import Entry
from pml.core.errors import (
    PmlError,
)
from pml.core.ports.queries import AuditQuery
from pml.core.ports.records import PausedCall, Pin
from pml.core.ports.store import Store
from pml.core.servers.manifest import definition_digest
from tests.builders import (
    NOW,
    TTL_S,
    allow,
    claim,
    deny,
    later,
    make_approval,
)

MAX_PENDING: Final = 20
LAUNCH: Final = "sha256:launch"
CALL: Final = PausedCall(
    tool="github:create_issue",
    arguments={"z": "\0\u202e😀", "a": [1, 1.0, 2**70, None, True, {"deep": {}}]},
    offered=True,
)


def make_pin(
    description: str = "Opens an issue.",
    *,
    server: str = "github",
    launch: str = LAUNCH,
    action: str = "create_issue",
    pinned_at: datetime = NOW,
) -> Pin:
    definition = {"name": action, "description": description, "inputSchema": {"maximum": 1.0}}
    return Pin(
        server=server,
        target_digest=launch,
        action=action,
        definition=definition,
        digest=definition_digest(definition),
        pinned_at=pinned_at,
    )


async def ask(store: Store, new: Approval) -> Approval:
    return await store.approvals.ask(new, max_pending=MAX_PENDING)


async def ask_and(store: Store, new: Approval, *events: Event) -> Approval:
    record = await ask(store, new)
    for event in events:
        record = await store.approvals.advance(record.id, event)
    return record


async def log_of(store: Store) -> list[Link]:
    return [*await store.audit.list(AuditQuery(limit=10_000))]


async def outcome_of(store: Store, approval_id: ApprovalId, event: Event) -> Approval | PmlError:
    try:
        return await store.approvals.advance(approval_id, event)
    except PmlError as error:
        return error


def in_every_state() -> dict[State, tuple[Approval, list[Event]]]:
    """Return for each state a question of its own and the events that bring it there."""
    new = {state: make_approval(n) for n, state in enumerate(State, start=1)}
    allowed = {state: allow(record) for state, record in new.items()}
    claimed = {state: claim(record) for state, record in new.items()}
    paths: dict[State, list[Event]] = {
        State.PENDING: [],
        State.ALLOWED: [allowed[State.ALLOWED]],
        State.EXECUTING: [allowed[State.EXECUTING], claimed[State.EXECUTING]],
        State.COMPLETED: [allowed[State.COMPLETED], claimed[State.COMPLETED], Completed(at=NOW)],
        State.FAILED: [allowed[State.FAILED], claimed[State.FAILED], Failed(at=NOW, message="no")],
        State.UNKNOWN: [allowed[State.UNKNOWN], claimed[State.UNKNOWN], Lost(at=NOW)],
        State.DENIED: [deny(new[State.DENIED])],
        State.EXPIRED: [Expired(at=later(TTL_S))],
        State.CANCELLED: [Cancelled(at=NOW, reason="the agent ended")],
    }
    return {state: (new[state], path) for state, path in paths.items()}


async def ask_in_every_state(store: Store) -> dict[State, Approval]:
    return {state: await ask_and(store, new, *path) for state, (new, path) in in_every_state().items()}


async def entries_of(store: Store) -> list[Entry]:
    return [link.entry for link in await log_of(store)]
