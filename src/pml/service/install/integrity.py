"""Starting a server whose files must be proven: what is not as it was is asked about, of a person."""

import contextlib
from collections.abc import Coroutine
from typing import Any

from pml.core.approvals.deciders import PERSON_ONLY
from pml.core.approvals.record import Approval, Subject, call_facts
from pml.core.audit.entries import dependency_accepted
from pml.core.errors import AlreadySettled, ArtefactChanged, ProgramChanged
from pml.core.servers.spec import ServerSpec
from pml.service.approvals.inquiry import ask_and_wait, carry_out
from pml.service.approvals.lifecycle import Question
from pml.service.call import Gate, Loader, PendingCall, ServerTarget
from pml.service.install.deeds import INSTALL_S, in_background, was_under_way, withdraw_same
from pml.service.policy.workspace_programs import accept_programs, are_accepted


async def start_proven(call: PendingCall, server: ServerTarget) -> None:
    """Start the server; files that are not as they were are asked about, and only a person can accept them.

    Raises: NotApproved, Paused, ServerFailed.
    """
    try:
        await call.gate.servers.manifest(server.spec)
        return
    except ArtefactChanged as exc:
        changed, loader = exc, call.gate.loader
    with contextlib.suppress(AlreadySettled):  # a person accepted it meanwhile, for another call
        if isinstance(changed, ProgramChanged):
            await _ask_about_program(call, server.spec, changed)
        elif loader is None or server.spec.artefact is None or not changed.tree:
            raise changed  # where there is nothing left to accept, nobody is asked to
        elif not await was_under_way(call.gate, loader, Subject.INTEGRITY_CHANGED, changed.tree):
            await _ask_about_files(call, loader, server.spec, changed)


async def _ask_about_files(
    call: PendingCall, loader: Loader, spec: ServerSpec, changed: ArtefactChanged
) -> None:
    """Take the changed files of an installed server for its own, if a person says so. Raises: NotApproved."""
    assert spec.artefact is not None
    name, tree, context = spec.name, changed.tree, call.gate.context
    question = _question(call, changed, server=f"{name}@{spec.artefact.version}", was=spec.artefact.tree)

    async def is_accepted() -> bool:
        installed = loader.installer.installed(name)
        return installed is not None and installed.tree == tree

    async def accept(claimed: Approval) -> None:
        await loader.installer.accept(name, tree=tree)
        entry = dependency_accepted(name, tree, at=context.clock.now(), by=claimed.decided_by)
        await context.store.audit.record(entry)

    record = await ask_and_wait(call, question, None, is_moot=is_accepted)
    await carry_out(
        context,
        record,
        accept,
        artefact=tree,
        timeout_s=INSTALL_S,
        beside=lambda work: in_background(loader, tree, _settling(call.gate, tree, work)),
    )


async def _settling(gate: Gate, tree: str, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, then let go on what other calls of the session ask about the same files."""
    await work
    await withdraw_same(gate, Subject.INTEGRITY_CHANGED, tree)


async def _ask_about_program(call: PendingCall, spec: ServerSpec, changed: ProgramChanged) -> None:
    """Pin the programs as they were shown, if a person says so. Raises: NotApproved."""
    context, workspace = call.gate.context, call.gate.session.workspace

    async def accept(claimed: Approval) -> None:
        await accept_programs(context, workspace, spec, changed, by=claimed.decided_by)

    record = await ask_and_wait(
        call,
        _question(call, changed, server=spec.name, was=changed.was),
        None,
        is_moot=lambda: are_accepted(context, workspace, spec, changed),
    )
    await carry_out(
        context,
        record,
        accept,
        artefact=changed.tree,
        beside=lambda work: _settling(call.gate, changed.tree, work),
    )


def _question(call: PendingCall, changed: ArtefactChanged, *, server: str, was: str) -> Question:
    tool = str(call.attempt.tool)
    return Question(
        session=call.gate.session,
        tool=tool,
        arguments={
            "server": server,
            "files": changed.files,
            "was": was,
            "now": changed.tree,
            **call_facts(tool, call.attempt.arguments),
        },
        subject=Subject.INTEGRITY_CHANGED,
        artefact=changed.tree,
        deciders=PERSON_ONLY,
    )
