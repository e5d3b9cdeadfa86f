"""Carrying out what was consented to, beside the calls that wait for it: to its end, once, and on record."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from pml.core.approvals.record import State, Subject
from pml.core.errors import Conflict, NotFound
from pml.core.ports.queries import ApprovalQuery
from pml.service.approvals.answers import SETTLED
from pml.service.approvals.lifecycle import all_pending, cancel, wait
from pml.service.call import Gate, Loader

INSTALL_S: Final = 900.0  # for another call, or process, that carries the same out
_UNDER_WAY: Final = frozenset({State.EXECUTING})
_ALL: Final = 1000


async def in_background(loader: Loader, artefact: str, work: Coroutine[Any, Any, None]) -> None:
    """Do the work to its end also if the call is given up: the next one finds it done, or under way."""
    task = asyncio.create_task(work)
    loader.installing[task] = artefact
    task.add_done_callback(loader.installing.pop)
    await asyncio.shield(task)


async def was_under_way(gate: Gate, loader: Loader, subject: Subject, artefact: str) -> bool:
    """Wait for the same that is being carried out for another call; tell whether there was any.

    Whoever waited looks again: it may be done, or have failed.
    """
    here = [task for task, carried_out in loader.installing.items() if carried_out == artefact]
    if here:
        await asyncio.wait(here, timeout=INSTALL_S)
        return True
    query = ApprovalQuery(states=_UNDER_WAY, limit=_ALL)
    found = await gate.context.store.approvals.page(query)
    elsewhere = [each for each in found if (each.subject, each.artefact) == (subject, artefact)]
    for record in elsewhere:
        await wait(gate.context, record.id, timeout_s=INSTALL_S, during=_UNDER_WAY)
    return bool(elsewhere)


async def stop_installs(loader: Loader) -> None:
    """Give up what is being installed; nothing of it stays."""
    for task in loader.installing:
        task.cancel()
    await asyncio.gather(*loader.installing, return_exceptions=True)


async def withdraw_same(gate: Gate, subject: Subject, artefact: str) -> None:
    """Withdraw what other calls of the session still ask about the same: it is settled, and they go on."""
    async for other in all_pending(gate.context, session_id=gate.session.id):
        if (other.subject, other.artefact) == (subject, artefact):
            with contextlib.suppress(Conflict, NotFound):
                await cancel(gate.context, other.id, reason=SETTLED, version=other.version)
