"""The writer: all writes of one process, in batches; what arrives in one loop turn is one transaction.

Each operation runs in a savepoint, so one that is refused changes nothing and disturbs no other. A
batch with a decision or a claim in it is committed with FULL sync; every caller returns after the commit.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import apsw

from pml.core.approvals.record import ApprovalId
from pml.core.audit.chain import Head, link_hash
from pml.core.audit.entries import Entry
from pml.core.errors import Conflict, Unavailable
from pml.store.rows.tables import link_values
from pml.store.sqlite.chains import Chain, take_chain
from pml.store.sqlite.connection import BUSY_S, retry_s
from pml.store.sqlite.database import Database, Row, Value
from pml.store.sqlite.failures import unavailable
from pml.store.sqlite.queries import queries

T = TypeVar("T")

# A sibling's commit takes about 0.3 ms. The loop's own timers wake at whole milliseconds, so waiting
# there for it halves the throughput beside busy writers; standing still this long is one commit's time.
_SHORT_TRIES: Final = 4
_SHORT_S: Final = (0.00005, 0.00015)


class Transaction:
    """What an operation can do: run named queries and record what happened."""

    def __init__(self, database: Database, head: Head) -> None:
        self._database = database
        self.head = head
        self.touched: list[ApprovalId] = []

    def run(self, query: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._database.run(queries()[query], values)

    def statement(self, statement: str, values: Sequence[Value]) -> list[Row]:
        return self._database.run(statement, values)

    def changed(self) -> int:
        return self._database.changed()

    def record_all(self, entries: Sequence[Entry]) -> None:
        """Append `entries`, which concern no approval, to this process's audit chain, all at once."""
        # Each hash takes in the one before, so links are made in order; written they are in one statement.
        rows: list[Sequence[Value]] = []
        head = self.head
        for entry in entries:
            hashed = link_hash(head.chain, head.n + 1, entry, head.hash)
            rows.append(link_values(head.chain, head.n + 1, entry, head.hash, hashed))
            head = Head(chain=head.chain, n=head.n + 1, hash=hashed)
        if rows:
            self._database.run_many(queries()["insert_audit"], rows)
            self.head = head

    def record(self, entry: Entry) -> None:
        """Append `entry` to this process's audit chain."""
        n = self.head.n + 1
        hashed = link_hash(self.head.chain, n, entry, self.head.hash)
        self.run("insert_audit", link_values(self.head.chain, n, entry, self.head.hash, hashed))
        self.head = Head(chain=self.head.chain, n=n, hash=hashed)
        if entry.approval_id is not None:
            self.touched.append(ApprovalId(entry.approval_id))


class _Job(NamedTuple):
    operation: Callable[[Transaction], Any]
    durable: bool
    done: asyncio.Future[Any]


