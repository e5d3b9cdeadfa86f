"""What a person is shown beside the button: what "always" would write, and which of the waiting it covers."""

from dataclasses import dataclass

from pml.core.approvals.memory import always_of
from pml.core.approvals.record import Approval, Decider, Scope
from pml.core.values import Json
from pml.core.wire import shown_json
from pml.service.approvals.lifecycle import all_pending
from pml.service.context import Context
from pml.service.policy.memory import covered_by, memory_of
from pml.service.session_tree import session_of


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A question with all that an answer would do; `always` is None where nothing can be remembered."""

    record: Approval
    workspace: str
    session_name: str
    always: Json = None
    covered: tuple[Approval, ...] = ()
    code: str | None = None  # that makes the call

    def json(self) -> dict[str, Json]:
        return shown_json(
            self.record,
            workspace=self.workspace,
            session_name=self.session_name,
            always=self.always,
            covers=self.covered,
            code=self.code,
        )


async def preview(context: Context, record: Approval, *, by: Decider) -> Preview:
    """Return what `by` is to be shown of `record`. Raises: NotFound."""
    session = await session_of(context, record.session_id)
    always = always_of(record)
    run = None if record.run_id is None else await context.store.journals.get(record.run_id)
    code = None if run is None else run.code
    if always is None:
        return Preview(record=record, workspace=session.workspace, session_name=session.name, code=code)
    memory = memory_of(context, record, session, by, Scope.ALWAYS, arguments=record.tool_input, literal=False)
    covered = [] if memory is None else await covered_by(context, memory, all_pending(context))
    return Preview(
        record=record,
        workspace=session.workspace,
        session_name=session.name,
        always=always,
        covered=tuple(covered),
        code=code,
    )
