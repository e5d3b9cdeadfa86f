"""The sealed state of a round: only for its own call, only once, only of this process."""

import asyncio
import itertools

import pytest

from pml.downstream.forms import rounds as seals
from pml.downstream.forms.rounds import Seals
from pml.jsonrpc.messages import RpcError
from tests.promises import promise

CALL = "sha256:1"


def refused(sealing: Seals, state: object, *, call: str = CALL) -> str:
    with pytest.raises(RpcError) as caught:
        sealing.open(state, call=call)
    assert caught.value.code == -32602
    return caught.value.message


async def test_a_state_says_what_was_sealed_and_how_long_ago() -> None:
    sealing = Seals()
    before = asyncio.get_running_loop().time()
    state = sealing.seal("form", "0b9c2f3e-1111-4222-8333-444455556666", call=CALL)
    sealed = sealing.open(state, call=CALL)
    after = asyncio.get_running_loop().time()

    assert (sealed.kind, sealed.ref) == ("form", "0b9c2f3e-1111-4222-8333-444455556666")
    assert -0.001 <= sealed.age_s <= after - before + 0.001


@promise("form:bound-and-single-use")
async def test_a_state_counts_once() -> None:
    sealing = Seals()
    state = sealing.seal("form", "a", call=CALL)
    sealing.open(state, call=CALL)

    assert refused(sealing, state) == "`requestState` was used before"


@promise("form:bound-and-single-use")
async def test_a_state_counts_for_its_own_call_only_and_is_not_spent_by_another() -> None:
    sealing = Seals()
    state = sealing.seal("form", "a", call=CALL)

    assert refused(sealing, state, call="sha256:2") == "`requestState` does not belong to this call"
    assert sealing.open(state, call=CALL).ref == "a"


@promise("form:bound-and-single-use")
async def test_a_state_of_another_process_counts_for_nothing() -> None:
    refused(Seals(), Seals().seal("form", "a", call=CALL))


@promise("form:bound-and-single-use")
async def test_no_part_of_a_state_can_be_changed() -> None:
    sealing = Seals()
    state = sealing.seal("form", "a", call=CALL)
    for at in range(len(state)):
        other = "0" if state[at] != "0" else "1"
        refused(sealing, state[:at] + other + state[at + 1 :])
    for at, length in itertools.product(range(len(state)), (1, 2)):
        refused(sealing, state[:at] + state[at + length :])
    assert sealing.open(state, call=CALL).ref == "a"


@pytest.mark.parametrize("state", ["", ".", "....", "form.a.1.ff.", 7, True, {}, [], "é" * 200, "\x00"])
async def test_what_is_no_state_is_refused(state: object) -> None:
    refused(Seals(), state)


async def test_only_so_many_spent_states_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "_KEPT", 2)
    sealing = Seals()
    states = [sealing.seal("form", str(n), call=CALL) for n in range(3)]
    for state in states:
        sealing.open(state, call=CALL)

    assert sealing.open(states[0], call=CALL).ref == "0"
    refused(sealing, states[2])
