"""Asking in the best way the client has: its own form in either era, or else a paused call.

The question is stored before it gets here, and any other channel may answer it meanwhile; the first wins.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final
from weakref import WeakKeyDictionary

from pml.core.approvals import Approval, ApprovalId, Role, State
from pml.downstream.connection import Connection, ConnectionGone, Exchange, RpcError
from pml.downstream.eras import Era
from pml.downstream.forms import apply_answer, form_params
from pml.service.approvals import wait
from pml.service.gate import Gate, Suspended

FORM_S: Final = 50.0  # clients give a request up after 60 s; then the model must know how to go on
TICK_S: Final = 10.0  # some clients abort a call that is silent for a minute

Spawn = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]


class FormNeeded(Suspended):
    """A modern client is to show a form and to repeat the call with the answer."""


class _Form:
    """A question that the client shows, once for all the calls that wait for it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Approval | None]
        self.came = asyncio.Event()  # its answer
        self.waiting = 0
        self.is_kept = False  # a call was told to go on without it: a late answer still counts

    @property
    def is_open(self) -> bool:
        return not (self.task.done() or self.task.cancelling())

    def leave(self) -> None:
        """Close the form when nobody has a use for its answer any more."""
        self.waiting -= 1
        if not (self.waiting or self.is_kept or self.came.is_set()):
            self.task.cancel()


_forms: WeakKeyDictionary[Connection, dict[ApprovalId, _Form]] = WeakKeyDictionary()


class Asker:
    """How one call asks. `unanswered` is a question whose form came back without an answer."""

    def __init__(
        self,
        gate: Gate,
        connection: Connection,
        exchange: Exchange,
        era: Era,
        spawn: Spawn,
    ) -> None:
        self.unanswered: str | None = None
        self._desk = gate.desk
        self._gate = gate
        self._connection = connection
        self._exchange = exchange
        self.era = era
        self._spawn = spawn
        self._ends_at = asyncio.get_running_loop().time() + FORM_S  # of the call, however often it asks

    @property
    def has_form(self) -> bool:
        return self.era.has_form and not self._gate.is_held

    @property
    def has_model(self) -> bool:
        return True

    async def put(self, record: Approval) -> Approval:
        """Show the question; return it decided, or undecided when nobody answers here.

        Raises: FormNeeded on a modern connection.
        """
        if self._gate.session.waits:
            return await self._wait_for_others(record)
        counts = self.has_form and Role.FORM in record.deciders
        if not counts or record.id == self.unanswered:
            return record
        if self.era.is_modern:
            raise FormNeeded(record)
        return await self._wait_with_form(record)

    async def _wait_for_others(self, record: Approval) -> Approval:
        """Return the question decided, or its time over: whoever launched the agent decides, or a person."""
        ticks = asyncio.ensure_future(self._tick())
        try:
            return await wait(self._desk, record.id)
        finally:
            ticks.cancel()

    async def _wait_with_form(self, record: Approval) -> Approval:
        form = self._form(record)
        left_s = max(0.0, self._ends_at - asyncio.get_running_loop().time())
        decided = asyncio.ensure_future(wait(self._desk, record.id, timeout_s=left_s))
        ticks = asyncio.ensure_future(self._tick())
        form.waiting += 1
        try:
            await asyncio.wait({form.task, decided}, return_when=asyncio.FIRST_COMPLETED)
            if form.came.is_set():  # its own decision wakes `decided` before all of it is remembered
                await asyncio.wait({form.task})
            if form.task.done() and (answered := form.task.result()) is not None:
                return answered
            if not decided.done():
                return record
            answer = decided.result()
            form.is_kept |= answer.status is State.PENDING
            return answer
        except ConnectionGone as exc:
            self._exchange.closed = True
            raise asyncio.CancelledError from exc  # the call ends with its client; the question is taken back
        finally:
            ticks.cancel()
            decided.cancel()
            form.leave()

    def _form(self, record: Approval) -> _Form:
        """Return the form that is open for the question, or a new one."""
        forms = _forms.setdefault(self._connection, {})
        for id in [id for id, form in forms.items() if not form.is_open]:
            del forms[id]
        if record.id not in forms:
            form = forms[record.id] = _Form()
            form.task = self._spawn(self._show(record, form.came))
        return forms[record.id]

    async def _show(self, record: Approval, came: asyncio.Event) -> Approval | None:
        """Return the question as the form's answer leaves it, once it `came`; None if nobody answered.

        A question that is decided elsewhere, or over, is not shown any longer. Raises: ConnectionGone.
        """
        began_at = asyncio.get_running_loop().time()
        params = form_params(record, self.era)
        asked = self._spawn(self._connection.request("elicitation/create", params, self._exchange))
        decided = self._spawn(wait(self._desk, record.id))
        try:
            await asyncio.wait({asked, decided}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return decided.result()
            came.set()
            elapsed_s = asyncio.get_running_loop().time() - began_at
            return await apply_answer(
                self._desk, record, asked.result(), client=self.era.client, elapsed_s=elapsed_s
            )
        except RpcError:
            return None
        finally:
            asked.cancel()
            decided.cancel()

    async def _tick(self) -> None:
        while True:
            self._exchange.progress("waiting for approval")
            await asyncio.sleep(TICK_S)
