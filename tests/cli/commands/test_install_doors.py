"""A server that a registry offers, at every door: what a rule installs, and what only a person does."""

import json
from typing import Any, Final

import pytest

from tests.cli.doors import DOORS, allow, entering
from tests.cli.offering import Registry
from tests.commands import Pml
from tests.promises import promise
from tests.tools import need

PENDING = 4
TOOL: Final = "greeter:greet"
ADA: Final = {"name": "Ada"}
CALL: Final = ("call", TOOL, json.dumps(ADA))
REACHES: Final[dict[str, Any]] = {
    "folder and network": {"net": True, "read": ["~/.ssh"]},
    "workspace": {"workspace": "read"},
    "program": {"run": ["git"]},
}
reaches = pytest.mark.parametrize("permissions", REACHES.values(), ids=REACHES)
doors = pytest.mark.parametrize("door", DOORS)


@pytest.fixture(autouse=True)
def allowed(registry: Registry) -> None:
    """The user's file allows all tools of the server."""
    file = registry.home / "config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "permissions": {"allow": ["greeter:*"]}}))


def set_age(registry: Registry, days: int) -> None:
    """Have the user's file ask for this age, of a package that was published long ago."""
    registry.index.uploaded[registry.file] = "2001-01-01T00:00:00Z"
    file = registry.home / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "install": {"min_age_days": days}}))


def text_of(result: Any) -> str:
    return result["content"][0]["text"]


@promise("load:rules-cover-only-the-confined")
@promise("wire:approval-names-its-subject")
@reaches
@doors
def test_a_rule_installs_nothing_that_reaches_anything_and_the_models_word_does_not_either(
    registry: Registry, door: str, permissions: dict[str, Any]
) -> None:
    registry.offer(permissions=permissions, lock=registry.locked())
    with entering(door) as agent:
        asked = agent.call(TOOL, ADA)

        assert text_of(asked).startswith("Approval required to install greeter@1.0\n")
        assert "You cannot approve it." in text_of(asked)
        context = asked["approval_context"]
        assert (context["type"], asked["structuredContent"]["approval_type"]) == (
            "dependency_install",
            "dependency",
        )
        still = agent.go_on(context["workflow_id"])
        assert still["approval_required"] is True
        assert (registry.was_downloaded, registry.leftovers) == (False, [])

        allow(context["approval_id"])
        assert text_of(agent.go_on(context["workflow_id"])) == "hello Ada"
    assert registry.leftovers == ["greeter"]


@promise("load:says-what-follows")
@doors
def test_an_install_for_a_tool_that_a_rule_asks_about_promises_no_more_than_the_install(
    registry: Registry, door: str
) -> None:
    file = registry.home / "config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "permissions": {"ask": ["greeter:greet"]}}))
    registry.offer(lock=registry.locked())
    with entering(door) as agent:
        asked = agent.call(TOOL, ADA)
        then = 'the call itself is asked about: your rule "ask greeter:greet" says so'
        assert f"\n  then: {then} (" in text_of(asked)
        assert "\n  why: greeter:greet's server is not installed yet\n" in text_of(asked)
        assert "until the session ends" not in text_of(asked)

        allow(asked["approval_context"]["approval_id"])
        again = agent.go_on(asked["approval_context"]["workflow_id"])
        assert text_of(again).startswith("Approval required to call greeter:greet\n")
        allow(again["approval_context"]["approval_id"])
        assert text_of(agent.go_on(again["approval_context"]["workflow_id"])) == "hello Ada"
        assert text_of(agent.call(TOOL, ADA)).startswith("Approval required to call greeter:greet\n")


@promise("load:rules-cover-only-the-confined")
@doors
@pytest.mark.parametrize("permissions", [None, {"workspace": "none"}], ids=["nothing said", "none said"])
def test_a_rule_installs_what_reaches_nothing_and_is_contained(
    registry: Registry, door: str, permissions: dict[str, Any] | None
) -> None:
    need("bwrap")
    registry.offer(permissions=permissions, lock=registry.locked())
    with entering(door) as agent:
        assert text_of(agent.call(TOOL, ADA)) == "hello Ada"


@promise("load:rules-cover-only-the-confined")
@reaches
def test_on_the_command_line_nothing_is_installed_by_a_rule_either(
    pml: Pml, registry: Registry, permissions: dict[str, Any]
) -> None:
    registry.offer(permissions=permissions, lock=registry.locked())

    ran = pml(*CALL)

    assert (ran.code, registry.was_downloaded, registry.leftovers) == (PENDING, False, [])
    assert "Approval required to install greeter@1.0" in ran.err


@promise("install:young-is-a-persons")
@doors
@pytest.mark.parametrize("is_told", [True, False], ids=["young", "not known"])
def test_a_rule_installs_nothing_that_is_too_young_and_the_models_word_does_not_either(
    registry: Registry, door: str, is_told: bool
) -> None:
    lock = {**registry.locked(), "released_at": "1999-01-01T00:00:00Z"}  # says the registry
    registry.offer(lock=lock)
    set_age(registry, days=36_000 if is_told else 1)
    registry.index.plain = not is_told
    with entering(door) as agent:
        asked = agent.call(TOOL, ADA)

        told = "youngest: TOO YOUNG: a package was published on 2001-01-01" if is_told else "AGE NOT KNOWN"
        assert told in text_of(asked)
        assert agent.go_on(asked["approval_context"]["workflow_id"])["approval_required"] is True
    assert (registry.was_downloaded, registry.leftovers) == (False, [])


@promise("install:young-is-a-persons")
def test_what_is_old_enough_is_installed_by_a_rule_and_by_yes_and_what_is_not_by_neither(
    pml: Pml,
    registry: Registry,
) -> None:
    need("bwrap")
    registry.offer(lock=registry.locked())
    set_age(registry, days=36_000)
    refused = pml("deps", "install", "greeter", "--yes")
    assert (refused.code, pml(*CALL).code, registry.leftovers) == (PENDING, PENDING, [])
    assert "`--yes` does not cover that" in refused.err

    set_age(registry, days=30)
    assert pml(*CALL).out == "hello Ada\n"
