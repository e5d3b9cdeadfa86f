"""A call that takes longer than clients wait in silence: each of the eight lets it end. Ten minutes."""

import pytest

from tests.e2e.agent_rig import Agent, Shop, reach, see
from tests.e2e.command_agents import Client, running
from tests.e2e.conftest import shop as shop
from tests.e2e.test_agents import CLIENTS
from tests.e2e.test_library_agents import LIBRARIES
from tests.e2e.test_library_agents import running as running_library

TAKES_S = 75  # opencode and others cut a silent call after a minute
PATIENCE_S = "120"  # openai-agents ends every call after five seconds, whatever it hears, unless it is told


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
def test_a_client_lets_a_call_work_for_longer_than_a_minute(client: Client, shop: Shop) -> None:
    with running(client, shop) as agent:
        work(agent)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_lets_a_call_work_for_longer_than_a_minute(library: str, shop: Shop) -> None:
    with running_library(library, shop.workspace, PATIENCE_S=PATIENCE_S) as agent:
        work(agent)


def work(agent: Agent) -> None:
    command = f"sleep {TAKES_S}; echo it is done"
    see(reach(agent, "odd", "sh", argv=["/bin/sh", "-c", command]), "it is done")
    agent.end()
