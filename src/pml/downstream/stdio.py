"""`pml stdio`: one client on standard input and output, until it has gone and all it started has ended."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from pml.downstream.connection import Connection
from pml.downstream.door import Answering, Door
from pml.downstream.eras import Era
from pml.downstream.pipes import claim_stdout, open_pipes

OpenGateway = Callable[[Connection, Era, AsyncExitStack], Awaitable[Answering]]


async def serve_stdio(open_gateway: OpenGateway, *, debug: bool) -> None:
    """Serve until the client closes its end. What `open_gateway` leaves on the stack is closed then."""
    stdout = claim_stdout()
    try:
        with open_pipes(stdin=0, stdout=stdout) as pipes:
            async with AsyncExitStack() as stack:
                door = Door(lambda era: open_gateway(connection, era, stack))
                connection = Connection(
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
