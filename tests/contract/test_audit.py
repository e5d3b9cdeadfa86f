"""What every store does with the audit log."""

import asyncio

import msgspec
import pytest

from pml.core.approvals.events import Attached, Completed, Expired
from pml.core.audit.chain import Head, Link
from pml.core.audit.entries import Entry, cleaned, entry_of
from pml.core.errors import PmlError
from pml.core.ports.queries import AuditQuery
from pml.core.ports.store import Store
from pml.core.values import canonical
from tests.builders import (
    NOW,
    OWNER,
    PARENT,
    PERSON,
    TTL_S,
    allow,
    claim,
    deny,
    later,
    make_approval,
    make_grant,
    make_intent,
    make_session,
    make_trust,
    make_workflow,
    uuid,
)
from tests.chains import verify
from tests.contract.steps import CALL, make_pin
from tests.promises import promise

SECRET = "hunter2-and-more"


def entry(n: int) -> Entry:
    return Entry(at=later(n), kind=f"test.{n}", detail={"n": n})


async def links_of(store: Store) -> list[Link]:
    return [link async for link in store.audit.links()]


async def kept_of(store: Store) -> dict[str, Head]:
    return {head.chain: head for head in await store.audit.heads_kept()}


async def problems_of(store: Store) -> list[object]:
    return [*verify(await links_of(store), await kept_of(store))]


async def live_a_little(store: Store) -> None:
    """Do something of everything, some of it refused."""
    await store.sessions.start(make_session())
    done = await store.approvals.ask(make_approval(1, tool_input={"password": SECRET}), max_pending=20)
    edited = allow(done, message=SECRET, updated_input={"password": SECRET + "!"})
    allowed = await store.approvals.advance(done.id, edited)
    await store.approvals.advance(done.id, claim(allowed))
    await store.approvals.advance(done.id, Completed(at=NOW))
    refused = await store.approvals.ask(make_approval(2), max_pending=20)
    await store.approvals.ask(make_approval(2, created_at=later(1)), max_pending=20)
    await store.approvals.advance(refused.id, deny(refused, message=SECRET))
    with pytest.raises(PmlError):
        await store.approvals.advance(refused.id, allow(refused))
    waiting = await store.approvals.ask(make_approval(3), max_pending=20)
    call = msgspec.structs.replace(CALL, arguments={"password": SECRET})
    workflow = make_workflow(approval_id=waiting.id)
    await store.workflows.issue(msgspec.structs.replace(workflow, call=call))
    await store.workflows.consume(uuid(1), at=NOW)
    with pytest.raises(PmlError):
        await store.approvals.ask(make_approval(4), max_pending=1)
    await store.approvals.advance(waiting.id, Expired(at=later(TTL_S)))
    await store.grants.add(make_grant(1))
    await store.grants.add(make_grant(2))
    await store.grants.revoke(uuid(1), at=NOW, by=PERSON)
    await store.trusts.add(make_trust())
    await store.trusts.remove(make_trust().path, at=NOW, by=PERSON)
    await store.intents.add(make_intent())
    await store.intents.close(uuid(1), at=NOW)
    await store.pins.put(make_pin(), by=None)
    with pytest.raises(PmlError):
        await store.pins.put(make_pin(SECRET), by=None)
    await store.pins.put(make_pin(SECRET), by=PERSON)
    await store.audit.record(entry(1))
    await store.sessions.end(make_session().id, at=NOW)


async def test_every_step_of_an_approval_is_an_entry_in_its_order(store: Store) -> None:
    asked = await store.approvals.ask(make_approval(), max_pending=20)
    again = Attached(at=later(1), owner=OWNER)
    attached = await store.approvals.ask(make_approval(created_at=later(1)), max_pending=20)
    allowed = await store.approvals.advance(asked.id, allow(asked, at=later(2)))
    taken = await store.approvals.advance(asked.id, claim(allowed, at=later(3)))
    completed = await store.approvals.advance(asked.id, Completed(at=later(4)))

    assert [link.entry for link in await links_of(store)] == [
        entry_of(asked, None),
        entry_of(attached, again),
        entry_of(allowed, allow(asked, at=later(2))),
        entry_of(taken, claim(allowed, at=later(3))),
        entry_of(completed, Completed(at=later(4))),
    ]


async def test_the_log_verifies_after_a_bit_of_everything(store: Store) -> None:
    await live_a_little(store)

    links = await links_of(store)
    assert len(links) > 15
    assert verify(links, await kept_of(store)) == []


async def test_the_heads_kept_apart_are_where_the_chains_end(store: Store) -> None:
    assert await store.audit.heads_kept() == []
    await live_a_little(store)

    ends = {link.chain: Head(chain=link.chain, n=link.n, hash=link.hash) for link in await links_of(store)}
    assert await kept_of(store) == ends


@promise("audit:tamper-shows")
async def test_the_heads_kept_apart_show_a_tail_that_was_cut_off(store: Store) -> None:
    await live_a_little(store)
    links, kept = await links_of(store), await kept_of(store)

    for length in range(len(links)):
        assert verify(links[:length], kept) != []


