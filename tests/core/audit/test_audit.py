"""The chain of the audit log: what was changed afterwards shows."""

from collections.abc import Iterable
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.approvals.events import Attached, Cancelled, Completed, Event, Failed
from pml.core.approvals.states import advance
from pml.core.audit.chain import GENESIS, Head, Link, Problem, link_hash
from pml.core.audit.entries import Entry, entry_of
from pml.core.digest import digest
from pml.core.values import canonical
from tests.builders import NOW, OWNER, PARENT, PERSON, allow, claim, deny, later, make_approval, uuid
from tests.chains import verify
from tests.promises import promise

LENGTH: Final = 5
SECRET: Final = "hunter2-and-more"


def entry(n: int) -> Entry:
    return Entry(
        at=later(n),
        kind="approval.denied",
        approval_id=uuid(n),
        session_id="session-1",
        tool="github:create_issue",
        by=PERSON,
        detail={"digest": f"sha256:{n}"},
    )


def chained(entries: Iterable[Entry], *, chain: str = "a", seq: int = 0) -> list[Link]:
    links: list[Link] = []
    for n, each in enumerate(entries, start=1):
        prev = links[-1].hash if links else GENESIS
        found = link_hash(chain, n, each, prev)
        links.append(Link(seq=seq + n, chain=chain, n=n, entry=each, prev=prev, hash=found))
    return links


def heads(links: Iterable[Link]) -> dict[str, Head]:
    return {link.chain: Head(chain=link.chain, n=link.n, hash=link.hash) for link in links}


def entries(count: int = LENGTH) -> list[Entry]:
    return [entry(n) for n in range(1, count + 1)]


CHAIN: Final = chained(entries())
KEPT: Final = heads(CHAIN)


def found(links: Iterable[Link], kept: dict[str, Head] = KEPT) -> list[int]:
    """Return the places at which something is wrong."""
    return [problem.n for problem in verify(links, kept)]


def edited(link: Link, **changes: object) -> Link:
    return msgspec.structs.replace(link, entry=msgspec.structs.replace(link.entry, **changes))


# --- clean


@given(lengths=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 6)))
def test_chains_that_nobody_touched_are_clean(lengths: dict[str, int]) -> None:
    links = [link for name in sorted(lengths) for link in chained(entries(lengths[name]), chain=name)]
    assert verify(links, heads(links)) == []


def test_a_chain_that_went_on_after_its_head_was_kept_is_clean() -> None:
    assert verify(CHAIN, heads(CHAIN[:3])) == []


@promise("audit:tamper-shows")
def test_a_chain_whose_kept_head_is_lost_is_found() -> None:
    other = chained(entries(), chain="b", seq=LENGTH)
    assert verify([*CHAIN, *other], KEPT) == [
        Problem(chain="b", n=LENGTH, what="the chain has no head kept outside the database")
    ]


# --- touched


@pytest.mark.parametrize("place", range(LENGTH))
@pytest.mark.parametrize(
    "changes",
    [
        {"at": later(99)},
        {"kind": "approval.allowed"},
        {"approval_id": None},
        {"session_id": "session-2"},
        {"tool": "fs:read"},
        {"by": PARENT},
        {"by": None},
        {"detail": {}},
        {"detail": {"digest": "sha256:0"}},
    ],
    ids=lambda changes: "-".join(f"{key}" for key in changes),
)
@promise("audit:tamper-shows")
def test_an_edited_entry_is_found_where_it_stands(place: int, changes: dict[str, object]) -> None:
    links = list(CHAIN)
    links[place] = edited(links[place], **changes)
    assert found(links) == [place + 1]


@pytest.mark.parametrize("place", range(LENGTH))
@promise("audit:tamper-shows")
def test_an_edit_with_its_own_hash_made_to_fit_is_found(place: int) -> None:
    links = list(CHAIN)
    touched = edited(links[place], kind="approval.allowed")
    fitting = link_hash("a", touched.n, touched.entry, touched.prev)
    links[place] = msgspec.structs.replace(touched, hash=fitting)
    assert found(links) == [LENGTH if place == LENGTH - 1 else place + 2]


@promise("audit:tamper-shows")
def test_a_history_written_anew_from_some_entry_on_does_not_reach_the_head_that_was_kept() -> None:
    for place in range(LENGTH):
        forged = entries()
        forged[place] = msgspec.structs.replace(forged[place], kind="approval.allowed")
        assert found(chained(forged)) == [LENGTH]
        assert found([*chained([*forged, entry(6)])]) == [LENGTH]


@pytest.mark.parametrize("place", range(LENGTH))
@promise("audit:tamper-shows")
def test_a_removed_entry_is_found(place: int) -> None:
    links = [link for link in CHAIN if link.n != place + 1]
    assert found(links) == [LENGTH if place == LENGTH - 1 else place + 2]


@pytest.mark.parametrize("place", range(LENGTH - 1))
@promise("audit:tamper-shows")
def test_a_removed_entry_is_found_also_when_those_after_it_are_numbered_anew(place: int) -> None:
    links = [
        link if link.n <= place else msgspec.structs.replace(link, n=link.n - 1)
        for link in CHAIN
        if link.n != place + 1
    ]
    assert set(found(links)) >= set(range(place + 1, LENGTH))


