"""Undo of a remembered answer: its grant or its entry is taken back, and a call that has not begun with it.

What has run stays so, and that is told. A denial is not undone here: the inbox holds it for a moment.
"""

import contextlib
from dataclasses import dataclass
from typing import Final

from pml.core.approvals.memory import always_entry
from pml.core.approvals.record import Approval, ApprovalId, Decider, Scope, State
from pml.core.approvals.subjects import call_input
from pml.core.config.file import FileKind
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.rules.ruleset import Effect, runs_code
from pml.core.values import Json, is_same
from pml.service.approvals.lifecycle import cancel, get
from pml.service.context import Context
from pml.service.rules.rulebook import drop_rule
from pml.service.session_tree import session_of

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


async def take_back(
    context: Context, approval_id: ApprovalId, *, by: Decider, literal: bool = False
) -> Undone:
    """Forget what the answer is remembered by; withdraw its call if that has not begun.

    `literal`: it was "always" with exactly these arguments. Raises: NotFound, Invalid, Unavailable.
    """
    record = await get(context, approval_id)
    match record.scope:
        case Scope.SESSION:
            taken_back = await _revoke(context, record, by)
        case Scope.ALWAYS:
            taken_back = await _remove_entry(context, record, by, literal=literal)
        case _:
            raise Invalid(f"approval `{record.id}` is not remembered", hint="there is nothing to take back")
    if record.status is State.ALLOWED:
        with contextlib.suppress(Conflict):  # it has just begun
            record = await cancel(context, record.id, reason=f"{by.id} took the answer back")
    return Undone(record=await get(context, record.id), taken_back=taken_back)


async def _revoke(context: Context, record: Approval, by: Decider) -> bool:
    found = [grant for grant in await context.store.grants.all() if grant.approval_id == record.id]
    for grant in found:
        with contextlib.suppress(NotFound):
            await context.store.grants.revoke(grant.id, at=context.clock.now(), by=by)
    return bool(found)


async def _remove_entry(context: Context, record: Approval, by: Decider, *, literal: bool) -> bool:
    """Remove the entry that this answer wrote, or was going to write."""
    waiting = [intent for intent in await context.store.intents.open() if intent.approval_id == record.id]
    for intent in waiting:
        await context.store.intents.forget(intent.id)
    arguments = call_input(record)
    is_edited = not is_same(record.run_input, record.tool_input)  # as `memory_of` sees it
    exact = literal or is_edited or runs_code(record.tool_name, arguments)
    entry = always_entry(record.tool_name, arguments, literal=exact)
    workspace = (await session_of(context, record.session_id)).workspace
    count = await drop_rule(context, workspace, Effect.ALLOW, entry, which=FileKind.WORKSPACE, by=by)
    return bool(count or waiting)
