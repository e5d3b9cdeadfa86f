"""The pipeline of a call: resolve, judge, prepare, pin, consent, claim, run, record. Nothing runs elsewhere.

Each step works on the `PendingCall`. A step that took time says `AGAIN`: rules, server and answer may be
others by now, so the call begins anew. How questions are shown (`Asking`) and how servers are run (`Servers`)
arrive from outside.
"""

import asyncio
import contextlib
from enum import Enum
from typing import Final, Literal

from msgspec.structs import replace

from pml.core.approvals.reasons import CapabilityNeeds, OutcomeUnknown, Reason
from pml.core.approvals.record import Approval, State, Subject
from pml.core.code.tool_values import value_of
from pml.core.config.file import Unlisted
from pml.core.errors import AlreadyClaimed, Changed, Invalid, LoginRequired, NotFound, PmlError
from pml.core.own_tools import CONTINUE, OWN_NAMESPACE
from pml.core.ports.loader import Told
from pml.core.rules.ruleset import Call, VerdictKind, runs_code
from pml.core.servers.manifest import Manifest, arguments_text
from pml.core.text import quote
from pml.core.values import JsonObject
from pml.service.approvals.answers import answer_in_run
from pml.service.approvals.claims import claim
from pml.service.approvals.inquiry import answers, ask_and_wait, of_run, settle_trust, trust_first
from pml.service.approvals.lifecycle import Question, cancel
from pml.service.call import (
    TOOLS_CALL,
    ApprovedCall,
    Attempt,
    CapabilityTarget,
    CodeOrigin,
    Make,
    PendingCall,
    ServerTarget,
    Target,
    deciders,
    find_server,
    matter_of,
)
from pml.service.calls.login_question import ask_login, collect_login
from pml.service.calls.pins import pin_or_ask
from pml.service.calls.prepare import (
    current_server,
    find_again,
    is_covered,
    is_untrusted,
    make_ready,
    no_server,
    unknown_tool,
    untrusted,
)
from pml.service.calls.send import Ran, run_approved
from pml.service.code.capabilities import (
    ASKED_ABOUT,
    Needs,
    covered_by,
    is_under_way,
    needs_of,
    why_needs,
)
from pml.service.install.load import is_foreign, marked_foreign
from pml.service.policy.policy import matched_rule


class _Again(Enum):
    AGAIN = "time has passed: begin again"


AGAIN: Final = _Again.AGAIN
Again = Literal[_Again.AGAIN]
NO_NEEDS: Final = Needs()
# Trust, each install, its variables, start and pin take one each; what changes more often is not relied on.
_TRIES: Final = 128


async def call_tool(call: PendingCall) -> bytes:
    """Run the call if rules and people let it, and return the result as the server wrote it.

    Raises: ToolDenied, NotApproved, NotFound, Invalid, IntegrityFailed, EnvMissing, Paused, ServerFailed,
    ServerRefused, CodeFailed, and what `asking` raises.
    """
    return (await _call(call)).result


def maker(outer: PendingCall, on_install: Told) -> Make:
    """Return what makes the calls of code that `outer` runs: through the pipeline, like any other."""

    async def make(attempt: Attempt) -> bytes:
        if attempt.tool.namespace == OWN_NAMESPACE:
            raise NotFound(f"code cannot call {quote(str(attempt.tool))}: it calls tools of servers")
        refuse_continuation(attempt.arguments)
        call = PendingCall(outer.gate, attempt, outer.asking, on_install=on_install, make=make)
        ran = await _call(call)
        return value_of(ran.result, tool=str(attempt.tool)) if ran.value is None else ran.value

    return make


def refuse_continuation(arguments: JsonObject) -> None:
    """Raise Invalid for the argument that continues a workflow: it is for clients, and never forwarded."""
    if CONTINUE in arguments:
        raise Invalid(f"`{CONTINUE}` is for the client that was asked")


async def _call(call: PendingCall) -> Ran:
    """Take the call through the steps, as often as time passes between them."""
    if call.settled is None and call.attempt.inner is None:
        await call.look_up_policy_of_turn()
    else:
        await call.look_up_policy()  # code may make many calls in one turn of the loop
    if call.policy.untrusted is not None:
        await _trust(call)
    if call.settled is not None:
        await collect_login(call)
    for _ in range(_TRIES):
        resolve(call)
        await call.judge()  # a denied call ends here: it costs no network and starts nothing
        try:
            approved = await _approve(call)
        except AlreadyClaimed:  # the same call, made twice, was faster with this answer: it needs its own
            call.settled, approved = None, AGAIN
        except LoginRequired as exc:
            await ask_login(call, exc)
            approved = AGAIN
        if approved is not AGAIN:
            try:
                return await run_approved(call, approved)
            except LoginRequired as exc:  # nothing ran, and its answer was put back
                await ask_login(call, exc)
            except Changed:  # nothing was sent
                if approved.record is not None:
                    raise
                call.found = None
        await call.look_up_policy()
    raise Changed(
        f"server `{call.attempt.tool.namespace}` changes too often", hint="`pml servers logs` may tell why"
    )


