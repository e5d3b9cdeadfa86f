"""What the database itself refuses, whoever writes to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
import pytest_asyncio

from pml.store.connection import open_database
from pml.store.database import Database

SESSION = (
    "INSERT INTO sessions (id, name, principal, workspace, is_agent, started_at, role, tools, waits, ttl_s)"
    " VALUES ('s', 'n', 'p', 'w', 1, 0, {role}, {tools}, {waits}, {ttl_s})"
)
TOKEN = (
    "INSERT INTO tokens (id, role, name, hash, session_id, created_at)"
    " VALUES ({id}, {role}, 'n', {hash}, {session_id}, 0)"
)
RUN = (
    "INSERT INTO runs (session_id, ordered, owner, state, turns, cost_usd, told_seq, started_at, ended_at)"
    " VALUES ('s', {ordered}, 'o', {state}, {turns}, {cost_usd}, 0, 0, {ended_at})"
)
MESSAGE = "INSERT INTO messages (session_id, kind, text, at) VALUES ('s', {kind}, 't', 0)"
SOUND = {
    SESSION: {"role": "'child'", "tools": "'[]'", "waits": "1", "ttl_s": "20"},
    TOKEN: {"id": "'t'", "role": "'child'", "hash": "'h'", "session_id": "'s'"},
    RUN: {
        "ordered": "'{}'",
        "state": "'running'",
        "turns": "0",
        "cost_usd": "0.5",
        "ended_at": "NULL",
    },
    MESSAGE: {"kind": "'text'"},
}


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("statement", list(SOUND), ids=["session", "token", "run", "message"])
async def test_a_sound_row_is_taken(database: Database, statement: str) -> None:
    database.run(statement.format(**SOUND[statement]))

    assert database.changed() == 1


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        (SESSION, {"role": "'root'"}),
        (SESSION, {"role": "NULL"}),
        (SESSION, {"tools": "'{}'"}),
        (SESSION, {"tools": "'null'"}),
        (SESSION, {"waits": "2"}),
        (SESSION, {"waits": "NULL"}),
        (SESSION, {"ttl_s": "0"}),
        (TOKEN, {"id": "''"}),
        (TOKEN, {"role": "'root'"}),
        (TOKEN, {"hash": "''"}),
        (TOKEN, {"hash": "NULL"}),
        (TOKEN, {"session_id": "''"}),
        (TOKEN, {"role": "'person'"}),
        (RUN, {"ordered": "'[]'"}),
        (RUN, {"state": "'paused'"}),
        (RUN, {"turns": "-1"}),
        (RUN, {"cost_usd": "-0.5"}),
        (RUN, {"state": "'done'"}),
        (RUN, {"ended_at": "1"}),
        (MESSAGE, {"kind": "'shout'"}),
    ],
)
async def test_a_row_that_makes_no_sense_is_refused(
    database: Database, statement: str, wrong: dict[str, str]
) -> None:
    with pytest.raises(apsw.ConstraintError):
        database.run(statement.format(**SOUND[statement] | wrong))
