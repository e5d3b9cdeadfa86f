"""The pipeline of a call: judge, resolve, ask, prove, claim, run, record. Nothing runs on another path.

How questions are shown (`Asking`) and how servers are run (`Servers`) arrive from outside.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from pml.core.approvals import Approval, MatchedRule, State, Subject
from pml.core.config import Unlisted
from pml.core.errors import AlreadyClaimed, Changed, Invalid, NotFound, PmlError
from pml.core.loading import Progress, Told
from pml.core.manifests import Manifest, arguments_text
from pml.core.memory import CONTINUE, OWN_NAMESPACE
from pml.core.rules import Call, VerdictKind, runs_code
from pml.core.telling import NEEDS
from pml.core.text import quote
from pml.core.toolvalues import value_of
from pml.core.values import JsonObject
from pml.service.answers import answer_in_run
from pml.service.approvals import Question, cancel, claim
from pml.service.capabilities import (
    ASKED_ABOUT,
    Needs,
    covered_by,
    is_under_way,
    needs_of,
    why_needs,
)
from pml.service.coderuns import Make
from pml.service.gate import Asking, Attempt, Coded, Gate, Inner, Launch, Remote, Target, deciders, matter_of
from pml.service.judging import entry_of, judge_attempt, policy_now, policy_of_turn, starts_here
from pml.service.loading import is_foreign, marked_foreign
from pml.service.pins import pin_or_ask
from pml.service.policy import Judged, Policy, matched_rule, why
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
from pml.service.running import Admitted, Hearing, Ran, run_admitted
from pml.service.settling import UNKNOWN, answers, of_run, settle, settle_trust, trust_first

# Trust, each install, its variables, start and pin take one each; what changes more often is not relied on.
_TRIES: Final = 128


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
    told = _told_too(gate, attempt, told or as_progress(on_progress))
    make = maker(gate, asking, told=told)
    hearing = Hearing(asking=asking, on_progress=on_progress, told=told, make=make)
    return (await _call(gate, attempt, hearing, settled)).result


def maker(gate: Gate, asking: Asking, *, told: Told) -> Make:
    """Return what makes the calls of code: through the pipeline, like any other."""

    async def make(attempt: Attempt) -> bytes:
        if attempt.tool.namespace == OWN_NAMESPACE:
            raise NotFound(f"code cannot call {quote(str(attempt.tool))}: it calls tools of servers")
        refuse_continuation(attempt.arguments)
        heard = _told_too(gate, attempt, told)
        ran = await _call(
            gate, attempt, Hearing(asking=asking, on_progress=None, told=heard, make=make), None
        )
        return value_of(ran.result, tool=str(attempt.tool)) if ran.value is None else ran.value

    return make


def refuse_continuation(arguments: JsonObject) -> None:
    """Raise Invalid for the argument that continues a workflow: it is for clients, and never forwarded."""
    if CONTINUE in arguments:
        raise Invalid(f"`{CONTINUE}` is for the client that was asked")


async def _call(gate: Gate, attempt: Attempt, hearing: Hearing, settled: Approval | None) -> Ran:
    is_first = settled is None and attempt.inner is None  # code may make many calls in one turn of the loop
    policy = await policy_of_turn(gate) if is_first else await policy_now(gate)
    trusted = None if policy.untrusted is None else await _trusted(gate, policy, attempt, hearing, settled)
    if trusted:
        policy = await policy_now(gate)
    found: Coded | Remote | None = None
    for _ in range(_TRIES):
        try:
            admitted = await _admit(
                gate, policy, attempt, hearing, settled, found, may_ask_trust=trusted is None
            )
        except AlreadyClaimed:  # the same call, made twice, was faster with this answer: it needs its own
            settled, admitted = None, found
        if not isinstance(admitted, Admitted):
            found = admitted
            policy = await policy_now(gate)
            continue
        try:
            return await run_admitted(gate, attempt, admitted, hearing)
        except Changed:
            if admitted.record is not None:
                raise
            policy, found = await policy_now(gate), None
    raise Changed(
        f"server `{attempt.tool.namespace}` changes too often", hint="`pml servers logs` may tell why"
    )


async def _trusted(
    gate: Gate, policy: Policy, attempt: Attempt, hearing: Hearing, settled: Approval | None
) -> bool | None:
    """Return what was said to trust in the workspace's file, which comes before anything is used."""
    target = current_launch(gate, policy, attempt)
    judged = await judge_attempt(gate, policy, attempt, target, _offer(gate, target))
    runs = not _must_ask(gate, policy, judged, attempt)
    return await trust_first(
        gate, policy, judged, attempt=attempt, asking=hearing.asking, settled=settled, runs=runs
    )


def _told_too(gate: Gate, attempt: Attempt, told: Told) -> Told:
    """Return `told` so that whoever listens to the gate hears it too."""
    heard, name = gate.told, attempt.tool.namespace
    if heard is None or name is None:
        return told

    def tell(step: Progress) -> None:
        told(step)
        heard(name, step)

    return tell


