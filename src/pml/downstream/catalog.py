"""Which tool a name means, and what the lists hold; kept until the configuration or a server changes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pml.core.errors import Invalid
from pml.core.manifests import Manifest
from pml.core.names import Fqdn, ToolName, parse_fqdn, parse_tool, tool_of
from pml.core.values import JsonObject
from pml.downstream.asking import Spawn
from pml.downstream.offering import is_listed, tool_list
from pml.service.discovery import Known, Tools, known_tools, learn_servers
from pml.service.gate import Attempt, Gate
from pml.service.policy import Policy, current_policy
from pml.service.readiness import unknown_tool

FINISH_S: Final = 1.0  # when the client has gone; everything ends within five seconds
LEARN_S: Final = 3.0  # for servers that start for the first time: some clients end every request after 5 s


class Catalog:
    def __init__(self, gate: Gate, spawn: Spawn) -> None:
        self._gate = gate
        self._spawn = spawn
        self._policy: Policy | None = None
        self._tools: Tools | None = None
        self._changes = 0
        self._problems: Mapping[str, str] = {}
        self._learning: asyncio.Task[Mapping[str, str]] | None = None
        self.own: Callable[[], Sequence[Known]] = tuple  # more tools of PML's own

    def forget(self, server: str, kind: str) -> None:
        """Learn that what a server offers has changed."""
        self._tools = None
        self._changes += 1

    async def tools(self) -> tuple[Tools, Policy]:
        """Return what is known now; starts nothing."""
        policy = await current_policy(self._gate.desk, self._gate.session.workspace)
        if self._tools is not None and self._policy is policy:
            return self._tools, policy
        changes = self._changes
        tools = await known_tools(self._gate, policy, problems=self._problems)
        if changes == self._changes:  # else a part of it may be from before a change
            self._tools, self._policy = tools, policy
        return tools, policy

    async def _listed(self) -> tuple[Tools, Policy]:
        """Return the table of names without a look at the files: the call itself is judged by them anyway."""
        current = self._gate.desk.policies.get(self._gate.session.workspace)
        if self._tools is None or self._policy is None or self._policy is not current:
            return await self.tools()
        return self._tools, self._policy

    async def learn(self, timeout_s: float | None = None) -> tuple[Tools, Policy]:
        """As `tools`, after starting the servers of which nothing is known yet.

        Those that are not there in time go on starting, and are announced when they are.
        """
        tools, policy = await self.tools()
        if tools.missing and (self._learning is None or self._learning.done()):
            self._learning = self._spawn(learn_servers(self._gate, policy))
        if tools.missing and self._learning is not None:
            done, _ = await asyncio.wait(
                {self._learning}, timeout=LEARN_S if timeout_s is None else timeout_s
            )
            if done:
                self._problems = self._learning.result()
            self._tools = None
        return await self.tools()

    async def finish(self) -> None:
        """Let servers that are being learnt tell what they offer: a client that only lists comes again."""
        if self._learning is not None and not self._learning.done():
            await asyncio.wait({self._learning}, timeout=FINISH_S)

    def current(self, tools: Tools, policy: Policy) -> list[JsonObject]:
        """Return what `tools/list` offers now."""
        return tool_list(tools, self.waiting(policy), self.problems(policy), own=self.own())

    def with_own(self, tools: Tools) -> Tools:
        """Return the tools, and after them those of PML's own that `discover` finds."""
        own = self.own()
        by_wire = {**tools.by_wire, **{known.wire: known for known in own}}
        return replace(tools, by_wire=by_wire, by_name={**tools.by_name, **{str(it.tool): it for it in own}})

    def problems(self, policy: Policy) -> list[str]:
        """Return what a user should know of the configuration."""
        found = [f"{error.message}: until it is fixed, everything asks" for error in policy.broken]
        if not policy.settings.approval.asking_enabled(self._gate.desk.clock.now()):
            found.append("ASKING IS OFF: what no rule denies runs without asking")
        return [*found, *policy.settings.problems]

    def waiting(self, policy: Policy) -> Sequence[str]:
        """Return the servers that only a file defines which nobody trusts yet."""
        config = policy.loaded.workspace.config
        return () if policy.trusted or config is None else sorted(config.servers)

    async def resolve(self, name: str, arguments: JsonObject) -> Attempt:
        """Return the call of the tool that `name` means, as clients or people write it. Raises: NotFound."""
        tools, policy = await self._listed()
        known = tools.by_wire.get(name) or tools.by_name.get(name)
        if known is None:  # a file may have been mended, or trusted, since the table was made
            tools, policy = await self.tools()
            known = tools.by_wire.get(name) or tools.by_name.get(name)
        if known is not None:
            return Attempt(tool=known.tool, arguments=arguments, offered=is_listed(tools, known))
        if fqdn := _as_fqdn(name):
            prefix = f"{fqdn.org}.{fqdn.project}"
            return Attempt(tool=tool_of(fqdn), arguments=arguments, offered=False, prefix=prefix)
        tool = self._unknown(name, policy)
        if tool is None:
            raise policy.broken[0] if policy.broken else unknown_tool(name, [*tools.by_wire, *tools.by_name])
        return Attempt(tool=tool, arguments=arguments, offered=False)

    def _unknown(self, name: str, policy: Policy) -> ToolName | None:
        """Return the tool of a server of which nothing is known yet."""
        servers = [*policy.settings.servers, *self.waiting(policy)]
        found = next((server for server in servers if name.startswith(f"{server}__")), None)
        try:
            if ":" in name:
                return parse_tool(name)
            return None if found is None else ToolName(namespace=found, action=name[len(found) + 2 :])
        except Invalid:
            return None

    def wire(self, tool: ToolName) -> str:
        known = None if self._tools is None else self._tools.by_name.get(str(tool))
        return str(tool) if known is None else known.wire

    async def manifests(self) -> Sequence[Manifest]:
        return (await self.learn())[0].manifests


def _as_fqdn(name: str) -> Fqdn | None:
    """Return the capability that is meant by its full name."""
    try:
        return parse_fqdn(name)
    except Invalid:
        return None
