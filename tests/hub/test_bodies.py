"""How much of bodies is under way at once: large ones wait for room, small ones never do."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Message

from pml.hub.body_limits import Bodies, BodyLimits
from tests.promises import promise

LIMITS = BodyLimits(mcp=100, small=10, asked=50, each=150, all=250, room_s=30.0)
NO_WAIT = BodyLimits(mcp=100, small=10, asked=50, each=150, all=250, room_s=0.0)


@dataclass
class Sender:
    """A request whose body comes when it is told to."""

    size: int
    is_told: bool = True
    comes: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def scope(self) -> dict[str, object]:
        length = (b"content-length", str(self.size).encode())
        headers = [length if self.is_told else (b"transfer-encoding", b"chunked")]
        return {"type": "http", "path": "/mcp", "headers": headers}

    async def receive(self) -> Message:
        self.reading.set()
        await self.comes.wait()
        return {"type": "http.request", "body": b"x" * self.size, "more_body": False}


@contextlib.asynccontextmanager
async def held(bodies: Bodies, *senders: tuple[str, Sender]) -> AsyncGenerator[None]:
    """Hold the bodies, whole, for the block."""
    async with contextlib.AsyncExitStack() as stack:
        for token, sender in senders:
            sender.comes.set()
            body = await stack.enter_async_context(bodies.read(sender.scope, sender.receive, token))
            assert body == b"x" * sender.size
        yield


async def read(bodies: Bodies, token: str, sender: Sender) -> bytes | Response | None:
    sender.comes.set()
    async with bodies.read(sender.scope, sender.receive, token) as body:
        return body


@promise("message:bounded-bodies")
async def test_a_large_body_is_not_read_while_too_much_of_its_token_is_under_way() -> None:
    bodies, late = Bodies(LIMITS), Sender(100)
    async with held(bodies, ("one", Sender(100))):
        waiting = asyncio.ensure_future(read(bodies, "one", late))
        assert await read(bodies, "two", Sender(100)) == b"x" * 100  # another token's is
        for _ in range(10):
            await asyncio.sleep(0)  # its turn comes, and it does not read
        assert not late.reading.is_set()
    assert await waiting == b"x" * 100


@promise("message:bounded-bodies")
async def test_a_large_body_is_not_read_while_too_much_of_all_is_under_way() -> None:
    bodies, late = Bodies(LIMITS), Sender(100)
    async with held(bodies, ("one", Sender(100)), ("two", Sender(100))):
        waiting = asyncio.ensure_future(read(bodies, "three", late))
        assert await read(bodies, "four", Sender(10)) == b"x" * 10  # a small one never waits
        for _ in range(10):
            await asyncio.sleep(0)  # its turn comes, and it does not read
        assert not late.reading.is_set()
    assert await waiting == b"x" * 100


async def test_a_body_that_gets_no_room_is_told_when_to_come_again() -> None:
    bodies, late = Bodies(NO_WAIT), Sender(100)
    async with held(bodies, ("one", Sender(100))):
        refused = await read(bodies, "one", late)
    assert isinstance(refused, Response)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert b"nothing was done" in refused.body
    assert not late.reading.is_set()


async def test_what_may_wait_for_a_person_keeps_no_room() -> None:
    bodies = Bodies(NO_WAIT)
    many = [("one", Sender(50)) for _ in range(9)]
    async with held(bodies, *many, ("one", Sender(50, is_told=False))):
        assert await read(bodies, "one", Sender(100)) == b"x" * 100


async def test_a_body_that_does_not_tell_its_size_counts_as_the_largest_while_it_comes() -> None:
    bodies, slow = Bodies(NO_WAIT), Sender(20, is_told=False)

    async def come() -> None:
        async with bodies.read(slow.scope, slow.receive, "one") as body:
            assert body == b"x" * 20

    coming = asyncio.ensure_future(come())
    await slow.reading.wait()
    assert isinstance(await read(bodies, "one", Sender(100)), Response)
    slow.comes.set()
    await coming
    assert await read(bodies, "one", Sender(100)) == b"x" * 100


async def test_room_is_given_back_when_answering_fails() -> None:
    bodies = Bodies(NO_WAIT)
    with contextlib.suppress(OSError):
        async with held(bodies, ("one", Sender(100))):
            raise OSError
    assert await read(bodies, "one", Sender(100)) == b"x" * 100
