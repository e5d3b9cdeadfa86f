"""What a launch would give, in words, and the narrowest of several powers."""

import itertools

import pytest

from pml.core.approvals.subjects import asked_facts, form_title, headline, title
from pml.core.config.file import ParentMayDecide
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.sessions.launch import gives_commands, launch_facts, power_of, with_powers
from pml.core.sessions.token import ParentMay, least
from pml.core.values import JsonObject
from tests.builders import make_approval

WISH: JsonObject = {"prompt": "mend it"}


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (
            {**WISH, "parent_may_decide": "unlisted"},
            {
                "may use": "every tool; your rules apply to each call",
                "answers": "the parent, for what no rule names, commands included; people for the rest",
            },
        ),
        (
            {**WISH, "allowed_tools": ["Read", "a\u200bb:*"], "parent_may_decide": "nothing"},
            {"may use": "Read, a\\u{200b}b:*", "answers": "people only"},
        ),
        (
            {**WISH, "allowed_tools": [], "parent_may_decide": "all", "loopback_enabled": False},
            {"may use": "no tool", "answers": "nobody: it cannot ask, and does only what rules allow"},
        ),
    ],
)
def test_a_launch_tells_what_it_gives(arguments: JsonObject, facts: dict[str, str]) -> None:
    assert dict(launch_facts(arguments)) == facts
    record = make_approval(tool_name=LAUNCH_TOOL, tool_input=arguments)
    told = asked_facts(record)
    assert dict(told[: len(facts)]) == facts
    assert told[-1][0] == "input"
    assert headline(record) == "Approval required to launch an agent"
    assert (title(record), form_title(record)) == ("Launch an agent", "Launch an agent?")


def test_one_that_may_launch_says_so() -> None:
    assert ("may launch", "agents of its own; each launch is asked about") in launch_facts(
        {**WISH, "may_launch": True, "parent_may_decide": "nothing"}
    )


@pytest.mark.parametrize(("may", "alarming"), [*zip(ParentMay, (False, False, True, True), strict=True)])
def test_power_over_commands_is_told_apart(may: ParentMay, alarming: bool) -> None:
    assert gives_commands(with_powers(WISH, tools=None, parent_may=may)) is alarming


def test_what_is_given_stands_in_the_arguments() -> None:
    assert with_powers(WISH, tools=("Read",), parent_may=ParentMay.LISTED) == {
        **WISH,
        "allowed_tools": ["Read"],
        "parent_may_decide": "listed",
    }
    assert with_powers(WISH, tools=None, parent_may=ParentMay.ALL) == {**WISH, "parent_may_decide": "all"}


@pytest.mark.parametrize(
    ("setting", "power"),
    [(True, "all"), (False, "nothing"), ("unlisted", "unlisted"), (("notes:*",), "listed"), ((), "listed")],
)
def test_the_users_file_gives_at_most(setting: ParentMayDecide, power: str) -> None:
    assert power_of(setting) == power


def test_the_narrowest_of_two_powers_is_the_earlier() -> None:
    for (i, one), (j, other) in itertools.product(enumerate(ParentMay), repeat=2):
        assert least(one, other) is (one if i <= j else other)
