"""Consent to a launch: an agent is started only if a person said so, whichever door it is asked through.

A person says so to the question, or beforehand by the tool's own name in the user's file. What a launch
starts, and how, is `launching`'s business.
"""

from pml.core.approvals import Approval, Subject
from pml.core.audit import call_judged
from pml.core.digest import digest_call
from pml.core.effective import Settings
from pml.core.errors import AlreadyClaimed, Forbidden
from pml.core.identity import ParentMay
from pml.core.launch import PARENT_MAY, TOOLS, LaunchConsent, with_powers
from pml.core.memory import LAUNCH_TOOL
from pml.core.ports import Session
from pml.core.rules import Call, VerdictKind
from pml.core.values import JsonObject
from pml.service.approvals import Question, claim, finish
from pml.service.desk import Desk
from pml.service.gate import Asking, Attempt, Gate, deciders, matter_of
from pml.service.judging import judge_attempt, policy_now
from pml.service.launching import most_for
from pml.service.policy import Judged, judge_in_session, matched_rule, refuse_denied, why
from pml.service.settling import settle


async def admit_launch(
    gate: Gate, attempt: Attempt, asking: Asking, settled: Approval | None
) -> tuple[JsonObject, LaunchConsent]:
    """Return the launch as a person allowed it, and their yes. Raises: ToolDenied, NotApproved, Paused."""
    policy = await policy_now(gate)
    judged = await judge_attempt(gate, policy, attempt, None, None)
    if judged.kind is VerdictKind.ALLOW:
        return attempt.arguments, await _unasked(gate.desk, gate.session, attempt.arguments, judged)
    matter = matter_of(Subject.TOOL_CALL, judged, LAUNCH_TOOL, attempt.arguments)
    question = Question(
        session=gate.session,
        tool=LAUNCH_TOOL,
        arguments=_shown(gate.session, policy.settings, attempt.arguments),
        deciders=deciders(gate, policy.settings, asking, matter, LAUNCH_TOOL),
    )
    try:
        record = await settle(
            gate, question, matched_rule(judged), attempt=attempt, asking=asking, settled=settled
        )
        claimed = await claim(gate.desk, record.id)
    except AlreadyClaimed:  # by the same call, made twice: this one needs an answer of its own
        return await admit_launch(gate, attempt, asking, None)
    await finish(gate.desk, record.id)
    consent = LaunchConsent(why="it was approved", by=claimed.decided_by, approval_id=claimed.id)
    return claimed.run_input, consent


async def consent_unasked(desk: Desk, session: Session, arguments: JsonObject) -> LaunchConsent:
    """Return what a person said of such launches beforehand. Raises: ToolDenied; Forbidden if nothing.

    For doors where nobody can be asked.
    """
    call = Call(tool=LAUNCH_TOOL, arguments=arguments, cwd=session.workspace)
    judged = await judge_in_session(desk, session, call)
    refuse_denied(judged, LAUNCH_TOOL)
    if judged.kind is not VerdictKind.ALLOW:
        raise Forbidden(
            "a launch is a person's to allow, and here nobody can be asked",
            hint=f"the tool `session_launch` asks; `pml rules allow --user {LAUNCH_TOOL}` lets every session",
        )
    return await _unasked(desk, session, arguments, judged)


async def _unasked(desk: Desk, session: Session, arguments: JsonObject, judged: Judged) -> LaunchConsent:
    digest, because = digest_call(LAUNCH_TOOL, arguments), why(judged)
    now = desk.clock.now()
    entry = call_judged(session.id, LAUNCH_TOOL, digest, at=now, word="allowed", why=because)
    await desk.store.audit.record(entry)
    return LaunchConsent(why=because)


def _shown(session: Session, settings: Settings, arguments: JsonObject) -> JsonObject:
    """Return the arguments with all that the agent would be given, for a person to see and to narrow."""
    wished = arguments.get(PARENT_MAY)
    parent_may = most_for(session, settings, None if wished is None else ParentMay(str(wished)))
    own = session.tools if arguments.get(TOOLS) is None else None  # what it does not name it inherits
    return with_powers(arguments, tools=own, parent_may=parent_may)
