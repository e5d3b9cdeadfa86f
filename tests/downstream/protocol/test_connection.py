"""JSON-RPC with one client, in process: what goes in, and exactly which lines come out."""

import asyncio
import gc
import io
import json
import sys
from collections.abc import Awaitable, Callable

import pytest

from pml.core.errors import Invalid
from pml.core.values import Json, JsonObject
from pml.downstream.protocol import connection as module
from pml.downstream.protocol.connection import MAX_IN_FLIGHT, ConnectionGone, Exchange
from pml.downstream.stdio import stdio
from pml.downstream.stdio.stdio import PipeConnection
from pml.jsonrpc.lines import MAX_LINE
from pml.jsonrpc.messages import Notification, RpcError
from tests.promises import promise

SOON_S = 60


class FakeSink:
    """Keeps the lines, and can be made to look congested or gone."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.congested = False
        self.gone = False
        self.flushed = False
        self._came = asyncio.Event()

    def write(self, line: bytes, *, alone: bool = False, lasting: bool = True) -> None:
        self.lines.append(line)
        self._came.set()

    async def flush(self, timeout_s: float) -> None:
        self.flushed = True

    async def until(self, count: int) -> None:
        async with asyncio.timeout(SOON_S):
            while len(self.lines) < count:
                self._came.clear()
                await self._came.wait()


class Bench:
    """A connection that echoes every method but `wait`, which waits for its release, and those added."""

    def __init__(self, *, batches: bool = False, debug: bool = False) -> None:
        self.sink = FakeSink()
        self.noticed: list[Notification] = []
        self.started: list[Exchange] = []
        self._starts = asyncio.Condition()
        self.cancelled: list[Exchange] = []
        self.release = asyncio.Event()
        self.methods: dict[str, Callable[[Exchange], Awaitable[bytes]]] = {"wait": self._wait}
        self.connection = PipeConnection(
            outlet=self.sink,
            answer=self._answer,
            notice=self._notice,
            batches=lambda origin: batches,
            debug=debug,
        )

    def send(self, *messages: JsonObject | list[JsonObject]) -> None:
        for message in messages:
            self.connection.feed(json.dumps(message).encode() + b"\n")

    def request(self, id: int | str, method: str = "echo", params: JsonObject | None = None) -> None:
        self.send(request(id, method, params))

    async def sent(self, count: int) -> list[Json]:
        """Return what was sent, as soon as it is so many messages."""
        await self.sink.until(count)
        return [json.loads(line) for line in self.sink.lines]

    async def all_sent(self) -> list[Json]:
        """End the input and return everything that was ever sent."""
        self.connection.ended()
        async with asyncio.timeout(SOON_S):
            await self.connection.run()
        return await self.sent(0)

    async def running(self, count: int) -> None:
        """Return when so many requests are being answered."""
        async with asyncio.timeout(SOON_S):
            async with self._starts:
                await self._starts.wait_for(lambda: len(self.started) >= count)

    def _notice(self, notification: Notification) -> None:
        self.noticed.append(notification)
        if notification.method == "broken":
            raise ValueError("no notice is taken")

    async def _answer(self, exchange: Exchange) -> bytes:
        self.started.append(exchange)
        async with self._starts:
            self._starts.notify_all()
        method = self.methods.get(exchange.request.method)
        if method is not None:
            return await method(exchange)
        return json.dumps({"method": exchange.request.method, **exchange.request.params}).encode()

    async def _wait(self, exchange: Exchange) -> bytes:
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.append(exchange)
            raise
        return b"{}"


def request(id: Json, method: str = "echo", params: JsonObject | None = None) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def cancel(id: Json) -> JsonObject:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def result(id: int | str, method: str = "echo", **params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": {"method": method, **params}}


def error(id: int | str | None, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "FINISH_S", 0.05)
    monkeypatch.setattr(module, "UNWIND_S", 0.05)


async def test_a_request_is_answered_under_its_own_id() -> None:
    bench = Bench()
    bench.request(1, params={"a": "é\n"})
    bench.request("one")
    bench.request(10**30)

    assert await bench.sent(3) == [result(1, a="é\n"), result("one"), result(10**30)]


async def test_bytes_may_come_in_any_pieces_and_the_last_line_without_its_end() -> None:
    bench = Bench()
    for byte in b'{"jsonrpc":"2.0","id":1,"method":"echo"}\r\n\n{"jsonrpc":"2.0","id":2,"method":"echo"}':
        bench.connection.feed(bytes([byte]))

    assert await bench.all_sent() == [result(1), result(2)]


async def test_an_answer_that_takes_long_does_not_hold_up_the_others() -> None:
    bench = Bench()
    bench.request(1, "wait")
    bench.request(2)

    assert await bench.sent(1) == [result(2)]
    bench.release.set()
    assert (await bench.sent(2))[1:] == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_an_answer_with_line_breaks_leaves_as_one_line() -> None:
    async def pretty(exchange: Exchange) -> bytes:
        return b'{\n  "text": "a\\nb"\n}'

    async def pretty_error(exchange: Exchange) -> bytes:
        raise RpcError(1, "", raw=b'{"code": 7,\n"message": "m", "more": 1}')

    bench = Bench()
    bench.methods.update(pretty=pretty, pretty_error=pretty_error)
    bench.request(1, "pretty")
    bench.request(2, "pretty_error")

    assert await bench.sent(2) == [
        {"jsonrpc": "2.0", "id": 1, "result": {"text": "a\nb"}},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": 7, "message": "m", "more": 1}},
    ]
    assert not any(b"\n" in line for line in bench.sink.lines)


async def test_a_refusal_is_sent_as_it_was_raised_and_a_failure_tells_nothing_of_itself() -> None:
    async def refuse(exchange: Exchange) -> bytes:
        raise RpcError(-32000, "Workflow expired or not found", data={"a": 1})

    async def fail(exchange: Exchange) -> bytes:
        raise Invalid("the secret is hunter2")

    async def lose(exchange: Exchange) -> bytes:
        raise asyncio.CancelledError  # by a fault of its own: the client did not cancel

    bench = Bench()
    bench.methods.update(refuse=refuse, fail=fail, lose=lose)
    for id, method in enumerate(bench.methods):
        if method != "wait":
            bench.request(id, method)

    assert await bench.sent(3) == [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "error": {"code": -32000, "message": "Workflow expired or not found", "data": {"a": 1}},
        },
        error(2, -32603, "internal error"),
        error(3, -32603, "internal error"),
    ]


@pytest.mark.parametrize("debug", [True, False])
async def test_a_failure_is_named_on_stderr_and_traced_only_when_debugging(
    debug: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(exchange: Exchange) -> bytes:
        raise ValueError("hunter2")

    bench = Bench(debug=debug)
    bench.methods["fail"] = fail
    bench.request(1, "fail")
    await bench.sent(1)
    printed = capsys.readouterr()

    assert ("ValueError" in printed.err, "hunter2" in printed.err, printed.out) == (True, debug, "")


async def test_a_closed_stderr_does_not_cost_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(exchange: Exchange) -> bytes:
        raise ValueError

    stderr = io.StringIO()
    stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    bench = Bench(debug=True)
    bench.methods["fail"] = fail
    bench.request(1, "fail")

    assert await bench.sent(1) == [error(1, -32603, "internal error")]


@promise("stdio:garbage-survived")
@pytest.mark.parametrize(
    ("garbage", "id", "code"),
    [
        (b"garbage", None, -32700),
        (b"\x00\xff\xfe", None, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ec', None, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":1,"a":2}}', 1, -32700),
        (b"[" * 100_000, None, -32700),
        (b"null", None, -32600),
        (b"[]", None, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"echo"}]', None, -32600),
        (b'{"jsonrpc":"2.0","id":[],"method":"echo"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":{}}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":"a"}', 1, -32600),
        (b'{"jsonrpc":"3.0","id":1,"method":"echo"}', 1, -32600),
    ],
)
async def test_garbage_is_answered_and_the_connection_goes_on(
    garbage: bytes, id: int | None, code: int
) -> None:
    bench = Bench()
    bench.connection.feed(garbage + b"\n")
    bench.request(7)
    (refused, answered) = await bench.sent(2)

    assert isinstance(refused, dict)
    assert isinstance(refused["error"], dict)
    assert (refused["id"], refused["error"]["code"]) == (id, code)
    assert answered == result(7)


@promise("stdio:garbage-survived")
async def test_a_line_of_100_mb_is_answered_once_and_the_connection_goes_on() -> None:
    bench = Bench()
    chunk = b"x" * 1_000_000
    for _ in range(100):
        bench.connection.feed(chunk)
    bench.connection.feed(b"\n")
    bench.request(7)

    too_long = error(None, -32600, f"a line has more than {MAX_LINE:,} bytes")
    assert await bench.sent(2) == [too_long, result(7)]


async def test_notifications_are_passed_on_and_one_that_fails_harms_nothing() -> None:
    bench = Bench()
    bench.send(
        {"jsonrpc": "2.0", "method": "broken"},
        {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {"a": 1}},
    )
    bench.request(1)

    assert await bench.sent(1) == [result(1)]
    assert bench.noticed == [Notification("broken", {}), Notification("notifications/initialized", {"a": 1})]


async def test_a_second_request_with_an_id_in_flight_is_refused_and_the_first_is_unaffected() -> None:
    bench = Bench()
    bench.request("a", "wait")
    bench.request("a")
    bench.release.set()

    assert await bench.all_sent() == [
        error("a", -32600, "a request with the id `a` is already being answered"),
        {"jsonrpc": "2.0", "id": "a", "result": {}},
    ]


async def test_an_id_can_be_used_again_once_it_is_answered() -> None:
    bench = Bench()
    bench.request(1)
    await bench.sent(1)
    await asyncio.sleep(0)
    bench.request(1)

    assert await bench.sent(2) == [result(1), result(1)]


async def test_more_requests_than_the_bound_are_refused_until_some_are_answered() -> None:
    bench = Bench()
    for id in range(MAX_IN_FLIGHT + 1):
        bench.request(id, "wait")
    assert await bench.sent(1) == [error(MAX_IN_FLIGHT, -32000, "too many requests in flight")]

    bench.release.set()
    await bench.sent(1 + MAX_IN_FLIGHT)
    await asyncio.sleep(0)
    bench.request("next")
    assert (await bench.sent(2 + MAX_IN_FLIGHT))[-1] == result("next")


async def test_a_cancelled_request_is_stopped_and_never_answered() -> None:
    bench = Bench()
    bench.request(1, "wait")
    bench.request(2, "wait")
    await bench.running(2)
    bench.send(cancel(1))
    bench.request(3)
    await bench.sent(1)
    bench.release.set()

    assert await bench.all_sent() == [result(3), {"jsonrpc": "2.0", "id": 2, "result": {}}]
    assert [exchange.request.id for exchange in bench.cancelled] == [1]


async def test_a_request_that_is_cancelled_before_it_began_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.request(1, "wait")
    bench.send(cancel(1))
    bench.request(2)
    await bench.sent(1)
    bench.request(1)

    assert await bench.all_sent() == [result(2), result(1)]


async def test_a_cancelled_request_that_ends_with_a_result_or_an_error_is_not_answered_either() -> None:
    async def stubborn(exchange: Exchange) -> bytes:
        try:
            await bench.release.wait()
        except asyncio.CancelledError:
            exchange.progress("too late")
        return b"{}"

    async def indignant(exchange: Exchange) -> bytes:
        try:
            await bench.release.wait()
        except asyncio.CancelledError:
            raise RpcError(-32000, "no") from None
        return b"{}"

    bench = Bench()
    bench.methods.update(stubborn=stubborn, indignant=indignant)
    bench.request(1, "stubborn", {"_meta": {"progressToken": 1}})
    bench.request(2, "indignant")
    await bench.running(2)
    bench.send(cancel(1), cancel(2))
    bench.request(3)

    assert await bench.all_sent() == [result(3)]


async def test_a_cancelled_request_is_no_failure_and_one_that_fails_then_is_reported_like_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fail(exchange: Exchange) -> bytes:
        try:
            await bench.release.wait()
        finally:
            raise ValueError("hunter2")

    bench = Bench(debug=True)
    bench.methods["fail"] = fail
    bench.request(1, "wait")
    await bench.running(1)
    bench.send(cancel(1))
    assert await bench.all_sent() == []
    assert capsys.readouterr().err == ""

    bench = Bench(debug=True)
    bench.methods["fail"] = fail
    bench.request(1, "fail")
    await bench.running(1)
    unretrieved: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
    bench.send(cancel(1))
    assert await bench.all_sent() == []
    gc.collect()

    assert unretrieved == []
    assert "ValueError: hunter2" in capsys.readouterr().err


@pytest.mark.parametrize("id", [99, "1", True, 1.0, None, [1], {}])
async def test_a_cancellation_of_anything_else_is_ignored(id: Json) -> None:
    bench = Bench()
    bench.request(1, "wait")
    await bench.running(1)
    bench.send(cancel(id), {"jsonrpc": "2.0", "method": "notifications/cancelled"})
    bench.release.set()

    assert await bench.sent(1) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    bench.send(cancel(1))
    assert len(await bench.all_sent()) == 1


async def test_initialize_cannot_be_cancelled() -> None:
    bench = Bench()
    bench.methods["initialize"] = bench.methods["wait"]
    bench.request(1, "initialize")
    await bench.running(1)
    bench.send(cancel(1))
    bench.release.set()

    assert await bench.sent(1) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_the_answers_of_a_batch_go_back_as_one_array_when_all_are_there() -> None:
    bench = Bench(batches=True)
    bench.send(
        [
            request(1, "wait"),
            {"jsonrpc": "2.0", "method": "noted"},
            request(2),
            request(2),
            {"jsonrpc": "2.0", "id": 3, "method": 1},
            request(4, "initialize"),
        ]
    )
    bench.request(5)
    assert await bench.sent(1) == [result(5)]
    bench.release.set()

    assert (await bench.sent(2))[1] == [
        error(2, -32600, "a request with the id 2 is already being answered"),
        error(3, -32600, "`method` must be a string, not a number"),
        error(4, -32600, "`initialize` must not be part of a batch"),
        result(2),
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ]
    assert bench.noticed == [Notification("noted", {})]


async def test_a_batch_without_requests_is_not_answered() -> None:
    bench = Bench(batches=True)
    bench.send([{"jsonrpc": "2.0", "method": "noted"}, {"jsonrpc": "2.0", "id": 1, "result": {}}])

    assert await bench.all_sent() == []
    assert bench.noticed == [Notification("noted", {})]


async def test_a_batch_does_not_wait_for_what_was_cancelled() -> None:
    bench = Bench(batches=True)
    bench.send([request(1, "wait"), request(2)], [request(3, "wait")])
    await bench.running(3)
    bench.send(cancel(1), cancel(3))

    assert await bench.all_sent() == [[result(2)]]


async def test_where_there_are_no_batches_one_is_refused_and_nothing_of_it_runs() -> None:
    bench = Bench()
    bench.send([request(1), {"jsonrpc": "2.0", "method": "noted"}])

    assert await bench.all_sent() == [error(None, -32600, "this protocol version has no batches")]
    assert (bench.started, bench.noticed) == ([], [])


async def test_a_question_to_the_client_is_answered_by_its_id_whatever_else_comes() -> None:
    bench = Bench()
    first = asyncio.create_task(bench.connection.request("roots/list", {}))
    second = asyncio.create_task(bench.connection.request("elicitation/create", {"message": "?"}))
    assert await bench.sent(2) == [
        request("pml-1", "roots/list"),
        request("pml-2", "elicitation/create", {"message": "?"}),
    ]
    for id, value in (("pml-2", 2), ("pml-9", 9), (1, 9), ("pml-2", 9), ("pml-1", 1)):
        bench.send({"jsonrpc": "2.0", "id": id, "result": {"value": value}})

    async with asyncio.timeout(SOON_S):
        assert (await first, await second) == ({"value": 1}, {"value": 2})
    assert len(await bench.all_sent()) == 2


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ({"error": {"code": -32601, "message": "no such method"}}, -32601, "no such method"),
        ({"error": {}}, -32603, "no reason given"),
        ({"error": {"code": "x", "message": 1}}, -32603, "no reason given"),
        ({"result": [1]}, -32603, "the client's result of roots/list is not an object"),
        (
            {"result": {}, "error": {}},
            -32600,
            "the client's answer to roots/list is not a response: "
            "a response has either a `result` or an `error`",
        ),
    ],
)
async def test_a_question_that_is_answered_with_anything_but_a_result_fails_at_once(
    answer: JsonObject, code: int, message: str
) -> None:
    bench = Bench()
    asking = asyncio.create_task(bench.connection.request("roots/list", {}))
    await bench.sent(1)
    bench.send({"jsonrpc": "2.0", "id": "pml-1", **answer})
    async with asyncio.timeout(SOON_S):
        with pytest.raises(RpcError) as raised:
            await asking

    assert (raised.value.code, raised.value.message) == (code, message)


async def test_a_question_that_is_given_up_is_cancelled_at_the_client() -> None:
    bench = Bench()
    asking = asyncio.create_task(bench.connection.request("roots/list", {}))
    await bench.sent(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    bench.send({"jsonrpc": "2.0", "id": "pml-1", "result": {}})

    assert await bench.all_sent() == [request("pml-1", "roots/list"), cancel("pml-1")]


async def test_a_client_that_went_away_answers_no_question() -> None:
    bench = Bench()
    asking = asyncio.create_task(bench.connection.request("roots/list", {}))
    await bench.sent(1)
    bench.connection.ended()
    async with asyncio.timeout(SOON_S):
        with pytest.raises(ConnectionGone, match="before it answered roots/list"):
            await asking
        with pytest.raises(ConnectionGone, match="before roots/list"):
            await bench.connection.request("roots/list", {})

    assert await bench.all_sent() == [request("pml-1", "roots/list")]


async def test_after_the_end_of_input_what_is_quick_is_answered_and_the_rest_cancelled() -> None:
    bench = Bench()
    bench.request(1, "wait")
    bench.request(2)
    await bench.running(2)

    assert await bench.all_sent() == [result(2)]
    assert [exchange.request.id for exchange in bench.cancelled] == [1]
    assert bench.sink.flushed


async def test_nothing_is_taken_after_the_end_of_input() -> None:
    bench = Bench()
    bench.connection.ended()
    bench.request(1)

    assert await bench.all_sent() == []
    assert bench.started == []


async def test_a_client_that_no_longer_reads_gets_no_time_to_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "FINISH_S", 10 * SOON_S)
    bench = Bench()
    running = asyncio.create_task(bench.connection.run())
    bench.request(1, "wait")
    bench.connection.feed(b'{"jsonrpc":"2.0","id":2,"method":"echo"}')
    await bench.running(1)
    bench.sink.gone = True
    bench.connection.ended()
    async with asyncio.timeout(SOON_S):
        await running

    assert bench.sink.lines == []
    assert [exchange.request.id for exchange in bench.started] == [1]
    assert [exchange.request.id for exchange in bench.cancelled] == [1]


async def test_an_answer_that_cannot_be_cancelled_does_not_keep_the_connection() -> None:
    async def immovable(exchange: Exchange) -> bytes:
        while not bench.release.is_set():
            try:
                await bench.release.wait()
            except asyncio.CancelledError:
                pass
        return b"{}"

    bench = Bench()
    bench.methods["immovable"] = immovable
    bench.request(1, "immovable")
    await bench.running(1)

    assert await bench.all_sent() == []
    bench.release.set()


async def test_a_cancelled_run_cancels_every_request() -> None:
    bench = Bench()
    running = asyncio.create_task(bench.connection.run())
    bench.request(1, "wait")
    await bench.running(1)
    running.cancel()
    async with asyncio.timeout(SOON_S):
        with pytest.raises(asyncio.CancelledError):
            await running

    assert [exchange.request.id for exchange in bench.cancelled] == [1]
    assert bench.sink.lines == []


async def progressing(
    token: Json, tell: Callable[[Exchange], None], *, congested: bool = False
) -> list[Json]:
    """Return the parameters of the notifications that came while a request with that token was answered."""

    async def work(exchange: Exchange) -> bytes:
        bench.sink.congested = congested
        tell(exchange)
        return b"{}"

    bench = Bench()
    bench.methods["work"] = work
    bench.request(1, "work", {} if token is None else {"_meta": {"progressToken": token}})
    *progress, answer = await bench.all_sent()
    bench.started[0].progress("after the answer")

    assert answer == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert len(bench.sink.lines) == len(progress) + 1
    found: list[Json] = []
    for one in progress:
        assert isinstance(one, dict)
        assert one["method"] == "notifications/progress"
        found.append(one["params"])
    return found


@pytest.mark.parametrize("token", ["abc", 0])
async def test_progress_is_told_under_the_clients_token_and_always_increases(token: Json) -> None:
    def tell(exchange: Exchange) -> None:
        exchange.progress("waiting")
        exchange.progress("still waiting")

    assert await progressing(token, tell) == [
        {"progressToken": token, "progress": 1, "message": "waiting"},
        {"progressToken": token, "progress": 2, "message": "still waiting"},
    ]


@pytest.mark.parametrize("token", [None, True, 1.5, {}])
async def test_no_progress_is_told_to_a_client_that_gave_no_token(token: Json) -> None:
    def tell(exchange: Exchange) -> None:
        exchange.progress("waiting")
        exchange.forward_progress({"progressToken": 5, "progress": 1})

    assert await progressing(token, tell) == []


async def test_a_servers_progress_passes_unchanged_but_for_the_token() -> None:
    def tell(exchange: Exchange) -> None:
        exchange.forward_progress({"progressToken": 5, "progress": 0, "total": 2, "message": "m", "x": [1]})
        exchange.forward_progress({"progressToken": 5, "progress": 0.5, "total": 2})

    assert await progressing("t", tell) == [
        {"progressToken": "t", "progress": 0, "total": 2, "message": "m", "x": [1]},
        {"progressToken": "t", "progress": 0.5, "total": 2},
    ]


async def test_a_servers_progress_goes_on_from_where_ours_was_and_never_falls_back() -> None:
    def tell(exchange: Exchange) -> None:
        exchange.progress("waiting for approval")
        exchange.progress("waiting for approval")
        exchange.forward_progress({"progress": 0, "total": 4})
        exchange.forward_progress({"progress": 2, "total": 4})
        exchange.forward_progress({"progress": 1, "total": 4})
        exchange.forward_progress({"progress": "x", "message": "m"})
        exchange.forward_progress({"progress": 10**400})
        exchange.progress("nearly")

    found = await progressing("t", tell)
    counted = [(one["progress"], one.get("total")) for one in found if isinstance(one, dict)]

    assert counted == [(1, None), (2, None), (3, 7), (5, 7), (6, 9), (7, None), (8, None), (9, None)]


async def test_progress_and_log_messages_are_dropped_while_the_client_does_not_read_but_answers_are_not() -> (
    None
):
    assert await progressing("t", lambda exchange: exchange.progress("x"), congested=True) == []

    bench = Bench()
    bench.sink.congested = True
    bench.connection.notify("notifications/message", {"data": "x"})
    bench.connection.notify("notifications/tools/list_changed", {})
    bench.request(1)

    assert await bench.sent(2) == [
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}},
        result(1),
    ]
