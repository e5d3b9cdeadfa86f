"""JSON-RPC with one server, without a process: what exactly is sent for what is heard."""

import asyncio
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import ServerFailed
from pml.core.values import JsonObject
from pml.upstream.limits import Limits
from pml.upstream.log import ServerLog
from pml.upstream.transport.peer import Peer


class Wire:
    """Keeps what is written; a `deaf` server leaves it all in the buffer."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_deaf = False

    @property
    def unread_bytes(self) -> int:
        return sum(map(len, self.written)) if self.is_deaf else 0

    def write(self, data: bytes) -> bool:
        self.written.append(data)
        return True

    @property
    def messages(self) -> list[Any]:
        return [json.loads(line) for line in b"".join(self.written).splitlines()]


class Context:
    """Answers `slow` never and everything else at once."""

    def __init__(self) -> None:
        self.asked = 0
        self.withdrawn = 0

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        self.asked += 1
        if method == "broken":
            raise RuntimeError("a fault of ours")
        if method == "slow":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.withdrawn += 1
                raise
        return {"method": method}

    def notified(self, method: str, params: JsonObject) -> None: ...


@pytest.fixture
def log(tmp_path: Path) -> Generator[ServerLog]:
    made = ServerLog(tmp_path / "odd.log", secrets={}, limits=Limits())
    yield made
    made.close()


class Line:
    """A peer with its wire and context."""

    def __init__(self, log: ServerLog, limits: Limits | None = None) -> None:
        self.wire, self.context = Wire(), Context()
        self.peer = Peer("odd", self.wire, self.context, log, limits or Limits())

    def hear(self, *messages: object) -> None:
        self.peer.feed(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def ask(self, message_id: object, method: str) -> None:
        self.hear({"jsonrpc": "2.0", "id": message_id, "method": method})


async def turn() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_lines_may_arrive_in_any_pieces(log: ServerLog) -> None:
    line = Line(log)
    call = asyncio.create_task(line.peer.request("tools/list", {}))
    await turn()
    for byte in b'\n{"jsonrpc": "2.0", "id": 1, "result": {"a": "\xc3\xa9"}}\r\n':
        line.peer.feed(bytes([byte]))
    assert await call == b'{"a": "\xc3\xa9"}'


async def test_the_request_is_one_line_with_an_id_of_our_own(log: ServerLog) -> None:
    line = Line(log)
    calls = [asyncio.create_task(line.peer.request("ping", {"n": n, "text": "a\nb"})) for n in range(3)]
    await turn()
    assert line.wire.messages == [
        {"jsonrpc": "2.0", "id": n + 1, "method": "ping", "params": {"n": n, "text": "a\nb"}}
        for n in range(3)
    ]
    line.peer.fail("over")
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_withdrawn_request_is_closed_also_before_it_was_begun(log: ServerLog) -> None:
    line = Line(log)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}}
    line.hear({"jsonrpc": "2.0", "id": "q", "method": "slow"}, cancelled)
    await turn()
    assert (line.peer.is_idle, line.wire.messages) == (True, [])
    line.ask("q", "slow")
    await turn()
    line.hear(cancelled)
    await turn()
    assert (line.peer.is_idle, line.context.withdrawn, line.wire.messages) == (True, 1, [])


async def test_a_server_has_a_bounded_number_of_questions_open(log: ServerLog) -> None:
    line = Line(log, Limits(requests_by_server=2))
    for n in range(5):
        line.ask(n, "slow")
    await turn()
    assert line.context.asked == 2
    assert [(message["id"], message["error"]["message"]) for message in line.wire.messages] == [
        (n, "too many requests at a time") for n in (2, 3, 4)
    ]
    line.peer.fail("over")
    await line.peer.closed()
    assert line.context.withdrawn == 2


@pytest.mark.parametrize("message_id", ["used", None])
async def test_an_id_that_cannot_be_answered_to_is_refused(log: ServerLog, message_id: object) -> None:
    line = Line(log)
    line.ask("used", "slow")
    line.ask(message_id, "slow")
    await turn()
    assert [message["error"]["code"] for message in line.wire.messages] == [-32600]
    line.peer.fail("over")
    await line.peer.closed()


async def test_a_fault_of_ours_is_told_without_its_details(log: ServerLog) -> None:
    line = Line(log)
    line.ask(1, "broken")
    await turn()
    assert line.wire.messages == [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "internal error"}}
    ]


async def test_pings_to_which_nobody_reads_the_answers_cost_bounded_memory(log: ServerLog) -> None:
    line = Line(log, Limits(unread_bytes=1_000))
    line.wire.is_deaf = True
    for n in range(1_000):
        line.ask(n, "ping")
    await turn()
    assert line.wire.unread_bytes <= 1_100


async def test_progress_starts_the_time_of_silence_again(log: ServerLog) -> None:
    """The call that is heard of outlives the one beside it that was sent later and stays silent."""
    line = Line(log, Limits(call_s=0.3))
    heard = asyncio.create_task(line.peer.request("slow", {}, on_progress=lambda _: None))
    await turn()
    silent = asyncio.create_task(line.peer.request("slow", {}))
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}
    while not silent.done():
        line.hear(progress)
        await asyncio.sleep(0.01)
    assert not heard.done()
    with pytest.raises(ServerFailed, match=r"did not answer for 0\.3 s"):
        await silent
    line.hear({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert await heard == b"{}"


async def test_after_the_end_nothing_is_sent_and_nothing_heard(log: ServerLog) -> None:
    line = Line(log)
    line.peer.fail("server `odd` is over")
    with pytest.raises(ServerFailed, match="server `odd` is over"):
        await line.peer.request("ping", {})
    line.peer.notify("notifications/initialized", {})
    line.ask(1, "ping")
    await turn()
    assert line.wire.written == []
