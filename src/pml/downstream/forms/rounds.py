"""The rounds of one modern request: it is answered with a question, and repeated with the answer.

The question is PML's own (an approval, shown as a form or opened as a page), or that of the server which
works on the call meanwhile. What is asked, and what comes of an answer, is decided elsewhere.
"""

import asyncio
import hashlib
import hmac
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from pml.core.approvals.record import Approval, ApprovalId, State, Subject
from pml.core.digest import digest
from pml.core.values import Json, JsonObject
from pml.downstream.forms.elicitation import Asker, FormNeeded, Spawn
from pml.downstream.forms.form import is_too_fast
from pml.downstream.forms.relay import CANCELLED, PARKED_S, Relay, Work
from pml.downstream.protocol.connection import Exchange
from pml.downstream.protocol.eras import SERVER_META, stamp
from pml.jsonrpc.codes import INVALID_PARAMS
from pml.jsonrpc.messages import RpcError
from pml.service.approvals.lifecycle import get
from pml.service.call import Attempt
from pml.service.context import Context

_KEPT: Final = 10_000  # spent seals remembered; what they led to is decided or gone long before


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """What a state says: which kind of round it belongs to, what it refers to, and how old it is."""

    kind: str
    ref: str
    age_s: float


class Seals:
    """Seals of this process; a state that another one sealed is nobody's."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._spent: dict[str, None] = {}

    def seal(self, kind: str, ref: str, *, call: str) -> str:
        """Return the state for a round of the call with the digest `call`."""
        at_ms = int(asyncio.get_running_loop().time() * 1000)
        body = f"{kind}.{ref}.{at_ms}.{os.urandom(8).hex()}"
        return f"{body}.{self._mark(body, call)}"

    def open(self, state: object, *, call: str) -> Sealed:
        """Return what the state says, and spend it. Raises: RpcError if it is not of this call, or spent."""
        body, _, mark = state.rpartition(".") if isinstance(state, str) else ("", "", "")
        if not hmac.compare_digest(mark.encode(), self._mark(body, call).encode()):
            raise RpcError(INVALID_PARAMS, "`requestState` does not belong to this call")
        if body in self._spent:
            raise RpcError(INVALID_PARAMS, "`requestState` was used before")
        self._spent[body] = None
        if len(self._spent) > _KEPT:
            del self._spent[next(iter(self._spent))]
        kind, ref, at_ms, _ = body.split(".")
        age_s = asyncio.get_running_loop().time() - int(at_ms) / 1000
        return Sealed(kind=kind, ref=ref, age_s=age_s)

    def _mark(self, body: str, call: str) -> str:
        return hmac.new(self._key, f"{body}|{call}".encode(), hashlib.sha256).hexdigest()


_SHOWN: Final = 1000  # forms that a client never comes back from are forgotten, the oldest first
_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})
_APPROVAL, _SERVER = "approval", "server"  # whose question it is

T = TypeVar("T")


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of the round before it, and what it asks for itself: `request`."""

    request: JsonObject
    state: Json
    responses: JsonObject

    @property
    def call(self) -> str:
        """What a sealed state is bound to."""
        return digest(self.request)

    def answer(self, key: str) -> JsonObject | None:
        """Return the answer to a question; None if there is none, or it has not the shape of one."""
        given = self.responses.get(key)
        if not isinstance(given, Mapping) or given.get("action") not in _ACTIONS:
            return None
        return given if isinstance(given.get("content", {}), Mapping) else None


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a client shows, or opens as the page `link`, and the call that waits for it."""

    approval_id: ApprovalId
    attempt: Attempt
    link: str | None
    again: bool  # it was answered too fast once


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parked:
    """A call that continues between two rounds."""

    attempt: Attempt
    work: Work
    running: asyncio.Task[bytes]


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The call that waited for a form, and its question; None where it was not answered."""

    attempt: Attempt
    approval: Approval | None


def read_round(params: JsonObject, *, request: JsonObject) -> Round:
    """Return what the params of `request` say of the round before. Raises: RpcError."""
    responses = params.get("inputResponses")
    if not isinstance(responses, Mapping | None):
        raise RpcError(INVALID_PARAMS, "`inputResponses` must be an object")
    return Round(request=request, state=params.get("requestState"), responses=responses or {})


