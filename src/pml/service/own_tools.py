"""Uses of PML's own tools: denied by rule, asked about by rule; of themselves most do nothing."""

from msgspec.structs import replace

from pml.core.approvals import Approval, Subject
from pml.core.errors import AlreadyClaimed
from pml.core.rules import VerdictKind
from pml.service.approvals import Question, claim, finish
from pml.service.gate import Asking, Attempt, Gate, deciders, matter_of
from pml.service.judging import judge_attempt, policy_now, refuse_denied_attempt
from pml.service.policy import matched_rule
from pml.service.settling import settle, trust_first


async def refuse_denied_call(gate: Gate, attempt: Attempt) -> None:
    """Raise ToolDenied if a rule denies the call: of PML's own tool, or of what began before a pause."""
    await refuse_denied_attempt(gate, await policy_now(gate), attempt)


async def admit_own(gate: Gate, attempt: Attempt, asking: Asking, settled: Approval | None) -> Attempt:
    """Return the use of PML's own tool that may be made; what only carries other calls asks by rule only.

    Raises: ToolDenied, NotApproved, Paused.
    """
    policy = await policy_now(gate)
    judged = await judge_attempt(gate, policy, attempt, None, None)
    runs = judged.kind is not VerdictKind.ASK
    if await trust_first(gate, policy, judged, attempt=attempt, asking=asking, settled=settled, runs=runs):
        return await admit_own(gate, attempt, asking, None)
    if judged.kind is not VerdictKind.ASK:
        return attempt
    tool = str(attempt.tool)
    matter = matter_of(Subject.TOOL_CALL, judged, tool, attempt.arguments)
    question = Question(
        session=gate.session,
        tool=tool,
        arguments=attempt.arguments,
        deciders=deciders(gate, policy.settings, asking, matter, tool),
    )
    because = matched_rule(judged)
    try:
        record = await settle(gate, question, because, attempt=attempt, asking=asking, settled=settled)
        claimed = await claim(gate.desk, record.id)
    except AlreadyClaimed:  # by the same call, made twice: this one needs an answer of its own
        return await admit_own(gate, attempt, asking, None)
    await finish(gate.desk, record.id)
    return replace(attempt, arguments=claimed.run_input)
