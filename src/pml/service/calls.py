"""The pipeline of a call: judge, resolve, ask, prove, claim, run, record. Nothing runs on another path.

How questions are shown (`Asking`) and how servers are run (`Servers`) arrive from outside.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from pml.core.approvals import Approval, Lost, State, Subject
from pml.core.audit import Entry, call_judged
from pml.core.config import Unlisted
from pml.core.digest import digest_call
from pml.core.errors import (
    AlreadyClaimed,
    Changed,
    Invalid,
    PmlError,
)
from pml.core.identity import TokenRole
from pml.core.loading import Progress, Told
from pml.core.manifests import Manifest, arguments_text
from pml.core.rules import Call, VerdictKind
from pml.core.text import quote
from pml.core.values import JsonObject
from pml.service.approvals import Question, cancel, claim, finish
from pml.service.gate import Asking, Attempt, Gate, Launch, deciders
from pml.service.pins import pin_or_ask
from pml.service.policy import Judged, Policy, current_policy, judge, matched_rule, refuse_denied, why
from pml.service.readiness import (
    current_launch,
    is_covered,
    is_untrusted,
    make_ready,
    no_server,
    unknown_tool,
    untrusted,
)
from pml.service.settling import answers, settle, settle_trust

# Trust, each install, its variables, start and pin take one each; what changes more often is not relied on.
_TRIES: Final = 128
LAUNCH_TOOL: Final = "pml:session_launch"


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may run now, exactly so. `record` is the claimed approval, None if none was needed."""

    launch: Launch
    manifest: Manifest
    arguments: JsonObject
    record: Approval | None
    noted: Awaitable[None] | None = None  # done once the audit log holds the call


async def call_tool(
    gate: Gate,
    attempt: Attempt,
    asking: Asking,
    *,
    settled: Approval | None = None,
    on_progress: Callable[[JsonObject], None] | None = None,
    told: Told | None = None,
) -> bytes:
    """Run the call if rules and people let it, and return the result as the server wrote it.

    `settled` is an approval that was decided for this call; `told` hears how an install goes, or else
    `on_progress` does. Raises: ToolDenied, NotApproved, NotFound, Invalid, IntegrityFailed, EnvMissing,
    Paused, ServerFailed, ServerRefused, and what `asking` raises.
    """
    told = _told_too(gate, attempt, told or _as_progress(on_progress))
    policy = await _policy_of_turn(gate) if settled is None else await _policy_now(gate)
    for _ in range(_TRIES):
        admitted = await _admit(gate, policy, attempt, asking, settled, told)
        if admitted is None:
            policy = await _policy_now(gate)
            continue
        try:
            return await _run(gate, attempt, admitted, on_progress)
        except Changed:
            if admitted.record is not None:
                raise
            policy = await _policy_now(gate)
    raise Changed(
        f"server `{attempt.tool.namespace}` changes too often", hint="`pml servers logs` may tell why"
    )


async def refuse_denied_own(gate: Gate, attempt: Attempt) -> None:
    """Raise ToolDenied if a rule denies PML's own tool."""
    await _judge(gate, await _policy_now(gate), attempt, None, None)


async def admit_own(gate: Gate, attempt: Attempt, asking: Asking, settled: Approval | None) -> Attempt:
    """Return the use of PML's own tool that may be made; what only carries other calls asks by rule only.

    Raises: ToolDenied, NotApproved, Paused.
    """
    policy = await _policy_now(gate)
    judged = await _judge(gate, policy, attempt, None, None)
    if not _must_ask_own(gate, judged, attempt):
        return attempt
    tool = str(attempt.tool)
    question = Question(
        session=gate.session,
        tool=tool,
        arguments=attempt.arguments,
        deciders=deciders(gate, policy.settings, Subject.TOOL_CALL, tool, asking, reserved=judged.reserved),
    )
    because = matched_rule(judged)
    try:
        record = await settle(gate, question, because, attempt=attempt, asking=asking, settled=settled)
        claimed = await claim(gate.desk, record.id)
    except AlreadyClaimed:  # by the same call, made twice: this one needs an answer of its own
        return await admit_own(gate, attempt, asking, settled)
    await finish(gate.desk, record.id)
    return msgspec.structs.replace(attempt, arguments=claimed.run_input)


