"""Rows of code that runs and of its steps to values and back. Column order is that of the schema."""

import json

import msgspec

from pml.core.approvals import OwnerId, SessionId
from pml.core.journal import CodeRun, Step
from pml.core.sandbox import Fault, Language
from pml.store.database import Row, Value
from pml.store.rows import at_micros, micros, spell


def code_run_values(run: CodeRun) -> tuple[Value, ...]:
    return (
        run.id,
        run.root,
        run.principal,
        run.session_id,
        run.tool,
        int(run.offered),
        run.language,
        run.export,
        run.artefact,
        spell(sorted(run.covered)),
        run.source,
        run.seed,
        micros(run.started_at),
        run.taken,
        run.owner,
        spell(run.arguments),
        spell(run.args),
        run.metadata,
        run.code,
    )


def code_run_of(row: Row) -> CodeRun:
    return CodeRun(
        id=row[0],
        root=row[1],
        principal=row[2],
        session_id=SessionId(row[3]),
        tool=row[4],
        offered=bool(row[5]),
        language=Language(row[6]),
        export=row[7],
        artefact=row[8],
        covered=frozenset(json.loads(row[9])),
        source=row[10],
        seed=row[11],
        started_at=at_micros(row[12]),
        taken=row[13],
        owner=None if row[14] is None else OwnerId(row[14]),
        arguments=json.loads(row[15]),
        args=json.loads(row[16]),
        metadata=row[17],
        code=row[18],
    )


def step_values(step: Step) -> tuple[Value, ...]:
    return (
        step.run_id,
        step.number,
        step.what,
        step.digest,
        step.place,
        step.at_ms,
        None if step.fault is None else msgspec.json.encode(step.fault).decode(),
        step.value,
    )


def step_of(row: Row) -> Step:
    return Step(
        run_id=row[0],
        number=row[1],
        what=row[2],
        digest=row[3],
        place=row[4],
        at_ms=row[5],
        fault=None if row[6] is None else msgspec.json.decode(row[6], type=Fault),
        value=row[7],
    )
