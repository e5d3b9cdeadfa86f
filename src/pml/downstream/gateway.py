"""The gateway behind one client, once it is needed: every MCP method that is more than a handshake."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from pml.core.errors import PmlError
from pml.core.values import JsonObject
from pml.downstream.forms.elicitation import Asker, HubUrl, no_hub
from pml.downstream.forms.relay import LEVELS, Relay
from pml.downstream.forms.rounds import Rounds
from pml.downstream.protocol.connection import Connection, Exchange
from pml.downstream.protocol.eras import Era, stamp, uncached
from pml.downstream.resources import PASSED_LISTS, Passing
from pml.downstream.tools.sent import SentLists
from pml.downstream.tools.supervision import Launching, Supervision
from pml.downstream.tools.tool_calls import ToolCalls
from pml.downstream.tools.tool_table import ToolTable
from pml.jsonrpc.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from pml.jsonrpc.messages import Notification, RpcError
from pml.service.call import Gate, policy_of_turn
from pml.service.calls.tools import Tools, prespawn
from pml.service.policy.policy import Policy, current_policy

LIST_S: Final = 0.75  # for servers that start for the first time: some clients give a list up after a second
SETTLE_S: Final = 0.1  # changes that come together are announced together
LISTS: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
ANNOUNCED_AS: Final[Mapping[str, str]] = {"resourceTemplates": "resources"}
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
        self._table = ToolTable(gate, self.spawn)
        supervision = None if launching is None else Supervision(gate, self._table, launching)
        if supervision is not None:
            self._table.own = supervision.found
        self._hub_url = hub_url
        self._rounds = Rounds(gate.context, relay, self.spawn)
        self._sent = SentLists()
        self._calls = ToolCalls(
            gate, connection, self._table, self._rounds, self.spawn, supervision, self._sent, hub_url
        )
        self._changed: set[str] = set()
        self._without_forms: tuple[Era, Era] | None = None
        relay.on_changed = self._note_change
        relay.shows_forms = self._shows_forms
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
        await self._table.finish()
        chores = list(self._chores)
        for task in chores:
            task.cancel()
        await asyncio.gather(*chores, return_exceptions=True)

    async def answer(self, exchange: Exchange, era: Era) -> bytes:
        """Return the result of the request, as its era has it. Raises: RpcError."""
        era = await self._as_used(era)
        self._relay.meet(era)
        match exchange.request.method:
            case "tools/call":
                return await self._calls.answer(exchange, era)
            case "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list" as method:
                return await self._list(LISTS[method], exchange, era)
            case "subscriptions/listen" if era.is_modern:
                return stamp(msgspec.json.encode(await self._relay.listen(exchange)), era)
            case "logging/setLevel" if not era.is_modern:
                return self._set_level(exchange.request.params)
            case _:
                return await self._passed(exchange, era)

    async def _as_used(self, era: Era) -> Era:
        """Return the era without forms, if it declares them and the user switched them off."""
        if not (era.has_form or era.has_link):
            return era
        await policy_of_turn(self._gate)
        if self._shows_forms():
            return era
        if self._without_forms is None or self._without_forms[0] is not era:
            self._without_forms = era, msgspec.structs.replace(era, forms=False)
        return self._without_forms[1]

    def _shows_forms(self) -> bool:
        policy = self._gate.context.policies.get(self._gate.session.workspace)
        return self._gate.shows_forms and (policy is None or policy.settings.approval.forms)

    def noticed(self, notification: Notification) -> None:
        """Learn what the client tells without being asked."""
        if notification.method == "notifications/roots/list_changed":
            self._relay.roots_changed()

    async def _passed(self, exchange: Exchange, era: Era) -> bytes:
        asker = Asker(self._gate, self._connection, exchange, era, self.spawn, self._hub_url)
        passing = Passing(self._gate, self._table, self._rounds, exchange, asker)
        match exchange.request.method:
            case "resources/read":
                return await passing.read_resource()
            case "prompts/get":
                return await passing.get_prompt()
            case "completion/complete":
                return await passing.complete()
            case method:
                raise RpcError(METHOD_NOT_FOUND, f"no method `{method[:80]}`")

    async def _list(self, kind: str, exchange: Exchange, era: Era) -> bytes:
        entries = self._entries(kind, *await self._table.learn(LIST_S))
        self._sent.keep(exchange, era, kind, entries)
        return stamp(uncached(msgspec.json.encode({kind: entries}), era), era)

    def _entries(self, kind: str, tools: Tools, policy: Policy) -> Sequence[JsonObject]:
        """Return the list of that kind as it is now."""
        if kind == "tools":
            return self._table.current(tools, policy)
        return PASSED_LISTS[kind](tools.manifests)

    def _set_level(self, params: JsonObject) -> bytes:
        level = params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"`level` must be one of {', '.join(LEVELS)}")
        self._relay.level = level
        return b"{}"

    async def _begin(self) -> None:
        """Start what is to be started early, then watch for changes that no call would notice."""
        policy = await current_policy(self._gate.context, self._gate.session.workspace)
        self.spawn(prespawn(self._gate, policy))
        while True:
            await asyncio.sleep(WATCH_S)
            with suppress(PmlError):
                await self._announce({"tools"})

    def _note_change(self, server: str, kind: str) -> None:
        """Learn that what a server offers has changed; changes that come together are announced together."""
        self._table.forget(server, kind)
        if not self._changed:
            self.spawn(self._announce_soon())
        self._changed.add(kind)

    async def _announce_soon(self) -> None:
        await asyncio.sleep(SETTLE_S)
        kinds, self._changed = self._changed, set()
        await self._announce(kinds)

    async def _announce(self, kinds: Collection[str]) -> None:
        """Announce the kinds of which a client has another list than there is now, or none but listens."""
        tools, policy = await self._table.tools()
        for kind in sorted(kinds):
            lists = [each for each in LISTS.values() if ANNOUNCED_AS.get(each, each) == kind]
            listens = self._relay.listens(kind)
            is_behind = [
                self._sent.outdate(each, self._entries(each, tools, policy), modern=listens) for each in lists
            ]
            is_listening = listens and not any(self._sent.has(each) for each in lists)
            if any(is_behind) or is_listening:
                self._relay.announce(kind)
