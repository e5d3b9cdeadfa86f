"""`/events` on a real server: streams, replays, limits, and readers that do not read."""

import asyncio
import json
import socket
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from starlette.types import Receive, Scope, Send

from pml.core.approvals.record import SessionId
from pml.core.audit.entries import session_changed
from pml.core.audit.feed_events import server_changed
from pml.core.sessions.token import Identity, Token, TokenId, TokenRole
from pml.hub.event_stream import EventStreams, StreamLimits
from pml.service.sessions import feed as feeds
from pml.service.sessions.feed import Feed
from pml.store.sqlite.store import SqliteStore
from pml.testing.store import MemoryStore
from pml.web.connections import Limits
from pml.web.http_server import listen, serve
from pml.web.visitors import set_identity
from tests.builders import NOW, OWNER, PERSON
from tests.promises import promise
from tests.service.offices import Office

BOUND_S = 60.0  # only ever reached by what hangs
SMALL = 4096  # bytes that a socket of a reader that does not read takes


@dataclass
class Stream:
    """One answer, read line by line."""

    reader: asyncio.StreamReader
    status: int
    headers: dict[str, str]
    _rest: bytes = b""
    blocks: list[str] = field(default_factory=list[str])

    async def block(self) -> str | None:
        """Return the next block of the stream, None at its end."""
        async with asyncio.timeout(BOUND_S):
            while b"\n\n" not in self._rest:
                size = int((await self.reader.readline()) or b"0", 16)
                chunk = await self.reader.readexactly(size + 2) if size else b""
                if not chunk:
                    return None
                self._rest += chunk[:-2]
        block, _, self._rest = self._rest.partition(b"\n\n")
        self.blocks.append(block.decode())
        return self.blocks[-1]

    async def event(self) -> dict[str, Any]:
        """Return the next event, as its data says."""
        while (block := await self.block()) is not None:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "data" in fields:
                data = json.loads(fields["data"])
                assert fields["event"] == data["type"]
                assert fields.get("id") == (str(data["id"]) if "id" in data else None)
                return data
        raise EOFError("the stream has ended")

    async def events(self, count: int) -> list[dict[str, Any]]:
        return [await self.event() for _ in range(count)]

    async def body(self) -> Any:
        async with asyncio.timeout(BOUND_S):
            return json.loads(await self.reader.readexactly(int(self.headers["content-length"])))