async def _approve(call: PendingCall) -> ApprovedCall | Again:
    """Take the steps between the verdict and the run: prepare, pin, consent, claim."""
    target, manifest = call.target, call.manifest
    if target is None or manifest is None:
        call.found = await make_ready(call)  # a step nearer: found, trusted, installed or started
        return AGAIN
    if call.attempt.method == TOOLS_CALL:
        _check_tool(manifest, call.attempt)
        if not _is_pinned(call, target, manifest) and await pin_or_ask(call, target, manifest):
            return _anew(call)
    needs = NO_NEEDS
    if isinstance(target, CapabilityTarget):
        needs, call.make = await needs_of(call, target), call.make or maker(call, call.tell_install)
    shown = ApprovedCall(target=target, manifest=manifest, arguments=call.attempt.arguments, record=None)
    must_ask = await _must_ask_now(call, target, needs)
    inner = call.attempt.inner
    # An answer that was left for this very call is used up also where a rule allows it by now.
    may_have_answer = bool(call.gate.paused) if inner is None else inner.resumed
    if not must_ask and call.settled is None and not may_have_answer:
        return _let_through(call, shown)
    return await _consent(call, shown, needs, must_ask=must_ask)


def _anew(call: PendingCall) -> Again:
    """Say that the call begins anew, with finding what answers it: somebody was asked meanwhile."""
    call.found = None
    return AGAIN


def _is_pinned(call: PendingCall, target: Target, manifest: Manifest) -> bool:
    """Tell whether the tool was seen to be as it is pinned; what is not a server's has no pin."""
    if not isinstance(target, ServerTarget):
        return True
    action = call.attempt.tool.action
    key = (target.spec.name, target.digest, action)
    now = manifest.pinned_digest(action, is_remote=target.spec.traits.is_remote)
    return call.gate.pinned.get(key) == now


async def _consent(
    call: PendingCall, shown: ApprovedCall, needs: Needs, *, must_ask: bool
) -> ApprovedCall | Again:
    """Return the call with its answer, found or asked for, and claimed; or let through if it needs none.

    Raises: AlreadyClaimed if an equal call has used the answer up.
    """
    question = _question(call, shown, needs)
    if must_ask and await is_covered(call, shown, question.deciders):
        return _anew(call)
    settled = call.settled or await _left_answer(call, question)
    if not answers(settled, question):
        if not must_ask:
            return _let_through(call, shown)
        if call.judgement.needs_trust and await settle_trust(call, settled) is None:
            return _anew(call)
    because = marked_foreign(_why_asked(call, needs, shown.target), call)
    record = await ask_and_wait(call, question, because, settled=settled)
    is_listed = isinstance(because, CapabilityNeeds)  # only what was shown is covered
    covered = covered_by(record, needs) if is_listed else frozenset[str]()
    return await _claim(call, record, replace(shown, covered=covered))


async def _trust(call: PendingCall) -> None:
    """Ask whether to trust the workspace's file, which comes before anything is used."""
    resolve(call)
    await call.judge()
    trusted = await trust_first(call, runs=not _must_ask(call))
    if trusted is True:
        await call.look_up_policy()
    elif trusted is not None:  # the rest of this call asks no more about it, also where nobody answered
        call.attempt = replace(call.attempt, no_trust=trusted)


def resolve(call: PendingCall) -> None:
    """Find what would answer the call now, and what that offers: nothing, for a server that does not run."""
    attempt, target = call.attempt, None
    if attempt.prefix is None and attempt.inner is None:  # most calls: a configured server means the name
        target = find_server(call.gate, call.policy, attempt.tool.namespace)
    call.target = target = target or current_server(call) or call.found
    if isinstance(target, ServerTarget):
        call.manifest = call.gate.servers.live(target.spec)
    else:
        call.manifest = None if target is None else target.manifest


def _let_through(call: PendingCall, shown: ApprovedCall) -> ApprovedCall:
    if call.judgement.kind is VerdictKind.ALLOW:
        because = call.because
    elif call.attempt.inner is None:
        because = "offered by its own name: the client asks"
    else:
        because = "allowed for this run"
    return replace(shown, noted=call.gate.context.store.audit.note(call.entry("allowed", because)))


async def _left_answer(call: PendingCall, question: Question) -> Approval | None:
    """Return the answer that this very call was left waiting for, if there is one by now.

    A rule or grant that came with it would let the call run without it, and leave it for later.
    """
    gate = call.gate
    if call.attempt.inner is not None:
        return await answer_in_run(gate.context, question)
    approval_id = gate.paused.pop(question.digest, None)
    record = None if approval_id is None else await gate.context.store.approvals.get(approval_id)
    if record is None or record.status is not State.ALLOWED or gate.context.clock.now() >= record.expires_at:
        return None
    return record


