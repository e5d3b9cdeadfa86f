"""Runs of code and their steps, and how the tests of every store look into a journal."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from pml.core.approvals.record import Approval, OwnerId, SessionId
from pml.core.code.journal import CodeRun, Kept, Step
from pml.core.code.sandbox import Fault, Language
from pml.core.ports.store import Store
from tests.builders import NOW

MINE: Final = OwnerId("mine")
THEIRS: Final = OwnerId("theirs")
RUN: Final = "run-1"


def make_code_run(
    run_id: str = RUN,
    *,
    root: str | None = None,
    principal: str = "ana:/repo/shop",
    tool: str = "execute",
    started_at: datetime = NOW,
    owner: OwnerId | None = None,
) -> CodeRun:
    return CodeRun(
        id=run_id,
        root=run_id if root is None else root,
        principal=principal,
        session_id=SessionId("session-1"),
        tool=tool,
        arguments={"code": "return 1"},
        offered=True,
        language=Language.TYPESCRIPT,
        code="return 1",
        export=None,
        args={},
        seed=bytes(range(32)),
        started_at=started_at,
        owner=owner,
    )


def begun(number: int = 0, *, run_id: str = RUN) -> Step:
    return Step(run_id=run_id, number=number, what="fs:read", digest=f"sha256:{number}")


def finished(
    number: int = 0,
    *,
    place: int,
    value: bytes | None = b"null",
    fault: Fault | None = None,
    run_id: str = RUN,
) -> Step:
    return msgspec.structs.replace(
        begun(number, run_id=run_id), place=place, value=value, fault=fault, at_ms=1_793_000_000_000 + place
    )


async def started(store: Store, *runs: CodeRun) -> None:
    for run in runs or (make_code_run(),):
        await store.journals.start(run)


async def taken(store: Store, run_id: str = RUN, *, dead: Sequence[OwnerId] = ()) -> Kept:
    kept = await store.journals.take(run_id, MINE, dead=dead)
    assert kept is not None
    return kept


async def steps_of(store: Store, run_id: str = RUN) -> Sequence[Step]:
    """Return the run's steps, leaving it with nobody."""
    kept = await taken(store, run_id, dead=await store.journals.owners())
    await store.journals.leave(run_id, dump=kept.dump, dumped=kept.dumped)
    return kept.steps


def asked_by(record: Approval, run_id: str | None) -> Approval:
    return msgspec.structs.replace(record, run_id=run_id)
