"""An "always" that proves no person, a model's or a form's over HTTP: it covers plain calls and no others."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

import pytest

from pml.core.config.file import FileKind
from pml.core.rules.ruleset import Effect
from pml.core.values import Json, JsonObject
from pml.downstream.protocol.eras import MODERN
from pml.service.rules.rulebook import add_rule
from tests.builders import PERSON
from tests.downstream.parties import FORMS, LATEST, Behind, Party, tool
from tests.downstream.webs import Knock, Web, call
from tests.promises import promise

BOX: Final[JsonObject] = tool("box", required=["action"])  # `command` is not declared, and taken all the same
LIST: Final[JsonObject] = {"action": "list"}
LIST_MORE: Final[JsonObject] = {"action": "list more"}
RUN: Final[JsonObject] = {"action": "run", "command": "rm -rf ~"}
ALWAYS: Final[JsonObject] = {"action": "accept", "content": {"remember": "always"}}
BOTH = pytest.mark.parametrize("version", [LATEST, MODERN])


@pytest.fixture
async def web(tmp_path: Path) -> AsyncGenerator[Web]:
    web = Web(tmp_path)
    web.serve("dev", BOX)
    web.as_new()
    yield web
    await web.close()


def ran(behind: Behind) -> list[Json]:
    return [each["arguments"] for each in behind.servers.calls]


async def confirm(party: Party, version: str, **rules: list[Json]) -> None:
    """Let the client's model say "always" to a plain call."""
    party.serve("dev", BOX)
    party.as_new(**rules)
    await party.connect(version)
    asked = await party.call("dev__box", LIST)
    await party.continue_("dev__box", asked["approval_context"]["workflow_id"], always=True)


@promise("consent:always-of-models")
@BOTH
async def test_a_models_always_for_a_plain_call_covers_no_command_of_the_tool(
    party: Party, version: str
) -> None:
    await confirm(party, version)
    plain, command = await party.call("dev__box", LIST_MORE), await party.call("dev__box", RUN)

    assert ("approval_required" in plain, command["approval_required"]) == (False, True)
    assert ran(party) == [LIST, LIST_MORE]
    (record,) = await party.pending()
    assert [*record.deciders] == ["person"]


@promise("consent:always-of-models")
@pytest.mark.parametrize("effect", [Effect.ASK, Effect.ALLOW])
async def test_only_a_person_who_allows_the_tool_makes_a_models_rule_theirs(
    party: Party, effect: Effect
) -> None:
    await confirm(party, LATEST)
    workspace = str(party.office.workspace)
    await add_rule(party.office.context, workspace, effect, "dev:box", which=FileKind.WORKSPACE, by=PERSON)
    await party.call("dev__box", RUN)

    assert ran(party) == ([LIST, RUN] if effect is Effect.ALLOW else [LIST])


async def test_beside_a_persons_rule_a_models_changes_nothing(party: Party) -> None:
    await confirm(party, LATEST)
    party.as_new(allow=["dev:*"])
    await party.call("dev__box", RUN)

    assert ran(party) == [LIST, RUN]


async def answer_always(web: Web, version: str) -> Callable[[JsonObject, int], Knock]:
    """Let the holder of the token fill in the form of a plain call; return what makes another call."""
    if version == MODERN:
        form = await web.ask(call("dev__box", LIST, 1), FORMS).result()
        again = {"requestState": form["requestState"], "inputResponses": {"approval": ALWAYS}}
        await web.ask(call("dev__box", LIST, 2, **again), FORMS).result()
        return lambda arguments, id: web.ask(call("dev__box", arguments, id), FORMS)
    client = await web.shake_hands(version, FORMS)
    knock = client.post(call("dev__box", LIST, 1))
    (form,) = await knock.has(1)
    await client.post({"jsonrpc": "2.0", "id": form["id"], "result": ALWAYS}).done()
    await knock.result()
    return lambda arguments, id: client.post(call("dev__box", arguments, id))


@promise("consent:always-of-models")
@BOTH
async def test_an_always_of_a_form_over_http_covers_no_command_of_the_tool(web: Web, version: str) -> None:
    make = await answer_always(web, version)
    await make(LIST_MORE, 3).result()
    command = await make(RUN, 4).result()

    assert command["approval_required"] is True
    assert ran(web) == [LIST, LIST_MORE]