class Rounds:
    def __init__(self, context: Context, relay: Relay, spawn: Spawn) -> None:
        self._context = context
        self._relay = relay
        self._spawn = spawn
        self._seals = Seals()
        self._shown: dict[str, _Shown] = {}
        self._parked: dict[str, _Parked] = {}

    async def returned(self, round: Round, exchange: Exchange, asker: Asker) -> bytes | Settled | None:
        """Return what comes of the round before, if there was one: an answer, or a call to continue.

        A question that was not answered, not even with a cancel, is put once more. A call that was allowed
        too late is asked about anew: otherwise the person who answered would see nothing. Raises: RpcError.
        """
        if round.state is None:
            return None
        sealed = self._seals.open(round.state, call=round.call)
        if sealed.kind == _SERVER:
            return await self._go_on(sealed.ref, round, exchange, asker)
        shown = _collect(self._shown, sealed.ref)
        answer = round.answer(_APPROVAL)
        record = await get(self._context, shown.approval_id)
        is_hasty = shown.link is None and not shown.again and is_too_fast(answer, sealed.age_s)
        if (answer is None or is_hasty) and record.status is State.PENDING:
            needed = FormNeeded(record, link=shown.link, again=shown.again or is_hasty)
            return self.form(needed, shown.attempt, round, asker)
        now = await asker.take(record, answer, link=shown.link, age_s=sealed.age_s)
        if now.status is State.PENDING:
            asker.unanswered = shown.approval_id
            return Settled(attempt=shown.attempt, approval=None)
        is_late = now.status is State.EXPIRED and answer is not None and answer["action"] == "accept"
        if is_late and now.subject is not Subject.WORKSPACE_TRUST:  # which a call asks about once
            return Settled(attempt=shown.attempt, approval=None)
        return Settled(attempt=shown.attempt, approval=now)

    def form(self, needed: FormNeeded, attempt: Attempt, round: Round, asker: Asker) -> bytes:
        """Return the form; the call continues from here, whatever was settled on the way to it."""
        if needed.run_id is not None:
            attempt = msgspec.structs.replace(attempt, run_id=needed.run_id)
        ref = self._context.ids.new()
        self._shown[ref] = _Shown(
            approval_id=needed.record.id, attempt=attempt, link=needed.link, again=needed.again
        )
        if len(self._shown) > _SHOWN:
            del self._shown[next(iter(self._shown))]
        state = self._seals.seal(_APPROVAL, ref, call=round.call)
        return _input_required(_APPROVAL, needed.params(asker.era), state)

    async def work(
        self,
        attempt: Attempt,
        server: str | None,
        round: Round,
        exchange: Exchange,
        asker: Asker,
        run: "Callable[[Callable[[JsonObject], None] | None], Coroutine[Any, Any, bytes]]",
    ) -> bytes:
        """Run the call, telling `run` where progress goes; a question, or a form, may end the round.

        Raises: what else `run` raises.
        """
        if not (asker.era.is_modern and asker.era.has_form):
            try:
                return stamp(await self._serving(server, exchange, run(exchange.listener)), asker.era)
            except FormNeeded as exc:
                return self.form(exc, attempt, round, asker)
        work = Work(server, exchange)
        running = self._spawn(run(work.progress))
        self._relay.working.append(work)
        running.add_done_callback(lambda _: self._relay.working.remove(work))
        return await self._until_asked(_Parked(attempt=attempt, work=work, running=running), round, asker)

    async def _serving(self, server: str | None, exchange: Exchange, running: Awaitable[bytes]) -> bytes:
        self._relay.serving[exchange] = server
        try:
            return await running
        finally:
            del self._relay.serving[exchange]

    async def _go_on(self, ref: str, round: Round, exchange: Exchange, asker: Asker) -> bytes:
        parked = _collect(self._parked, ref)
        work = parked.work
        work.exchange = exchange
        answer = round.answer(_SERVER)
        if answer is None and not parked.running.done() and work.is_open:
            return self._asked(parked, round)
        work.asked.clear()
        work.answer(answer or CANCELLED)
        return await self._until_asked(parked, round, asker)

    async def _until_asked(self, parked: _Parked, round: Round, asker: Asker) -> bytes:
        """Return the result, the server's question, or PML's, whichever comes first."""
        work, running = parked.work, parked.running
        question = asyncio.ensure_future(work.asked.wait())
        try:
            await asyncio.wait({running, question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            question.cancel()
        if running.done():
            work.answer(CANCELLED)  # a question that came too late to be shown
            try:
                return stamp(running.result(), asker.era)
            except FormNeeded as exc:
                return self.form(exc, parked.attempt, round, asker)
        return self._asked(parked, round)

    def _asked(self, parked: _Parked, round: Round) -> bytes:
        ref = self._context.ids.new()
        self._parked[ref] = parked  # also when it ends before the client is back: it wants the result
        asyncio.get_running_loop().call_later(PARKED_S, self._parked.pop, ref, None)
        state = self._seals.seal(_SERVER, ref, call=round.call)
        return _input_required(_SERVER, parked.work.question or {}, state)


def _collect(rounds: dict[str, T], ref: str) -> T:
    """Return what the state of a round refers to, once. Raises: RpcError."""
    if ref not in rounds:
        raise RpcError(INVALID_PARAMS, "`requestState` refers to a call that has ended")
    return rounds.pop(ref)


def _input_required(key: str, params: JsonObject, state: str) -> bytes:
    return msgspec.json.encode(
        {
            "resultType": "input_required",
            "inputRequests": {key: {"method": "elicitation/create", "params": params}},
            "requestState": state,
            "_meta": SERVER_META,
        }
    )
