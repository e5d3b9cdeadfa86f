"""Running a command that waits: SIGTERM, like Ctrl-C, lets it clean up; a second one ends it at once."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_done(work: Coroutine[Any, Any, int]) -> int:
    """Return what `work` returns."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(task.cancel)

    signal.signal(signal.SIGTERM, stop)
    return await task
