"""What is known of clients' own tools comes from the clients' rows; a name in doubt is not known."""

import pytest

from pml.agents.known import KNOWN
from pml.core.cards.blocks import Asked
from pml.core.cards.sentences import sentence_of
from pml.core.sessions.client_tools import ClientTool, ClientTools, Shows
from tests.builders import WORKSPACE, make_approval

SHELL = ClientTool(verb="Run", shows=Shows.COMMAND, argument="cmd")


def test_another_client_is_a_row_of_its_own() -> None:
    tools = ClientTools(
        [{"local_shell": SHELL}], server_names=["{server}::{tool}"], unsandboxed=["escalated"]
    )

    def sentence(tool: str) -> str:
        record = make_approval(tool_name=tool, tool_input={"cmd": "git push"})
        return sentence_of(Asked(record=record, cwd=WORKSPACE, workspace=WORKSPACE, clients=tools))[0]

    assert sentence("local_shell") == "Run git push"
    assert sentence("Bash") == "Use Bash, one of the client's own tools"
    assert tools.server_tool("github::create_issue") == ("github", "create_issue")
    assert tools.leaves_sandbox({"escalated": True})
    assert not tools.leaves_sandbox({"escalated": "yes"})


def test_a_name_that_two_clients_use_differently_is_not_known() -> None:
    other = ClientTool(verb="Draw", shows=Shows.TEXT, argument="cmd")
    tools = ClientTools([{"shell": SHELL, "run": SHELL}, {"shell": other, "run": SHELL}])
    assert (tools.get("shell"), tools.get("run")) == (None, SHELL)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mcp__github__create_issue", ("github", "create_issue")),
        ("mcp__github__a__b", ("github", "a__b")),
        ("mcp__github", None),
        ("Bash", None),
    ],
)
def test_a_tool_of_a_clients_server_is_told_by_its_name(name: str, meant: tuple[str, str] | None) -> None:
    assert KNOWN.tools.server_tool(name) == meant
