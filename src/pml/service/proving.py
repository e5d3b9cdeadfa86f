"""Starting a server whose files must be proven: what is not as it was is asked about, of a person."""

import contextlib

from pml.core.approvals import Approval, State, Subject, call_facts
from pml.core.audit import dependency_accepted
from pml.core.deciders import PERSON_ONLY
from pml.core.errors import AlreadyClaimed, ArtefactChanged, NotApproved, ProgramChanged
from pml.service.approvals import Question, claim, finish, wait
from pml.service.carrying import INSTALL_S, finishing, in_background, withdraw_same
from pml.service.gate import Asking, Attempt, Gate, Launch, Loader
from pml.service.programs import accept_programs
from pml.service.settling import CARRIED_OUT, CARRY_S, settle


async def start_proven(
    gate: Gate, launch: Launch, *, attempt: Attempt, asking: Asking, settled: Approval | None
) -> None:
    """Start the server; files that are not as they were are asked about, and only a person can accept them.

    Raises: NotApproved, Paused, ServerFailed.
    """
    try:
        await gate.servers.manifest(launch.spec)
        return
    except ArtefactChanged as exc:
        changed, loader = exc, gate.loader
    if isinstance(changed, ProgramChanged):
        question = _program_question(gate, launch, changed, attempt)
        record = await settle(gate, question, None, attempt=attempt, asking=asking, settled=settled)
        await _accept_program(gate, launch, changed, record)
        return
    if loader is None or launch.spec.artefact is None or not changed.tree:
        raise changed  # where there is nothing left to accept, nobody is asked to
    name, tool = launch.spec.name, str(attempt.tool)
    question = Question(
        session=gate.session,
        tool=tool,
        arguments={
            "server": f"{name}@{launch.spec.artefact.version}",
            "files": changed.files,
            "was": launch.spec.artefact.tree,
            "now": changed.tree,
            **call_facts(tool, attempt.arguments),
        },
        subject=Subject.INTEGRITY_CHANGED,
        artefact=changed.tree,
        deciders=PERSON_ONLY,
    )
    try:
        record = await settle(gate, question, None, attempt=attempt, asking=asking, settled=settled)
    except NotApproved as exc:
        installed = loader.installer.installed(name)
        if exc.outcome == State.CANCELLED and installed is not None and installed.tree == changed.tree:
            return  # a person accepted it meanwhile, for another call
        raise
    with contextlib.suppress(AlreadyClaimed):
        await in_background(loader, _accept(gate, loader, name, changed.tree, record))
    await wait(gate.desk, record.id, timeout_s=INSTALL_S, during=CARRIED_OUT)


async def _accept(gate: Gate, loader: Loader, name: str, tree: str, record: Approval) -> None:
    """Take the changed files for those of the server, as was allowed. Raises: AlreadyClaimed, Changed."""
    claimed = await claim(gate.desk, record.id, artefact=tree)
    async with finishing(gate, claimed):
        await loader.installer.accept(name, tree=tree)
        entry = dependency_accepted(name, tree, at=gate.desk.clock.now(), by=claimed.decided_by)
        await gate.desk.store.audit.record(entry)
    await withdraw_same(gate, record.subject, tree)


def _program_question(gate: Gate, launch: Launch, changed: ProgramChanged, attempt: Attempt) -> Question:
    tool = str(attempt.tool)
    return Question(
        session=gate.session,
        tool=tool,
        arguments={
            "server": launch.spec.name,
            "files": changed.files,
            "was": changed.was,
            "now": changed.tree,
            **call_facts(tool, attempt.arguments),
        },
        subject=Subject.INTEGRITY_CHANGED,
        artefact=changed.tree,
        deciders=PERSON_ONLY,
    )


async def _accept_program(gate: Gate, launch: Launch, changed: ProgramChanged, record: Approval) -> None:
    """Pin the programs as they were shown; another call that waited for the same answer may do it instead."""
    with contextlib.suppress(AlreadyClaimed):
        claimed = await claim(gate.desk, record.id, artefact=changed.tree)
        workspace = gate.session.workspace
        await accept_programs(gate.desk, workspace, launch.spec, changed, by=claimed.decided_by)
        await finish(gate.desk, record.id)
    await wait(gate.desk, record.id, timeout_s=CARRY_S, during=CARRIED_OUT)
