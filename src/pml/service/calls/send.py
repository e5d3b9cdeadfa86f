"""Running a call that may run: by its server, in the cloud, or as code. Nothing is sent twice."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from pml.core.approvals.events import Lost
from pml.core.approvals.record import Approval
from pml.core.code.tool_values import value_of
from pml.core.errors import Changed, LoginRequired, PmlError
from pml.core.servers.manifest import Manifest
from pml.service.approvals.claims import finish, give_back
from pml.service.call import (
    TOOLS_CALL,
    ApprovedCall,
    CapabilityTarget,
    CloudTarget,
    Gate,
    OnProgress,
    PendingCall,
    ServerTarget,
)
from pml.service.calls.prepare import current_server
from pml.service.code.capabilities import call_cloud, is_code, result_of, run_capability


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call: the result as its server wrote it, and `value`, if code returned it here."""

    result: bytes
    value: bytes | None = None


async def run_approved(call: PendingCall, approved: ApprovedCall) -> Ran:
    """Run the call and record what came of it. Raises: Changed if nothing was sent; what the run raises."""
    record, context = approved.record, call.gate.context
    if isinstance(approved.target, CapabilityTarget):
        return await _run_code(call, approved.target, approved)
    try:
        result = await _send(call, approved)
    except LoginRequired:
        await asyncio.shield(_put_back(call, approved))
        raise
    except PmlError as exc:
        if record is not None:
            await finish(context, record.id, error=exc.message)
        elif not isinstance(exc, Changed):
            await _note_failed(call, exc)
        raise
    except BaseException:  # also a caller who gave up: nobody learns what came of it
        if record is not None:
            await asyncio.shield(_lose(call.gate, record))
        raise
    if record is not None:
        await asyncio.shield(finish(context, record.id))
    if approved.noted is not None:
        await approved.noted  # committed before the reply; the server has worked meanwhile
    target = approved.target
    if isinstance(target, CloudTarget) and is_code(target.found.metadata) and call.attempt.inner is not None:
        return Ran(result=result, value=value_of(result, tool=str(call.attempt.tool), is_code=True))
    return Ran(result=result)


async def _put_back(call: PendingCall, approved: ApprovedCall) -> None:
    """Leave everything as it was before the call: its server has refused it unread."""
    call.settled = None
    if approved.record is not None:
        call.settled = await give_back(call.gate.context, approved.record.id)
    if call.attempt.inner is not None and not call.attempt.inner.is_unknown:
        await call.attempt.inner.take_back()


async def _run_code(call: PendingCall, target: CapabilityTarget, approved: ApprovedCall) -> Ran:
    """Run a capability. Its approval is used up when it begins: it may wait, and go on in another process."""
    if approved.record is not None:
        await finish(call.gate.context, approved.record.id)
    if approved.noted is not None:
        await approved.noted
    call.attempt = replace(call.attempt, arguments=approved.arguments)
    try:
        outcome = await run_capability(
            call, target, covered=approved.covered, on_line=progress_lines(call.on_progress)
        )
    except PmlError as exc:
        await _note_failed(call, exc)
        raise
    return Ran(result=result_of(outcome), value=outcome.value)


async def _note_failed(call: PendingCall, error: PmlError) -> None:
    await call.gate.context.store.audit.record(call.entry("failed", error.message))


async def _send(call: PendingCall, approved: ApprovedCall) -> bytes:
    """Send the call to the server that was proven. Nothing is sent twice: `Changed` says that nothing was."""
    attempt, target, manifest = call.attempt, approved.target, approved.manifest
    if attempt.inner is not None:
        await attempt.inner.begin()
    if isinstance(target, CloudTarget):
        return await call_cloud(call.gate, target, attempt, approved.arguments)
    if not isinstance(target, ServerTarget):
        raise AssertionError("code is not sent anywhere")
    params = approved.arguments
    if attempt.method == TOOLS_CALL:
        params = {"name": attempt.tool.action, "arguments": params}
    # Tried again only for what a person approved, who would be asked twice; what a rule allowed begins anew.
    for last in (False, False, True):
        try:
            return await call.gate.servers.request(
                target.spec, attempt.method, params, seen=manifest, on_progress=call.on_progress
            )
        except Changed:
            if approved.record is None or last:
                raise
            manifest = await _proven_again(call, approved, target)
    raise AssertionError("the last try returns or raises")


async def _proven_again(call: PendingCall, approved: ApprovedCall, shown: ServerTarget) -> Manifest:
    """Return what the server of an approved call offers now, if the call is still the one that was approved.

    Raises: ToolDenied; Changed if it is not.
    """
    server = await _still_so(call, approved, shown)  # before anything is started
    manifest = await call.gate.servers.manifest(server.spec)
    await _still_so(call, approved, shown)
    action = call.attempt.tool.action
    if manifest.definitions.get(action) != approved.manifest.definitions.get(action):
        raise Changed(f"tool `{call.attempt.tool}` is no longer the one that was asked about")
    return manifest


async def _still_so(call: PendingCall, approved: ApprovedCall, shown: ServerTarget) -> ServerTarget:
    """Return the server as it is configured now. Raises: ToolDenied; Changed if it is another."""
    attempt = replace(call.attempt, arguments=approved.arguments)
    now = PendingCall(call.gate, attempt, call.asking)  # judged as it would run, not as it was first made
    await now.look_up_policy()
    now.target = server = current_server(now)
    await now.judge()
    if server is None or server.digest != shown.digest:
        raise Changed(f"server `{attempt.tool.namespace}` is no longer the one that was asked about")
    return server


async def _lose(gate: Gate, record: Approval) -> None:
    """Mark the call as one whose outcome nobody knows."""
    with contextlib.suppress(PmlError):
        await gate.context.store.approvals.advance(record.id, Lost(at=gate.context.clock.now()))


def progress_lines(on_progress: OnProgress | None) -> Callable[[str], None]:
    """Return what tells of each call that code has made."""
    made = 0

    def tell(line: str) -> None:
        nonlocal made
        made += 1
        if on_progress is not None:
            on_progress({"progress": made, "message": line})

    return tell
