"""Claude Code with a new user's settings: what it asks about, and whether its model's word applies.

What runs is in the tally that the server keeps.
"""

import json
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.claude import Setting, interactive, run_headless
from tests.e2e.hubs import Hub, Room, hub_running
from tests.e2e.installed import Server, need_clients
from tests.e2e.messages_api import LAST_WORD, Conversation, MessagesApi, Turn, Use, scripted
from tests.e2e.workspaces import Workspace
from tests.promises import promise
from tests.upstream import odd_server

PLAIN: Final = Use(tool="mcp__pml__odd__echo", arguments={"text": "hello"})
FORM: Final = "requests your input"  # the client's words above a form
COMMAND: Final = Use(tool="mcp__pml__odd__echo", arguments={"command": "hello"})


@pytest.fixture
def newcomer(tmp_path: Path, home: Path) -> Workspace:
    """A workspace after `pml init`, with one server that the user has written into the file and trusted."""
    need_clients()
    place = tmp_path / "shop"
    place.mkdir()
    workspace = Workspace(path=place.resolve(), home=home, notes=tmp_path / "ran")
    assert workspace.pml("init").code == 0
    (place / ".pml.json").write_text(json.dumps({**workspace.settings, **servers(workspace.notes)}))
    workspace.trust()
    return workspace


def servers(tally: Path) -> dict[str, object]:
    """The part of a workspace's file that has the server in it."""
    server = Server(command=sys.executable, args=(str(odd_server.__file__), f"tally={tally}"))
    return {"mcpServers": {"odd": server.as_config()}}


def ran(tally: Path) -> list[str]:
    """The tools that ran, once for each time."""
    return tally.read_text().split() if tally.exists() else []


def decided(workspace: Workspace) -> list[tuple[str, str | None]]:
    """All that was ever asked: what became of it, and by whose word."""
    asked: list[dict[str, Any]] = workspace.pml("approvals", "list", "--all", "--json").json["approvals"]
    return [
        (each["status"], each["decided_by"]["channel"] if "decided_by" in each else None) for each in asked
    ]


def go_on(conversation: Conversation) -> Use:
    """The model says that it was approved."""
    again = {"workflow_id": json.loads(conversation.results[-1])["workflow_id"], "approved": True}
    return Use(tool="mcp__pml__call", arguments={"continue_workflow": again})


def run_script(workspace: Workspace, *script: Turn) -> list[str]:
    """Return what the model of a headless client was shown."""
    with scripted(*script) as api:
        run_headless(setting(api, workspace))
    return api.results


def setting(api: MessagesApi, workspace: Workspace) -> Setting:
    return Setting(api=api, server=workspace.gateway, home=workspace.home, workspace=workspace.path)


def description(result: str) -> str:
    """What the model is told of a call that waits; fails for any other result."""
    told = json.loads(result)
    assert (told["status"], told["approval_context"]["tool"]) == ("approval_required", "odd:echo")
    return told["description"]


@promise("consent:unlisted-asks")
def test_an_unlisted_tool_called_by_its_own_name_asks_a_person(newcomer: Workspace) -> None:
    assert_only_a_person_allows(newcomer, PLAIN)  # Claude Code has forms, though nobody sees them here


@promise("consent:unlisted-asks")
def test_where_the_user_lets_the_model_confirm_it_asks_first_and_the_record_says_whose_word_it_was(
    newcomer: Workspace,
) -> None:
    newcomer.configure({"approval": {"model_may_approve": "always"}})
    before: list[Any] = []

    def confirm(conversation: Conversation) -> Use:
        before.extend([ran(newcomer.notes), decided(newcomer)])
        return go_on(conversation)

    asked, echoed = run_script(newcomer, PLAIN, confirm)
    assert "You may confirm it" in description(asked)
    assert before == [[], [("pending", None)]]
    assert "hello" in echoed
    assert (ran(newcomer.notes), decided(newcomer)) == (["echo"], [("completed", "model")])


