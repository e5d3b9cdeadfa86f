"""The pipeline of a call: judge, resolve, ask, prove, claim, run, record. Nothing runs on another path.

How questions are shown (`Asking`) and how servers are run (`Servers`) arrive from outside.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from pml.core.approvals import Approval, Lost, MatchedRule, State, Subject
from pml.core.audit import Entry, call_judged
from pml.core.config import Unlisted
from pml.core.digest import digest_call
from pml.core.errors import AlreadyClaimed, Changed, Invalid, NotFound, PmlError
from pml.core.identity import TokenRole
from pml.core.loading import Progress, Told
from pml.core.manifests import Manifest, arguments_text
from pml.core.memory import OWN_NAMESPACE
from pml.core.rules import Call, VerdictKind, runs_code
from pml.core.text import quote
from pml.core.toolvalues import value_of
from pml.core.values import JsonObject
from pml.service.answers import answer_in_run
from pml.service.approvals import Question, cancel, claim, finish
from pml.service.capabilities import (
    Needs,
    call_cloud,
    is_under_way,
    needs_of,
    result_of,
    run_capability,
    why_needs,
)
from pml.service.coding import Make
from pml.service.gate import Asking, Attempt, Coded, Gate, Inner, Launch, Remote, Target, deciders
from pml.service.pins import pin_or_ask
from pml.service.policy import Judged, Policy, current_policy, judge, matched_rule, refuse_denied, why
from pml.service.readiness import (
    current_launch,
    find_again,
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
    """Who is asked for a call, who hears how it goes, and how an install for it goes."""

    asking: Asking
    on_progress: Callable[[JsonObject], None] | None
    told: Told


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
    Paused, ServerFailed, ServerRefused, CodeFailed, and what `asking` raises.
    """
    told = _told_too(gate, attempt, told or _as_progress(on_progress))
    hearing = Hearing(asking=asking, on_progress=on_progress, told=told)
    return (await _call(gate, attempt, hearing, settled)).result


def maker(
    gate: Gate, asking: Asking, *, on_progress: Callable[[JsonObject], None] | None, told: Told | None
) -> Make:
    """Return what makes the calls of code: through the pipeline, like any other."""

    async def make(attempt: Attempt) -> bytes:
        if attempt.tool.namespace == OWN_NAMESPACE:
            raise NotFound(f"code cannot call {quote(str(attempt.tool))}: it calls tools of servers")
        heard = _told_too(gate, attempt, told or _as_progress(on_progress))
        ran = await _call(gate, attempt, Hearing(asking=asking, on_progress=None, told=heard), None)
        return value_of(ran.result, tool=str(attempt.tool)) if ran.value is None else ran.value

    return make


async def _call(gate: Gate, attempt: Attempt, hearing: Hearing, settled: Approval | None) -> Ran:
    policy = await _policy_of_turn(gate) if settled is None else await _policy_now(gate)
    found: Coded | Remote | None = None
    for _ in range(_TRIES):
        admitted = await _admit(gate, policy, attempt, hearing, settled, found)
        if not isinstance(admitted, Admitted):
            found = admitted
            policy = await _policy_now(gate)
            continue
        try:
            return await _run(gate, attempt, admitted, hearing)
        except Changed:
            if admitted.record is not None:
                raise
            policy, found = await _policy_now(gate), None
    raise Changed(
        f"server `{attempt.tool.namespace}` changes too often", hint="`pml servers logs` may tell why"
    )


async def refuse_denied_call(gate: Gate, attempt: Attempt) -> None:
    """Raise ToolDenied if a rule denies the call: of PML's own tool, or of what began before a pause."""
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


def progress_lines(on_progress: Callable[[JsonObject], None] | None) -> Callable[[str], None]:
    """Return what tells of each call that code has made."""
    made = 0

    def tell(line: str) -> None:
        nonlocal made
        made += 1
        if on_progress is not None:
            on_progress({"progress": made, "message": line})

    return tell


def _as_progress(on_progress: Callable[[JsonObject], None] | None) -> Told:
    def tell(step: Progress) -> None:
        if on_progress is not None:
            total: JsonObject = {} if step.total is None else {"total": step.total}
            on_progress({"progress": step.done, "message": step.message, **total})

    return tell


