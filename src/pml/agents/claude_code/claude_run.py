"""Claude Code as PML launches it: configured to ask the hub for every tool, heard, and ended whole.

Its settings and its projects' cannot let a tool run unasked: they are shut out, and every tool is set to ask,
also what the client itself holds to be harmless. The command line holds no secret and nothing that an agent
wrote; the token is in a file of the run's own.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pml.agents.claude_code.child_program import Started, Starter
from pml.agents.claude_code.command_line import PERMIT, prompt_text, tools_options
from pml.agents.claude_code.configs import folder_of, remove_config, write_config
from pml.agents.claude_code.environment import CALL_S, environment_of
from pml.agents.claude_code.stream_json import Counted, Ended, Said, StreamReader
from pml.core.approvals.record import SessionId
from pml.core.errors import Unavailable
from pml.core.sessions.agent import MessageKind, Order, Outcome, RunState, Told
from pml.core.sessions.process import Process
from pml.core.text import visible
from pml.core.values import JsonObject

# An `ask` of its settings beats what it allows by itself, such as `ls` or reading a file of the project.
ASKING: Final[JsonObject] = {"permissions": {"ask": ["*"]}}
# Neither of the user, nor of the project, nor of local files; hooks, agents and skills come from there too.
NO_SETTINGS: Final = ("--setting-sources", "")
_TAIL_BYTES: Final = 4096  # of stderr, kept for when it fails
_TAIL_LINES: Final = 3


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What launching needs of the world."""

    hub_url: Callable[[], str]
    environ: Mapping[str, str]
    configs: Path  # where configurations go
    find_claude: Callable[[], str | None]
    starter: Starter


class ClaudeCode:
    """Runs Claude Code for orders of agents, and of people who are not at its terminal."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def config_folder(self, session_id: SessionId) -> str:
        return str(folder_of(self.parts.configs, session_id))

    def remove_config(self, folder: str) -> None:
        remove_config(Path(folder))

    def kill(self, process: Process) -> None:
        self.parts.starter.kill(process)

    async def run(self, order: Order, *, session_id: SessionId, token: str, told: Told) -> Outcome:
        folder = Path(self.config_folder(session_id))
        claude = found_claude(self.parts)
        try:
            write_config(folder, config_files(self.parts.hub_url(), token, ASKING))
            argv = (claude, *headless_options(folder, order), *tools_options(order.tools))
            hearing = RunListener(told)
            started = await hearing.start(self.parts, argv, cwd=order.cwd, own=folder)
            try:
                await told.started(started.process)  # before it can do anything: it has no prompt yet
                started.feed(prompt_text(order.prompt).encode())
                started.close_input()
                return await hearing.listen(started)
            finally:
                await asyncio.shield(started.stop())
        finally:
            remove_config(folder)


def found_claude(parts: Parts) -> str:
    """Return the path of Claude Code. Raises: Unavailable."""
    found = parts.find_claude()
    if found is None:
        raise Unavailable(
            "Claude Code was not found", hint="install it so that `claude` is on the PATH, and try again"
        )
    return found


def config_files(hub_url: str, token: str, settings: JsonObject | None) -> dict[str, bytes]:
    """Return the files of a run: the hub as its only MCP server, and settings of PML's own, if any."""
    server: JsonObject = {
        "type": "http",
        "url": f"{hub_url.rstrip('/')}/mcp",
        "headers": {"Authorization": f"Bearer {token}"},
        "timeout": CALL_S * 1000,
    }
    files = {"mcp.json": msgspec.json.encode({"mcpServers": {"plexus": server}})}
    return files if settings is None else {**files, "settings.json": msgspec.json.encode(settings)}


def server_options(folder: Path) -> tuple[str, ...]:
    """Return what gives the client the hub as its only MCP server."""
    return ("--mcp-config", str(folder / "mcp.json"), "--strict-mcp-config")


def headless_options(folder: Path, order: Order) -> tuple[str, ...]:
    """Return the options of a run without a screen; one that is not held has its user's own settings."""
    printing = ("-p", "--output-format", "stream-json", "--verbose", *server_options(folder))
    model = () if order.model is None else (f"--model={order.model}",)
    if not order.is_held:
        return (*printing, *model)
    asking = ("--permission-prompt-tool", PERMIT, "--settings", str(folder / "settings.json"))
    return (*printing, *asking, *NO_SETTINGS, "--permission-mode", "default", *model)


class RunListener:
    """Hears one run, tells of it, and says how it ended. `lines` and `complaints` are given its output."""

    def __init__(
        self,
        told: Told,
        *,
        is_persons: bool = False,
        lines: Callable[[bytes], None] | None = None,
        complaints: Callable[[bytes], None] | None = None,
    ) -> None:
        self.ended: Ended | None = None
        self._told = told
        self._is_persons = is_persons
        self._lines = lines
        self._complaints = complaints
        self._reader = StreamReader()
        self._heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._tail = b""

    async def start(self, parts: Parts, argv: Iterable[str], *, cwd: str, own: Path) -> Started:
        """Start the client on pipes. Raises: Unavailable."""
        return await parts.starter.start(
            tuple(argv),
            cwd=cwd,
            environment=environment_of(parts.environ, is_persons=self._is_persons),
            own=str(own),
            heard=self._heard.put_nowait,
            complained=self._complained,
        )

    async def listen(self, started: Started) -> Outcome:
        """Tell of everything until the client's end, and return how that was."""
        finishing = asyncio.ensure_future(self._finish(started))
        try:
            while (data := await self._heard.get()) is not None:
                await self._take(data)
        finally:
            finishing.cancel()  # nothing to cancel but where telling failed
        for news in self._reader.close():
            await self._tell(news)
        return await self._outcome(await finishing)

    async def _finish(self, started: Started) -> int:
        code = await started.finished()
        self._heard.put_nowait(None)
        return code

    async def _take(self, data: bytes) -> None:
        if self._lines is not None:
            self._lines(data)
        for news in self._reader.feed(data):
            await self._tell(news)

    async def _tell(self, news: Said | Counted | Ended) -> None:
        match news:
            case Said():
                await self._told.said(news.kind, news.text)
            case Counted():
                await self._told.counted(turns=news.turns, cost_usd=news.cost_usd)
            case Ended():
                self.ended = news

    def _complained(self, data: bytes) -> None:
        if self._complaints is not None:
            self._complaints(data)
        self._tail = (self._tail + data)[-_TAIL_BYTES:]

    async def _outcome(self, code: int) -> Outcome:
        ended = self.ended
        if code == 0 and ended is not None and not ended.is_error:
            return Outcome(state=RunState.DONE, exit_code=code, result=ended.result)
        if ended is not None:
            return Outcome(state=RunState.FAILED, exit_code=code, result=ended.result)
        why = _last_words(code, self._tail)
        await self._told.said(MessageKind.ERROR, why)
        return Outcome(state=RunState.FAILED, exit_code=code, result=why)


def _last_words(code: int, tail: bytes) -> str:
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    lines = [line for line in tail.decode(errors="replace").splitlines() if line.strip()][-_TAIL_LINES:]
    said = ": " + " / ".join(visible(line.strip()) for line in lines) if lines else ""
    return f"Claude Code ended with {how} and no result{said}"
