"""What the database itself refuses, whoever writes to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
import pytest_asyncio

from pml.store.sqlite.connection import open_database
from pml.store.sqlite.database import Database

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
CODE_RUN = (
    "INSERT INTO code_runs (id, root, principal, session_id, tool, offered, language, covered, source, seed,"
    " started_at, taken, owner, arguments, args, code) VALUES ({id}, {root}, 'p', 's', 't', {offered},"
    " {language}, {covered}, '', x'00', 0, {taken}, {owner}, {arguments}, {args}, 'code')"
)
STEP = (
    "INSERT INTO code_steps (run_id, number, what, digest, place, at_ms, fault, value)"
    " VALUES ({run_id}, {number}, 'w', 'd', {place}, {at_ms}, {fault}, {value})"
)
DUMP = "INSERT INTO code_dumps (run_id, dumped, dump) VALUES ({run_id}, {dumped}, {dump})"
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
    CODE_RUN: {
        "id": "'r'",
        "root": "'r'",
        "offered": "1",
        "language": "'python'",
        "covered": "'[]'",
        "taken": "0",
        "owner": "NULL",
        "arguments": "'{}'",
        "args": "'null'",
    },
    STEP: {
        "run_id": "'known'",
        "number": "0",
        "place": "1",
        "at_ms": "2",
        "fault": "'{}'",
        "value": "x'00'",
    },
    DUMP: {"run_id": "'known'", "dumped": "0", "dump": "x''"},
}
NAMES = ["session", "token", "run", "message", "code run", "step", "dump"]


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database(tmp_path)
    opened.run(CODE_RUN.format(**SOUND[CODE_RUN] | {"id": "'known'", "root": "'known'"}))
    yield opened
    opened.close()


@pytest.mark.parametrize("statement", list(SOUND), ids=NAMES)
async def test_a_sound_row_is_taken(database: Database, statement: str) -> None:
    database.run(statement.format(**SOUND[statement]))

    assert database.changed() == 1


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        (SESSION, {"role": "'root'"}),
        (SESSION, {"role": "NULL"}),
        (SESSION, {"role": "'login'"}),
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
        (TOKEN, {"role": "'login'"}),
        (TOKEN, {"role": "'login'", "session_id": "NULL"}),
        (RUN, {"ordered": "'[]'"}),
        (RUN, {"state": "'paused'"}),
        (RUN, {"turns": "-1"}),
        (RUN, {"cost_usd": "-0.5"}),
        (RUN, {"state": "'done'"}),
        (RUN, {"ended_at": "1"}),
        (MESSAGE, {"kind": "'shout'"}),
        (CODE_RUN, {"id": "''", "root": "''"}),
        (CODE_RUN, {"root": "'unknown'"}),
        (CODE_RUN, {"offered": "2"}),
        (CODE_RUN, {"language": "'cobol'"}),
        (CODE_RUN, {"covered": "'{}'"}),
        (CODE_RUN, {"taken": "-1"}),
        (CODE_RUN, {"owner": "''"}),
        (CODE_RUN, {"arguments": "'[]'"}),
        (CODE_RUN, {"args": "'{'"}),
        (STEP, {"run_id": "'unknown'"}),
        (STEP, {"number": "-1"}),
        (STEP, {"place": "-1"}),
        (STEP, {"place": "NULL"}),
        (STEP, {"at_ms": "NULL"}),
        (STEP, {"place": "NULL", "at_ms": "NULL", "fault": "NULL"}),
        (STEP, {"place": "NULL", "at_ms": "NULL", "value": "NULL"}),
        (STEP, {"fault": "'[]'"}),
        (DUMP, {"run_id": "'unknown'"}),
        (DUMP, {"dumped": "-1"}),
        (DUMP, {"dump": "NULL"}),
    ],
)
async def test_a_row_that_makes_no_sense_is_refused(
    database: Database, statement: str, wrong: dict[str, str]
) -> None:
    with pytest.raises(apsw.ConstraintError):
        database.run(statement.format(**SOUND[statement] | wrong))