async def _admit(
    gate: Gate,
    policy: Policy,
    attempt: Attempt,
    hearing: Hearing,
    settled: Approval | None,
    found: Coded | Remote | None,
) -> Admitted | Coded | Remote | None:
    """Return the call that may run, or else what was found to answer it: time has passed, so judge again."""
    asking = hearing.asking
    target = current_launch(gate, policy, attempt) or found
    manifest = _offer(gate, target)
    judged = await _judge(gate, policy, attempt, target, manifest)
    if target is None or manifest is None:
        return await make_ready(
            gate, policy, judged, target, attempt=attempt, asking=asking, settled=settled, told=hearing.told
        )
    if attempt.is_tool:
        _check_tool(manifest, attempt)
        if isinstance(target, Launch) and await pin_or_ask(
            gate, target, manifest, attempt=attempt, asking=asking, settled=settled
        ):
            return None
    needs = await needs_of(gate, policy, target) if isinstance(target, Coded) else Needs()
    must_ask = await _must_ask_now(gate, policy, judged, attempt, target, needs)
    if must_ask and await is_covered(gate, judged, attempt, target, manifest):
        return None
    admitted = Admitted(
        target=target,
        manifest=manifest,
        arguments=attempt.arguments,
        record=None,
        covered=frozenset(needs.asks),
    )
    may_have_answer = bool(gate.paused) if attempt.inner is None else attempt.inner.resumed
    if not must_ask and settled is None and not may_have_answer:
        return _let_through(gate, attempt, admitted, judged)
    question = _question(gate, policy, judged, attempt, target, manifest, asking, needs)
    settled = settled or await _left_answer(gate, question, attempt)
    if not answers(settled, question):
        if not must_ask:
            return _let_through(gate, attempt, admitted, judged)
        if judged.needs_trust:
            refused = await settle_trust(
                gate, policy, judged, attempt=attempt, asking=asking, settled=settled
            )
            if refused is None:
                return None
    because = _why_asked(judged, attempt, needs)
    try:
        record = await settle(gate, question, because, attempt=attempt, asking=asking, settled=settled)
        return await _claim(gate, attempt, record, admitted)
    except AlreadyClaimed:  # the same call, made twice, was faster with this answer: this one needs its own
        return None


def _offer(gate: Gate, target: Target | None) -> Manifest | None:
    """Return what the target offers now; None for a server that does not run."""
    match target:
        case None:
            return None
        case Launch():
            return gate.servers.live(target.spec)
        case Coded() | Remote():
            return target.manifest


def _let_through(gate: Gate, attempt: Attempt, admitted: Admitted, judged: Judged) -> Admitted:
    because = _why_allowed(judged, attempt)
    entry = _entry(gate, attempt, admitted.target, admitted.manifest, word="allowed", because=because)
    return replace(admitted, noted=gate.desk.store.audit.note(entry))


async def _left_answer(gate: Gate, question: Question, attempt: Attempt) -> Approval | None:
    """Return the answer that this very call was left waiting for, if there is one by now.

    A rule or grant that came with it would let the call run without it, and leave it for later.
    """
    if attempt.inner is not None:
        return await answer_in_run(gate.desk, question)
    approval_id = gate.paused.pop(question.digest, None)
    record = None if approval_id is None else await gate.desk.store.approvals.get(approval_id)
    if record is None or record.status is not State.ALLOWED or gate.desk.clock.now() >= record.expires_at:
        return None
    return record


async def _claim(gate: Gate, attempt: Attempt, record: Approval, shown: Admitted) -> Admitted:
    """Take the approved call; what it would run now is looked up anew, for time has passed.

    Raises: what `claim` raises, and NotApproved or NotFound if the server may not be started any more.
    """
    policy = await _policy_now(gate)
    target, manifest = await _target_now(gate, policy, attempt, record, shown)
    definition = manifest.definitions.get(attempt.tool.action)
    claiming = asyncio.create_task(claim(gate.desk, record.id, definition=definition, artefact=target.digest))
    try:
        claimed = await asyncio.shield(claiming)  # interrupted half-way, nobody would know what was stored
    except asyncio.CancelledError:
        with contextlib.suppress(PmlError):
            await cancel(gate.desk, (await claiming).id, reason="the asker stopped waiting")
        raise
    return replace(shown, target=target, manifest=manifest, arguments=claimed.run_input, record=claimed)


async def _target_now(
    gate: Gate, policy: Policy, attempt: Attempt, record: Approval, shown: Admitted
) -> tuple[Target, Manifest]:
    """Return what would run the call now, and what that offers. Raises: NotApproved, NotFound, Changed."""
    if not isinstance(shown.target, Launch):
        found = await find_again(gate, policy, shown.target, attempt)
        return found, found.manifest
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
    return launch, gate.servers.live(launch.spec) or await gate.servers.manifest(launch.spec)


