"""Calls to well-behaved servers: what goes in, what comes out, and what it costs others."""

import asyncio
import json

import pytest

from pml.core.errors import Changed, ServerFailed, ServerRefused
from pml.core.values import JsonObject
from pml.upstream.limits import Limits
from tests.upstream.fleets import Harbour, odd, until, use


async def test_a_result_comes_back_as_the_server_wrote_it(harbour: Harbour) -> None:
    result = await harbour.fleet().request(odd(), "tools/call", {"name": "echo", "arguments": {"a": 1}})
    assert (
        result == b'{"content": [{"type": "text", "text": "{\\"a\\": 1}"}], '
        b'"unknown": {"kept": [1.0, "\\u00e9"]}}'
    )


async def test_concurrent_callers_share_one_start(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    manifests = await asyncio.gather(*(fleet.manifest(spec) for _ in range(20)))
    assert {id(manifest) for manifest in manifests} == {id(fleet.live(spec))}
    assert harbour.manifests.puts == 1


async def test_a_caller_that_gives_up_does_not_spoil_the_start_for_others(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    impatient = asyncio.create_task(fleet.manifest(spec))
    patient = asyncio.create_task(fleet.manifest(spec))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).server == "odd"


async def test_many_calls_in_flight_get_their_own_answers(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    answers = await asyncio.gather(*(use(fleet, spec, "echo", n=n) for n in range(200)))
    assert answers == [{"n": n} for n in range(200)]


async def test_a_long_answer_arrives_whole(harbour: Harbour) -> None:
    text = await use(harbour.fleet(), odd(), "huge", bytes=3_000_000)
    assert text == "x" * 3_000_000


async def test_answers_in_a_batch_are_understood(harbour: Harbour) -> None:
    assert await use(harbour.fleet(), odd(), "batch") == "batched"


async def test_a_refusal_is_passed_on_as_the_server_wrote_it(harbour: Harbour) -> None:
    with pytest.raises(ServerRefused, match="server `odd` refused: `not today`") as caught:
        await use(harbour.fleet(), odd(), "refuse")
    assert caught.value.error == b'{"code": -32050, "message": "not today", "data": {"kept": 1.0}}'


async def test_progress_reaches_the_caller_under_a_token_of_our_own(harbour: Harbour) -> None:
    fleet, spec, steps = harbour.fleet(), odd(), list[JsonObject]()
    params: JsonObject = {
        "name": "progress",
        "arguments": {"steps": 3},
        "_meta": {"progressToken": "theirs", "trace": "t"},
    }
    result = json.loads(await fleet.request(spec, "tools/call", params, on_progress=steps.append))
    said = json.loads(result["content"][0]["text"])
    assert said["meta"] == {"trace": "t", "progressToken": said["token"]}
    assert isinstance(said["token"], int)
    assert [step["progress"] for step in steps] == [0, 1, 2]


async def test_a_token_of_the_client_never_reaches_the_server(harbour: Harbour) -> None:
    params: JsonObject = {"name": "progress", "arguments": {"steps": 1}, "_meta": {"progressToken": 1}}
    result = json.loads(await harbour.fleet().request(odd(), "tools/call", params))
    assert json.loads(result["content"][0]["text"]) == {"token": None, "meta": {}}


async def test_cancelling_the_caller_cancels_the_call_at_the_server(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    call = asyncio.create_task(use(fleet, spec, "wait_cancel"))
    await until(lambda: harbour.client.heard("got wait_cancel"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: harbour.client.heard("cancelled True"))
    assert await use(fleet, spec, "echo", still="there") == {"still": "there"}


async def test_a_call_that_stays_silent_is_cancelled_and_fails(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(call_s=0.2)), odd()
    while not harbour.client.heard("cancelled True"):  # on a busy machine its list may be what takes too long
        with pytest.raises(ServerFailed, match=r"server `odd` did not answer for 0\.2 s"):
            await use(fleet, spec, "wait_cancel")


async def test_what_was_seen_and_is_no_longer_offered_is_not_called(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    seen = await fleet.manifest(spec)
    await use(fleet, spec, "change", seen=seen, name="newcomer")
    harbour.client.logs.clear()
    with pytest.raises(Changed, match="server `odd` no longer offers"):
        await use(fleet, spec, "echo", seen=seen)
    assert not harbour.client.heard("got echo")
    now = await fleet.manifest(spec)
    assert now.tool("newcomer") is not None
    assert await use(fleet, spec, "echo", seen=now, a=1) == {"a": 1}


async def test_a_restart_that_changes_nothing_keeps_what_was_seen(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(backoff_s=0.01)), odd()
    seen = await fleet.manifest(spec)
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "die")
    assert await fleet.manifest(spec) is seen
    assert await use(fleet, spec, "echo", seen=seen, a=1) == {"a": 1}


async def test_a_call_of_what_was_seen_never_waits_for_a_server_that_is_to_tell_what_changed(
    harbour: Harbour,
) -> None:
    fleet, spec = harbour.fleet(), odd()
    seen = await fleet.manifest(spec)
    await use(fleet, spec, "flood", times=1)
    with pytest.raises(Changed):
        await use(fleet, spec, "echo", seen=seen)
    assert await fleet.manifest(spec) is seen
    assert not harbour.client.heard("got echo")
    assert await use(fleet, spec, "echo", seen=seen, a=1) == {"a": 1}


async def test_two_servers_are_two_processes(harbour: Harbour) -> None:
    fleet = harbour.fleet()
    with pytest.raises(ServerFailed, match="server `one`"):
        await use(fleet, odd(name="one"), "die")
    assert await use(fleet, odd(name="two"), "echo", a=1) == {"a": 1}


async def test_a_call_proven_with_another_configuration_neither_runs_nor_stops_what_runs_now(
    harbour: Harbour,
) -> None:
    fleet, old, new = harbour.fleet(), odd("mark=old"), odd("mark=new")
    seen = await fleet.manifest(old)
    now = await fleet.manifest(new)

    with pytest.raises(Changed):
        await use(fleet, old, "echo", seen=seen)

    assert fleet.live(new) is now
