"""Running a call that may run: by its server, in the cloud, or as code. Nothing is sent twice."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from pml.core.approvals import Approval, Lost
from pml.core.errors import Changed, PmlError
from pml.core.loading import Told
from pml.core.manifests import Manifest
from pml.core.toolvalues import value_of
from pml.core.values import JsonObject
from pml.service.approvals import finish
from pml.service.capabilities import call_cloud, is_code, result_of, run_capability
from pml.service.coderuns import Make
from pml.service.gate import Asking, Attempt, Coded, Gate, Launch, Remote, Target
from pml.service.judging import entry_of, judge_attempt, policy_now
from pml.service.readiness import current_launch


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may run now, exactly so. `record` is the claimed approval, None if none was needed.

    `covered` are the tools that a capability may use in this run.
    """

    target: Target
    manifest: Manifest
    arguments: JsonObject
    record: Approval | None
    noted: Awaitable[None] | None = None  # done once the audit log holds the call
    covered: frozenset[str] = frozenset()


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call: the result as its server wrote it, and `value`, if code returned it here."""

    result: bytes
    value: bytes | None = None


class Hearing(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked for a call, who hears how it and an install for it go, and what makes calls of code."""

    asking: Asking
    on_progress: Callable[[JsonObject], None] | None
    told: Told
    make: Make


async def run_admitted(gate: Gate, attempt: Attempt, admitted: Admitted, hearing: Hearing) -> Ran:
    record = admitted.record
    if isinstance(admitted.target, Coded):
        return await _run_code(gate, attempt, admitted.target, admitted, hearing)
    try:
        result = await _send(gate, attempt, admitted, hearing)
    except PmlError as exc:
        if record is not None:
            await finish(gate.desk, record.id, error=exc.message)
        elif not isinstance(exc, Changed):
            await _note_failed(gate, attempt, admitted, exc)
        raise
    except BaseException:  # also a caller who gave up: nobody learns what came of it
        if record is not None:
            await asyncio.shield(_lose(gate, record))
        raise
    if record is not None:
        await asyncio.shield(finish(gate.desk, record.id))
    if admitted.noted is not None:
        await admitted.noted  # committed before the reply; the server has worked meanwhile
    target = admitted.target
    if isinstance(target, Remote) and is_code(target.found.metadata) and attempt.inner is not None:
        return Ran(result=result, value=value_of(result, tool=str(attempt.tool), is_code=True))
    return Ran(result=result)


async def _run_code(gate: Gate, attempt: Attempt, coded: Coded, admitted: Admitted, hearing: Hearing) -> Ran:
    """Run a capability. Its approval is used up when it begins: it may wait, and go on in another process."""
    if admitted.record is not None:
        await finish(gate.desk, admitted.record.id)
    if admitted.noted is not None:
        await admitted.noted
    attempt = replace(attempt, arguments=admitted.arguments)
    try:
        outcome = await run_capability(
            gate,
            attempt,
            coded,
            covered=admitted.covered,
            make=hearing.make,
            told=progress_lines(hearing.on_progress),
        )
    except PmlError as exc:
        await _note_failed(gate, attempt, admitted, exc)
        raise
    return Ran(result=result_of(outcome), value=outcome.value)


async def _note_failed(gate: Gate, attempt: Attempt, admitted: Admitted, error: PmlError) -> None:
    entry = entry_of(gate, attempt, admitted.target, admitted.manifest, word="failed", because=error.message)
    await gate.desk.store.audit.record(entry)


async def _send(gate: Gate, attempt: Attempt, admitted: Admitted, hearing: Hearing) -> bytes:
    """Send the call to the server that was proven. Nothing is sent twice: `Changed` says that nothing was."""
    manifest = admitted.manifest
    if attempt.inner is not None:
        await attempt.inner.begin()
    if isinstance(admitted.target, Remote):
        return await call_cloud(gate, admitted.target, attempt, admitted.arguments)
    if not isinstance(admitted.target, Launch):
        raise AssertionError("code is not sent anywhere")
    for last in (False, False, True):
        try:
            return await gate.servers.request(
                admitted.target.spec,
                attempt.method,
                attempt.params(admitted.arguments),
                seen=manifest,
                on_progress=hearing.on_progress,
            )
        except Changed:
            if admitted.record is None or last:
                raise
            manifest = await _proven_again(gate, attempt, admitted, admitted.target)
    raise AssertionError("the last try returns or raises")


async def _proven_again(gate: Gate, attempt: Attempt, admitted: Admitted, shown: Launch) -> Manifest:
    """Return what the server of an approved call offers now, if the call is still the one that was approved.

    Raises: ToolDenied; Changed if it is not.
    """
    approved = replace(attempt, arguments=admitted.arguments)
    launch = await _still_so(gate, approved, shown)  # before anything is started
    manifest = await gate.servers.manifest(launch.spec)
    await _still_so(gate, approved, shown)
    action = attempt.tool.action
    if manifest.definitions.get(action) != admitted.manifest.definitions.get(action):
        raise Changed(f"tool `{attempt.tool}` is no longer the one that was asked about")
    return manifest


async def _still_so(gate: Gate, attempt: Attempt, launch: Launch) -> Launch:
    """Return the server as it is configured now. Raises: ToolDenied; Changed if it is another."""
    policy = await policy_now(gate)
    now = current_launch(gate, policy, attempt)
    await judge_attempt(gate, policy, attempt, now, None)
    if now is None or now.digest != launch.digest:
        raise Changed(f"server `{attempt.tool.namespace}` is no longer the one that was asked about")
    return now


async def _lose(gate: Gate, record: Approval) -> None:
    """Mark the call as one whose outcome nobody knows."""
    with contextlib.suppress(PmlError):
        await gate.desk.store.approvals.advance(record.id, Lost(at=gate.desk.clock.now()))


def progress_lines(on_progress: Callable[[JsonObject], None] | None) -> Callable[[str], None]:
    """Return what tells of each call that code has made."""
    made = 0

    def tell(line: str) -> None:
        nonlocal made
        made += 1
        if on_progress is not None:
            on_progress({"progress": made, "message": line})

    return tell
