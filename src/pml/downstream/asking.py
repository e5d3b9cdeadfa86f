"""Asking in the best way the client has: its own form in either era, or else a paused call.

The question is stored before it gets here, and any other channel may answer it meanwhile; the first wins.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from pml.core.approvals import Approval, State
from pml.downstream.connection import Connection, ConnectionGone, Exchange, RpcError
from pml.downstream.eras import Era
from pml.downstream.forms import apply_answer, form_params
from pml.service.approvals import wait
from pml.service.desk import Desk

FORM_S: Final = 50.0  # clients give a request up after 60 s; then the model must know how to go on
TICK_S: Final = 5.0  # some clients abort a call that is silent for long

Spawn = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]


class FormNeeded(Exception):
    """A modern client is to show a form and to repeat the call with the answer."""

    def __init__(self, record: Approval) -> None:
        super().__init__(record.id)
        self.record = record


class Asker:
    """How one call asks. `unanswered` is a question whose form came back without an answer."""

    def __init__(
        self,
        desk: Desk,
        connection: Connection,
        exchange: Exchange,
        era: Era,
        spawn: Spawn,
    ) -> None:
        self.unanswered: str | None = None
        self._desk = desk
        self._connection = connection
        self._exchange = exchange
        self.era = era
        self._spawn = spawn
        self._ends_at = asyncio.get_running_loop().time() + FORM_S  # of the call, however often it asks

    @property
    def has_form(self) -> bool:
        return self.era.has_form

    @property
    def has_model(self) -> bool:
        return True

    async def put(self, record: Approval) -> Approval:
        """Show the question; return it decided, or undecided when nobody answers here.

        Raises: FormNeeded on a modern connection.
        """
        if not self.has_form or record.id == self.unanswered:
            return record
        if self.era.is_modern:
            raise FormNeeded(record)
        return await self._wait_with_form(record)

    async def _wait_with_form(self, record: Approval) -> Approval:
        came = asyncio.Event()
        form = self._spawn(self._show(record, came))
        left_s = max(0.0, self._ends_at - asyncio.get_running_loop().time())
        decided = asyncio.ensure_future(wait(self._desk, record.id, timeout_s=left_s))
        ticks = asyncio.ensure_future(self._tick())
        left_open = False
        try:
            await asyncio.wait({form, decided}, return_when=asyncio.FIRST_COMPLETED)
            if came.is_set():  # its own decision wakes `decided` before all of it is remembered
                await asyncio.wait({form})
            if form.done() and form.result() is not None:
                return form.result()
            if not decided.done():
                return record
            answer = decided.result()
            left_open = answer.status is State.PENDING  # the form stays: a late answer still counts
            return answer
        finally:
            ticks.cancel()
            decided.cancel()
            if not left_open and not came.is_set():
                form.cancel()

    async def _show(self, record: Approval, came: asyncio.Event) -> Approval | None:
        """Return the question as the form's answer, once it `came`, leaves it; None if nobody answered."""
        began_at = asyncio.get_running_loop().time()
        with suppress(RpcError, ConnectionGone):
            answer = await self._connection.request("elicitation/create", form_params(record, self.era))
            came.set()
            elapsed_s = asyncio.get_running_loop().time() - began_at
            return await apply_answer(self._desk, record, answer, client=self.era.client, elapsed_s=elapsed_s)
        return None

    async def _tick(self) -> None:
        while True:
            self._exchange.progress("waiting for approval")
            await asyncio.sleep(TICK_S)