async def _claim(call: PendingCall, record: Approval, shown: ApprovedCall) -> ApprovedCall:
    """Take the approved call; what it would run now is looked up anew, for time has passed.

    Raises: what `claim` raises, and NotApproved or NotFound if the server may not be started any more.
    """
    await call.look_up_policy()
    target, manifest = await _target_now(call, record, shown)
    call.target, call.manifest = target, manifest
    claiming = asyncio.create_task(
        claim(
            call.gate.context,
            record.id,
            definition=call.definition(),
            artefact=target.digest,
            starts=call.starts(),
        )
    )
    try:
        claimed = await asyncio.shield(claiming)  # interrupted half-way, nobody would know what was stored
    except asyncio.CancelledError:
        with contextlib.suppress(PmlError):
            await cancel(call.gate.context, (await claiming).id, reason="the asker stopped waiting")
        raise
    return replace(shown, target=target, manifest=manifest, arguments=claimed.run_input, record=claimed)


async def _target_now(call: PendingCall, record: Approval, shown: ApprovedCall) -> tuple[Target, Manifest]:
    """Return what would run the call now, and what that offers. Raises: NotApproved, NotFound, Changed."""
    if not isinstance(shown.target, ServerTarget):
        found = await find_again(call)
        return found, found.manifest
    gate, namespace = call.gate, call.attempt.tool.namespace
    server = current_server(call)
    if server is None and is_untrusted(call.policy, namespace):
        raise untrusted(call, outcome=State.CANCELLED)
    if server is None and namespace in gate.loaded:
        gone = f"server `{namespace}` is no longer the one that was asked about"
        with contextlib.suppress(PmlError):
            await cancel(gate.context, record.id, reason=gone)
        raise Changed(gone, hint="call the tool again")
    if server is None:
        raise no_server(call)
    return server, gate.servers.live(server.spec) or await gate.servers.manifest(server.spec)


def _must_ask(call: PendingCall) -> bool:
    """Tell whether PML asks: for what a rule names, and for the unlisted.

    `if_client_cannot` leaves to the client what it calls by its own name, unless its settings let that run.
    """
    kind, gate = call.judgement.kind, call.gate
    if kind is not VerdictKind.UNLISTED:
        return kind is not VerdictKind.ALLOW
    is_asked_here = gate.is_held or call.policy.settings.approval.unlisted is Unlisted.EVERY_CALL
    return not call.attempt.offered or is_asked_here or gate.asks_nothing()


async def _must_ask_now(call: PendingCall, target: Target, needs: Needs) -> bool:
    """As above, for all that can be called: code that calls, calls of code, and calls that may have run."""
    inner = call.attempt.inner
    if inner is not None and inner.is_unknown:
        return True
    if isinstance(target, CapabilityTarget) and await is_under_way(call, target) is not None:
        return False
    if inner is not None and _is_covered_by_run(call, inner):
        return bool(needs.asks)
    is_spelt_out = call.attempt.prefix is not None
    if is_spelt_out and is_foreign(call) and call.judgement.grant is None and not call.gate.is_cloud:
        return True  # a rule means what the short name means
    return _must_ask(call) or bool(needs.asks)


def _is_covered_by_run(call: PendingCall, inner: CodeOrigin) -> bool:
    """Tell whether the tool was in the list when the run was allowed; a command is always shown itself.

    So is a call that a rule asks about for its arguments, or only since: who allowed the run may not have
    been asked that, or may not decide it.
    """
    tool, judgement = str(call.attempt.tool), call.judgement
    in_doubt = judgement.reserved or bool(judgement.broken)
    if judgement.is_named and not in_doubt:
        # Whoever allowed the run saw an `ask` by name. One that only these arguments meet was not shown.
        by_name = call.policy.rules.judge(Call(tool=tool, arguments={}), now=call.gate.context.clock.now())
        in_doubt = by_name.kind is not VerdictKind.ASK
    is_covered = f"{ASKED_ABOUT}{tool}" in inner.covered or (tool in inner.covered and not judgement.is_named)
    return is_covered and not in_doubt and not runs_code(tool, call.attempt.arguments)


def _why_asked(call: PendingCall, needs: Needs, target: Target) -> Reason | None:
    inner = call.attempt.inner
    if inner is not None and inner.is_unknown:
        return OutcomeUnknown(why="it was begun before, and nobody knows whether it ran")
    if isinstance(target, CapabilityTarget):
        return why_needs(call.judgement, needs, target)
    return matched_rule(call.judgement)


def _question(call: PendingCall, shown: ApprovedCall, needs: Needs) -> Question:
    attempt, tool = call.attempt, str(call.attempt.tool)
    is_unknown = attempt.inner is not None and attempt.inner.is_unknown
    told = matter_of(Subject.TOOL_CALL, call.judgement, tool, attempt.arguments)
    matter = replace(
        told,
        is_named=told.is_named or bool(needs.named),
        is_reserved=told.is_reserved or is_unknown,
        is_foreign=is_foreign(call),
    )
    question = Question(
        session=call.gate.session,
        tool=tool,
        arguments=attempt.arguments,
        definition=shown.manifest.definitions.get(attempt.tool.action),
        artefact=shown.target.digest,
        deciders=deciders(call, matter, tool, also=needs.asks),
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
