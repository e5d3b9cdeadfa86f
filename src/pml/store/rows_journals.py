"""Rows of code that runs and of its steps to values and back. Column order is that of the schema."""

import json

import msgspec

from pml.core.approvals import OwnerId
from pml.core.journal import CodeRun, Step
from pml.core.sandbox import Fault, Language
from pml.store.database import Row, Value
from pml.store.rows import at_micros, micros, spell


def code_run_values(run: CodeRun) -> tuple[Value, ...]:
    return (
        run.id,
        run.root,
        run.principal,
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
        tool=row[3],
        offered=bool(row[4]),
        language=Language(row[5]),
        export=row[6],
        artefact=row[7],
        covered=frozenset(json.loads(row[8])),
        source=row[9],
        seed=row[10],
        started_at=at_micros(row[11]),
        taken=row[12],
        owner=None if row[13] is None else OwnerId(row[13]),
        arguments=json.loads(row[14]),
        args=json.loads(row[15]),
        metadata=row[16],
        code=row[17],
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
