"""Code handed over with `execute`, by real clients: it waits at exactly the call that is asked about."""

from pathlib import Path

import pytest

from tests.e2e.claude import run_headless
from tests.e2e.clients import PYTHON, PYTHON_LEGACY, Kind, call, connected
from tests.e2e.code_rig import (
    ASKS,
    DONE,
    EXECUTE,
    LANGUAGES,
    RETURNED,
    RULES,
    Books,
    goes_on,
    question,
    shown,
    three_calls,
    value_of,
)
from tests.e2e.installed import need_clients
from tests.e2e.messages_api import Conversation, Use, scripted
from tests.e2e.workspaces import Workspace
from tests.promises import promise

every_language = pytest.mark.parametrize("language", LANGUAGES)


@pytest.fixture
def books(tmp_path: Path, home: Path) -> Books:
    need_clients()
    place = (tmp_path / "shop").resolve()
    place.mkdir()
    books = Books(workspace=Workspace(path=place, home=home, notes=place / "ledger.txt"))
    books.rule(RULES)
    return books


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
    assert question(asked) == question(still_asked)
    assert question(asked).headline == ASKS
    assert value_of(ran) == RETURNED
    assert books.effects == DONE


@promise("run:resumes-in-place")
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
    assert question(asked) == question(still_asked)
    assert value_of(ran) == RETURNED
    assert books.effects == DONE


@promise("run:resumes-in-place")
@pytest.mark.parametrize("kind", [PYTHON, PYTHON_LEGACY], ids=lambda kind: kind.name)
@every_language
async def test_code_that_waits_outlives_its_client_and_goes_on_from_another(
    books: Books, language: str, kind: Kind
) -> None:
    workspace = books.workspace
    with scripted(Use(tool=EXECUTE, arguments=three_calls(language))) as api:
        run_headless(books.setting(api))
    [asked] = api.results
    workspace.allow()
    async with connected(kind, workspace.gateway, home=workspace.home) as client:
        ran = await call(client, "execute", question(asked).go_on)
    assert value_of(shown(ran)) == RETURNED
    assert books.effects == DONE