async def _policy_now(gate: Gate) -> Policy:
    return await current_policy(gate.desk, gate.session.workspace)


async def _policy_of_turn(gate: Gate) -> Policy:
    """Return the policy as it is now, looked up once for all calls that this turn of the loop judges."""
    if not gate.of_turn:
        gate.of_turn.append(await _policy_now(gate))
        asyncio.get_running_loop().call_soon(gate.of_turn.clear)
    return gate.of_turn[0]


def _told_too(gate: Gate, attempt: Attempt, told: Told) -> Told:
    """Return `told` so that whoever listens to the gate hears it too."""
    heard, name = gate.told, attempt.tool.namespace
    if heard is None or name is None:
        return told

    def tell(step: Progress) -> None:
        told(step)
        heard(name, step)

    return tell


def _as_progress(on_progress: Callable[[JsonObject], None] | None) -> Told:
    def tell(step: Progress) -> None:
        if on_progress is not None:
            total: JsonObject = {} if step.total is None else {"total": step.total}
            on_progress({"progress": step.done, "message": step.message, **total})

    return tell


async def _admit(
    gate: Gate, policy: Policy, attempt: Attempt, asking: Asking, settled: Approval | None, told: Told
) -> Admitted | None:
    """Return the call that may run, or None when time has passed since it was judged: then judge again."""
    launch = current_launch(gate, policy, attempt)
    manifest = None if launch is None else gate.servers.live(launch.spec)
    judged = await _judge(gate, policy, attempt, launch, manifest)
    if launch is None or manifest is None:
        await make_ready(
            gate, policy, judged, launch, attempt=attempt, asking=asking, settled=settled, told=told
        )
        return None
    if attempt.is_tool:
        _check_tool(manifest, attempt)
        if await pin_or_ask(gate, launch, manifest, attempt=attempt, asking=asking, settled=settled):
            return None
    must_ask = _must_ask(gate, policy, judged, attempt)
    if must_ask and await is_covered(gate, judged, attempt, launch, manifest):
        return None
    if not must_ask and settled is None and not gate.paused:
        return _let_through(gate, attempt, launch, manifest, judged)
    question = _question(gate, policy, judged, attempt, launch, manifest, asking)
    settled = settled or await _left_answer(gate, question)
    if not answers(settled, question):
        if not must_ask:
            return _let_through(gate, attempt, launch, manifest, judged)
        if judged.needs_trust:
            refused = await settle_trust(
                gate, policy, judged, attempt=attempt, asking=asking, settled=settled
            )
            if refused is None:
                return None
    try:
        record = await settle(
            gate, question, matched_rule(judged), attempt=attempt, asking=asking, settled=settled
        )
        return await _claim(gate, attempt, record)
    except AlreadyClaimed:  # the same call, made twice, was faster with this answer: this one needs its own
        return None


def _let_through(
    gate: Gate, attempt: Attempt, launch: Launch, manifest: Manifest, judged: Judged
) -> Admitted:
    entry = _entry(gate, attempt, launch, manifest, word="allowed", because=_why_allowed(judged))
    noted = gate.desk.store.audit.note(entry)
    return Admitted(launch=launch, manifest=manifest, arguments=attempt.arguments, record=None, noted=noted)


async def _left_answer(gate: Gate, question: Question) -> Approval | None:
    """Return the answer that this very call was left waiting for, if there is one by now.

    A rule or grant that came with it would let the call run without it, and leave it for later.
    """
    approval_id = gate.paused.pop(question.digest, None)
    record = None if approval_id is None else await gate.desk.store.approvals.get(approval_id)
    if record is None or record.status is not State.ALLOWED or gate.desk.clock.now() >= record.expires_at:
        return None
    return record


