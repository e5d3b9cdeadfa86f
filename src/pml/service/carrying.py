"""Carrying out what was consented to, beside the calls that wait for it: to its end, once, and on record."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Final

from pml.core.approvals import Approval, Subject
from pml.core.errors import Conflict, NotFound, PmlError
from pml.service.approvals import all_pending, cancel, finish
from pml.service.gate import Gate, Loader
from pml.service.settling import SETTLED

INSTALL_S: Final = 900.0  # for another call, or process, that carries the same out


async def in_background(loader: Loader, work: Coroutine[Any, Any, None]) -> None:
    """Do the work to its end also if the call is given up: the next one finds it done."""
    task = asyncio.create_task(work)
    loader.installing.add(task)
    task.add_done_callback(loader.installing.discard)
    await asyncio.shield(task)


async def stop_installs(loader: Loader) -> None:
    """Give up what is being installed; nothing of it stays."""
    for task in loader.installing:
        task.cancel()
    await asyncio.gather(*loader.installing, return_exceptions=True)


async def withdraw_same(gate: Gate, subject: Subject, artefact: str) -> None:
    """Withdraw what other calls of the session still ask about the same: it is settled, and they go on."""
    async for other in all_pending(gate.desk, session_id=gate.session.id):
        if (other.subject, other.artefact) == (subject, artefact):
            with contextlib.suppress(Conflict, NotFound):
                await cancel(gate.desk, other.id, reason=SETTLED, version=other.version)


@contextlib.asynccontextmanager
async def finishing(gate: Gate, record: Approval | None) -> AsyncGenerator[None]:
    """Record how the deed that `record` approved ended."""
    try:
        yield
    except BaseException as exc:
        if record is not None:
            said = exc.message if isinstance(exc, PmlError) else "interrupted"
            await finish(gate.desk, record.id, error=said)
        raise
    if record is not None:
        await finish(gate.desk, record.id)
