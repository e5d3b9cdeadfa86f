"""The gateway behind one client, once it is needed: every MCP method that is more than a handshake."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec

from pml.core.errors import PmlError
from pml.core.values import JsonObject
from pml.downstream.asking import Asker, HubUrl, no_hub
from pml.downstream.catalog import Catalog
from pml.downstream.connection import Connection, Exchange, RpcError
from pml.downstream.eras import INVALID_PARAMS, METHOD_NOT_FOUND, Era, stamp, uncached
from pml.downstream.messages import Notification
from pml.downstream.passing import Passing, list_prompts, list_resources, list_templates
from pml.downstream.relay import LEVELS, Relay
from pml.downstream.rounds import Rounds
from pml.downstream.supervision import Launching, Supervision
from pml.downstream.toolcalls import ToolCalls
from pml.service.discovery import prespawn
from pml.service.gate import Gate
from pml.service.policy import current_policy

WATCH_S: Final = 2.0  # how soon a client learns that a file was edited or trusted while nobody calls


class Gateway:
    """Answers for one client. Its tasks end with `close`."""

    def __init__(
        self,
        gate: Gate,
        connection: Connection,
        relay: Relay,
        launching: Launching | None = None,
        hub_url: HubUrl = no_hub,
    ) -> None:
        """`hub_url` tells where the inbox is served now, if it is."""
        self._gate = gate
        self._connection = connection
        self._relay = relay
        self._chores: set[asyncio.Task[Any]] = set()
        self._catalog = Catalog(gate, self.spawn)
        supervision = None if launching is None else Supervision(gate, self._catalog, launching)
        if supervision is not None:
            self._catalog.own = supervision.offered
        self._hub_url = hub_url
        self._rounds = Rounds(gate.desk, relay, self.spawn)
        self._calls = ToolCalls(
            gate, connection, self._catalog, self._rounds, self.spawn, supervision, hub_url
        )
        self._listed: list[JsonObject] | None = None
        relay.on_changed = self._catalog.forget
        self.spawn(self._begin())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run `work` for as long as the gateway lives."""
        task = asyncio.get_running_loop().create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._chores.discard(task)
        if not task.cancelled():
            task.exception()  # whoever awaits it is told; nobody else needs to be

    async def close(self) -> None:
        chores = list(self._chores)
        for task in chores:
            task.cancel()
        await asyncio.gather(*chores, return_exceptions=True)

    async def answer(self, exchange: Exchange, era: Era) -> bytes:
        """Return the result of the request, as its era has it. Raises: RpcError."""
        self._relay.meet(era)
        match exchange.request.method:
            case "tools/call":
                return await self._calls.answer(exchange, era)
            case "tools/list":
                self._listed = await self._catalog.listing()
                return self._list({"tools": self._listed}, era)
            case "resources/list":
                return self._list(await list_resources(self._catalog), era)
            case "resources/templates/list":
                return self._list(await list_templates(self._catalog), era)
            case "prompts/list":
                return self._list(await list_prompts(self._catalog), era)
            case "subscriptions/listen" if era.is_modern:
                return stamp(msgspec.json.encode(await self._relay.listen(exchange)), era)
            case "logging/setLevel" if not era.is_modern:
                return self._set_level(exchange.request.params)
            case _:
                return await self._passed(exchange, era)

    def noticed(self, notification: Notification) -> None:
        """Learn what the client tells without being asked."""
        if notification.method == "notifications/roots/list_changed":
            self._relay.roots_changed()

    async def _passed(self, exchange: Exchange, era: Era) -> bytes:
        asker = Asker(self._gate, self._connection, exchange, era, self.spawn, self._hub_url)
        passing = Passing(self._gate, self._catalog, self._rounds, exchange, asker)
        match exchange.request.method:
            case "resources/read":
                return await passing.read_resource()
            case "prompts/get":
                return await passing.get_prompt()
            case "completion/complete":
                return await passing.complete()
            case method:
                raise RpcError(METHOD_NOT_FOUND, f"no method `{method[:80]}`")

    def _list(self, result: JsonObject, era: Era) -> bytes:
        return stamp(uncached(msgspec.json.encode(result), era), era)

    def _set_level(self, params: JsonObject) -> bytes:
        level = params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"`level` must be one of {', '.join(LEVELS)}")
        self._relay.level = level
        return b"{}"

    async def _begin(self) -> None:
        """Start what is to be started early, then watch for changes that no call would notice."""
        policy = await current_policy(self._gate.desk, self._gate.session.workspace)
        self.spawn(prespawn(self._gate, policy))
        while True:
            await asyncio.sleep(WATCH_S)
            with suppress(PmlError):
                await self._announce_changes()

    async def _announce_changes(self) -> None:
        if self._listed is None:
            return
        tools, policy = await self._catalog.tools()
        now = self._catalog.current(tools, policy)
        if now != self._listed:
            self._listed = now
            self._relay.announce("tools")