async def test_writers_at_once_make_one_unbroken_chain(store: Store) -> None:
    await asyncio.gather(*(store.audit.record(entry(n)) for n in range(50)))

    assert len(await links_of(store)) == 50
    assert await problems_of(store) == []


@promise("audit:payloads-can-go")
async def test_payloads_can_be_deleted_and_the_log_still_verifies(store: Store) -> None:
    await live_a_little(store)
    before = await links_of(store)

    assert await store.approvals.cleanup_old(older_than=later(TTL_S + 1), at=later(9)) == 3

    after = await links_of(store)
    assert after[:-1] == before
    assert after[-1].entry == cleaned(3, at=later(9), older_than=later(TTL_S + 1))
    assert await problems_of(store) == []


@promise("audit:payloads-can-go")
async def test_the_log_holds_no_arguments_and_no_message(store: Store) -> None:
    await live_a_little(store)

    for link in await links_of(store):
        assert SECRET.encode() not in canonical(link.entry.detail)


async def test_an_entry_comes_back_exactly(store: Store) -> None:
    written = Entry(
        at=later(0.000001),
        kind="test",
        approval_id="a",
        session_id="s",
        tool="fs:read",
        by=PERSON,
        detail={"text": "\0\u202e😀", "one": 1.0, "big": 2**70, "deep": {"list": [None, True]}},
    )
    bare = Entry(at=NOW, kind="bare")
    await store.audit.record(written)
    await store.audit.record(bare)

    assert [link.entry for link in await store.audit.list(AuditQuery())] == [written, bare]


async def test_the_log_is_filtered_by_time_session_tool_decider_and_approval(store: Store) -> None:
    entries = [
        Entry(at=later(0), kind="a", session_id="s1", tool="fs:read", approval_id="1"),
        Entry(at=later(1), kind="b", session_id="s2", tool="fs:read", by=PERSON, approval_id="1"),
        Entry(at=later(2), kind="c", session_id="s1", tool="fs:write", by=PARENT, approval_id="2"),
        Entry(at=later(3), kind="d"),
    ]
    for each in entries:
        await store.audit.record(each)

    async def kinds(query: AuditQuery) -> str:
        return "".join(link.entry.kind for link in await store.audit.list(query))

    assert await kinds(AuditQuery()) == "abcd"
    assert await kinds(AuditQuery(since=later(1))) == "bcd"
    assert await kinds(AuditQuery(until=later(1))) == "a"
    assert await kinds(AuditQuery(since=later(1), until=later(3))) == "bc"
    assert await kinds(AuditQuery(session_id="s1")) == "ac"
    assert await kinds(AuditQuery(tool="fs:read")) == "ab"
    assert await kinds(AuditQuery(tool="fs:*")) == ""
    assert await kinds(AuditQuery(decider=PERSON.id)) == "b"
    assert await kinds(AuditQuery(decider="parent")) == "c"
    assert await kinds(AuditQuery(approval_id="1")) == "ab"
    assert await kinds(AuditQuery(session_id="s1", tool="fs:read")) == "a"
    assert await kinds(AuditQuery(session_id="s3")) == ""


async def test_the_place_of_the_newest_entry_is_known(store: Store) -> None:
    assert await store.audit.last_seq() == 0
    await store.audit.record(entry(1))
    await store.audit.record(entry(2))

    newest = await store.audit.last_seq()
    await store.audit.record(entry(3))

    assert [link.entry for link in await store.audit.list(AuditQuery(after=newest))] == [entry(3)]


async def test_the_log_is_read_on_from_where_one_stopped(store: Store) -> None:
    for n in range(5):
        await store.audit.record(entry(n))
    first = await store.audit.list(AuditQuery(limit=2))
    rest = await store.audit.list(AuditQuery(after=first[-1].seq))

    assert [link.entry for link in (*first, *rest)] == [entry(n) for n in range(5)]
    assert await store.audit.list(AuditQuery(after=rest[-1].seq)) == []


async def test_the_newest_entries_are_found_in_their_order(store: Store) -> None:
    for n in range(5):
        await store.audit.record(entry(n))

    async def found(query: AuditQuery) -> list[str]:
        return [link.entry.kind for link in await store.audit.list(query)]

    assert await found(AuditQuery(newest=True, limit=2)) == ["test.3", "test.4"]
    assert await found(AuditQuery(newest=True, limit=2, until=later(3))) == ["test.1", "test.2"]
    assert await found(AuditQuery(newest=True, limit=9)) == await found(AuditQuery(limit=9))
    places = [link.seq for link in await store.audit.list(AuditQuery())]
    assert await found(AuditQuery(newest=True, limit=2, before=places[3])) == ["test.1", "test.2"]
    assert await found(AuditQuery(after=places[0], before=places[2])) == ["test.1"]
    assert await found(AuditQuery(newest=True, before=places[0])) == []


async def test_what_is_noted_stands_in_the_log_in_its_order_and_the_chain_holds(store: Store) -> None:
    noted = [store.audit.note(entry(n)) for n in range(1, 4)]
    await store.audit.record(entry(4))
    for each in noted:
        await each

    assert [link.entry for link in await store.audit.list(AuditQuery())] == [entry(n) for n in range(1, 5)]
    assert verify(await links_of(store), {head.chain: head for head in await store.audit.heads_kept()}) == []