@pytest.mark.parametrize(("one", "two"), [(0, 1), (1, 2), (3, 4), (0, 4)])
@promise("audit:tamper-shows")
def test_entries_that_changed_places_are_found(one: int, two: int) -> None:
    links = list(CHAIN)
    links[one], links[two] = links[two], links[one]
    assert found(links) != []
    renumbered = [msgspec.structs.replace(link, n=n) for n, link in enumerate(links, start=1)]
    assert set(found(renumbered)) >= {one + 1, two + 1}
    contents = list(CHAIN)
    contents[one] = msgspec.structs.replace(CHAIN[one], entry=CHAIN[two].entry)
    contents[two] = msgspec.structs.replace(CHAIN[two], entry=CHAIN[one].entry)
    assert found(contents) == [one + 1, two + 1]


@pytest.mark.parametrize("place", range(LENGTH + 1))
@promise("audit:tamper-shows")
def test_an_entry_put_in_between_is_found(place: int) -> None:
    prev = CHAIN[place - 1].hash if place else GENESIS
    n = place + 1
    new = Link(seq=99, chain="a", n=n, entry=entry(9), prev=prev, hash=link_hash("a", n, entry(9), prev))
    after = [msgspec.structs.replace(link, n=link.n + 1) for link in CHAIN[place:]]
    links = [*CHAIN[:place], new, *after]
    # behind the last entry it is what the writer itself could have written: the kept head comes too early
    assert (found(links) != []) == (place < LENGTH)


@pytest.mark.parametrize("length", range(LENGTH))
@promise("audit:tamper-shows")
def test_a_tail_that_was_cut_off_is_found_down_to_the_whole_chain(length: int) -> None:
    assert found(CHAIN[:length]) == [LENGTH]


@promise("audit:tamper-shows")
def test_a_chain_removed_among_others_is_found() -> None:
    other = chained(entries(), chain="b", seq=LENGTH)
    kept = heads([*CHAIN, *other])
    assert [(problem.chain, problem.n) for problem in verify(other, kept)] == [("a", LENGTH)]


@promise("audit:tamper-shows")
def test_an_entry_moved_to_another_chain_is_found() -> None:
    moved = [msgspec.structs.replace(link, chain="b") for link in CHAIN]
    assert {(problem.chain, problem.n) for problem in verify(moved, {})} == {
        ("b", n) for n in range(1, LENGTH + 1)
    }


def test_a_problem_says_what_is_wrong_and_where() -> None:
    links = [CHAIN[0], edited(CHAIN[1], kind="x"), CHAIN[3], CHAIN[4]]
    assert [problem.what for problem in verify(links, KEPT)] == [
        "entry 2 was edited: its hash does not match",
        "entry 4 stands where entry 3 should be",
    ]
    assert [problem.what for problem in verify(CHAIN[:2], KEPT)] == [
        "the chain should reach entry 5: its tail was cut off"
    ]


# --- what an entry tells


def test_an_approval_is_told_step_by_step() -> None:
    asked = make_approval()
    allowed = advance(asked, allow(asked, at=later(1), message="ok"))
    taken = advance(allowed, claim(allowed, at=later(2)))
    whose = Entry(at=NOW, kind="", approval_id=asked.id, session_id=asked.session_id, tool=asked.tool_name)

    assert entry_of(asked, None) == msgspec.structs.replace(
        whose, kind="approval.requested", detail={"subject": "tool_call", "digest": asked.digest}
    )
    assert entry_of(allowed, allow(asked, at=later(1), message="ok")) == msgspec.structs.replace(
        whose,
        at=later(1),
        kind="approval.allowed",
        by=PERSON,
        detail={"scope": "once", "digest": asked.digest, "message_digest": digest("ok")},
    )
    assert entry_of(taken, claim(allowed, at=later(2))) == msgspec.structs.replace(
        whose, at=later(2), kind="approval.executing", detail={"digest": asked.digest}
    )


def test_what_changes_no_state_has_a_word_of_its_own() -> None:
    record = make_approval()
    event = Attached(at=later(1), owner=OWNER)
    assert entry_of(advance(record, event), event).kind == "approval.attached"


@promise("audit:payloads-can-go")
def test_no_entry_of_an_approval_holds_its_arguments_or_a_message() -> None:
    record = make_approval(tool_input={"password": SECRET})
    told = [entry_of(record, None), entry_of(advance(record, deny(record)), deny(record, message=SECRET))]
    steps: list[Event] = [
        allow(record, message=SECRET, updated_input={"password": SECRET + "!"}),
        Failed(at=NOW, message=SECRET),
    ]
    allowed = advance(record, steps[0])
    running = advance(allowed, claim(allowed))
    told += [
        entry_of(allowed, steps[0]),
        entry_of(running, claim(allowed)),
        entry_of(advance(running, steps[1]), steps[1]),
        entry_of(advance(running, Completed(at=NOW)), Completed(at=NOW)),
        entry_of(advance(running, Cancelled(at=NOW, reason="gone")), Cancelled(at=NOW, reason="gone")),
    ]
    for each in told:
        assert SECRET.encode() not in canonical(each.detail)
