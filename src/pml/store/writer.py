"""All writes of one process, in batches: what arrives in one loop turn is one transaction.

Each operation runs in a savepoint, so one that is refused changes nothing and disturbs no other. A
batch with a decision or a claim in it is committed with FULL sync; every caller returns after the commit.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import apsw

from pml.core.approvals import ApprovalId
from pml.core.audit import Entry, Head, link_hash
from pml.core.errors import Conflict, Unavailable
from pml.store.chains import Chain, take_chain
from pml.store.connection import BUSY_S, retry_s
from pml.store.database import Database, Row, Value
from pml.store.failures import unavailable
from pml.store.queries import queries
from pml.store.rows import audit_values

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

    def changed(self) -> int:
        return self._database.changed()

    def record(self, entry: Entry) -> None:
        """Append `entry` to this process's audit chain."""
        n = self.head.n + 1
        hashed = link_hash(self.head.chain, n, entry, self.head.hash)
        self.run("insert_audit", audit_values(self.head.chain, n, entry, self.head.hash, hashed))
        self.head = Head(chain=self.head.chain, n=n, hash=hashed)
        if entry.approval_id is not None:
            self.touched.append(ApprovalId(entry.approval_id))


class _Job(NamedTuple):
    operation: Callable[[Transaction], Any]
    durable: bool
    is_one_insert: bool
    done: asyncio.Future[Any]


class Writer:
    def __init__(
        self, home: Path, database: Database, after_commit: Callable[[Sequence[ApprovalId]], None]
    ) -> None:
        self._home = home
        self._database = database
        self._after_commit = after_commit
        self._jobs: list[_Job] = []
        self._turn: asyncio.Handle | None = None
        self._give_up_at: float | None = None
        self._chain: Chain | None = None
        self._full_sync = False

    async def write(
        self, operation: Callable[[Transaction], T], *, durable: bool = False, is_one_insert: bool = False
    ) -> T:
        """Run `operation` in the next transaction and return its result once that is committed.

        One insert fails whole or not at all, and is spared the savepoint: a third of its cost. Raises: what the operation raises (nothing of it is kept), Unavailable.
        """
        loop = asyncio.get_running_loop()
        job = _Job(operation, durable, is_one_insert, loop.create_future())
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._give_up_at = loop.time() + BUSY_S
            self._turn = loop.call_soon(self._flush)
        return await job.done

    def close(self) -> None:
        """Release the chain. Whoever still waits for a turn learns that nothing was written."""
        if self._turn is not None:
            self._turn.cancel()
        jobs, self._jobs = self._jobs, []
        self._fail(jobs, Unavailable("the store was closed; nothing was changed"))
        if self._chain is not None:
            self._chain.close()
            self._chain = None

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        jobs = [job for job in self._jobs if not job.done.cancelled()]
        durable = any(job.durable for job in jobs)
        try:
            self._sync(full=durable)
            self._begin()
        except apsw.BusyError as exc:
            if self._give_up_at is None or loop.time() < self._give_up_at:
                self._turn = loop.call_later(retry_s(), self._flush)
                return
            self._jobs = []
            self._fail(jobs, exc)
            return
        except apsw.Error as exc:
            self._jobs = []
            self._fail(jobs, exc)
            return
        self._jobs = []
        self._run(jobs)

    def _run(self, jobs: list[_Job]) -> None:
        """Run `jobs` in the open transaction, commit, and tell each its result."""
        try:
            if self._chain is None:
                self._chain = take_chain(self._home, self._database)
            transaction = Transaction(self._database, self._chain.head)
            results = [(job, self._attempt(job, transaction)) for job in jobs]
            self._database.script("COMMIT")
        except Exception as exc:  # whatever it is: a caller must not wait for ever
            with contextlib.suppress(apsw.Error):
                if self._database.in_transaction:
                    self._database.script("ROLLBACK")
            self._fail(jobs, exc)
            return
        with contextlib.suppress(OSError):  # a head that lags behind is sound; the commit has happened
            self._chain.keep(transaction.head)
        for job, (result, error) in results:
            if job.done.cancelled():
                continue
            if error is None:
                job.done.set_result(result)
            else:
                job.done.set_exception(error)
        if transaction.touched:
            self._after_commit(transaction.touched)

    def _attempt(self, job: _Job, transaction: Transaction) -> tuple[Any, Exception | None]:
        head, touched = transaction.head, len(transaction.touched)
        if not job.is_one_insert:
            self._database.script("SAVEPOINT job")
        try:
            result = job.operation(transaction)
        except apsw.ConstraintError as exc:
            error: Exception = Conflict(f"the database refuses it: {exc}")
            error.__cause__ = exc
        except apsw.Error:
            raise
        except Exception as exc:
            error = exc
        else:
            if not job.is_one_insert:
                self._database.script("RELEASE job")
            return result, None
        if not job.is_one_insert:
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

    def _fail(self, jobs: list[_Job], exc: Exception) -> None:
        for job in jobs:
            if job.done.done():
                continue
            if isinstance(exc, apsw.Error | OSError):
                error = unavailable(exc, self._database.path)
                error.__cause__ = exc
                job.done.set_exception(error)
            else:
                job.done.set_exception(exc)
