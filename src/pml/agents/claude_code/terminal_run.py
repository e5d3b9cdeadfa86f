"""Claude Code at a person's own terminal: what they typed, with the hub added, and its output passed on.

Without a screen it is run and recorded as any other, and what it prints is given in the form they asked for.
On its screen it has the terminal to itself; there it knows no permission tool, so a hook asks in its place.
Input by a pipe or a file is the agent's; a terminal is the person's to type at, not an agent's to wait for.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from pml.agents.claude_code.child_program import Started
from pml.agents.claude_code.claude_run import (
    ASKING,
    NO_SETTINGS,
    ClaudeCode,
    Parts,
    RunListener,
    config_files,
    found_claude,
    headless_options,
    server_options,
)
from pml.agents.claude_code.command_line import Typed
from pml.agents.claude_code.configs import remove_config, write_config
from pml.agents.claude_code.environment import CALL_S, environment_of
from pml.core.approvals.record import SessionId
from pml.core.sessions.agent import Order, Outcome, RunState, Told
from pml.core.values import JsonObject

_SILENT_S: Final = 3.0  # as long as the client itself would wait
_PIECE: Final = 64 * 1024


class ClaudeHere(ClaudeCode):
    """Runs what a person typed. `show` is given what is to be printed, `complain` what goes to stderr."""

    def __init__(
        self,
        parts: Parts,
        typed: Typed,
        *,
        show: Callable[[bytes], None],
        complain: Callable[[bytes], None],
        given: AsyncIterator[bytes],
    ) -> None:
        super().__init__(parts)
        self._typed = typed
        self._show = show
        self._complain = complain
        self._given = given  # what comes by standard input

    async def run(self, order: Order, *, session_id: SessionId, token: str, told: Told) -> Outcome:
        folder = Path(self.config_folder(session_id))
        url = self.parts.hub_url()
        asking = ASKING if self._typed.is_headless else hub_hook(url, token)
        try:
            write_config(folder, config_files(url, token, asking if order.is_held else None))
            run = self._headless if self._typed.is_headless else self._interactive
            return await run(folder, order, told)
        finally:
            remove_config(folder)

    async def _headless(self, folder: Path, order: Order, told: Told) -> Outcome:
        form = self._typed.value("--output-format") or "text"
        options = headless_options(folder, order)
        lines = self._show if form == "stream-json" else None
        hearing = RunListener(told, is_persons=True, lines=lines, complaints=self._complain)
        argv = (found_claude(self.parts), *options, *order.arguments)
        started = await hearing.start(self.parts, argv, cwd=order.cwd, own=folder)
        feeding = None
        try:
            await told.started(started.process)
            feeding = asyncio.ensure_future(self._feed(started, order.prompt))
            outcome = await hearing.listen(started)
        finally:
            if feeding is not None:
                feeding.cancel()
            await asyncio.shield(started.stop())
        if hearing.ended is not None and form != "stream-json":
            last = hearing.ended.line if form == "json" else hearing.ended.result.encode()
            self._show(last + b"\n")
        return outcome

    async def _feed(self, started: Started, prompt: str) -> None:
        """Give the client the prompt and what was given to us, in the order it would join them itself."""
        started.feed(f"{prompt}\n".encode() if prompt else b"")
        piece = await self._first(is_needed=not prompt)
        while piece is not None:
            started.feed(piece)
            await started.fed()
            piece = await anext(self._given, None)
        started.close_input()

    async def _first(self, *, is_needed: bool) -> bytes | None:
        """Return the first piece of what was given; beside a prompt, a silent pipe is not waited for."""
        try:
            async with asyncio.timeout(None if is_needed else _SILENT_S):
                return await anext(self._given, None)
        except TimeoutError:
            self._complain(b"pml: nothing comes by standard input, so the agent begins without it\n")
            return None

    async def _interactive(self, folder: Path, order: Order, told: Told) -> Outcome:
        settings = ("--settings", str(folder / "settings.json"), *NO_SETTINGS, "--permission-mode", "default")
        asking = settings if order.is_held else ()
        prompt = ("--", order.prompt) if order.prompt else ()
        argv = (found_claude(self.parts), *server_options(folder), *asking, *order.arguments, *prompt)
        started = await self.parts.starter.start_here(
            argv,
            cwd=order.cwd,
            environment=environment_of(self.parts.environ, is_persons=True),
            own=str(folder),
        )
        try:
            await told.started(started.process)
            code = await started.finished()
        finally:
            await asyncio.shield(started.stop())
        return Outcome(state=RunState.DONE if code == 0 else RunState.FAILED, exit_code=code, result=None)


def hub_hook(hub_url: str, token: str) -> JsonObject:
    """Return settings that have the hub asked before every tool; whatever goes wrong there blocks the tool.

    The hook is a request, not a program: one that runs beneath the agent does not see PML_HOME.
    """
    hook: JsonObject = {
        "type": "http",
        "url": f"{hub_url.rstrip('/')}/api/hook",
        "headers": {"Authorization": f"Bearer {token}"},
        "timeout": CALL_S,
        "onFailure": "block",
        "statusMessage": "Waiting for approval (pml approvals list)",
    }
    return {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [hook]}]}}


async def given_pieces(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Yield what comes by a pipe, a socket or a file, piece by piece, to its end."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # it is closed
        return
    if stat.S_ISREG(mode):
        while piece := os.read(descriptor, _PIECE):
            yield piece
    elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        with os.fdopen(os.dup(descriptor), "rb", buffering=0) as pipe:
            reader = asyncio.StreamReader()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            try:
                while piece := await reader.read(_PIECE):
                    yield piece
            finally:
                transport.close()
                os.set_blocking(descriptor, True)  # others read there too
