"""What is sent to a cloud again, and what never is: nothing runs twice."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import ServerFailed, Unavailable
from pml.registry.cloud.served_calls import CallLimits
from pml.upstream.cloud.client import RETRIES, Patience
from tests.promises import promise
from tests.registry import executors
from tests.registry.places import fill
from tests.upstream.clouds import (
    RESULT,
    TIMEOUT_S,
    Caller,
    LyingCloud,
    answer,
    drip,
    endless,
    hang_up,
    lying_cloud,
    refusal,
    result,
)


@pytest.fixture
async def caller() -> AsyncGenerator[Caller]:
    caller = Caller()
    yield caller
    await caller.client.close()


# --- what is tried again


@promise("cloud:unknown-is-told")
@pytest.mark.parametrize(
    ("patience", "begin"),
    [
        (Patience(answer_s=0.2), b"HTTP/1.1 200 OK\r\na: "),
        (Patience(body_s=0.2), b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"),
    ],
    ids=["head", "body"],
)
async def test_a_byte_now_and_then_does_not_make_a_cloud_be_waited_for(
    caller: Caller, patience: Patience, begin: bytes
) -> None:
    caller.of(patience)
    async with lying_cloud(drip(begin)) as cloud:
        error = await caller.fail(cloud.url)
    assert isinstance(error, ServerFailed)
    assert "within 0.2 s; nobody knows whether it ran" in error.message


@promise("cloud:unknown-is-told")
@pytest.mark.parametrize(
    "reply",
    [
        hang_up(),
        hang_up(b"HTTP/1.1 2"),
        hang_up(b"nonsense\r\n\r\n"),
        hang_up(b'HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{"jsonrpc"'),
        refusal("500 Internal Server Error"),
        refusal("502 Bad Gateway"),
        refusal("503 Service Unavailable", "unavailable", retry_after="0"),
        answer(b"Service Unavailable", status="503 Service Unavailable", retry_after="0"),
        refusal("504 Gateway Timeout"),
        answer(b"", status="202 Accepted"),
    ],
)
async def test_what_may_have_run_is_never_sent_again(caller: Caller, reply: Any) -> None:
    async with lying_cloud(reply, result()) as cloud:
        error = await caller.fail(cloud.url)
    assert isinstance(error, ServerFailed)
    assert "nobody knows whether it ran" in error.message
    assert (len(cloud.sent), caller.pauses) == (1, [])


@promise("cloud:retried-only-unrun")
@pytest.mark.parametrize(
    "reply",
    [
        refusal("429 Too Many Requests", retry_after="2"),
        answer(b"slow down", status="429 Too Many Requests", retry_after="2"),
        refusal("503 Service Unavailable", "busy", retry_after="2"),
    ],
)
async def test_what_the_cloud_says_has_not_run_is_sent_again_as_the_same_call(
    caller: Caller, reply: Any
) -> None:
    async with lying_cloud(reply, reply, result()) as cloud:
        assert await caller.call(cloud.url) == RESULT
    assert caller.pauses == [2.0, 2.0]
    assert len(cloud.sent) == 3
    assert len({sent.headers["idempotency-key"] for sent in cloud.sent}) == 1
    assert len({sent.body for sent in cloud.sent}) == 1


@promise("cloud:retried-only-unrun")
async def test_a_cloud_that_stays_busy_is_given_up(caller: Caller) -> None:
    async with lying_cloud(refusal("503 Service Unavailable", "busy", "32 calls are running")) as cloud:
        error = await caller.fail(cloud.url)
    assert isinstance(error, Unavailable)
    assert not isinstance(error, ServerFailed)
    assert "is busy: `32 calls are running`" in error.message
    assert "nothing has run" in (error.hint or "")
    assert (len(cloud.sent), len(caller.pauses)) == (RETRIES + 1, RETRIES)
    assert caller.pauses[0] < caller.pauses[1]


async def test_a_cloud_that_wants_to_be_left_alone_for_long_is_not_waited_for(caller: Caller) -> None:
    async with lying_cloud(refusal("429 Too Many Requests", retry_after="3600")) as cloud:
        error = await caller.fail(cloud.url)
    assert "is busy" in error.message
    assert (len(cloud.sent), caller.pauses) == (1, [])


async def test_a_busy_real_cloud_runs_each_call_once(caller: Caller, tmp_path: Path) -> None:
    folder = fill(tmp_path / "registry")
    async with executors.executing(folder, limits=CallLimits(running=1)) as cloud, asyncio.timeout(TIMEOUT_S):
        cloud.executor.may_answer.clear()
        other = asyncio.ensure_future(cloud.post())
        await cloud.executor.begun.acquire()

        async def answer_other() -> None:
            cloud.executor.may_answer.set()
            await other

        caller.meanwhile = answer_other
        assert await caller.call(cloud.served.url, key=cloud.token) == executors.RESULT
        assert len(cloud.executor.called) == 2
        assert caller.pauses == [1.0]


@promise("cloud:offline-is-told")
async def test_a_cloud_that_is_not_there_is_told_with_what_to_look_at(caller: Caller) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = await caller.fail(f"http://127.0.0.1:{port}")
    assert isinstance(error, Unavailable)
    assert not isinstance(error, ServerFailed)
    assert f"cloud `http://127.0.0.1:{port}` cannot be reached" in error.message
    assert "`cloud` in .pml.json" in (error.hint or "")
    assert len(caller.pauses) == RETRIES


@promise("cloud:retried-only-unrun")
async def test_a_cloud_that_comes_back_gets_the_call(caller: Caller) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nothing listens there yet
        cloud = LyingCloud(replies=[result()], port=closed.getsockname()[1])
        servers: list[asyncio.Server] = []

        async def listen() -> None:
            servers.append(await asyncio.start_server(cloud.serve, sock=closed))

        caller.meanwhile = listen
        assert await caller.call(cloud.url) == RESULT
        servers[0].close()
        await servers[0].wait_closed()
    assert (len(cloud.sent), len(caller.pauses)) == (1, 1)


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        ("404 Not Found", "pml cloud --execute"),
        ("405 Method Not Allowed", "pml cloud --execute"),
        ("413 Content Too Large", "larger than it takes"),
        ("418 I'm a teapot", "check `cloud`"),
    ],
)
async def test_another_refusal_is_told_as_what_it_is(caller: Caller, status: str, hint: str) -> None:
    async with lying_cloud(refusal(status, message="no")) as cloud:
        error = await caller.fail(cloud.url)
    assert isinstance(error, Unavailable)
    assert not isinstance(error, ServerFailed)
    assert f"answered {status[:3]}: `no`" in error.message
    assert hint in (error.hint or "")
    assert len(cloud.sent) == 1


@pytest.mark.parametrize("rest", [endless(), hang_up(b'{"error":')])
async def test_a_refusal_whose_words_cannot_be_had_is_one_all_the_same(caller: Caller, rest: Any) -> None:
    async def refuse(writer: asyncio.StreamWriter, sent: Any) -> None:
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 99999999\r\n\r\n")
        await rest(writer, sent)

    async with lying_cloud(refuse) as cloud:
        error = await caller.fail(cloud.url)
    assert "refuses the key" in error.message
