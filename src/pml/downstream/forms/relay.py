"""Requests of servers to the client: forms shown in their own name, roots, log messages, announced changes.

A legacy client is asked directly. A modern one is asked through the result of the call that the server is
working on, which continues when the client repeats the call with the answer.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from pml.core.errors import ServerRefused
from pml.core.text import visible
from pml.core.values import Json, JsonObject
from pml.downstream.protocol.connection import Connection, ConnectionGone, Exchange
from pml.downstream.protocol.eras import SUBSCRIPTION, Era
from pml.jsonrpc.codes import MISSING_CAPABILITY, SERVER_ERROR, URL_FORM_REQUIRED
from pml.jsonrpc.messages import RpcError

T = TypeVar("T")
ROOTS_S: Final = 5.0  # roots come from the client's memory; one that takes longer does not answer at all
PARKED_S: Final = 300.0  # as long as an approval is waited for
OPEN: Final = 8  # questions of one server that wait for modern clients; beyond 16 it may not ask at all
CANCELLED: Final[JsonObject] = {"action": "cancel"}
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_FILTERS: Final[Mapping[str, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


class Work:
    """A call of a modern client, which its server may interrupt with questions of its own."""

    def __init__(self, server: str | None, exchange: Exchange) -> None:
        self.server = server
        self.asking: str | None = None  # the server whose question is open
        self.exchange = exchange  # the round of now
        self.question: JsonObject | None = None
        self.asked = asyncio.Event()
        self._answer: asyncio.Future[JsonObject] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a question of a server waits for its answer."""
        return self._answer is not None and not self._answer.done()

    async def ask(self, server: str, params: JsonObject) -> JsonObject:
        """Hand the server's question to whoever answers the client, and return what came back."""
        self.asking, self.question = server, params
        self._answer = asyncio.get_running_loop().create_future()
        self.asked.set()
        try:
            async with asyncio.timeout(PARKED_S):
                return await self._answer
        except TimeoutError:
            return CANCELLED
        finally:
            self.asking = self._answer = None

    def progress(self, params: JsonObject) -> None:
        self.exchange.forward_progress(params)

    def answer(self, answer: JsonObject) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)


