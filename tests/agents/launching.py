"""Launching the real Claude Code: its model is scripted, its hub a stand-in, its home and workspace empty."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pml.agents.claude_code.claude_run import ClaudeCode, Parts
from pml.core.approvals.record import SessionId
from pml.core.sessions.agent import MessageKind, Order, Outcome
from pml.core.sessions.process import Process
from pml.upstream.containment.agents import AgentBox
from tests.agents.stand_in_hub import StandInHub
from tests.e2e.claude import KEY
from tests.e2e.installed import PACKAGES, bare_environment, need_clients
from tests.e2e.messages_api import MessagesApi

SESSION = SessionId("2f0c3f5e-0000-4000-8000-000000000001")
TOKEN = "pml_0123456789ab_secret-of-the-run"
RUN_S = 200.0  # only ever reached by a client that hangs


@dataclass(kw_only=True)
class Heard:
    """What was told of a run."""

    process: Process | None = None
    messages: list[tuple[MessageKind, str]] = field(default_factory=list[tuple[MessageKind, str]])
    counts: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    async def started(self, process: Process) -> None:
        self.process = process

    async def said(self, kind: MessageKind, text: str) -> None:
        self.messages.append((kind, text))

    async def counted(self, *, turns: int, cost_usd: float) -> None:
        self.counts.append((turns, cost_usd))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where one Claude Code is launched."""

    api: MessagesApi
    hub: StandInHub
    home: Path
    workspace: Path
    configs: Path
    heard: Heard = field(default_factory=Heard)

    def agents(self, *, environ: Mapping[str, str] | None = None) -> ClaudeCode:
        return ClaudeCode(self.parts(environ=environ))

    def parts(self, *, environ: Mapping[str, str] | None = None) -> Parts:
        return Parts(
            hub_url=lambda: self.hub.url,
            environ={**bare_environment(self.home), **offline(self.api), **(environ or {})},
            configs=self.configs,
            find_claude=claude_binary,
            starter=AgentBox(home=self.home / ".pml", user_home=self.home),
        )

    def order(self, prompt: str = "go on", **more: Any) -> Order:
        return Order(prompt=prompt, cwd=str(self.workspace), **more)

    async def run(self, order: Order | None = None, *, agents: ClaudeCode | None = None) -> Outcome:
        """Launch an agent and return how it ended."""
        launched = (agents or self.agents()).run(
            order or self.order(), session_id=SESSION, token=TOKEN, told=self.heard
        )
        return await asyncio.wait_for(launched, RUN_S)

    def write(self, path: str, content: object, *, at: Path | None = None) -> None:
        """Write a file of the workspace, or of another folder, as JSON or text."""
        file = (at or self.workspace) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else msgspec.json.encode(content))


def claude_binary() -> str:
    """Return the path of the real client."""
    need_clients()
    found = sorted(PACKAGES.glob("@anthropic-ai/claude-code-*/claude*"))
    assert found, "npm installed no binary of Claude Code for this system"
    return str(found[0])


def offline(api: MessagesApi) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": KEY,
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