async def _claim(gate: Gate, attempt: Attempt, record: Approval) -> Admitted:
    """Take the approved call; what it would run now is looked up anew, for time has passed.

    Raises: what `claim` raises, and NotApproved or NotFound if the server may not be started any more.
    """
    policy = await _policy_now(gate)
    launch = current_launch(gate, policy, attempt)
    if launch is None and is_untrusted(policy, attempt.tool.namespace):
        raise untrusted(policy, attempt, outcome=State.CANCELLED)
    if launch is None and attempt.tool.namespace in gate.loaded:
        gone = f"server `{attempt.tool.namespace}` is no longer the one that was asked about"
        with contextlib.suppress(PmlError):
            await cancel(gate.desk, record.id, reason=gone)
        raise Changed(gone, hint="call the tool again")
    if launch is None:
        raise no_server(gate, policy, attempt)
    manifest = gate.servers.live(launch.spec) or await gate.servers.manifest(launch.spec)
    definition = manifest.definitions.get(attempt.tool.action)
    claiming = asyncio.create_task(claim(gate.desk, record.id, definition=definition, artefact=launch.digest))
    try:
        claimed = await asyncio.shield(claiming)  # interrupted half-way, nobody would know what was stored
    except asyncio.CancelledError:
        with contextlib.suppress(PmlError):
            await cancel(gate.desk, (await claiming).id, reason="the asker stopped waiting")
        raise
    return Admitted(launch=launch, manifest=manifest, arguments=claimed.run_input, record=claimed)


async def _judge(
    gate: Gate, policy: Policy, attempt: Attempt, launch: Launch | None, manifest: Manifest | None
) -> Judged:
    """Return the verdict. Raises: ToolDenied."""
    call = Call(
        tool=str(attempt.tool),
        arguments=attempt.arguments,
        cwd=gate.session.workspace,
        definition=None if manifest is None else manifest.definitions.get(attempt.tool.action),
        artefact=None if launch is None else launch.digest,
    )
    judged = await judge(gate.desk, policy, call, session=gate.session)
    if judged.kind is VerdictKind.DENY:
        entry = _entry(gate, attempt, launch, manifest, word="denied", because=why(judged))
        await gate.desk.store.audit.record(entry)
    refuse_denied(judged, call.tool)
    return judged


def _must_ask(gate: Gate, policy: Policy, judged: Judged, attempt: Attempt) -> bool:
    """Tell whether PML asks: for what a rule names, and for the unlisted whenever nobody else can."""
    if judged.kind is not VerdictKind.UNLISTED:
        return judged.kind is not VerdictKind.ALLOW
    is_asked_here = gate.is_held or policy.settings.approval.unlisted is Unlisted.EVERY_CALL
    return not attempt.offered or is_asked_here


def _must_ask_own(gate: Gate, judged: Judged, attempt: Attempt) -> bool:
    """As above, for PML's own tools: of the unlisted ones only a launch does something by itself."""
    is_launch = str(attempt.tool) == LAUNCH_TOOL
    if is_launch and gate.session.role is not TokenRole.SESSION:
        return False  # whatever anybody said, a child's launch is refused
    is_unlisted = judged.kind is VerdictKind.UNLISTED
    return judged.kind is VerdictKind.ASK or (is_launch and is_unlisted and gate.is_held)


def _why_allowed(judged: Judged) -> str:
    return why(judged) if judged.kind is VerdictKind.ALLOW else "offered by its own name: the client asks"


def _entry(
    gate: Gate,
    attempt: Attempt,
    launch: Launch | None,
    manifest: Manifest | None,
    *,
    word: str,
    because: str,
) -> Entry:
    tool = str(attempt.tool)
    definition = None if manifest is None else manifest.definitions.get(attempt.tool.action)
    digest = digest_call(
        tool, attempt.arguments, definition=definition, artefact=None if launch is None else launch.digest
    )
    return call_judged(gate.session.id, tool, digest, at=gate.desk.clock.now(), word=word, why=because)


