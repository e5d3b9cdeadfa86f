"""Asking in the best way the client has: its own form or a page in either era, or else a paused call.

The question is stored before it gets here, and any other channel may answer it meanwhile; the first wins.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from pml.core.approvals.record import Approval, ApprovalId, Role, State
from pml.core.approvals.subjects import headline, row_of
from pml.core.values import Json, JsonObject
from pml.downstream.forms.form import apply_answer, form_params, is_cut, is_too_fast
from pml.downstream.keepalive import waiting
from pml.downstream.protocol.connection import Connection, ConnectionGone, Exchange
from pml.downstream.protocol.eras import Era
from pml.jsonrpc.messages import RpcError
from pml.service.approvals.answers import is_asked_anew
from pml.service.approvals.lifecycle import get, wait
from pml.service.call import Gate, Suspended, why_no_form
from pml.service.context import Context

COMPLETE: Final = "notifications/elicitation/complete"


def link_params(record: Approval, url: str) -> JsonObject:
    """Return the params of `elicitation/create` that let the client open the page; legacy ones want an id."""
    return {"mode": "url", "message": _message(record), "url": url}


def was_opened(answer: Json) -> bool:
    """Tell whether the client says that its user opened the page."""
    return isinstance(answer, Mapping) and answer.get("action") == "accept"


async def apply_refusal(
    context: Context, record: Approval, answer: Json, *, client: str, elapsed_s: float
) -> Approval | None:
    """Deny the question if the client's user declined to open the page; None for any other answer."""
    if not isinstance(answer, Mapping) or answer.get("action") != "decline":
        return None
    declined: JsonObject = {"action": "decline"}
    return await apply_answer(context, record, declined, client=client, elapsed_s=elapsed_s)


def link_to(record: Approval, base: str) -> str:
    """Return the page of the inbox at `base` where the question is answered."""
    return f"{base}/#/{row_of(record).page or 'card'}/{record.id}"


def _message(record: Approval) -> str:
    if row_of(record).page is not None:
        return f"{headline(record)}. {row_of(record).on_page}"
    return (
        f"{headline(record)}. It is too long for a form: read it all, and decide it, on this page of "
        "PML's inbox, which you may have to log in to."
    )


FORM_S: Final = 50.0  # clients give a request up after 60 s; then the model must know how to continue
CONTINUE_S: Final = 25.0  # a continued call waits so long for a decision, where its client hears progress
CONTINUE_SILENT_S: Final = 3.0  # and where not: some clients end every request after 5 s

Spawn = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]
HubUrl = Callable[[], str | None]


def no_hub() -> None:
    """Where the hub is that serves the inbox, if none does."""


class FormNeeded(Suspended):
    """A modern client is to show a form, or open the page `link`, and to repeat the call with the answer."""

    def __init__(
        self, record: Approval, *, link: str | None, again: bool = False, anew: bool = False
    ) -> None:
        super().__init__(record)
        self.link = link
        self.again = again
        self.anew = anew

    def params(self, era: Era) -> JsonObject:
        """Return those of `elicitation/create`."""
        if self.link is not None:
            return link_params(self.record, self.link)
        return form_params(self.record, era, again=self.again, anew=self.anew)


