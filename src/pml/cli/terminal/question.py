"""Asking the person at this terminal about a call, while anybody elsewhere may answer first.

The terminal stays as it is, line by line, so there is nothing to put back. What was typed before the question
was shown is thrown away: it was not an answer to it.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from pml.cli.guards import guard_as_person, is_person
from pml.cli.terminal.cards import print_card
from pml.cli.terminal.output import columns, complain, complain_prose, local_time, wrapped
from pml.cli.verbs.approvals_answer import tell_memory
from pml.core.approvals.memory import always_entry, always_of, can_last, scopes_of
from pml.core.approvals.record import Approval, Scope, State, told
from pml.core.approvals.subjects import call_input, row_of
from pml.core.errors import AlreadyDecided
from pml.core.rules.ruleset import runs_code
from pml.core.text import visible, visible_json

if TYPE_CHECKING:
    from pml.core.ports.records import Session
    from pml.service.context import Context

_LINE_BYTES: Final = 4096  # as long as a terminal lets a line be


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One answer: its key, its word, and what it means. `scope` is None for a no."""

    key: str
    word: str
    means: str
    scope: Scope | None


class TerminalAsking:
    """The `Asking` of a command. Where no person can be asked, the call is left paused."""

    def __init__(
        self, context: "Context", session: "Session", args: argparse.Namespace, *, before: Callable[[], None]
    ) -> None:
        """`before` makes room on the terminal for a question."""
        self._args = args
        self._context = context
        self._session = session
        self._before = before
        self._turn = asyncio.Lock()  # code may ask about several calls at once; a person answers one by one

    @property
    def has_form(self) -> bool:
        return False

    @property
    def declares_form(self) -> bool:
        return False

    @property
    def has_model(self) -> bool:
        """No: an agent that runs the command in its shell must not confirm it at its own gateway."""
        return False

    async def put(self, record: Approval) -> Approval:
        """Show the question and return it decided, here or elsewhere, or undecided if it cannot be asked."""
        from pml.service.approvals.lifecycle import get

        if not can_prompt() or not await is_person(self._context, self._args):
            return record
        async with self._turn:
            now = await get(self._context, record.id)
            return await self._show(now) if now.status is State.PENDING else now

    async def _show(self, record: Approval) -> Approval:
        from pml.service.approvals.lifecycle import wait

        self._before()
        choices = _choices(record, self._session)
        always = always_of(record)
        now = self._context.clock.now()
        workspace = self._session.workspace
        print_card(record, workspace=workspace, now=now, always=always, to_stderr=True, is_prompted=True)
        choosing = asyncio.ensure_future(_choose(choices))
        deciding = asyncio.ensure_future(wait(self._context, record.id))
        try:
            await asyncio.wait({choosing, deciding}, return_when=asyncio.FIRST_COMPLETED)
            if choosing.done():
                return await self._decide(record, choosing.result())
            complain_prose(f"\nmeanwhile: {visible(told(deciding.result(), when=local_time))}")
            return deciding.result()
        finally:
            choosing.cancel()
            deciding.cancel()
            await asyncio.gather(choosing, deciding, return_exceptions=True)

    async def _decide(self, record: Approval, choice: Choice) -> Approval:
        """Raises: MayNotDecide if an agent stands above this process by now, and what `decide` raises."""
        from pml.app import person
        from pml.service.approvals.lifecycle import Decision, decide, get

        await guard_as_person(self._context, self._args)
        allow, scope = choice.scope is not None, choice.scope or Scope.ONCE
        try:
            decided = await decide(
                self._context,
                record.id,
                Decision(by=person(), digest=record.digest, allow=allow, scope=scope),
            )
        except AlreadyDecided as exc:
            complain(f"too late: {visible(exc.message)}")
            return await get(self._context, record.id)
        if decided.remembered is not None:
            tell_memory(decided.remembered, tell=complain)
        return decided.record


def can_prompt() -> bool:
    """Tell whether a person can see a question on stderr and answer it without stopping the loop."""
    streams: tuple[TextIO | None, ...] = (sys.stdin, sys.stderr)  # a closed one is None
    return sys.platform != "win32" and all(stream is not None and stream.isatty() for stream in streams)


def _choices(record: Approval, session: "Session") -> Sequence[Choice]:
    abort = Choice(key="b", word="abort", means="do not run it", scope=None)
    once = "just this once" if record.is_foreign else row_of(record).once(record)
    proceed = Choice(key="c", word="continue", means=once, scope=Scope.ONCE)
    if not can_last(record):
        return [proceed, abort]
    what = "exactly this call" if runs_code(record.tool_name, call_input(record)) else "this tool"
    entry = visible_json(always_entry(record.tool_name, call_input(record)), indent=None)
    always = Choice(key="a", word="always", means=f"and add {entry} to .pml.json", scope=Scope.ALWAYS)
    if Scope.SESSION not in scopes_of(record):
        return [proceed, always, abort]
    session_means = f"and allow {what} in this session ({visible(session.id)})"
    return [
        proceed,
        Choice(key="s", word="session", means=session_means, scope=Scope.SESSION),
        always,
        abort,
    ]


def _tell(choice: Choice) -> None:
    """Print a choice, and what it means beside it."""
    lead, width = f"  {choice.key}  {choice.word:<10}", columns(sys.stderr)
    lines = wrapped(choice.means, None if width is None else width - len(lead))
    for index, line in enumerate(lines):
        complain(f"{' ' * len(lead) if index else lead}{line.strip()}")


async def _choose(choices: Sequence[Choice]) -> Choice:
    """Return what the person chose; the end of the input is not an answer."""
    _forget_typed()
    complain("")
    for choice in choices:
        _tell(choice)
    keys = [choice.key for choice in choices]
    words = {text: choice for choice in choices for text in (choice.key, choice.word)}
    try:
        while True:
            print(f"answer [{'/'.join(keys)}]: ", end="", file=sys.stderr, flush=True)
            line = await _read_line()
            if not line:
                complain("")
                raise asyncio.CancelledError  # as Ctrl-C: this is not a no
            found = words.get(line.decode(errors="replace").strip().lower())
            if found is not None:
                return found
            complain(f"type {', '.join(keys[:-1])} or {keys[-1]}")
    except asyncio.CancelledError:
        _forget_typed()  # half an answer must not become the shell's next command
        raise


async def _read_line() -> bytes:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    fd = sys.stdin.fileno()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _LINE_BYTES)


def _forget_typed() -> None:
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
