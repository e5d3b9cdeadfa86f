"""Rows by name: what the mappers and the schema agree on, and what a mapper refuses."""

from pathlib import Path

import msgspec
import pytest

from pml.core.approvals.reasons import AskRule
from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, Role, Scope, State
from pml.core.audit.chain import Link
from pml.core.audit.entries import Entry
from pml.core.sessions.process import Process
from pml.core.values import Json
from pml.store.rows.mapper import Mapper, micros
from pml.store.rows.tables import APPROVALS, BY_NAME, LINKS, SESSIONS, link_of
from pml.store.sqlite.connection import open_database
from tests.builders import later, make_approval, make_session

TABLES = {
    name: "audit" if name == "links" else name
    for name in BY_NAME
    if name not in ("held", "contents", "entries")  # a part of the columns of approvals, trusts and links
}
ME = Decider(kind=DeciderKind.PERSON, id="ada", channel=Channel.TERMINAL)


@pytest.mark.parametrize(("name", "table"), TABLES.items())
async def test_a_mapper_has_exactly_the_columns_of_its_table(tmp_path: Path, name: str, table: str) -> None:
    database = await open_database(tmp_path)

    columns = database.run("SELECT name FROM pragma_table_info(?)", (table,))

    assert {row[0] for row in columns} == set(BY_NAME[name].names)
    database.close()


def full_approval() -> Approval:
    return msgspec.structs.replace(
        make_approval(),
        tool_input={"b": [1.5, None, 2**70], "a": "é"},
        definition="sha256:d",
        artefact="sha256:a",
        rule=AskRule(entry="*", file="f", line=3, foreign=True),
        deciders=frozenset({Role.PERSON, Role.MODEL}),
        run_id="run",
        cwd="/tmp",
        status=State.COMPLETED,
        decided_by=ME,
        scope=Scope.SESSION,
        response_message="yes",
        updated_input={},
        reason="because",
        abandoned_at=later(1),
        resolved_at=later(2),
        ended_at=later(3),
        version=4,
    )


@pytest.mark.parametrize("record", [make_approval(), full_approval()], ids=["empty", "full"])
def test_an_approval_reads_back_as_it_was_written(record: Approval) -> None:
    assert APPROVALS.read(APPROVALS.values(record)) == record


def test_the_approval_that_is_tried_has_every_field_set() -> None:
    unset = [name for name in Approval.__struct_fields__ if getattr(full_approval(), name) is None]

    assert unset == []


def test_only_the_columns_of_what_changed_are_written() -> None:
    before = make_approval()
    after = msgspec.structs.replace(before, status=State.DENIED, decided_by=ME, ended_at=later(1), version=2)

    assert APPROVALS.changes(before, after) == {
        "status": "denied",
        "decided_by": '{"kind":"person","id":"ada","channel":"terminal"}',
        "ended_at": micros(later(1)),
        "version": 2,
    }


def test_a_struct_with_columns_of_its_own_is_there_or_not() -> None:
    bare, held = make_session(), msgspec.structs.replace(make_session(), process=Process(pid=7, started=1.5))

    assert SESSIONS.read(SESSIONS.values(bare)) == bare
    assert SESSIONS.read(SESSIONS.values(held)) == held
    assert SESSIONS.changes(bare, held) == {"pid": 7, "process_started": 1.5}
    assert SESSIONS.changes(held, bare) == {"pid": None, "process_started": None}


@pytest.mark.parametrize(
    ("column", "damaged"),
    [("at", None), ("at", 2**62), ("detail", "{"), ("detail", None), ("by_kind", "nobody")],
)
def test_a_link_whose_entry_makes_no_sense_keeps_its_place_and_fits_no_hash(
    column: str, damaged: object
) -> None:
    link = Link(
        seq=7, chain="0001", n=5, entry=Entry(at=later(1), kind="call.allowed", by=ME), prev="a", hash="b"
    )
    row = dict(zip(LINKS.names, LINKS.values(link), strict=True))
    assert link_of(tuple(row.values())) == link

    read = link_of(tuple((row | {column: damaged}).values()))

    assert read == msgspec.structs.replace(link, entry=read.entry)
    assert read.entry.kind == "unreadable"


class _Two(msgspec.Struct):
    name: str
    value: Json


class _Unknown(msgspec.Struct):
    name: str
    value: complex


def test_none_in_json_is_a_value_and_not_null() -> None:
    mapper = Mapper(_Two)

    assert mapper.values(_Two("a", None)) == ("a", "null")
    assert mapper.read(("a", "null")) == _Two("a", None)


def test_a_type_that_no_column_can_hold_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="no column can hold <class 'complex'>"):
        Mapper(_Unknown)


def test_a_name_for_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="_Two has no other"):
        Mapper(_Two, other="column")
