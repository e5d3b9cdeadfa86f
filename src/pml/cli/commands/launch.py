"""`pml launch`: an agent at this terminal, with the hub as its gateway, and asking there for its tools.

Where no hub runs, one lives in this process for as long as the agent does.
"""

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pml.cli.commands.serve import warn_broken
from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.terminal.output import complain, complain_prose
from pml.core.errors import Invalid, MayNotDecide, Unavailable
from pml.core.text import quote, visible

if TYPE_CHECKING:
    from pml.agents.claude_code.command_line import Typed
    from pml.agents.claude_code.terminal_run import ClaudeHere
    from pml.app import Place
    from pml.cli.verbs.launch_watch import Tally
    from pml.core.sessions.agent import Order, Outcome

EXAMPLES = """With `--loopback` every tool of the agent is judged by your rules, and asked for where none
allows it; settings and hooks of its own are shut out. Without it PML is only its gateway.

examples:
  pml launch --loopback -- claude -p 'add a test for the parser'
  pml launch --loopback --may-launch --name lead -- claude       on its own screen
  pml launch -- claude -p 'what does this do?' < parser.py
  pml launch --loopback --fail-on-deny -- claude -p 'release it' || echo "not all of it was allowed"

exit codes: 3 if a person said no to something, 5 if a question expired, else that of claude; 130 interrupted.
What rules deny is counted in the last line; `--fail-on-deny` makes that 3 too. `--exit-code agent` gives
claude's own, whatever was answered."""
CLIENT: Final = "claude"
_TOLD_BY_CLAUDE: Final = ("--version", "-v", "--help", "-h")
_TIMEOUT_S: Final = (1, 24 * 3600)
_SIGNALLED: Final = 128  # added to the number of a signal, as shells do


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.usage = "pml launch [options] -- claude [arguments of claude]"
    parser.add_argument("--loopback", action="store_true", help="ask for its tools: `pml approvals` answers")
    parser.add_argument(
        "--may-launch",
        action="store_true",
        help="let it launch agents, and they theirs, unasked, and answer for them what no rule names",
    )
    parser.add_argument("--name", help="the name of its session")
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="time to answer each question, in seconds"
    )
    parser.add_argument("--fail-on-deny", action="store_true", help="exit with 3 also where a rule denied")
    parser.add_argument(
        "--exit-code",
        choices=["answers", "agent"],
        default="answers",
        help="agent: exit as claude did, whatever was answered (default: answers)",
    )
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="claude …", help="the agent's command line"
    )


async def run(args: argparse.Namespace) -> int:
    from pml.agents.claude_code.command_line import read_typed
    from pml.app import find_place

    client, *words = _command(args.words)
    if words and words[0] in _TOLD_BY_CLAUDE:
        return _run_plainly(_found(client), words)
    _refuse_command(words)
    typed = read_typed(words, loopback=args.loopback)
    place = find_place(args.workspace)
    await _guard(place, args)
    claude = _found(client)
    async with _hub(place) as url:
        agents = _agents(place, url, claude, typed)
        outcome, tally = await _launch(args, place, typed, agents)
    return _exit_of_answers(args, tally, _exit(outcome))


def _command(words: Sequence[str]) -> list[str]:
    """Return the command line of the agent. Raises: Invalid."""
    given = [*words[1:]] if words[:1] == ["--"] else [*words]
    hint = "pml launch --loopback -- claude -p 'what to do'"
    if not given:
        raise Invalid("there is nothing to launch", hint=hint)
    if os.path.basename(given[0]) != CLIENT:
        raise Invalid(f"PML launches `{CLIENT}`, and {quote(given[0])} is another program", hint=hint)
    return given


async def _guard(place: "Place", args: argparse.Namespace) -> None:
    """Raise MayNotDecide beneath an agent."""
    from pml.app import open_context

    async with open_context(place) as context:
        try:
            await guard(context, args)
        except MayNotDecide as exc:
            hint = f"{exc.hint}; an agent launches others with the tool `session_launch`"
            raise MayNotDecide(exc.message, hint=hint) from exc


def _found(client: str) -> str:
    """Return the path of what was typed as `claude`. Raises: Unavailable if it is not there."""
    from pml.host.folders import absolute_only

    if os.sep in client:
        found = shutil.which(os.path.abspath(client))
    else:
        found = shutil.which(client, path=absolute_only(os.environ.get("PATH", os.defpath)))
    if found is None:
        hint = "`npm install -g @anthropic-ai/claude-code` installs it; if you have it, put it on the PATH"
        where = f": {quote(client)} is not a program" if os.sep in client else ""
        raise Unavailable(f"Claude Code was not found{where}", hint=hint)
    return found


def _run_plainly(claude: str, words: Sequence[str]) -> int:
    """Let claude tell of itself, at this terminal and without a session: it runs no tool for that."""
    from pml.agents.claude_code.environment import environment_of

    code = subprocess.run([claude, words[0]], env=environment_of(os.environ, is_persons=True)).returncode
    return code if code >= 0 else _SIGNALLED - code


