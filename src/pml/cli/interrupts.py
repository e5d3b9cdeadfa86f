"""Running a command that waits: SIGTERM and a closed terminal let it clean up as Ctrl-C does, undisturbed.

Some clients ask twice: they end what they started, and have the kernel do so too. A second request ends a
command that does not listen, or that has not cleaned up in time.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any, Final

CLEAN_S: Final = 15.0  # ending a server that must be killed takes some 3 s
LISTEN_S: Final = 1.0  # for a command to begin with it: milliseconds, where it listens at all


async def until_done(work: Coroutine[Any, Any, int]) -> int:
    """Return what `work` returns."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    patient_until: float | None = None

    def clean_up() -> None:
        nonlocal patient_until
        patient_until = time.monotonic() + CLEAN_S
        task.cancel()

    def stop(number: int, frame: object) -> None:
        nonlocal patient_until
        if patient_until is None and not loop.is_closed():
            patient_until = time.monotonic() + LISTEN_S
            loop.call_soon_threadsafe(clean_up)
        elif patient_until is None or time.monotonic() > patient_until:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # that is `nohup`
        signal.signal(signal.SIGHUP, stop)
    return await task
