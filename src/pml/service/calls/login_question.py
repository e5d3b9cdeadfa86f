"""Logins that calls need: a person is asked, once for a call, which continues when they have logged in."""

import contextlib

from pml.core.approvals.deciders import Matter
from pml.core.approvals.record import Approval, State, Subject, call_facts
from pml.core.errors import Conflict, LoginRequired, NotFound, ServerFailed
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.inquiry import ask_and_wait
from pml.service.approvals.lifecycle import Question
from pml.service.call import PendingCall, ServerTarget, Suspended, deciders


async def ask_login(call: PendingCall, needed: LoginRequired) -> None:
    """Return once a person says that they have logged in; the call has then not been sent.

    Raises: ServerFailed if that was said before; NotApproved, Paused, and what `asking` raises.
    """
    attempt, tool, server = call.attempt, str(call.attempt.tool), call.target
    if call.has_logged_in or not isinstance(server, ServerTarget):
        raise ServerFailed(
            f"server `{needed.server}` refuses the call also after a login",
            hint=f"call it again to be asked anew, or `pml logout {needed.server}` and log in again",
        )
    question = Question(
        session=call.gate.session,
        tool=tool,
        arguments={
            "server": needed.server,
            "url": server.spec.target.line,
            **call_facts(tool, attempt.arguments),
        },
        subject=Subject.LOGIN_REQUIRED,
        artefact=server.digest,
        deciders=deciders(call, Matter(subject=Subject.LOGIN_REQUIRED), tool),
    )
    answer, call.settled = call.settled, None  # to the call itself, which comes after
    try:
        record = await ask_and_wait(call, question, None)
    except Suspended:
        if answer is not None and attempt.inner is None:
            call.gate.paused[answer.digest] = answer.id
        raise
    call.settled = answer
    await _collect(call, record)


async def collect_login(call: PendingCall) -> None:
    """Take the login that the call comes back with: it asks for no other."""
    settled = call.settled
    if settled is not None and settled.subject is Subject.LOGIN_REQUIRED:
        call.settled = None
        await _collect(call, settled)


async def _collect(call: PendingCall, record: Approval) -> None:
    call.has_logged_in = True
    if record.status is State.ALLOWED:
        with contextlib.suppress(Conflict, NotFound):  # another call that waited for it was faster
            await claim(call.gate.context, record.id, artefact=record.artefact)
            await finish(call.gate.context, record.id)