def _refuse_command(words: Sequence[str]) -> None:
    """Raise Invalid for one of claude's own commands, which would otherwise be taken for a prompt."""
    from pml.agents.claude_code.command_line import read_typed

    if not words or words[0].startswith("-"):
        return
    try:
        read_typed(words[:1], loopback=False)
    except Invalid as exc:
        raise Invalid(
            f"{quote(words[0])} is a command of claude; `pml launch` runs prompts, not claude's own commands",
            hint=exc.hint,
        ) from exc


def _agents(place: "Place", url: str, claude: str, typed: "Typed") -> "ClaudeHere":
    from pml.agents.claude_code.terminal_run import ClaudeHere, given_pieces
    from pml.app import open_agents

    parts = replace(open_agents(place, hub_url=lambda: url).parts, find_claude=lambda: claude)
    return ClaudeHere(parts, typed, show=_show, complain=_show_error, given=given_pieces())


async def _launch(
    args: argparse.Namespace, place: "Place", typed: "Typed", agents: "ClaudeHere"
) -> "tuple[Outcome, Tally]":
    from pml.app import open_context, person
    from pml.cli.verbs.launch_watch import watching_questions
    from pml.service.sessions.launcher import Launcher, close_left_runs

    if args.loopback:
        complain_prose("pml: what it asks for waits for an answer: `pml approvals list`, in another terminal")
    async with open_context(place) as context:
        await warn_broken(context, str(place.workspace))
        await close_left_runs(context, agents)
        async with contextlib.AsyncExitStack() as stack:
            if not typed.is_headless:
                stack.enter_context(_without_interrupts())
            is_told = typed.is_headless and args.loopback and sys.stderr.isatty()
            tally = await stack.enter_async_context(watching_questions(context, is_told=is_told))
            outcome = await Launcher(context, agents).run_here(
                _order(args, place, typed),
                name=args.name or typed.value("--name"),
                workspace=str(place.workspace),
                ttl_s=args.timeout,
                by=person(),
            )
    return outcome, tally


def _exit_of_answers(args: argparse.Namespace, tally: "Tally", code: int) -> int:
    """Return the exit code, and say where it is not that of the agent: a job without a screen must notice."""
    if args.exit_code == "agent" or code >= _SIGNALLED:
        return code
    if tally.denied or (args.fail_on_deny and tally.refused + tally.others):
        who = "a person said no" if tally.denied else "something was denied (--fail-on-deny)"
        complain_prose(f"pml: exit code 3: {who}; that of the agent is {code}")
        return Exit.DENIED
    if tally.expired:
        complain_prose(f"pml: exit code 5: nobody answered in time; that of the agent is {code}")
        return Exit.GONE
    return code


def _order(args: argparse.Namespace, place: "Place", typed: "Typed") -> "Order":
    from pml.core.sessions.agent import Order

    return Order(
        prompt=typed.prompt or "",
        cwd=str(place.workspace),
        loopback=args.loopback,
        may_launch=args.may_launch,
        arguments=typed.arguments,
        is_here=True,
    )


@contextlib.asynccontextmanager
async def _hub(place: "Place") -> AsyncGenerator[str]:
    """Yield the URL of the hub that runs, or of one for this agent alone, which is announced nowhere."""
    from pml.hub.presence import running_hub

    running = running_hub(place.home)
    if running is not None:
        yield running.url
        return
    async with _own_hub(place) as url:
        complain_prose(f"pml: no hub runs, so one runs here until the agent ends: {url}")
        yield url


@contextlib.asynccontextmanager
async def _own_hub(place: "Place") -> AsyncGenerator[str]:
    from pml.app_hub import open_hub
    from pml.hub.listeners import serve_hub
    from pml.hub.origins import allowed_names
    from pml.web.http_server import listen, url_of

    with listen("127.0.0.1", 0) as listening:
        url, port = url_of(listening), listening.getsockname()[1]
        allowed = allowed_names("127.0.0.1", "127.0.0.1", port, scheme="http")
        async with open_hub(place, url=url, allowed=allowed) as hub:
            serving = asyncio.ensure_future(serve_hub(hub.app, listening, on_stop=hub.stop))
            try:
                yield url
            finally:
                serving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await serving


@contextlib.contextmanager
def _without_interrupts() -> Generator[None]:
    """Leave Ctrl-C to the agent's own screen."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit(outcome: "Outcome") -> int:
    from pml.core.sessions.agent import RunState

    if outcome.exit_code is None:
        complain(f"pml: {visible(outcome.result or outcome.state)}")
        return Exit.OK if outcome.state is RunState.DONE else Exit.FAILED
    return outcome.exit_code if outcome.exit_code >= 0 else _SIGNALLED - outcome.exit_code


def _show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _show_error(data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def _seconds(text: str) -> int:
    low, high = _TIMEOUT_S
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"must be a number of seconds from {low} to {high}")
    return int(text)