class Writer:
    def __init__(
        self, home: Path, database: Database, after_commit: Callable[[Sequence[ApprovalId]], None]
    ) -> None:
        self._home = home
        self._database = database
        self._after_commit = after_commit
        self._jobs: list[_Job] = []
        self._notes: list[Entry] = []
        self._noted: asyncio.Future[None] | None = None
        self._turn: asyncio.Handle | None = None
        self._give_up_at: float | None = None
        self._chain: Chain | None = None
        self._full_sync = False

    async def write(self, operation: Callable[[Transaction], T], *, durable: bool = False) -> T:
        """Run `operation` in the next transaction and return its result once that is committed.

        Raises: what the operation raises (nothing of it is kept), Unavailable.
        """
        loop = asyncio.get_running_loop()
        job = _Job(operation, durable, loop.create_future())
        self._await_turn(loop)
        self._jobs.append(job)
        return await job.done

    def note(self, entry: Entry) -> "Noted":
        """Record `entry` in the next transaction; what is returned is done once that is committed.

        Awaiting it raises: Unavailable.
        """
        loop = asyncio.get_running_loop()
        self._await_turn(loop)
        self._notes.append(entry)
        if self._noted is None:
            self._noted = loop.create_future()
            self._noted.add_done_callback(_look)
        return Noted(self._noted)

    def _await_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._jobs and not self._notes:
            self._give_up_at = loop.time() + BUSY_S
            self._turn = loop.call_soon(self._flush)

    def close(self) -> None:
        """Release the chain. Whoever still waits for a turn learns that nothing was written."""
        if self._turn is not None:
            self._turn.cancel()
        self._fail(self._take(), Unavailable("the store was closed; nothing was changed"))
        if self._chain is not None:
            self._chain.close()
            self._chain = None

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        durable = any(job.durable for job in self._jobs if not job.done.cancelled())
        try:
            self._sync(full=durable)
            self._begin()
        except apsw.BusyError as exc:
            # Nothing was taken from the lists yet: what arrives meanwhile joins the same transaction.
            if self._give_up_at is None or loop.time() < self._give_up_at:
                self._turn = loop.call_later(retry_s(), self._flush)
                return
            self._fail(self._take(), exc)
            return
        except apsw.Error as exc:
            self._fail(self._take(), exc)
            return
        self._run(self._take())

    def _take(self) -> "_Batch":
        jobs = [job for job in self._jobs if not job.done.cancelled()]
        batch = _Batch(jobs, self._notes, self._noted)
        self._jobs, self._notes, self._noted = [], [], None
        return batch

    def _run(self, batch: "_Batch") -> None:
        """Run the batch in the open transaction, commit, and tell each its result."""
        try:
            if self._chain is None:
                self._chain = take_chain(self._home, self._database)
            transaction = Transaction(self._database, self._chain.head)
            transaction.record_all(batch.notes)
            after_notes = transaction.head
            results = [(job, self._attempt(job, transaction)) for job in batch.jobs]
            self._database.script("COMMIT")
        except Exception as exc:  # whatever it is: a caller must not wait for ever
            with contextlib.suppress(apsw.Error):
                if self._database.in_transaction:
                    self._database.script("ROLLBACK")
            self._fail(batch, exc)
            return
        with contextlib.suppress(OSError):  # a head that lags behind is sound; the commit has happened
            self._chain.keep(transaction.head)
        if batch.noted is not None:
            batch.noted.set_result(None)
        for job, (result, error) in results:
            if job.done.cancelled():
                continue
            if error is None:
                job.done.set_result(result)
            else:
                job.done.set_exception(error)
        if transaction.head != after_notes:  # notes wake nobody: they tell of calls that nobody waits for
            self._after_commit(transaction.touched)

    def _attempt(self, job: _Job, transaction: Transaction) -> tuple[Any, Exception | None]:
        head, touched = transaction.head, len(transaction.touched)
        self._database.script("SAVEPOINT job")
        try:
            result = job.operation(transaction)
        except apsw.ConstraintError as exc:
            error: Exception = Conflict(f"the database refuses it: {exc}")
            error.__cause__ = exc
        # The database is in trouble, not this operation: nothing of the batch may be told as done.
        except apsw.Error:
            raise
        except Exception as exc:
            error = exc
        else:
            self._database.script("RELEASE job")
            return result, None
        self._database.script("ROLLBACK TO job; RELEASE job")
        transaction.head = head
        del transaction.touched[touched:]
        return None, error

    def _begin(self) -> None:
        """Begin a transaction, standing by for as long as a sibling's commit usually takes."""
        for _ in range(_SHORT_TRIES):
            try:
                self._database.script("BEGIN IMMEDIATE")
            except apsw.BusyError:
                time.sleep(random.uniform(*_SHORT_S))
            else:
                return
        self._database.script("BEGIN IMMEDIATE")

    def _sync(self, *, full: bool) -> None:
        if full != self._full_sync:
            self._database.script(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full_sync = full

    def _fail(self, batch: "_Batch", exc: Exception) -> None:
        error: Exception = exc
        if isinstance(exc, apsw.Error | OSError):
            error = unavailable(exc, self._database.path)
            error.__cause__ = exc
        waiting = [job.done for job in batch.jobs if not job.done.done()]
        for done in waiting if batch.noted is None else [*waiting, batch.noted]:
            done.set_exception(error)


class Noted:
    """The wait for a commit that several share: giving it up does not give it up for the others."""

    __slots__ = ("_done",)

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self._done = done

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done.done():
            yield from asyncio.shield(self._done).__await__()
        self._done.result()


class _Batch(NamedTuple):
    """What one transaction holds; `noted` is the one future of all its notes."""

    jobs: list[_Job]
    notes: list[Entry]
    noted: "asyncio.Future[None] | None"


def _look(done: "asyncio.Future[None]") -> None:
    """Look at a failure, so that one whose callers are all gone is not complained about."""
    if not done.cancelled():
        done.exception()
