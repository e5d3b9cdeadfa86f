"""Tool pins: a tool is called as it was first used, or as a person accepted it since."""

import contextlib

from pml.core.approvals import Approval, Subject
from pml.core.errors import AlreadyClaimed, AlreadySettled
from pml.core.manifests import Manifest, definition_diff, definition_of
from pml.core.ports import Pin
from pml.service.approvals import Question, claim, finish, wait
from pml.service.gate import Asking, Attempt, Gate, Launch, deciders, matter_of
from pml.service.policy import Judged, current_policy
from pml.service.settling import CARRIED_OUT, CARRY_S, settle


async def pin_or_ask(
    gate: Gate,
    launch: Launch,
    manifest: Manifest,
    judged: Judged,
    *,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
) -> bool:
    """Pin the tool at its first use, and ask about a change; tell whether somebody was asked.

    Whoever asked looks again: the pin, or the tool, may be another by now.
    Raises: NotApproved, Paused, and what `claim` raises.
    """
    action = attempt.tool.action
    key = (launch.spec.name, launch.digest, action)
    now = manifest.definitions[action]
    if gate.pinned.get(key) == now:
        return False
    pin = await gate.desk.store.pins.get(*key)
    if pin is None:
        await gate.desk.store.pins.put(_pin(gate, launch, manifest, action), by=None)
    elif pin.digest != now:

        async def is_accepted() -> bool:
            known = await gate.desk.store.pins.get(*key)
            return known is not None and known.digest == now

        question = await _question(gate, launch, manifest, pin, judged, attempt, asking)
        with contextlib.suppress(AlreadySettled):
            record = await settle(
                gate, question, None, attempt=attempt, asking=asking, settled=settled, is_moot=is_accepted
            )
            await _accept(gate, launch, manifest, record, action)
        return True
    gate.pinned[key] = now
    return False


async def _question(
    gate: Gate,
    launch: Launch,
    manifest: Manifest,
    pin: Pin,
    judged: Judged,
    attempt: Attempt,
    asking: Asking,
) -> Question:
    settings = (await current_policy(gate.desk, gate.session.workspace)).settings
    tool = str(attempt.tool)
    new = manifest.tool(pin.action) or {}
    matter = matter_of(Subject.TOOL_CHANGED, judged, tool, attempt.arguments)
    return Question(
        session=gate.session,
        tool=tool,
        arguments={
            "diff": definition_diff(pin.definition, definition_of(new)),
            "was": pin.digest,
            "now": manifest.definitions[pin.action],
        },
        subject=Subject.TOOL_CHANGED,
        definition=manifest.definitions[pin.action],
        artefact=launch.digest,
        deciders=deciders(gate, settings, asking, matter, tool),
    )


async def _accept(gate: Gate, launch: Launch, manifest: Manifest, record: Approval, action: str) -> None:
    """Pin the tool as it was shown; another call that waited for the same answer may do it instead."""
    with contextlib.suppress(AlreadyClaimed):
        now = manifest.definitions[action]
        claimed = await claim(gate.desk, record.id, definition=now, artefact=launch.digest)
        await gate.desk.store.pins.put(_pin(gate, launch, manifest, action), by=claimed.decided_by)
        await finish(gate.desk, record.id)
    await wait(gate.desk, record.id, timeout_s=CARRY_S, during=CARRIED_OUT)


def _pin(gate: Gate, launch: Launch, manifest: Manifest, action: str) -> Pin:
    return Pin(
        server=launch.spec.name,
        launch=launch.digest,
        action=action,
        definition=definition_of(manifest.tool(action) or {}),
        digest=manifest.definitions[action],
        pinned_at=gate.desk.clock.now(),
    )
