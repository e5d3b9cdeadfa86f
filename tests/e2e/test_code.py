"""Code handed over with `execute`, by real clients: it waits at exactly the call that is asked about."""

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.claude import run_headless
from tests.e2e.clients import ACCEPT, DECLINE, PYTHON, PYTHON_LEGACY, READS_S, Client, Kind, call, connected
from tests.e2e.code_rig import (
    ASKS,
    DONE,
    EXECUTE,
    LANGUAGES,
    RETURNED,
    RULES,
    SERVERS,
    Books,
    at_once,
    catching,
    effects,
    error_of,
    goes_on,
    question,
    shown,
    three_calls,
    value_of,
)
from tests.e2e.hubs import Hub, Room, hub_running, plexus
from tests.e2e.installed import need_clients
from tests.e2e.messages_api import Conversation, Use, scripted
from tests.e2e.workspaces import Workspace
from tests.promises import promise

mixed = pytest.mark.parametrize(
    ("language", "kind"),
    [("typescript", PYTHON), ("python", PYTHON_LEGACY)],
    ids=["typescript-modern", "python-legacy"],
)
every_language = pytest.mark.parametrize("language", LANGUAGES)


@pytest.fixture
def books(tmp_path: Path, home: Path) -> Books:
    need_clients()
    place = (tmp_path / "shop").resolve()
    place.mkdir()
    books = Books(workspace=Workspace(path=place, home=home, notes=place / "ledger.txt"))
    books.rule(RULES)
    return books


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Generator[Hub]:
    with hub_running(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def room(hub: Hub) -> Room:
    return hub.room()


@asynccontextmanager
async def working(kind: Kind, books: Books, *, forms: bool = True) -> AsyncGenerator[Client]:
    """A client of a new gateway; without forms the model collects what was decided elsewhere."""
    place = books.workspace
    if not forms:
        books.rule(RULES, approval={"model_may_approve": "never"})
    async with connected(kind, place.gateway, home=place.home, forms=forms) as client:
        yield client


@promise("code:pause-repeats-nothing")
@every_language
def test_from_claude_code_each_of_three_calls_runs_once_though_a_person_decides_between(
    books: Books, language: str
) -> None:
    def person_allows(conversation: Conversation) -> Use:
        assert books.effects == DONE[:1]
        books.workspace.allow()
        return goes_on(conversation)

    first = Use(tool=EXECUTE, arguments=three_calls(language))
    with scripted(first, goes_on, person_allows) as api:
        run_headless(books.setting(api))
    asked, still_asked, ran = api.results
    assert question(asked).workflow_id == question(still_asked).workflow_id
    assert question(asked).headline == ASKS
    assert question(asked).run_id is not None
    assert value_of(ran) == RETURNED
    assert books.effects == DONE


@promise("code:pause-repeats-nothing")
@every_language
def test_what_ran_before_the_gateway_was_killed_does_not_run_again_in_the_next(
    books: Books, language: str
) -> None:
    """The person decides while no gateway runs; Claude Code starts a new one when it needs it."""
    killed: set[int] = set()

    def asks_another_gateway(conversation: Conversation) -> Use:
        killed.add(books.kill_gateway())
        return goes_on(conversation)

    def person_allows(conversation: Conversation) -> Use:
        killed.add(books.kill_gateway())
        assert books.effects == DONE[:1]
        books.workspace.allow()
        return goes_on(conversation)

    first = Use(tool=EXECUTE, arguments=three_calls(language))
    with scripted(first, asks_another_gateway, person_allows) as api:
        run_headless(books.setting(api))
    asked, still_asked, ran = api.results
    assert len(killed) == 2
    assert question(asked).workflow_id == question(still_asked).workflow_id
    assert value_of(ran) == RETURNED
    assert books.effects == DONE


@promise("code:pause-repeats-nothing")
def test_what_ran_before_the_hub_was_killed_does_not_run_again_in_the_next(room: Room) -> None:
    room.settle({"permissions": RULES, "mcpServers": SERVERS})
    word = "interrupted-task"

    def person_allows(conversation: Conversation) -> Use:
        asked = room.question()
        room.hub.kill()
        assert effects(room.path) == DONE[:1]
        room.allow(asked)
        room.hub.start()
        return plexus("execute", **question(conversation.results[-1]).go_on)

    room.hub.api.also(word, plexus("execute", **three_calls("typescript")), person_allows)
    server = room.over_http(room.hub.token("session", cwd=room.path))
    with room.connected(f"do the {word}", server, "--allowedTools", "mcp__plexus") as agent:
        assert agent.finish().code == 0
    asked, ran = room.hub.api.results_of(word)
    assert question(asked).headline == ASKS
    assert value_of(ran) == RETURNED
    assert effects(room.path) == DONE


@promise("code:pause-repeats-nothing")
def test_an_agent_that_calls_again_when_the_hub_was_killed_repeats_nothing(room: Room) -> None:
    """A launched agent waits within its call: it never sees a workflow, and can only call again."""
    room.settle({"permissions": RULES, "mcpServers": SERVERS})
    word = "waiting-task"
    code = plexus("execute", **three_calls("python"))
    room.hub.api.also(word, code, code)
    with room.launched(f"do the {word}") as agent:
        [asked] = room.waited()
        room.hub.kill()
        assert effects(room.path) == DONE[:1]
        room.allow(asked)
        room.hub.start()
        assert agent.finish().code == 0
    lost, ran = room.hub.api.results_of(word)
    assert "the connection was lost" in lost
    assert value_of(ran) == RETURNED
    assert effects(room.path) == DONE


@promise("code:pause-repeats-nothing")
@mixed
async def test_code_that_waits_outlives_its_client_and_goes_on_from_another(
    books: Books, language: str, kind: Kind
) -> None:
    async with working(PYTHON, books, forms=False) as client:
        asked = question(shown(await call(client, "execute", three_calls(language))))
    books.workspace.allow()
    async with working(kind, books, forms=False) as another:
        ran = await call(another, "execute", asked.go_on)
    assert value_of(shown(ran)) == RETURNED
    assert books.effects == DONE


@mixed
async def test_the_form_of_a_call_that_code_makes_is_answered_within_the_one_call_of_the_code(
    books: Books, language: str, kind: Kind
) -> None:
    async with working(kind, books) as client:
        ran = await call(client, "execute", three_calls(language), answer=ACCEPT)
    [form] = ran.forms
    assert form["message"].startswith("Call ledger:pay?\n")
    assert value_of(shown(ran)) == RETURNED
    assert books.effects == DONE


@promise("code:denied-is-caught")
@mixed
async def test_a_call_that_a_person_declines_is_an_error_that_code_may_catch(
    books: Books, language: str, kind: Kind
) -> None:
    async with working(kind, books) as client:
        caught = await call(client, "execute", catching(language), answer=DECLINE, reads_s=READS_S)
        uncaught = await call(client, "execute", three_calls(language), answer=DECLINE, reads_s=READS_S)
    assert "user_denied: " in value_of(shown(caught))["caught"]
    assert error_of(uncaught)["code"] == "user_denied"
    assert books.effects == DONE[:1]


@promise("code:denied-is-caught")
@every_language
async def test_a_call_that_a_rule_denies_is_an_error_that_code_may_catch(books: Books, language: str) -> None:
    books.rule({**RULES, "deny": ["ledger:pay"]})
    async with working(PYTHON, books) as client:
        caught = await call(client, "execute", catching(language), answer=ACCEPT)
        uncaught = await call(client, "execute", three_calls(language), answer=ACCEPT)
    assert "TOOL_DENIED: " in value_of(shown(caught))["caught"]
    assert error_of(uncaught)["code"] == "TOOL_DENIED"
    assert [*caught.forms, *uncaught.forms] == []
    assert books.effects == DONE[:1]


@every_language
async def test_what_a_person_says_when_denying_elsewhere_reaches_the_code(
    books: Books, language: str
) -> None:
    async with working(PYTHON, books, forms=False) as client:
        asked = question(shown(await call(client, "execute", catching(language))))
        books.deny("--message", "not this month")
        caught = await call(client, "execute", asked.go_on)
    assert "not this month" in value_of(shown(caught))["caught"]
    assert books.effects == []


@every_language
async def test_calls_that_code_makes_at_once_are_asked_at_once_and_each_runs_once(
    books: Books, language: str
) -> None:
    async with working(PYTHON, books, forms=False) as client:
        asked = question(shown(await call(client, "execute", at_once(language))))
        waiting = books.workspace.pending()
        assert sorted(each["input"]["what"] for each in waiting) == ["gas", "rent"]
        books.allow_all()
        ran = await call(client, "execute", asked.go_on)
    assert value_of(shown(ran)) == ["pay rent: done", "pay gas: done"]
    assert sorted(books.effects) == ["pay gas", "pay rent"]


@promise("code:pause-repeats-nothing")
@every_language
def test_the_same_command_line_goes_on_where_its_code_waits(books: Books, language: str) -> None:
    command = ("call", "pml:execute", json.dumps(three_calls(language)))
    for _ in range(2):
        assert books.workspace.pml(*command).code == 4
        assert books.effects == DONE[:1]
    books.workspace.allow()
    ran = books.workspace.pml(*command)
    assert (ran.code, ran.json) == (0, RETURNED)
    assert books.effects == DONE