class Relay:
    """Serves the port `Client` to the servers."""

    def __init__(self, connection: Connection, workspace: str, *, is_shared: bool = False) -> None:
        """`is_shared`: several clients come through the connection, which a server is started once for."""
        self.level = "info"
        self.working: list[Work] = []
        self.serving: dict[Exchange, str | None] = {}  # the calls of legacy clients, and the server of each
        self.on_changed: Callable[[str, str], None] = lambda server, kind: None
        self.shows_forms: Callable[[], bool] = lambda: True  # unless the user switched them off
        self._connection = connection
        self._workspace = workspace
        self._met: Era | None = None
        self._legacy: Era | None = None
        self._has_form = is_shared
        self._has_roots = False
        self._roots: JsonObject | None = None
        self._subscriptions: dict[Exchange, JsonObject] = {}

    def meet(self, era: Era) -> None:
        """Learn what the client of this request can do; what a server was told of another stays so."""
        if era is self._met:
            return
        self._met = era
        if not era.is_modern:
            self._legacy = era
        self._has_form |= era.has_form
        self._has_roots |= era.has_roots

    @property
    def can_elicit(self) -> bool:
        return self._has_form and self.shows_forms()

    @property
    def has_roots(self) -> bool:
        return self._has_roots

    async def elicit(self, server: str, params: JsonObject) -> JsonObject:
        """Put the server's form before the client's user; `cancel` if no user can be asked."""
        if not self.shows_forms():
            return CANCELLED
        asked = {**params, "message": _in_its_name(server, params.get("message"))}
        free = [(work.server, work) for work in self.working if not work.asked.is_set()]
        work = _serves(free, server)
        if work is not None:
            self._make_room(server)
            return await work.ask(server, asked)
        serving = _serves([(name, call) for call, name in reversed(self.serving.items())], server)
        era = self._legacy if serving is None else serving.origin.era
        if era is None or not era.has_form:
            return CANCELLED
        with suppress(RpcError, ConnectionGone):
            return await self._connection.request("elicitation/create", asked, serving)
        return CANCELLED

    def _make_room(self, server: str) -> None:
        """Cancel the server's oldest question if it has many open that no client came back to."""
        asking = [work for work in self.working if work.asking == server]
        if len(asking) >= OPEN:
            asking[0].answer(CANCELLED)

    async def roots(self) -> JsonObject:
        """Return the client's roots, or the workspace where it tells none."""
        if self._roots is None and self._legacy is not None and self._legacy.has_roots:
            with suppress(RpcError, ConnectionGone, TimeoutError):
                async with asyncio.timeout(ROOTS_S):
                    self._roots = await self._connection.request("roots/list", {})
        if self._roots is not None:
            return self._roots
        folder = Path(self._workspace)
        return {"roots": [{"uri": folder.as_uri(), "name": folder.name or str(folder)}]}

    def roots_changed(self) -> None:
        self._roots = None

    def logged(self, server: str, params: JsonObject) -> None:
        """Pass a server's log message on, under its name, to a client that shook hands."""
        level = params.get("level")
        if self._legacy is None or level not in LEVELS or LEVELS.index(level) < LEVELS.index(self.level):
            return
        own = params.get("logger")
        logger = f"{server}/{own}" if isinstance(own, str) else server
        self._connection.notify("notifications/message", {**params, "logger": logger})

    def changed(self, server: str, kind: str) -> None:
        """Learn that what a server offers has changed."""
        self.on_changed(server, kind)

    def listens(self, kind: str) -> bool:
        """Tell whether a modern client listens for changes of that kind."""
        return any(wanted.get(_FILTERS.get(kind, "")) is True for wanted in self._subscriptions.values())

    def announce(self, kind: str) -> None:
        """Tell whoever wants to know that a list has changed."""
        method = f"notifications/{kind}/list_changed"
        if self._legacy is not None:
            self._connection.notify(method, {})
        for exchange, wanted in self._subscriptions.items():
            if wanted.get(_FILTERS.get(kind, "")) is True:
                exchange.notify(method, {"_meta": {SUBSCRIPTION: exchange.request.id}})

    async def listen(self, exchange: Exchange) -> JsonObject:
        """Serve `subscriptions/listen` until it is cancelled or the client goes."""
        asked = exchange.request.params.get("notifications")
        wanted: JsonObject = asked if isinstance(asked, Mapping) else {}
        honoured: JsonObject = {key: True for key in _FILTERS.values() if wanted.get(key) is True}
        meta: JsonObject = {SUBSCRIPTION: exchange.request.id}
        self._subscriptions[exchange] = honoured
        try:
            exchange.notify(
                "notifications/subscriptions/acknowledged", {"notifications": honoured, "_meta": meta}
            )
            await asyncio.get_running_loop().create_future()
        finally:
            del self._subscriptions[exchange]
        return {"_meta": meta}


def server_error(refused: ServerRefused) -> RpcError:
    """Return the server's error as it is, unless clients make a form of it that would not bear its name."""
    code = msgspec.json.decode(refused.error, type=dict[str, Any]).get("code")
    if code == URL_FORM_REQUIRED:
        return RpcError(SERVER_ERROR, f"{refused.message}; PML does not open a server's links")
    is_lack = code == MISSING_CAPABILITY  # has a status of its own over HTTP
    return RpcError(code if is_lack else 0, refused.message, raw=refused.error)


def _serves(calls: Sequence[tuple[str | None, T]], server: str) -> T | None:
    """Return the call that the server works on: one of its own, or else one whose code may have called it."""
    own = next((call for name, call in calls if name == server), None)
    return own if own is not None else next((call for name, call in calls if name is None), None)


def _in_its_name(server: str, message: Json) -> str:
    """Return the server's message so that no line of it can be taken for PML's own."""
    lines = str(message or "").split("\n")
    return "\n".join([f"Server {server} asks:", *(f"  {visible(line)}" for line in lines)])