@promise("consent:model-plain-only")
def test_where_the_user_says_never_nothing_runs_on_the_models_word(newcomer: Workspace) -> None:
    newcomer.configure({"approval": {"model_may_approve": "never"}})
    assert_only_a_person_allows(newcomer, PLAIN)


@promise("consent:model-plain-only")
@pytest.mark.parametrize(("use", "ask"), [(COMMAND, "*"), (PLAIN, "odd:echo")], ids=["command", "named"])
def test_no_command_and_nothing_that_a_rule_names_runs_on_the_models_word(
    newcomer: Workspace, use: Use, ask: str
) -> None:
    newcomer.configure({"approval": {"model_may_approve": "always"}})
    newcomer.permit(ask=[ask])
    assert_only_a_person_allows(newcomer, use)


def assert_only_a_person_allows(workspace: Workspace, use: Use) -> None:
    """Assert that the model's word does not run it, and that a person's in another terminal does."""
    before: list[Any] = []

    def person_allows(conversation: Conversation) -> Use:
        before.extend([ran(workspace.notes), decided(workspace)])
        workspace.allow()
        return go_on(conversation)

    asked, still_asked, echoed = run_script(workspace, use, go_on, person_allows)
    for result in (asked, still_asked):
        assert "You cannot approve it." in description(result)
    assert before == [[], [("pending", None)]]
    assert "hello" in echoed
    assert (ran(workspace.notes), decided(workspace)) == (["echo"], [("completed", "terminal")])


# Over HTTP


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Generator[Hub]:
    with hub_running(tmp_path_factory.mktemp("hub")) as running:
        yield running


@dataclass(frozen=True, kw_only=True)
class Address(Server):
    """A server that runs already, in place of the command of one to start."""

    command: str = ""
    config: Mapping[str, object]

    def as_config(self) -> dict[str, object]:
        return dict(self.config)


def at_hub(room: Room, *token_options: str) -> Setting:
    """Claude Code in that room, with a session's token for the hub."""
    token = room.hub.token("session", *token_options, cwd=room.path)
    home = Path(room.hub.environment["HOME"])
    return Setting(
        api=room.hub.api, server=Address(config=room.over_http(token)), home=home, workspace=room.path
    )


@promise("consent:http-forms")
def test_over_http_without_a_token_for_forms_none_is_shown_and_nothing_runs_before_a_person_decides(
    hub: Hub, tmp_path: Path
) -> None:
    room, tally = hub.room(), tmp_path / "ran"
    room.settle(servers(tally))
    before: list[Any] = []

    def person_allows(conversation: Conversation) -> Use:
        before.extend([ran(tally), FORM in screen.read()])
        room.allow(room.question())
        return go_on(conversation)

    hub.api.also("unshown-task", PLAIN, go_on, person_allows)
    with interactive(at_hub(room), "do the unshown-task") as screen:
        screen.wait(LAST_WORD)
    asked, still_asked, echoed = hub.api.results_of("unshown-task")
    for result in (asked, still_asked):
        assert "You cannot approve it." in description(result)
    assert before == [[], False]
    assert "hello" in echoed
    assert [each["decided_by"]["channel"] for each in room.asked()] == ["terminal"]
    assert ran(tally) == ["echo"]


@promise("consent:http-forms")
def test_over_http_with_a_token_for_forms_one_decides_a_plain_call_and_no_command(
    hub: Hub, tmp_path: Path
) -> None:
    room, tally = hub.room(), tmp_path / "ran"
    room.settle(servers(tally))
    hub.api.also("shown-task", COMMAND, PLAIN)
    with interactive(at_hub(room, "--forms"), "do the shown-task") as screen:
        shown = screen.wait(FORM, "Call odd:echo?", "Accept")
        assert '"text"' in shown
        assert ran(tally) == []
        screen.accept()
        screen.wait(LAST_WORD)
    command, plain = hub.api.results_of("shown-task")
    assert "You cannot approve it." in description(command)
    assert "hello" in plain
    assert ran(tally) == ["echo"]
    assert [each["input"] for each in room.pending()] == [COMMAND.arguments]
