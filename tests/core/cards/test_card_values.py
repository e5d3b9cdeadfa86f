"""Each value stands once on a card; what is drawn is not repeated as JSON, and the whole input unfolds."""

import json

import pytest

from pml.agents.known import KNOWN
from pml.core.cards.blocks import Asked, blocks_of
from pml.core.cards.card import Arguments
from pml.core.values import JsonObject
from tests.builders import make_approval
from tests.promises import promise

WORKSPACE = "/home/ana/shop"


def arguments_of(tool: str, given: JsonObject) -> tuple[JsonObject | None, JsonObject | None]:
    """What is shown as JSON beside the other blocks, and what unfolds."""
    record = make_approval(tool_name=tool, tool_input=given)
    shown = [
        block
        for block in blocks_of(Asked(record=record, cwd=WORKSPACE, workspace=WORKSPACE, clients=KNOWN.tools))
        if isinstance(block, Arguments)
    ]
    rest = [json.loads("".join(block.lines)) for block in shown if not block.raw]
    raw = [json.loads("".join(block.lines)) for block in shown if block.raw]
    return (rest[0] if rest else None), (raw[0] if raw else None)


@promise("card:value-once")
@pytest.mark.parametrize(
    ("tool", "given", "rest"),
    [
        ("Bash", {"command": "ls", "description": "look"}, None),
        ("Bash", {"command": "ls", "timeout": 5}, {"timeout": 5}),
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}, None),
        (
            "Edit",
            {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True},
            {"replace_all": True},
        ),
        ("Write", {"file_path": "a", "content": "x"}, None),
        ("db:query", {"sql": "select 1\nfrom t", "limit": 5}, {"limit": 5}),
    ],
)
def test_what_is_drawn_is_not_repeated_and_the_whole_input_unfolds(
    tool: str, given: JsonObject, rest: JsonObject | None
) -> None:
    assert arguments_of(tool, given) == (rest, given)


@promise("card:value-once")
@pytest.mark.parametrize(
    "given",
    [
        {"title": "a", "body": "b"},
        {},
    ],
)
def test_a_call_of_which_nothing_is_drawn_shows_its_arguments(given: JsonObject) -> None:
    assert arguments_of("github:create_issue", given) == (given, None)


@promise("card:value-once")
def test_what_was_not_drawn_whole_stands_among_the_arguments() -> None:
    long = "d" * 400
    assert arguments_of("Bash", {"command": "ls", "description": long})[0] == {"description": long}
    many = "\n".join(map(str, range(100_000)))
    assert arguments_of("Bash", {"command": many})[0] == {"command": many}
    same = {"file_path": "a", "old_string": "x", "new_string": "x"}
    assert arguments_of("Edit", same)[0] == same, "a diff without a changed line shows neither text"
    alike = {"x\u200b": "a\nb", "x\\u{200b}": "short"}
    assert arguments_of("notes:add", alike)[0] == {"x\\u{200b}": "short"}, "a name that looks like another"
