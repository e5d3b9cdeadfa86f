"""What a hook tells its client: the input that was decided, if it is another than the one asked about."""

from typing import Any, cast

import pytest

from pml.agents.hooks import Asked, HookEvent, answer_json
from pml.core.values import Json, JsonObject
from pml.service.loopback import Permit
from tests.promises import promise


def told(event: HookEvent, asked: Json, decided: Json) -> JsonObject | None:
    hook = Asked(event=event, session_id="s", tool="Clean", input={"deep": asked}, tool_use_id="u")
    said = cast("dict[str, Any]", answer_json(hook, Permit(allow=True, input={"deep": decided})))
    answer = said["hookSpecificOutput"]
    return answer.get("decision", answer).get("updatedInput")


@promise("gate:approved-is-executed")
@pytest.mark.parametrize("event", HookEvent)
@pytest.mark.parametrize(("asked", "decided"), [(1, True), (0, False), (1, 1.0), (True, 1), ("a", "b")])
def test_an_edit_that_python_takes_for_the_same_is_told_to_the_client(
    event: HookEvent, asked: Json, decided: Json
) -> None:
    updated = told(event, asked, decided)

    assert updated is not None
    assert type(updated["deep"]) is type(decided)


@pytest.mark.parametrize("event", HookEvent)
def test_an_input_that_nobody_edited_is_not_repeated(event: HookEvent) -> None:
    assert told(event, True, True) is None