async def _judge(
    gate: Gate, policy: Policy, attempt: Attempt, launch: Target | None, manifest: Manifest | None
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


async def _must_ask_now(
    gate: Gate, policy: Policy, judged: Judged, attempt: Attempt, target: Target, needs: Needs
) -> bool:
    """As above, for all that can be called: code that calls, calls of code, and calls that may have run."""
    inner = attempt.inner
    if inner is not None and inner.is_unknown:
        return True
    if isinstance(target, Coded) and await is_under_way(gate, attempt, target) is not None:
        return False
    if inner is not None and _is_covered_by_run(inner, judged, attempt):
        return bool(needs.asks)
    return _must_ask(gate, policy, judged, attempt) or bool(needs.asks and judged.grant is None)


def _is_covered_by_run(inner: Inner, judged: Judged, attempt: Attempt) -> bool:
    """Tell whether the tool was in the list when the run was allowed; a command is always shown itself."""
    tool = str(attempt.tool)
    in_doubt = judged.reserved or bool(judged.broken)
    return tool in inner.covered and not in_doubt and not runs_code(tool, attempt.arguments)


def _must_ask_own(gate: Gate, judged: Judged, attempt: Attempt) -> bool:
    """As above, for PML's own tools: of the unlisted ones only a launch does something by itself."""
    is_launch = str(attempt.tool) == LAUNCH_TOOL
    if is_launch and gate.session.role is not TokenRole.SESSION:
        return False  # whatever anybody said, a child's launch is refused
    is_unlisted = judged.kind is VerdictKind.UNLISTED
    return judged.kind is VerdictKind.ASK or (is_launch and is_unlisted and gate.is_held)


def _why_allowed(judged: Judged, attempt: Attempt) -> str:
    if judged.kind is VerdictKind.ALLOW:
        return why(judged)
    return "offered by its own name: the client asks" if attempt.inner is None else "allowed for this run"


def _why_asked(judged: Judged, attempt: Attempt, needs: Needs) -> MatchedRule | None:
    if attempt.inner is not None and attempt.inner.is_unknown:
        return MatchedRule(verdict="unknown", entry="it was begun before, and nobody knows whether it ran")
    return why_needs(judged, needs)


def _entry(
    gate: Gate,
    attempt: Attempt,
    launch: Target | None,
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
    target: Target,
    manifest: Manifest,
    asking: Asking,
    needs: Needs,
) -> Question:
    tool = str(attempt.tool)
    is_unknown = attempt.inner is not None and attempt.inner.is_unknown
    may_decide = deciders(
        gate,
        policy.settings,
        Subject.TOOL_CALL,
        tool,
        asking,
        reserved=judged.reserved or is_unknown,
        also=needs.asks,
    )
    return Question(
        session=gate.session,
        tool=tool,
        arguments=attempt.arguments,
        definition=manifest.definitions.get(attempt.tool.action),
        artefact=target.digest,
        deciders=may_decide,
        run_id=None if attempt.inner is None else attempt.inner.root,
    )


async def _run(gate: Gate, attempt: Attempt, admitted: Admitted, hearing: Hearing) -> Ran:
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
        await finish(gate.desk, record.id)
    if admitted.noted is not None:
        await admitted.noted  # committed before the reply; the server has worked meanwhile
    return Ran(result=result)


async def _run_code(gate: Gate, attempt: Attempt, coded: Coded, admitted: Admitted, hearing: Hearing) -> Ran:
    """Run a capability. Its approval is used up when it begins: it may wait, and go on in another process."""
    if admitted.record is not None:
        await finish(gate.desk, admitted.record.id)
    if admitted.noted is not None:
        await admitted.noted
    attempt = replace(attempt, arguments=admitted.arguments)
    make = maker(gate, hearing.asking, on_progress=hearing.on_progress, told=hearing.told)
    try:
        outcome = await run_capability(
            gate,
            attempt,
            coded,
            covered=admitted.covered,
            make=make,
            told=progress_lines(hearing.on_progress),
        )
    except PmlError as exc:
        await _note_failed(gate, attempt, admitted, exc)
        raise
    return Ran(result=result_of(outcome), value=outcome.value)


async def _note_failed(gate: Gate, attempt: Attempt, admitted: Admitted, error: PmlError) -> None:
    entry = _entry(gate, attempt, admitted.target, admitted.manifest, word="failed", because=error.message)
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
