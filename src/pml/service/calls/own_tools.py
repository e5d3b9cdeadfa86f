"""Uses of PML's own tools: denied by rule, asked about by rule; of themselves most do nothing."""

from msgspec.structs import replace

from pml.core.approvals.record import Approval, Subject
from pml.core.errors import AlreadyClaimed
from pml.core.rules.ruleset import VerdictKind
from pml.service.approvals.inquiry import ask_and_use, trust_first
from pml.service.approvals.lifecycle import Question
from pml.service.call import Attempt, Gate, PendingCall, deciders, matter_of
from pml.service.policy.policy import matched_rule


class _NotAsked:
    """The asking of a call that is only judged."""

    has_form = False
    declares_form = False
    has_model = False

    async def put(self, record: Approval) -> Approval:
        raise AssertionError("a call that is only judged asks nobody")


async def refuse_denied_call(gate: Gate, attempt: Attempt) -> None:
    """Raise ToolDenied if a rule denies the call: of PML's own tool, or of what began before a pause."""
    call = PendingCall(gate, attempt, _NotAsked())
    await call.look_up_policy()
    await call.refuse_denied()


async def admit_own(call: PendingCall) -> Attempt:
    """Return the use of PML's own tool that may be made; what only carries other calls asks by rule only.

    Raises: ToolDenied, NotApproved, Paused.
    """
    await call.look_up_policy()
    await call.judge()
    trusted = await trust_first(call, runs=call.judgement.kind is not VerdictKind.ASK)
    if trusted is True:
        call.settled = None
        return await admit_own(call)
    if trusted is not None:
        call.attempt = replace(call.attempt, no_trust=trusted)
    if call.judgement.kind is not VerdictKind.ASK:
        return call.attempt
    attempt, tool = call.attempt, str(call.attempt.tool)
    matter = matter_of(Subject.TOOL_CALL, call.judgement, tool, attempt.arguments)
    question = Question(
        session=call.gate.session,
        tool=tool,
        arguments=attempt.arguments,
        deciders=deciders(call, matter, tool),
    )
    try:
        claimed = await ask_and_use(call, question, matched_rule(call.judgement))
    except AlreadyClaimed:  # by the same call, made twice: this one needs an answer of its own
        call.settled = None
        return await admit_own(call)
    return replace(attempt, arguments=claimed.run_input)
