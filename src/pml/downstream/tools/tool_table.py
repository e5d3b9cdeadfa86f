"""Tool table: which tool a name means, and what the lists hold, until files or servers change."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pml.core.names import ToolName
from pml.core.servers.manifest import Manifest
from pml.core.values import JsonObject
from pml.downstream.forms.elicitation import Spawn
from pml.downstream.tools.listing import tool_list
from pml.service.call import Attempt, Gate
from pml.service.calls.tool_names import find_known, resolve_among, untrusted_servers
from pml.service.calls.tools import Known, Tools, known_tools, learn_servers
from pml.service.policy.policy import Policy, current_policy

FINISH_S: Final = 1.0  # when the client has gone; everything ends within five seconds
LEARN_S: Final = 3.0  # for servers that start for the first time: some clients end every request after 5 s


class ToolTable:
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
        policy = await current_policy(self._gate.context, self._gate.session.workspace)
        if self._tools is not None and self._policy is policy:
            return self._tools, policy
        changes = self._changes
        tools = await known_tools(self._gate, policy, problems=self._problems)
        if changes == self._changes:  # else a part of it may be from before a change
            self._tools, self._policy = tools, policy
        return tools, policy

    async def _listed(self) -> tuple[Tools, Policy]:
        """Return the table of names without a look at the files: the call itself is judged by them anyway."""
        current = self._gate.context.policies.get(self._gate.session.workspace)
        if self._tools is None or self._policy is None or self._policy is not current:
            return await self.tools()
        return self._tools, self._policy

    async def learn(self, timeout_s: float | None = None) -> tuple[Tools, Policy]:
        """As `tools`, after starting the servers of which nothing is known yet.

        Those that are not there in time keep starting, and are announced when they are.
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
        return tool_list(tools, untrusted_servers(policy), self.problems(policy), own=self.own())

    def with_own(self, tools: Tools) -> Tools:
        """Return the tools, and after them those of PML's own that `discover` finds."""
        own = self.own()
        by_wire = {**tools.by_wire, **{known.wire: known for known in own}}
        return replace(tools, by_wire=by_wire, by_name={**tools.by_name, **{str(it.tool): it for it in own}})

    def problems(self, policy: Policy) -> list[str]:
        """Return what a user should know of the configuration."""
        found = [f"{error.message}: until it is fixed, everything asks" for error in policy.broken]
        if not policy.settings.approval.asking_enabled(self._gate.context.clock.now()):
            found.append("ASKING IS OFF: what no rule denies runs without asking")
        return [*found, *policy.settings.problems]

    async def resolve(self, name: str, arguments: JsonObject) -> Attempt:
        """Return the call of the tool that `name` means, as clients or people write it. Raises: NotFound."""
        tools, policy = await self._listed()
        if (
            find_known(tools, name) is None
        ):  # a file may have been fixed, or trusted, since the table was made
            tools, policy = await self.tools()
        return resolve_among(tools, policy, name, arguments)

    def wire(self, tool: ToolName) -> str:
        known = None if self._tools is None else self._tools.by_name.get(str(tool))
        return str(tool) if known is None else known.wire

    async def manifests(self) -> Sequence[Manifest]:
        return (await self.learn())[0].manifests
