"""Signs of life of a request: progress without news, for clients that give up what is silent for long.

Sent only where the client gave a progress token. What the request does meanwhile is its `stage`.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from pml.downstream.protocol.connection import Exchange

TICK_S: Final = 10.0  # some clients abort a call that is silent for a minute
WAITING: Final = "waiting for approval"


@contextmanager
def ticking(exchange: Exchange) -> Generator[None]:
    """Tell the client, for the block, that its request is alive."""
    if exchange.listener is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def tick() -> None:
        nonlocal later
        exchange.progress(exchange.stage)
        later = loop.call_later(TICK_S, tick)

    later = loop.call_later(TICK_S, tick)
    try:
        yield
    finally:
        later.cancel()


@contextmanager
def waiting(exchange: Exchange) -> Generator[None]:
    """Tell the client at once, and for the block, that its request waits for somebody's answer."""
    before, exchange.stage = exchange.stage, WAITING
    exchange.progress(WAITING)
    try:
        yield
    finally:
        exchange.stage = before
