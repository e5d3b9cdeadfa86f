"""`pml stdio`: one client on standard input and output, until it has gone and all it started has ended."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, Protocol

from pml.downstream.protocol.connection import Connection, Exchange, Origin, Sink
from pml.downstream.protocol.door import Answering, Door
from pml.downstream.protocol.eras import Era
from pml.downstream.stdio.pipes import claim_stdout, open_pipes
from pml.jsonrpc.codes import INVALID_REQUEST
from pml.jsonrpc.lines import Lines, TooLong, error_line
from pml.jsonrpc.messages import Batch, Notification, RpcError, read

FINISH_S: Final = 1.5  # after the end of input: what was piped in is answered, a person is not waited for
FLUSH_S: Final = 0.5  # what is written fits in the pipe, or has no reader

OpenGateway = Callable[[Connection, Era, AsyncExitStack], Awaitable[Answering]]


async def serve_stdio(open_gateway: OpenGateway, *, debug: bool) -> None:
    """Serve until the client closes its end. What `open_gateway` leaves on the stack is closed then."""
    stdout = claim_stdout()
    try:
        with open_pipes(stdin=0, stdout=stdout) as pipes:
            async with AsyncExitStack() as stack:
                door = Door(lambda era: open_gateway(connection, era, stack))
                connection = PipeConnection(
                    outlet=pipes.outlet,
                    answer=door.answer,
                    notice=door.notice,
                    batches=door.batches,
                    debug=debug,
                )
                pipes.start(connection.feed, connection.ended)
                try:
                    await connection.run()
                except asyncio.CancelledError:
                    connection.ended()
                    raise
    finally:
        os.close(stdout)


class PipeSink(Sink, Protocol):
    async def flush(self, timeout_s: float) -> None: ...


class PipeConnection(Connection):
    """A client on a pipe: lines come in, lines go out, and when the pipe ends so does the connection."""

    def __init__(
        self,
        *,
        outlet: PipeSink,
        answer: Callable[[Exchange], Awaitable[bytes]],
        notice: Callable[[Notification], None],
        batches: Callable[[Origin], bool],
        debug: bool = False,
    ) -> None:
        """`batches` tells whether batches are allowed."""
        super().__init__(answer=answer, notice=notice, debug=debug)
        self._outlet = outlet
        self._batches = batches
        self._lines = Lines()
        self._origin = Origin(outlet)
        self._ended = asyncio.Event()
        self.join(self._origin)

    def feed(self, data: bytes) -> None:
        """Take bytes from the client."""
        if not self._ended.is_set():
            self._take_all(self._lines.feed(data))

    def ended(self) -> None:
        """Learn that the client will send nothing more, or reads nothing more."""
        if self._ended.is_set():
            return
        if not self._outlet.gone:
            self._take_all(self._lines.end())
        self._ended.set()
        self.end()

    async def run(self) -> None:
        """Return after the end of input, when every answer is out or its request cancelled."""
        try:
            await self._ended.wait()
            if self.in_flight and not self._outlet.gone and not self._outlet.congested:
                await asyncio.wait(self.tasks(), timeout=FINISH_S)
        finally:
            self.ended()
            await self.close()
            await self._outlet.flush(FLUSH_S)

    def _take_all(self, lines: list[bytes | TooLong]) -> None:
        for line in lines:
            if isinstance(line, TooLong):
                self._refuse_line(f"a line has more than {line.cap:,} bytes")
            elif isinstance(message := read(line), Batch):
                self._take_batch(message)
            else:
                self.take(message, self._origin, self._outlet)

    def _take_batch(self, batch: Batch) -> None:
        if not self._batches(self._origin):
            self._refuse_line("this protocol version has no batches")
            return
        together = _Together(self._outlet)
        self.take_batch(batch, self._origin, self._outlet, together)
        together.close()

    def _refuse_line(self, reason: str) -> None:
        self._outlet.write(error_line(None, RpcError(INVALID_REQUEST, reason)))


class _Together:
    """The answers of one batch, written as one array when the last of them is there."""

    def __init__(self, outlet: Sink) -> None:
        self._answers: list[bytes] = []
        self._outlet = outlet
        self._open = 1  # the reading of the batch itself

    def expect(self, exchange: Exchange) -> None:
        self._open += 1

    def answer(self, line: bytes, *, code: int | None) -> None:
        self._answers.append(line)

    def close(self) -> None:
        self._open -= 1
        if not self._open and self._answers:
            self._outlet.write(b"[" + b",".join(self._answers) + b"]")
