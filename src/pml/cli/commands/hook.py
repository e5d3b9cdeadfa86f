"""`pml hook`: the rules and the inbox before every tool of Claude Code.

On standard input is what the client asks, on standard output the answer and nothing else. Whatever is in
doubt ends with exit code 2, which blocks the tool: any other code, or other text, lets it run.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

from pml.cli.interrupts import until_done
from pml.cli.terminal.output import complain
from pml.core.errors import Invalid, PmlError, Unavailable
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.agents.claude_code.hooks import Asked
    from pml.app import Place
    from pml.core.values import JsonObject

EXAMPLES = """Claude Code starts this; `pml init --claude-code` writes it into its settings.

examples:
  pml hook --timeout 600 < question.json          what a hook would answer, for a look at it
  pml hook --home ~/.pml --timeout 3600           as it stands in the settings

exit codes: 0 answered, or nothing to say; 2 the tool is blocked, and why is on stderr"""

BLOCK: Final = 2
_MARGIN_S: Final = 5.0  # to start, to take a question back and to answer, on a busy machine
_TIMEOUT_S: Final = 60.0  # what clients give a hook that says nothing of its time


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--home", metavar="DIR", help="PML's home, whatever PML_HOME says")
    parser.add_argument(
        "--timeout", metavar="S", type=float, default=_TIMEOUT_S, help="the time that the client gives it"
    )
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the client's project)")


def run(args: argparse.Namespace) -> int:
    try:
        answer = asyncio.run(until_done(_run(args)))
    except PmlError as exc:
        return _block(exc.message)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _block("the approval was cancelled: its client stopped waiting")
    except BaseException as exc:  # an unforeseen error must not let the tool run either
        return _block(f"internal error: {type(exc).__name__}")
    return answer


def _block(reason: str) -> int:
    with contextlib.suppress(OSError):  # blocked, even if the reason cannot be written
        complain(f"pml: {visible(reason)}")
    return BLOCK


async def _run(args: argparse.Namespace) -> int:
    import msgspec

    from pml.agents.claude_code.hooks import read_asked

    limit_s = args.timeout - _MARGIN_S
    if not limit_s > 0:
        raise Invalid(f"a hook needs more than {_MARGIN_S:g} s")
    if sys.stdin is None or sys.stdin.isatty():
        raise Invalid("this is for Claude Code to start; `pml init --claude-code` sets it up")
    asked = read_asked(_read_input())
    answer = await _answer(_place(args), asked, limit_s)
    if answer is not None:
        sys.stdout.write(msgspec.json.encode(answer).decode())
        sys.stdout.flush()
    return 0


def _read_input() -> bytes:
    from pml.core.values import MAX_BYTES

    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as exc:
        raise Unavailable("the hook's input cannot be read") from exc


def _place(args: argparse.Namespace) -> "Place":
    """Return where PML runs: the client's project, never a folder that the agent has gone to."""
    import dataclasses
    from pathlib import Path

    from pml.app import find_place

    place = find_place(args.workspace or os.environ.get("CLAUDE_PROJECT_DIR"))
    if args.home is None:
        return place
    if not os.path.isabs(args.home):
        raise Invalid(f"`--home` must be an absolute path, not `{args.home}`")
    return dataclasses.replace(place, home=Path(args.home))


async def _answer(place: "Place", asked: "Asked", limit_s: float) -> "JsonObject | None":
    from pml.agents.claude_code.hooks import answer, session_for
    from pml.app import open_context, principal

    async with open_context(place) as context:
        client = context.processes.client()
        workspace = str(place.workspace)
        session = await session_for(
            context,
            asked,
            principal=principal(place),
            workspace=workspace,
            is_tried=not os.environ.get("CLAUDECODE"),
        )
        return await answer(
            context,
            session,
            asked,
            client=client,
            limit_s=limit_s,
            on_asked=lambda record: complain(f"pml: waiting for an answer to {record.id}"),
        )
