"""Undo of a remembered answer: its grant or its entry is taken back, and a call that has not begun with it.

What has run stays so, and that is told. A denial is not undone here: the inbox holds it for a moment.
"""

import contextlib
from dataclasses import dataclass
from typing import Final

from pml.core.approvals import Approval, ApprovalId, Decider, Scope, State
from pml.core.config import FileKind
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.memory import always_entry
from pml.core.rules import Effect, runs_code
from pml.core.values import Json, is_same
from pml.service.approvals import cancel, get
from pml.service.desk import Desk
from pml.service.rulebook import drop_rule
from pml.service.sessions import session_of

_BEGUN: Final = frozenset({State.EXECUTING, State.COMPLETED, State.FAILED, State.UNKNOWN})


@dataclass(frozen=True, kw_only=True)
class Undone:
    """The question as it is now; `taken_back`: a grant or an entry was still there to be taken back."""

    record: Approval
    taken_back: bool

    @property
    def has_run(self) -> bool:
        """Whether the call itself could not be called back: it was made, or may have been."""
        return self.record.status in _BEGUN

    def json(self) -> dict[str, Json]:
        return {
            "id": self.record.id,
            "status": self.record.status,
            "taken_back": self.taken_back,
            "has_run": self.has_run,
        }


async def take_back(desk: Desk, approval_id: ApprovalId, *, by: Decider, literal: bool = False) -> Undone:
    """Forget what the answer is remembered by; withdraw its call if that has not begun.

    `literal`: it was "always" with exactly these arguments. Raises: NotFound, Invalid, Unavailable.
    """
    record = await get(desk, approval_id)
    match record.scope:
        case Scope.SESSION:
            taken_back = await _revoke(desk, record, by)
        case Scope.ALWAYS:
            taken_back = await _remove_entry(desk, record, by, literal=literal)
        case _:
            raise Invalid(f"approval `{record.id}` is not remembered", hint="there is nothing to take back")
    if record.status is State.ALLOWED:
        with contextlib.suppress(Conflict):  # it has just begun
            record = await cancel(desk, record.id, reason=f"{by.id} took the answer back")
    return Undone(record=await get(desk, record.id), taken_back=taken_back)


async def _revoke(desk: Desk, record: Approval, by: Decider) -> bool:
    found = [grant for grant in await desk.store.grants.all() if grant.approval_id == record.id]
    for grant in found:
        with contextlib.suppress(NotFound):
            await desk.store.grants.revoke(grant.id, at=desk.clock.now(), by=by)
    return bool(found)


async def _remove_entry(desk: Desk, record: Approval, by: Decider, *, literal: bool) -> bool:
    """Remove the entry that this answer wrote, or was going to write."""
    waiting = [intent for intent in await desk.store.intents.open() if intent.approval_id == record.id]
    for intent in waiting:
        await desk.store.intents.forget(intent.id)
    arguments = record.call_input
    is_edited = not is_same(record.run_input, record.tool_input)  # as `memory_of` sees it
    exact = literal or is_edited or runs_code(record.tool_name, arguments)
    entry = always_entry(record.tool_name, arguments, literal=exact)
    workspace = (await session_of(desk, record.session_id)).workspace
    count = await drop_rule(desk, workspace, Effect.ALLOW, entry, which=FileKind.WORKSPACE, by=by)
    return bool(count or waiting)
