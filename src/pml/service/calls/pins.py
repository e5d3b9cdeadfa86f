"""Tool pins: a tool is called as it was first used, or as a person accepted it since."""

import contextlib

from pml.core.approvals.record import Approval, Subject
from pml.core.errors import AlreadySettled
from pml.core.ports.records import Pin
from pml.core.servers.manifest import Manifest, definition_diff
from pml.service.approvals.inquiry import ask_and_wait, carry_out
from pml.service.approvals.lifecycle import Question
from pml.service.call import PendingCall, ServerTarget, Target, deciders, matter_of


async def pin_or_ask(call: PendingCall, target: Target, manifest: Manifest) -> bool:
    """Pin the tool at its first use, and ask about a change; tell whether somebody was asked.

    Whoever asked looks again: the pin, or the tool, may be another by now. What is not a server has no pin.
    Raises: NotApproved, Paused, and what `claim` raises.
    """
    if not isinstance(target, ServerTarget):
        return False
    pins, action = call.gate.context.store.pins, call.attempt.tool.action
    key = (target.spec.name, target.digest, action)
    now = manifest.pinned_digest(action, is_remote=target.spec.traits.is_remote)
    pin = await pins.get(*key)
    if pin is None:
        await pins.put(_pin(call, target, manifest), by=None)
    elif pin.digest != now:

        async def is_accepted() -> bool:
            known = await pins.get(*key)
            return known is not None and known.digest == now

        async def accept(claimed: Approval) -> None:
            await pins.put(_pin(call, target, manifest), by=claimed.decided_by)

        question = await _question(call, target, manifest, pin)
        with contextlib.suppress(AlreadySettled):
            record = await ask_and_wait(call, question, None, is_moot=is_accepted)
            await carry_out(call.gate.context, record, accept, definition=now, artefact=target.digest)
        return True
    call.gate.pinned[key] = now
    return False


async def _question(call: PendingCall, target: ServerTarget, manifest: Manifest, pin: Pin) -> Question:
    await call.look_up_policy()
    tool = str(call.attempt.tool)
    is_remote = target.spec.traits.is_remote
    now = manifest.pinned_digest(pin.action, is_remote=is_remote)
    matter = matter_of(Subject.TOOL_CHANGED, call.judgement, tool, call.attempt.arguments)
    return Question(
        session=call.gate.session,
        tool=tool,
        arguments={
            "diff": definition_diff(pin.definition, manifest.pinned(pin.action, is_remote=is_remote)),
            "was": pin.digest,
            "now": now,
        },
        subject=Subject.TOOL_CHANGED,
        definition=now,
        artefact=target.digest,
        deciders=deciders(call, matter, tool),
    )


def _pin(call: PendingCall, target: ServerTarget, manifest: Manifest) -> Pin:
    action, is_remote = call.attempt.tool.action, target.spec.traits.is_remote
    return Pin(
        server=target.spec.name,
        target_digest=target.digest,
        action=action,
        definition=manifest.pinned(action, is_remote=is_remote),
        digest=manifest.pinned_digest(action, is_remote=is_remote),
        pinned_at=call.gate.context.clock.now(),
    )