def _question(
    gate: Gate,
    policy: Policy,
    judged: Judged,
    attempt: Attempt,
    launch: Launch,
    manifest: Manifest,
    asking: Asking,
) -> Question:
    tool = str(attempt.tool)
    return Question(
        session=gate.session,
        tool=tool,
        arguments=attempt.arguments,
        definition=manifest.definitions.get(attempt.tool.action),
        artefact=launch.digest,
        deciders=deciders(gate, policy.settings, Subject.TOOL_CALL, tool, asking, reserved=judged.reserved),
    )


async def _run(
    gate: Gate,
    attempt: Attempt,
    admitted: Admitted,
    on_progress: Callable[[JsonObject], None] | None,
) -> bytes:
    record = admitted.record
    try:
        result = await _send(gate, attempt, admitted, on_progress)
    except PmlError as exc:
        if record is not None:
            await finish(gate.desk, record.id, error=exc.message)
        elif not isinstance(exc, Changed):
            entry = _entry(
                gate, attempt, admitted.launch, admitted.manifest, word="failed", because=exc.message
            )
            await gate.desk.store.audit.record(entry)
        raise
    except BaseException:  # also a caller who gave up: nobody learns what came of it
        if record is not None:
            await asyncio.shield(_lose(gate, record))
        raise
    if record is not None:
        await finish(gate.desk, record.id)
    if admitted.noted is not None:
        await admitted.noted  # committed before the reply; the server has worked meanwhile
    return result


async def _send(
    gate: Gate,
    attempt: Attempt,
    admitted: Admitted,
    on_progress: Callable[[JsonObject], None] | None,
) -> bytes:
    """Send the call to the server that was proven. Nothing is sent twice: `Changed` says that nothing was."""
    manifest = admitted.manifest
    for last in (False, False, True):
        try:
            return await gate.servers.request(
                admitted.launch.spec,
                attempt.method,
                attempt.params(admitted.arguments),
                seen=manifest,
                on_progress=on_progress,
            )
        except Changed:
            if admitted.record is None or last:
                raise
            manifest = await _proven_again(gate, attempt, admitted)
    raise AssertionError("the last try returns or raises")


async def _proven_again(gate: Gate, attempt: Attempt, admitted: Admitted) -> Manifest:
    """Return what the server of an approved call offers now, if the call is still the one that was approved.

    Raises: ToolDenied; Changed if it is not.
    """
    approved = replace(attempt, arguments=admitted.arguments)
    launch = await _still_so(gate, approved, admitted.launch)  # before anything is started
    manifest = await gate.servers.manifest(launch.spec)
    await _still_so(gate, approved, admitted.launch)
    action = attempt.tool.action
    if manifest.definitions.get(action) != admitted.manifest.definitions.get(action):
        raise Changed(f"tool `{attempt.tool}` is no longer the one that was asked about")
    return manifest


async def _still_so(gate: Gate, attempt: Attempt, launch: Launch) -> Launch:
    """Return the server as it is configured now. Raises: ToolDenied; Changed if it is another."""
    policy = await _policy_now(gate)
    now = current_launch(gate, policy, attempt)
    await _judge(gate, policy, attempt, now, None)
    if now is None or now.digest != launch.digest:
        raise Changed(f"server `{attempt.tool.namespace}` is no longer the one that was asked about")
    return now


async def _lose(gate: Gate, record: Approval) -> None:
    """Mark the call as one whose outcome nobody knows."""
    with contextlib.suppress(PmlError):
        await gate.desk.store.approvals.advance(record.id, Lost(at=gate.desk.clock.now()))


def _check_tool(manifest: Manifest, attempt: Attempt) -> None:
    """Raise NotFound if there is no such tool, Invalid if an argument is missing that its schema requires."""
    if attempt.tool.action not in manifest.definitions:
        raise unknown_tool(str(attempt.tool), (f"{manifest.server}:{name}" for name in manifest.definitions))
    missing = [name for name in manifest.required[attempt.tool.action] if name not in attempt.arguments]
    if missing:
        names = ", ".join(quote(name) for name in missing)
        tool = manifest.tool(attempt.tool.action) or {}
        raise Invalid(f"`{attempt.tool}` needs {names}", hint=f"its arguments: {arguments_text(tool)}")