class _Form:
    """A question that the client shows, or opens as the page `link`, once for all calls that wait for it."""

    def __init__(self, link: str | None) -> None:
        self.link = link
        self.task: asyncio.Task[Approval | None]
        self.came = asyncio.Event()  # its answer
        self.waiting = 0
        self.is_kept = False  # a call was told to go on without it: a late answer still applies

    @property
    def is_open(self) -> bool:
        return not (self.task.done() or self.task.cancelling())

    def leave(self) -> None:
        """Close the form when its answer is no longer needed."""
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
        hub_url: HubUrl = no_hub,
    ) -> None:
        self.unanswered: str | None = None
        self._context = gate.context
        self._gate = gate
        self._connection = connection
        self._exchange = exchange
        self.era = era
        self._spawn = spawn
        self._hub_url = hub_url
        self._ends_at = asyncio.get_running_loop().time() + FORM_S  # of the call, however often it asks

    @property
    def has_form(self) -> bool:
        return self.era.has_form and not self._gate.is_held

    @property
    def declares_form(self) -> bool:
        return self.era.declares_form

    @property
    def has_model(self) -> bool:
        return True

    async def put(self, record: Approval) -> Approval:
        """Show the question; return it decided, or undecided without an answer here.

        Raises: FormNeeded on a modern connection.
        """
        if self._gate.session.waits:
            return await self._wait_for_others(record)
        link = self._link(record)
        counts = link is not None or self._form_counts(record)
        if not counts or record.id == self.unanswered:
            return record
        if self.era.is_modern:
            raise FormNeeded(record, link=link, anew=await is_asked_anew(self._context, record))
        now = await self._wait_with_form(record, link)
        if now.status is State.PENDING:
            self.unanswered = record.id  # it is shown once for one call
        return now

    async def take(self, record: Approval, answer: Json, *, link: str | None, age_s: float) -> Approval:
        """Return the question after the answer that a modern client brings; undecided if it is nobody's."""
        if link is None:
            decided = await self._apply(record, answer, elapsed_s=age_s)
        elif was_opened(answer):
            decided = await self._wait_for_others(record, timeout_s=self._left_s())
        else:
            decided = await apply_refusal(
                self._context, record, answer, client=self.era.client, elapsed_s=age_s
            )
        return decided or await get(self._context, record.id)

    async def _apply(self, record: Approval, answer: Json, *, elapsed_s: float) -> Approval | None:
        """Decide as the form's answer says; None if it is nobody's."""
        return await apply_answer(
            self._context,
            record,
            answer,
            client=self.era.client,
            elapsed_s=elapsed_s,
            over_http=not self._gate.is_stdio,
        )

    def _form_counts(self, record: Approval) -> bool:
        """Tell whether to send a form: not where its answer would not apply."""
        counts = self.has_form and self._gate.client_answers and Role.FORM in record.deciders
        return counts and not is_cut(record)

    def why_no_form(self, record: Approval) -> str | None:
        """Return why the client was sent no form although it shows them, where the model should know."""
        if self.declares_form and not self.era.has_form:
            return "forms are switched off (`approval.forms`, or `pml stdio --no-forms`)"
        if not self.has_form:
            return None
        if Role.FORM in record.deciders and is_cut(record):
            return "it is too long for one; the inbox shows all of it"
        if not self._gate.client_answers and self._gate.is_stdio:
            return "an agent had this gateway started, or nobody is known to be there"
        if not self._gate.client_answers:
            return "its token was not made for a client that shows forms to a person"
        return why_no_form(self._gate, record)

    def is_shown(self, record: Approval) -> bool:
        """Tell whether the client still shows a form of the question, whose answer applies."""
        form = _forms.get(self._connection, {}).get(record.id)
        return form is not None and form.link is None and form.is_open

    def _link(self, record: Approval) -> str | None:
        """Return the page for a key, or for what no form can show whole, if the client opens one."""
        is_for_page = row_of(record).page is not None or is_cut(record)
        if not is_for_page or not self.era.has_link or self._gate.is_held:
            return None
        base = self._hub_url()
        return None if base is None else link_to(record, base)

    def _left_s(self) -> float:
        return max(0.0, self._ends_at - asyncio.get_running_loop().time())

    async def wait_on(self, record: Approval) -> Approval:
        """Return the question of a call that was continued too early, decided or after a while as it is.

        A client that gives this up withdraws nothing: the question keeps waiting.
        """
        is_heard = self._exchange.listener is not None
        return await self._wait_for_others(record, timeout_s=CONTINUE_S if is_heard else CONTINUE_SILENT_S)

    async def _wait_for_others(self, record: Approval, *, timeout_s: float | None = None) -> Approval:
        """Return the question decided, or its time over: the agent's launcher decides, or a person."""
        with waiting(self._exchange):
            return await wait(self._context, record.id, timeout_s=timeout_s)

    async def _wait_with_form(self, record: Approval, link: str | None) -> Approval:
        form = self._form(record, link, anew=await is_asked_anew(self._context, record))
        decided = asyncio.ensure_future(wait(self._context, record.id, timeout_s=self._left_s()))
        form.waiting += 1
        try:
            with waiting(self._exchange):
                await asyncio.wait({form.task, decided}, return_when=asyncio.FIRST_COMPLETED)
            is_over = decided.done() and decided.result().status is not State.PENDING
            # its own decision wakes `decided` before all of it is remembered, or told to the client
            if form.came.is_set() or (form.link is not None and is_over):
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
            decided.cancel()
            form.leave()

    def _form(self, record: Approval, link: str | None, *, anew: bool) -> _Form:
        """Return the form that is open for the question, or a new one."""
        forms = _forms.setdefault(self._connection, {})
        for id in [id for id, form in forms.items() if not form.is_open]:
            del forms[id]
        if record.id not in forms:
            form = forms[record.id] = _Form(link)
            showing = self._show(record, form.came, anew=anew) if link is None else self._open(record, link)
            form.task = self._spawn(showing)
        return forms[record.id]

    async def _show(
        self, record: Approval, came: asyncio.Event, *, again: bool = False, anew: bool = False
    ) -> Approval | None:
        """Return the question as the form's answer leaves it, once it `came`; None if nobody answered.

        What was accepted faster than anybody reads is shown once more.
        A question that is decided elsewhere, or over, is not shown any longer. Raises: ConnectionGone.
        """
        began_at = asyncio.get_running_loop().time()
        params = form_params(record, self.era, again=again, anew=anew)
        asked = self._spawn(self._connection.request("elicitation/create", params, self._exchange))
        decided = self._spawn(wait(self._context, record.id))
        try:
            await asyncio.wait({asked, decided}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return decided.result()
            elapsed_s = asyncio.get_running_loop().time() - began_at
            if not again and is_too_fast(asked.result(), elapsed_s):
                decided.cancel()
                return await self._show(record, came, again=True)
            came.set()
            return await self._apply(record, asked.result(), elapsed_s=elapsed_s)
        except RpcError:
            return None
        finally:
            asked.cancel()
            decided.cancel()

    async def _open(self, record: Approval, link: str) -> Approval | None:
        """Have the client open the page; return the question as the page, or a refusal, leaves it.

        None if the page was not opened, which is nobody's answer. Raises: ConnectionGone.
        """
        began_at = asyncio.get_running_loop().time()
        id = self._context.ids.new()
        params = {**link_params(record, link), "elicitationId": id}
        asked = self._spawn(self._connection.request("elicitation/create", params, self._exchange))
        decided = self._spawn(wait(self._context, record.id))
        try:
            await asyncio.wait({asked, decided}, return_when=asyncio.FIRST_COMPLETED)
            if not decided.done() and not was_opened(asked.result()):
                elapsed_s = asyncio.get_running_loop().time() - began_at
                return await apply_refusal(
                    self._context, record, asked.result(), client=self.era.client, elapsed_s=elapsed_s
                )
            answer = await decided
            tell = self._connection.notify if self._exchange.closed else self._exchange.notify
            tell(COMPLETE, {"elicitationId": id})
            return answer
        except RpcError:
            return None
        finally:
            asked.cancel()
            decided.cancel()
