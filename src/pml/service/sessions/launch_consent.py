"""Consent to a launch: an agent is started only if a person said so, whichever door it is asked through.

A person says so to the question, or beforehand by the tool's own name in the user's file. What a launch
starts, and how, is `launching`'s business.
"""

from pml.core.approvals.record import Subject
from pml.core.audit.entries import call_judged
from pml.core.config.merged import Settings
from pml.core.digest import digest_call
from pml.core.errors import AlreadyClaimed, Forbidden
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.ports.records import Session
from pml.core.rules.ruleset import Call, VerdictKind
from pml.core.sessions.launch import PARENT_MAY, TOOLS, LaunchConsent, with_powers
from pml.core.sessions.token import ParentMay
from pml.core.values import JsonObject
from pml.service.approvals.inquiry import ask_and_use
from pml.service.approvals.lifecycle import Question
from pml.service.call import PendingCall, deciders, matter_of
from pml.service.context import Context
from pml.service.policy.policy import Judgement, judge_in_session, matched_rule, refuse_denied, why
from pml.service.sessions.launcher import most_for


async def admit_launch(call: PendingCall) -> tuple[JsonObject, LaunchConsent]:
    """Return the launch as a person allowed it, and their yes. Raises: ToolDenied, NotApproved, Paused."""
    await call.look_up_policy()
    await call.judge()
    session, arguments = call.gate.session, call.attempt.arguments
    if call.judgement.kind is VerdictKind.ALLOW:
        return arguments, await _unasked(call.gate.context, session, arguments, call.judgement)
    matter = matter_of(Subject.TOOL_CALL, call.judgement, LAUNCH_TOOL, arguments)
    question = Question(
        session=session,
        tool=LAUNCH_TOOL,
        arguments=_shown(session, call.policy.settings, arguments),
        deciders=deciders(call, matter, LAUNCH_TOOL),
    )
    try:
        claimed = await ask_and_use(call, question, matched_rule(call.judgement))
    except AlreadyClaimed:  # by the same call, made twice: this one needs an answer of its own
        call.settled = None
        return await admit_launch(call)
    consent = LaunchConsent(why="it was approved", by=claimed.decided_by, approval_id=claimed.id)
    return claimed.run_input, consent


async def consent_unasked(context: Context, session: Session, arguments: JsonObject) -> LaunchConsent:
    """Return what a person said of such launches beforehand. Raises: ToolDenied; Forbidden if nothing.

    For doors where nobody can be asked.
    """
    call = Call(tool=LAUNCH_TOOL, arguments=arguments, cwd=session.workspace)
    judged = await judge_in_session(context, session, call)
    refuse_denied(judged, LAUNCH_TOOL)
    if judged.kind is not VerdictKind.ALLOW:
        raise Forbidden(
            "a launch is a person's to allow, and here nobody can be asked",
            hint=f"the tool `session_launch` asks; `pml rules allow --user {LAUNCH_TOOL}` lets every session",
        )
    return await _unasked(context, session, arguments, judged)


async def _unasked(
    context: Context, session: Session, arguments: JsonObject, judged: Judgement
) -> LaunchConsent:
    digest, because = digest_call(LAUNCH_TOOL, arguments), why(judged)
    now = context.clock.now()
    entry = call_judged(session.id, LAUNCH_TOOL, digest, at=now, word="allowed", why=because)
    await context.store.audit.record(entry)
    return LaunchConsent(why=because)


def _shown(session: Session, settings: Settings, arguments: JsonObject) -> JsonObject:
    """Return the arguments with all that the agent would be given, for a person to see and to narrow."""
    wished = arguments.get(PARENT_MAY)
    parent_may = most_for(session, settings, None if wished is None else ParentMay(str(wished)))
    own = session.tools if arguments.get(TOOLS) is None else None  # what it does not name it inherits
    return with_powers(arguments, tools=own, parent_may=parent_may)
