"""Judging a call by the policy of this moment; a denied call leaves its trace in the audit log."""

import asyncio

from pml.core.audit import Entry, call_judged
from pml.core.digest import digest_call
from pml.core.manifests import Manifest
from pml.core.rules import Call, VerdictKind
from pml.core.scene import Starts
from pml.core.servers import starts_of
from pml.service.gate import Attempt, Gate, Launch, Target
from pml.service.policy import Judged, Policy, current_policy, judge, judge_denied, refuse_denied, why


async def policy_now(gate: Gate) -> Policy:
    return await current_policy(gate.desk, gate.session.workspace)


async def policy_of_turn(gate: Gate) -> Policy:
    """Return the policy as it is now, looked up once for all calls that this turn of the loop judges."""
    if not gate.of_turn:
        gate.of_turn.append(await policy_now(gate))
        asyncio.get_running_loop().call_soon(gate.of_turn.clear)
    return gate.of_turn[0]


def starts_here(gate: Gate, target: Target | None) -> Starts | None:
    """Return where an installed server opens relative paths; of configured ones the rules know it."""
    if not isinstance(target, Launch) or target.spec.artefact is None:
        return None
    workspace = gate.session.workspace
    home = gate.desk.configs.of(workspace).paths.home
    return starts_of(target.spec, workspace=workspace, home=home)


async def judge_attempt(
    gate: Gate, policy: Policy, attempt: Attempt, launch: Target | None, manifest: Manifest | None
) -> Judged:
    """Return the verdict. Raises: ToolDenied."""
    judged = await judge(gate.desk, policy, _call(gate, attempt, launch, manifest), session=gate.session)
    if judged.kind is VerdictKind.DENY:
        await _refuse(gate, attempt, launch, manifest, judged)
    return judged


async def refuse_denied_attempt(gate: Gate, policy: Policy, attempt: Attempt) -> None:
    """Raise ToolDenied if the attempt is denied; who else might have to allow it is not looked at."""
    call = _call(gate, attempt, None, None)
    denied = await judge_denied(gate.desk, policy, call, session=gate.session)
    if denied is not None:
        await _refuse(gate, attempt, None, None, denied)


def _call(gate: Gate, attempt: Attempt, launch: Target | None, manifest: Manifest | None) -> Call:
    return Call(
        tool=str(attempt.tool),
        arguments=attempt.arguments,
        cwd=gate.session.workspace,
        starts=starts_here(gate, launch),
        definition=None if manifest is None else manifest.definitions.get(attempt.tool.action),
        artefact=None if launch is None else launch.digest,
    )


async def _refuse(
    gate: Gate, attempt: Attempt, launch: Target | None, manifest: Manifest | None, denied: Judged
) -> None:
    entry = entry_of(gate, attempt, launch, manifest, word="denied", because=why(denied))
    await gate.desk.store.audit.record(entry)
    refuse_denied(denied, str(attempt.tool))


def entry_of(
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
