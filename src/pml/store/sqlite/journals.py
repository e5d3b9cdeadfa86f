"""Journals of code in SQLite. They hold what tools answered, so none of it gets into the audit log.

`store.journals` says what is refused; the schema deletes inner runs, steps and dumps with their run.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pml.core.approvals.record import OwnerId, SessionId
from pml.core.code.journal import CodeRun, Kept, Step
from pml.core.errors import Unavailable
from pml.store.journals import (
    UNKNOWN_KEPT,
    check_code_run,
    check_finished,
    no_run,
    refused_finish,
    taken_by,
)
from pml.store.rows.mapper import micros, spell
from pml.store.rows.tables import CODE_RUNS, CODE_STEPS
from pml.store.sqlite.parts import Part, Reader
from pml.store.sqlite.writer import Transaction, Writer

WIPE_S: Final = 2.0  # what ended runs left is wiped once for all that end together


class SqliteJournals(Part):
    def __init__(self, reader: Reader, writer: Writer) -> None:
        super().__init__(reader, writer)
        self._to_wipe = False
        self._wiping: asyncio.TimerHandle | None = None

    async def start(self, run: CodeRun) -> None:
        check_code_run(run)
        values = CODE_RUNS.values(run)

        def operation(tx: Transaction) -> None:
            if run.root != run.id:
                _must_exist(tx, run.root)
            tx.run("insert_code_run", values)

        await self._writer.write(operation)

    async def take(self, run_id: str, owner: OwnerId, *, dead: Sequence[OwnerId]) -> Kept | None:
        def operation(tx: Transaction) -> Kept | None:
            # One statement looks and takes: of two processes that find the run left, one gets it.
            tx.run("take_code_run", (run_id, owner, spell(dead)))
            if tx.changed():
                return _kept(tx, run_id)
            held = tx.run("code_run_owner", (run_id,))
            if held:
                raise taken_by(run_id, held[0][0])
            return None

        return await self._writer.write(operation)

    async def leave(self, run_id: str, *, dump: bytes | None, dumped: int) -> None:
        def operation(tx: Transaction) -> None:
            tx.run("leave_code_run", (run_id,))
            if not tx.changed():
                return  # it was ended meanwhile
            tx.run("delete_code_dump", (run_id,))
            if dump is not None:
                tx.run("insert_code_dump", (run_id, dumped, dump))

        await self._writer.write(operation)

    async def get(self, run_id: str) -> CodeRun | None:
        rows = self._read.run("code_run", (run_id,))
        return CODE_RUNS.read(rows[0]) if rows else None

    async def begin(self, step: Step) -> None:
        def operation(tx: Transaction) -> None:
            _must_exist(tx, step.run_id)
            tx.run("begin_code_step", (step.run_id, step.number, step.what, step.digest))

        await self._writer.write(operation)

    async def take_back(self, run_id: str, number: int) -> None:
        await self._writer.write(lambda tx: tx.run("take_code_step_back", (run_id, number)))

    async def finish(self, step: Step) -> None:
        check_finished(step)
        values = CODE_STEPS.values(step)

        def operation(tx: Transaction) -> None:
            _must_exist(tx, step.run_id)
            tx.run("finish_code_step", values)
            if not tx.changed():
                raise refused_finish(
                    step, CODE_STEPS.read(tx.run("code_step", (step.run_id, step.number))[0])
                )

        await self._writer.write(operation)

    async def end(self, run_id: str) -> None:
        await self._writer.write(lambda tx: tx.run("delete_code_run", (run_id,)))
        self._to_wipe = True
        if self._wiping is None:
            self._wiping = asyncio.get_running_loop().call_later(WIPE_S, self._wipe_soon)

    def _wipe_soon(self) -> None:
        self._wiping = None
        self.wipe()

    async def begun_with(self, principal: str, tool: str) -> Sequence[CodeRun]:
        return [CODE_RUNS.read(row) for row in self._read.run("code_runs_begun_with", (principal, tool))]

    async def begun_in(self, session_id: SessionId) -> Sequence[str]:
        return [row[0] for row in self._read.run("code_runs_begun_in", (session_id,))]

    async def owners(self) -> Sequence[OwnerId]:
        return [OwnerId(row[0]) for row in self._read.run("owners_of_code_runs")]

    async def forget(self, *, older_than: datetime, dead: Sequence[OwnerId]) -> int:
        which = (micros(older_than), spell(dead), micros(older_than - UNKNOWN_KEPT))

        def operation(tx: Transaction) -> int:
            over = [row[0] for row in tx.run("over_code_runs", which)]
            tx.run("delete_code_runs", (spell(over),))
            return len(over)

        count = 0
        if self._read.run("over_code_runs", which):
            count = await self._writer.write(operation)
            self._to_wipe = True
        self.wipe()
        return count

    def wipe(self) -> None:
        """Empty the write-ahead log of what ended runs left there; while others use it, the next time.

        The database itself forgets at once, by `secure_delete`.
        """
        if self._wiping is not None:
            self._wiping.cancel()
            self._wiping = None
        if self._to_wipe:
            with contextlib.suppress(Unavailable):
                self._to_wipe = bool(self._read.run("empty_wal")[0][0])


def _must_exist(tx: Transaction, run_id: str) -> None:
    if not tx.run("code_run_exists", (run_id,)):
        raise no_run(run_id)


def _kept(tx: Transaction, run_id: str) -> Kept:
    run = CODE_RUNS.read(tx.run("code_run", (run_id,))[0])
    steps = [CODE_STEPS.read(row) for row in tx.run("code_steps", (run_id,))]
    for dumped, dump in tx.run("code_dump", (run_id,)):
        return Kept(run=run, steps=steps, dump=dump, dumped=dumped)
    return Kept(run=run, steps=steps)
