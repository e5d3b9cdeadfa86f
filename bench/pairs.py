"""Durable ask+decide pairs per second, beside bare SQLite that does the same writes with the same sync."""

import asyncio
import random
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import apsw

from bench.contexts import ask_and_decide, bench_context, bench_session, busy_writers
from bench.table import Row
from pml.store.sqlite.database import Database, Value

_INSERT: Final = (
    "INSERT INTO approvals (id, session_id, subject, tool_name, tool_input, tool_use_id, digest,"
    " deciders, ttl_s, created_at, expires_at, owner, status, version)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = (
    "UPDATE approvals SET status = ?, decided_by = ?, scope = ?, resolved_at = ?, version = ?"
    " WHERE id = ? AND version = ?"
)
_INSERT_LINK: Final = (
    "INSERT INTO audit (chain, n, prev, hash, at, kind, approval_id, session_id, tool, detail)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def rows(*, quick: bool = False) -> list[Row]:
    pairs = 50 if quick else 1000
    found: list[Row] = []
    for label, in_flight, neighbours in (
        ("one at a time", 1, 0),
        ("16 at a time", 16, 0),
        ("one at a time, beside 4 busy writers", 1, 4),
    ):
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            count = pairs // 5 if neighbours else pairs
            asyncio.run(_ours(home, 1, 1))
            with busy_writers(home, neighbours) if neighbours else nullcontext():
                ours = asyncio.run(_ours(home, count, in_flight))
                bare = _bare(home / "pml" / "pml.db", count)
        bar = "≥ 0.33x" if in_flight == 1 else "stated"
        row = (
            f"ask+decide pairs, {label}",
            f"{ours:,.0f}/s",
            f"bare SQLite {bare:,.0f}/s",
            f"{ours / bare:.2f}x",
            bar,
        )
        found.append(row)
    return found


async def _ours(home: Path, pairs: int, in_flight: int) -> float:
    async with bench_context(home) as context:
        sessions = [await bench_session(context, home, f"s{n}") for n in range(in_flight)]
        numbers = iter(range(pairs))
        start = time.perf_counter()

        async def work(n: int) -> None:
            for number in numbers:
                await ask_and_decide(context, sessions[n], number)

        await asyncio.gather(*(work(n) for n in range(in_flight)))
        return pairs / (time.perf_counter() - start)


def _bare(path: Path, pairs: int) -> float:
    """Insert the row and its audit entry at NORMAL, update it with another entry at FULL, as we do."""
    database = Database(str(path))
    chain, n = f"bare-{uuid.uuid4()}", 0
    body = '{"repository":"acme/shop","title":"issue","body":"' + "It breaks. " * 20 + '"}'
    start = time.perf_counter()
    for _ in range(pairs):
        approval_id = str(uuid.uuid4())
        call = (approval_id, "bare", "tool_call", "github:create_issue", body, approval_id)
        row = (*call, "sha256:" + "0" * 64, "person", 300, 0, 0, "me", "pending", 1)
        n += 1
        entry = (
            "0" * 64,
            "0" * 64,
            0,
            "approval.requested",
            approval_id,
            "bare",
            "github:create_issue",
            "{}",
        )

        def insert(row: tuple[Value, ...] = row, link: tuple[Value, ...] = (chain, n, *entry)) -> None:
            database.run(_INSERT, row)
            database.run(_INSERT_LINK, link)

        _commit(database, "NORMAL", insert)
        n += 1
        by = '{"kind":"person","id":"bench","channel":"terminal"}'
        change = ("allowed", by, "once", 0, 2, approval_id, 1)

        def update(change: tuple[Value, ...] = change, link: tuple[Value, ...] = (chain, n, *entry)) -> None:
            database.run(_UPDATE, change)
            database.run(_INSERT_LINK, link)

        _commit(database, "FULL", update)
    return pairs / (time.perf_counter() - start)


def _commit(database: Database, sync: str, work: Callable[[], None]) -> None:
    database.script(f"PRAGMA synchronous = {sync}")
    while True:
        try:
            database.script("BEGIN IMMEDIATE")
            break
        except apsw.BusyError:
            time.sleep(random.uniform(0.0005, 0.0015))
    work()
    database.script("COMMIT")