class Hub:
    """The streams of one store, served on a free port."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.feed = Feed(office.context)
        self.streams = EventStreams(self.feed)
        self.port = 0
        self._who: dict[str, Identity] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        set_identity(scope, self._who[headers[b"x-who"].decode()])
        await self.streams(scope, receive, send)

    async def let_in(
        self, name: str, role: TokenRole = TokenRole.PERSON, session_id: SessionId | None = None
    ) -> None:
        token_id = TokenId(f"{len(self._who):012x}")
        token = Token(id=token_id, role=role, name=name, hash="h", session_id=session_id, created_at=NOW)
        await self.office.context.store.tokens.add(token, by=PERSON)
        self._who[name] = Identity(token_id=token_id, role=role, name=name, session_id=session_id)

    @asynccontextmanager
    async def get(
        self, path: str = "/events", *, who: str = "ana", method: str = "GET", **headers: str
    ) -> AsyncGenerator[Stream]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = {"host": "x", "x-who": who} | {key.replace("_", "-"): value for key, value in headers.items()}
        head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
            async with asyncio.timeout(BOUND_S):
                first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            found = {key.lower(): value for key, value in (line.split(": ", 1) for line in rest)}
            yield Stream(reader, int(first.split(" ")[1]), found)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    @asynccontextmanager
    async def listening(self, path: str = "/events", **more: str) -> AsyncGenerator[Stream]:
        """Yield a stream that has begun."""
        async with self.get(path, **more) as stream:
            assert stream.status == 200, await stream.body()
            await stream.block()
            yield stream

    async def start(self, *names: str) -> None:
        for name in names:
            await self.office.session(SessionId(name))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once it is so, in time."""
        async with asyncio.timeout(BOUND_S):
            while not is_so():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(hub: Hub, *, request_s: float = BOUND_S) -> AsyncGenerator[Hub]:
    with listen("127.0.0.1", 0) as listening:
        hub.port = listening.getsockname()[1]
        await hub.let_in("ana")
        limits = Limits(request_s=request_s, answers_last=True, reader_s=request_s)
        task = asyncio.ensure_future(serve(hub, listening, limits=limits))
        try:
            yield hub
        finally:
            hub.feed.close()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def office(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> AsyncIterator[Office]:
    is_memory = cast(str, request.param) == "memory"
    store = MemoryStore() if is_memory else await SqliteStore.open(home / ".pml", OWNER)
    yield Office(store, tmp_path)
    await store.close()


@pytest_asyncio.fixture
async def hub(office: Office) -> AsyncIterator[Hub]:
    async with serving(Hub(office)) as found:
        yield found


async def test_events_are_sent_with_their_id_and_type_in_one_line_each(hub: Hub) -> None:
    async with hub.get() as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert await stream.block() == "retry: 1000\nid: 1"
        await hub.office.ask(arguments={"text": "a\nb"})
        await stream.events(2)
    assert stream.blocks[1].startswith("id: 2\nevent: session.started\ndata: {")
    assert [line.partition(":")[0] for line in stream.blocks[2].split("\n")] == ["id", "event", "data"]
    assert '"text":"a\\nb"' in stream.blocks[2]


@promise("events:replayed-whole")
async def test_a_reader_that_comes_back_gets_all_it_missed_once_and_in_order(hub: Hub) -> None:
    seen: list[str] = []
    last = "0"
    names = [f"s{n}" for n in range(40)]
    async with asyncio.TaskGroup() as group:
        group.create_task(hub.start(*names))
        while len(seen) < len(names):
            async with hub.listening("/events?types=session.started&after=7", last_event_id=last) as stream:
                for _ in range(min(6, len(names) - len(seen))):
                    event = await stream.event()
                    seen.append(event["session"])
                    last = str(event["id"])
    assert seen == names


async def test_a_reader_that_saw_nothing_yet_knows_from_where_to_come_back(hub: Hub) -> None:
    async with hub.listening() as stream:
        place = stream.blocks[0].partition("id: ")[2]
    await hub.start("meanwhile")
    async with hub.listening(last_event_id=place) as stream:
        assert (await stream.event())["session"] == "meanwhile"


async def test_a_script_can_say_from_where_in_the_address(hub: Hub) -> None:
    await hub.start("a", "b")
    async with hub.listening("/events?after=2") as stream:
        assert (await stream.event())["session"] == "b"


async def test_an_id_beyond_the_newest_is_now(hub: Hub) -> None:
    async with hub.listening(last_event_id="9" * 19) as stream:
        assert stream.blocks[0] == "retry: 1000\nid: 1"
        await hub.start("new")
        assert (await stream.event())["session"] == "new"


@pytest.mark.parametrize("given", ["", "x", "-1", "1.0", "1 2", "9" * 20, "٣", "0x1"])
@pytest.mark.parametrize("how", ["header", "query"])
async def test_garbage_for_an_id_is_refused(hub: Hub, given: str, how: str) -> None:
    if how == "header":
        asked = hub.get(last_event_id=given.encode().decode("latin-1"))
    else:
        asked = hub.get("/events?after=" + "".join(f"%{byte:02x}" for byte in given.encode()))
    async with asked as stream:
        assert stream.status == 400
        error = (await stream.body())["error"]
    assert error["code"] == "invalid"
    assert "is not an id of an event" in error["message"]


async def test_types_are_chosen_by_globs(hub: Hub) -> None:
    async with hub.listening("/events?types=approval.*,session.ended") as stream:
        record = await hub.office.ask()
        await hub.office.deny(record)
        assert [event["type"] for event in await stream.events(2)] == [
            "approval.requested",
            "approval.decided",
        ]
    async with hub.get("/events?types=aproval.*") as stream:
        assert stream.status == 400
        assert "`aproval.*`" in (await stream.body())["error"]["message"]


async def test_events_cannot_be_sent_to_the_hub(hub: Hub) -> None:
    async with hub.get(method="POST") as stream:
        assert stream.status == 405
        assert stream.headers["allow"] == "GET"
        assert (await stream.body())["error"]["code"] == "method_not_allowed"


async def test_a_silent_stream_has_a_heartbeat_that_tells_the_place(hub: Hub) -> None:
    hub.streams = EventStreams(hub.feed, limits=StreamLimits(heartbeat_s=0.01))
    async with hub.listening("/events?types=session.ended") as stream:
        await hub.start("a")
        async with asyncio.timeout(BOUND_S):
            while await stream.block() != ":\nid: 2":
                pass


@promise("events:only-what-the-token-may-see")
async def test_a_child_is_told_of_itself_and_of_nobody_else(hub: Hub) -> None:
    await hub.start("parent")
    child = await hub.office.session(SessionId("child"), parent_id=SessionId("parent"))
    await hub.let_in("child", TokenRole.CHILD, child.id)
    async with hub.listening(who="child", last_event_id="0") as stream:
        hub.feed.publish(server_changed("memory", "ready", at=NOW))
        for name in ("parent", "other"):
            session = await hub.office.session(SessionId(name))
            await hub.office.ask(arguments={"secret": name}, session=session)
        await hub.office.ask(arguments={"secret": "own"}, session=child)
        started, asked = await stream.events(2)
    assert (started["type"], started["session"]) == ("session.started", "child")
    assert (asked["session"], asked["tool_input"]) == ("child", {"secret": "own"})


@pytest.mark.parametrize("path", ["/events", "/events?types=approval.*"])
async def test_a_stream_ends_with_its_token(hub: Hub, path: str) -> None:
    hub.streams = EventStreams(hub.feed, limits=StreamLimits(heartbeat_s=3 * BOUND_S))
    async with hub.listening(path) as stream:
        await hub.office.context.store.tokens.revoke(TokenId(f"{0:012x}"), at=NOW, by=PERSON)
        assert await stream.block() == ": the token is no longer valid"
        assert await stream.block() is None
    async with hub.get() as stream:
        assert stream.status == 403


async def test_there_is_room_for_so_many_streams_and_again_when_one_has_gone(hub: Hub) -> None:
    hub.streams = EventStreams(hub.feed, limits=StreamLimits(streams=2))
    async with hub.listening():
        async with hub.listening():
            async with hub.get() as third:
                assert third.status == 503
                assert (await third.body())["error"]["code"] == "unavailable"
            assert hub.streams.counts.open_now == 2
        await hub.until(lambda: hub.streams.counts.open_now == 1)
        async with hub.listening():
            pass
    await hub.until(lambda: hub.streams.counts.open_now == 0)
    assert hub.streams.counts.dropped == 0


async def test_one_token_does_not_take_all_the_room(hub: Hub) -> None:
    hub.streams = EventStreams(hub.feed, limits=StreamLimits(per_token=1))
    await hub.let_in("bo")
    async with hub.listening():
        async with hub.get() as second:
            assert second.status == 503
        async with hub.listening(who="bo"):
            pass


async def test_agents_leave_people_room_to_see_what_they_ask(hub: Hub) -> None:
    hub.streams = EventStreams(hub.feed, limits=StreamLimits(streams=3, for_agents=2))
    await hub.start("a", "b", "c")
    for name in ("a", "b", "c"):
        await hub.let_in(name, TokenRole.CHILD, SessionId(name))
    async with hub.listening(who="a"):
        async with hub.listening(who="b"):
            async with hub.get(who="c") as third:
                assert third.status == 503
            async with hub.listening():
                pass
        await hub.until(lambda: hub.streams.counts.open_now == 1)
        async with hub.listening(who="c"):
            pass


async def test_when_the_hub_stops_streams_end_so_that_readers_come_back(hub: Hub) -> None:
    async with hub.listening() as stream:
        hub.feed.close()
        assert await stream.block() == ": the hub stops"
        assert await stream.block() is None
    async with hub.get() as stream:
        assert stream.status == 503


async def test_a_reader_that_leaves_is_noticed_though_nothing_happens(hub: Hub) -> None:
    before = len(asyncio.all_tasks())
    async with hub.listening():
        assert len(asyncio.all_tasks()) > before
    await hub.until(lambda: hub.streams.counts.open_now == 0)
    await hub.until(lambda: len(asyncio.all_tasks()) <= before)


def deaf(port: int) -> socket.socket:
    """Ask for all events and never read one."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    sock.connect(("127.0.0.1", port))
    sock.sendall(b"GET /events?after=0 HTTP/1.1\r\nhost: x\r\nx-who: ana\r\n\r\n")
    return sock


@pytest.mark.parametrize("by", ["its stream", "its connection"])
async def test_a_reader_that_never_reads_is_dropped_and_costs_neither_others_nor_memory(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(feeds, "RING_BYTES", 100_000)
    store = await SqliteStore.open(home / ".pml", OWNER)
    hub = Hub(Office(store, tmp_path))
    patience_s, request_s = (1.0, BOUND_S) if by == "its stream" else (BOUND_S, 1.0)
    hub.streams = EventStreams(hub.feed, limits=StreamLimits(patience_s=patience_s))
    text, count = "x" * 100_000, 150  # more than the system's own buffers take
    try:
        async with serving(hub, request_s=request_s), hub.listening("/events?types=session.changed") as ear:
            socks = [deaf(hub.port) for _ in range(4)]
            await hub.until(lambda: hub.streams.counts.open_now == 5)
            tracemalloc.start()
            for n in range(count):
                await hub.office.deny(await hub.office.ask(arguments={"text": text, "n": n}))
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            await store.audit.record(session_changed("s", "running", at=NOW))
            assert (await ear.event())["state"] == "running"
            await hub.until(lambda: hub.streams.counts.dropped == 4 and hub.streams.counts.open_now == 1)
            for sock in socks:
                sock.close()
    finally:
        await store.close()
    assert held < count * len(text) / 4
