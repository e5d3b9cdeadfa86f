"""Running a command that waits: SIGTERM and a closed terminal let it clean up as Ctrl-C does, once."""

import asyncio
import signal
import sys
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
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else `nohup`
        signal.signal(signal.SIGHUP, stop)
    return await task
