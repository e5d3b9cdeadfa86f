"""The agents that people run on a command line, before the gateway: what their models are shown.

Their models are driven by the test, a turn at a time. `make clients` installs them and prints their versions.
"""

import pytest

from tests.e2e import claude_print, cline, codex, gemini, goose, opencode
from tests.e2e.agent_rig import Shop, walk_through
from tests.e2e.command_agents import Client, running
from tests.promises import promise

PROGRAMS = (claude_print, codex, gemini, opencode, cline, goose)
CLIENTS = {program.CLIENT.name: program.CLIENT for program in PROGRAMS}


@promise("list:late-tool-reached")
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
def test_a_client_connects_while_a_server_is_slow_and_is_told_everything_in_its_turns(
    client: Client, shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(client, shop) as agent:
        with capsys.disabled():
            print(f"\n{client.name} {client.version()}")
        walk_through(agent, shop)
