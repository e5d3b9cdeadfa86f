"""The steps of a run of code, as every store keeps them: begun, finished once, never made twice."""

import msgspec
import pytest

from pml.core.code.sandbox import Fault
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.ports.store import Store
from tests.contract.journals import RUN, begun, finished, make_code_run, started, steps_of
from tests.promises import promise


async def test_a_step_is_begun_and_finished_and_steps_come_in_the_order_they_were_made(store: Store) -> None:
    await started(store)
    fault = Fault(code="user_denied", message="“no”\n\0")
    for number in (2, 10, 0, 1):
        await store.journals.begin(begun(number))
    await store.journals.finish(finished(10, place=0, value=b""))
    await store.journals.finish(finished(1, place=1, value=None, fault=fault))
    await store.journals.finish(finished(2, place=2, value=b"\xff\0 no JSON"))

    assert await steps_of(store) == [
        begun(0),
        finished(1, place=1, value=None, fault=fault),
        finished(2, place=2, value=b"\xff\0 no JSON"),
        finished(10, place=0, value=b""),
    ]


async def test_a_value_of_ten_megabytes_comes_back_as_it_was(store: Store) -> None:
    value = bytes(range(256)) * 40_960
    await started(store)

    await store.journals.finish(finished(place=0, value=value))

    assert await steps_of(store) == [finished(place=0, value=value)]


async def test_a_step_that_is_there_stays_when_it_is_begun_again(store: Store) -> None:
    await started(store)
    await store.journals.begin(begun(0))
    await store.journals.finish(finished(1, place=0))

    await store.journals.begin(msgspec.structs.replace(begun(0), digest="sha256:other"))
    await store.journals.begin(begun(1))

    assert await steps_of(store) == [begun(0), finished(1, place=0)]


async def test_beginning_keeps_no_result(store: Store) -> None:
    await started(store)

    await store.journals.begin(finished(0, place=0))

    assert await steps_of(store) == [begun(0)]


async def test_a_step_can_be_finished_without_being_begun(store: Store) -> None:
    await started(store)

    await store.journals.finish(finished(3, place=0))

    assert await steps_of(store) == [finished(3, place=0)]


@promise("code:step-once")
async def test_a_finished_step_is_not_finished_again_nor_begun_again(store: Store) -> None:
    await started(store)
    await store.journals.finish(finished(place=0, value=b"1"))

    for other in (finished(place=0, value=b"1"), finished(place=1, value=b"2")):
        with pytest.raises(Conflict, match="finished"):
            await store.journals.finish(other)
    await store.journals.begin(begun())

    assert await steps_of(store) == [finished(place=0, value=b"1")]


@pytest.mark.parametrize("other", [{"digest": "sha256:other"}, {"what": "fs:write"}])
async def test_a_step_is_not_finished_as_another_than_it_was_begun(
    store: Store, other: dict[str, str]
) -> None:
    await started(store)
    await store.journals.begin(begun())

    with pytest.raises(Conflict, match="begun as another"):
        await store.journals.finish(msgspec.structs.replace(finished(place=0), **other))

    assert await steps_of(store) == [begun()]


async def test_two_steps_of_a_run_never_have_one_place(store: Store) -> None:
    await started(store, make_code_run(), make_code_run("run-2"))
    await store.journals.begin(begun(1))
    await store.journals.finish(finished(0, place=0))

    with pytest.raises(Conflict):
        await store.journals.finish(finished(1, place=0))
    with pytest.raises(Conflict):
        await store.journals.finish(finished(2, place=0))
    await store.journals.finish(finished(0, place=0, run_id="run-2"))

    assert await steps_of(store) == [finished(0, place=0), begun(1)]


@pytest.mark.parametrize("missing", ["place", "at_ms"])
async def test_a_step_without_its_place_or_time_is_not_finished(store: Store, missing: str) -> None:
    await started(store)

    with pytest.raises(Invalid):
        await store.journals.finish(msgspec.structs.replace(finished(place=0), **{missing: None}))

    assert await steps_of(store) == []


async def test_a_fault_that_cannot_be_kept_exactly_is_refused(store: Store) -> None:
    await started(store)

    with pytest.raises(Invalid):
        await store.journals.finish(finished(place=0, fault=Fault(code="x", message="\ud800")))

    assert await steps_of(store) == []


@promise("code:step-once")
async def test_nothing_is_begun_or_finished_in_a_run_that_has_ended(store: Store) -> None:
    await started(store)
    await store.journals.begin(begun())
    await store.journals.end(RUN)

    with pytest.raises(NotFound, match=RUN):
        await store.journals.begin(begun(1))
    with pytest.raises(NotFound, match=RUN):
        await store.journals.finish(finished(place=0))

    await started(store)
    assert await steps_of(store) == []


async def test_a_step_that_is_taken_back_was_never_begun_and_one_that_is_finished_stays(store: Store) -> None:
    await started(store)
    await store.journals.begin(begun(1))
    await store.journals.finish(finished(2, place=0))

    await store.journals.take_back(RUN, 1)
    await store.journals.take_back(RUN, 2)
    await store.journals.take_back("no run", 1)

    assert await steps_of(store) == [finished(2, place=0)]