def as_progress(on_progress: Callable[[JsonObject], None] | None) -> Told:
    """Return what tells of an install as the progress of its call."""

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
    *,
    may_ask_trust: bool,
) -> Admitted | Coded | Remote | None:
    """Return the call that may run, or else what was found to answer it: time has passed, so judge again.

    Raises: AlreadyClaimed if an equal call has used the answer up.
    """
    asking = hearing.asking
    target = current_launch(gate, policy, attempt) or found
    manifest = _offer(gate, target)
    judged = await judge_attempt(gate, policy, attempt, target, manifest)
    if target is None or manifest is None:
        return await make_ready(
            gate, policy, judged, target, attempt=attempt, asking=asking, settled=settled, told=hearing.told
        )
    if attempt.is_tool:
        _check_tool(manifest, attempt)
        if isinstance(target, Launch) and await pin_or_ask(
            gate, target, manifest, judged, attempt=attempt, asking=asking, settled=settled
        ):
            return None
    needs = await needs_of(gate, policy, target) if isinstance(target, Coded) else Needs()
    must_ask = await _must_ask_now(gate, policy, judged, attempt, target, needs)
    admitted = Admitted(
        target=target,
        manifest=manifest,
        arguments=attempt.arguments,
        record=None,
    )
    may_have_answer = bool(gate.paused) if attempt.inner is None else attempt.inner.resumed
    if not must_ask and settled is None and not may_have_answer:
        return _let_through(gate, attempt, admitted, judged)
    question = _question(gate, policy, judged, attempt, target, manifest, asking, needs)
    if must_ask and await is_covered(gate, judged, attempt, target, manifest, question.deciders):
        return None
    settled = settled or await _left_answer(gate, question, attempt)
    if not answers(settled, question):
        if not must_ask:
            return _let_through(gate, attempt, admitted, judged)
        if judged.needs_trust and may_ask_trust:
            refused = await settle_trust(
                gate, policy, judged, attempt=attempt, asking=asking, settled=settled
            )
            if refused is None:
                return None
    because = marked_foreign(_why_asked(judged, attempt, needs, target), policy, attempt)
    record = await settle(gate, question, because, attempt=attempt, asking=asking, settled=settled)
    is_listed = because is not None and because.verdict == NEEDS  # only what was shown is covered
    covered = covered_by(record, needs) if is_listed else frozenset[str]()
    return await _claim(gate, attempt, record, replace(admitted, covered=covered))


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
    entry = entry_of(gate, attempt, admitted.target, admitted.manifest, word="allowed", because=because)
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
    policy = await policy_now(gate)
    target, manifest = await _target_now(gate, policy, attempt, record, shown)
    definition = manifest.definitions.get(attempt.tool.action)
    starts = starts_here(gate, target)
    claiming = asyncio.create_task(
        claim(gate.desk, record.id, definition=definition, artefact=target.digest, starts=starts)
    )
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


def _must_ask(gate: Gate, policy: Policy, judged: Judged, attempt: Attempt) -> bool:
    """Tell whether PML asks: for what a rule names, and for the unlisted.

    `if_client_cannot` leaves to the client what it calls by its own name.
    """
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
    if inner is not None and _is_covered_by_run(gate, policy, inner, judged, attempt):
        return bool(needs.asks)
    if is_foreign(policy, attempt) and judged.grant is None and not gate.is_cloud:
        return True  # a rule means what the short name means
    return _must_ask(gate, policy, judged, attempt) or bool(needs.asks)


def _is_covered_by_run(gate: Gate, policy: Policy, inner: Inner, judged: Judged, attempt: Attempt) -> bool:
    """Tell whether the tool was in the list when the run was allowed; a command is always shown itself.

    So is a call that a rule asks about for its arguments, or only since: who allowed the run may not have
    been asked that, or may not decide it.
    """
    tool = str(attempt.tool)
    in_doubt = judged.reserved or bool(judged.broken)
    if judged.is_named and not in_doubt:
        by_name = policy.rules.judge(Call(tool=tool, arguments={}), now=gate.desk.clock.now())
        in_doubt = by_name.kind is not VerdictKind.ASK
    is_covered = f"{ASKED_ABOUT}{tool}" in inner.covered or (tool in inner.covered and not judged.is_named)
    return is_covered and not in_doubt and not runs_code(tool, attempt.arguments)


def _why_allowed(judged: Judged, attempt: Attempt) -> str:
    if judged.kind is VerdictKind.ALLOW:
        return why(judged)
    return "offered by its own name: the client asks" if attempt.inner is None else "allowed for this run"


def _why_asked(judged: Judged, attempt: Attempt, needs: Needs, target: Target) -> MatchedRule | None:
    if attempt.inner is not None and attempt.inner.is_unknown:
        return MatchedRule(verdict=UNKNOWN, entry="it was begun before, and nobody knows whether it ran")
    return why_needs(judged, needs, target) if isinstance(target, Coded) else matched_rule(judged)


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
    told = matter_of(Subject.TOOL_CALL, judged, tool, attempt.arguments)
    matter = replace(
        told,
        is_named=told.is_named or bool(needs.named),
        is_reserved=told.is_reserved or is_unknown,
        is_foreign=is_foreign(policy, attempt),
    )
    question = Question(
        session=gate.session,
        tool=tool,
        arguments=attempt.arguments,
        definition=manifest.definitions.get(attempt.tool.action),
        artefact=target.digest,
        deciders=deciders(gate, policy.settings, asking, matter, tool, also=needs.asks),
    )
    return question if attempt.inner is None else of_run(question, attempt.inner)


def _check_tool(manifest: Manifest, attempt: Attempt) -> None:
    """Raise NotFound if there is no such tool, Invalid if an argument is missing that its schema requires."""
    if attempt.tool.action not in manifest.definitions:
        raise unknown_tool(str(attempt.tool), (f"{manifest.server}:{name}" for name in manifest.definitions))
    missing = [name for name in manifest.required[attempt.tool.action] if name not in attempt.arguments]
    if missing:
        names = ", ".join(quote(name) for name in missing)
        tool = manifest.tool(attempt.tool.action) or {}
        raise Invalid(f"`{attempt.tool}` needs {names}", hint=f"its arguments: {arguments_text(tool)}")
