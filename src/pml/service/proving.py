"""Starting a server whose files must be proven: what is not as it was is asked about, of a person."""

import contextlib

from pml.core.approvals import Approval, Subject, call_facts
from pml.core.audit import dependency_accepted
from pml.core.deciders import PERSON_ONLY
from pml.core.errors import AlreadyClaimed, AlreadySettled, ArtefactChanged, ProgramChanged
from pml.service.approvals import Question, claim, wait
from pml.service.carrying import INSTALL_S, finishing, in_background, was_under_way, withdraw_same
from pml.service.gate import Asking, Attempt, Gate, Launch, Loader
from pml.service.programs import accept_programs, are_accepted
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
    with contextlib.suppress(AlreadySettled):  # a person accepted it meanwhile, for another call
        if isinstance(changed, ProgramChanged):
            await _ask_about_program(gate, launch, changed, attempt, asking, settled)
        elif loader is None or launch.spec.artefact is None or not changed.tree:
            raise changed  # where there is nothing left to accept, nobody is asked to
        elif not await was_under_way(gate, loader, Subject.INTEGRITY_CHANGED, changed.tree):
            await _ask_about_files(gate, loader, launch, changed, attempt, asking, settled)


async def _ask_about_files(
    gate: Gate,
    loader: Loader,
    launch: Launch,
    changed: ArtefactChanged,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
) -> None:
    """Take the changed files of an installed server for its own, if a person says so. Raises: NotApproved."""
    assert launch.spec.artefact is not None
    name, tree = launch.spec.name, changed.tree
    server = f"{name}@{launch.spec.artefact.version}"
    question = _question(gate, changed, attempt, server=server, was=launch.spec.artefact.tree)

    async def is_accepted() -> bool:
        installed = loader.installer.installed(name)
        return installed is not None and installed.tree == tree

    record = await settle(
        gate, question, None, attempt=attempt, asking=asking, settled=settled, is_moot=is_accepted
    )
    with contextlib.suppress(AlreadyClaimed):
        await in_background(loader, tree, _accept(gate, loader, name, tree, record))
    await wait(gate.desk, record.id, timeout_s=INSTALL_S, during=CARRIED_OUT)


async def _accept(gate: Gate, loader: Loader, name: str, tree: str, record: Approval) -> None:
    """Take the changed files for those of the server, as was allowed. Raises: AlreadyClaimed, Changed."""
    claimed = await claim(gate.desk, record.id, artefact=tree)
    async with finishing(gate, claimed):
        await loader.installer.accept(name, tree=tree)
        entry = dependency_accepted(name, tree, at=gate.desk.clock.now(), by=claimed.decided_by)
        await gate.desk.store.audit.record(entry)
    await withdraw_same(gate, record.subject, tree)


async def _ask_about_program(
    gate: Gate,
    launch: Launch,
    changed: ProgramChanged,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
) -> None:
    """Pin the programs as they were shown, if a person says so. Raises: NotApproved.

    Another call that waited for the same answer may do it instead.
    """
    question = _question(gate, changed, attempt, server=launch.spec.name, was=changed.was)
    workspace, spec = gate.session.workspace, launch.spec
    record = await settle(
        gate,
        question,
        None,
        attempt=attempt,
        asking=asking,
        settled=settled,
        is_moot=lambda: are_accepted(gate.desk, workspace, spec, changed),
    )
    with contextlib.suppress(AlreadyClaimed):
        claimed = await claim(gate.desk, record.id, artefact=changed.tree)
        async with finishing(gate, claimed):
            await accept_programs(gate.desk, workspace, spec, changed, by=claimed.decided_by)
        await withdraw_same(gate, record.subject, changed.tree)
    await wait(gate.desk, record.id, timeout_s=CARRY_S, during=CARRIED_OUT)


def _question(gate: Gate, changed: ArtefactChanged, attempt: Attempt, *, server: str, was: str) -> Question:
    tool = str(attempt.tool)
    return Question(
        session=gate.session,
        tool=tool,
        arguments={
            "server": server,
            "files": changed.files,
            "was": was,
            "now": changed.tree,
            **call_facts(tool, attempt.arguments),
        },
        subject=Subject.INTEGRITY_CHANGED,
        artefact=changed.tree,
        deciders=PERSON_ONLY,
    )
