"""Runs Claude Code as `pml launch` would at this terminal, with what a test gives as JSON."""

import asyncio
import json
import os
import sys
from pathlib import Path

from pml.agents.claude_code.claude_run import Parts
from pml.agents.claude_code.command_line import read_typed
from pml.agents.claude_code.terminal_run import ClaudeHere, given_pieces
from pml.core.sessions.agent import Order
from pml.upstream.containment.agents import AgentBox
from tests.agents.launching import SESSION, TOKEN, Heard, claude_binary


async def main(place: dict[str, str], words: list[str]) -> int:
    typed = read_typed(words, loopback=True)
    parts = Parts(
        hub_url=lambda: place["hub"],
        environ=os.environ,
        configs=Path(place["configs"]),
        find_claude=claude_binary,
        starter=AgentBox(home=Path(place["pml_home"]), user_home=Path(place["home"])),
    )
    agents = ClaudeHere(parts, typed, show=_print, complain=_print, given=given_pieces())
    order = Order(prompt=typed.prompt or "", cwd=place["workspace"], arguments=typed.arguments, is_here=True)
    outcome = await agents.run(order, session_id=SESSION, token=TOKEN, told=Heard())
    return outcome.exit_code or 0


def _print(data: bytes) -> None:
    sys.stdout.buffer.write(data)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2:])))
