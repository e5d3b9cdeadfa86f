"""`pml token`: made and shown once, listed without their text, revoked; never by an agent."""

import pytest

from pml.cli.main import main
from tests.commands import Pml
from tests.promises import promise


def test_a_persons_token_is_shown_once_and_listed_without_its_text(pml: Pml) -> None:
    made = pml("token", "create", "--role", "person", "--name", "phone", "--ttl", "60", "--json")
    assert made.code == 0
    token = made.json.pop("token")
    assert token.startswith(f"pml_{made.json['id']}_")
    listed = pml("token", "list", "--json")
    assert [(each["id"], each["role"], each["name"], each["session"]) for each in listed.json["tokens"]] == [
        (made.json["id"], "person", "phone", None)
    ]
    assert token[-43:] not in listed.out + pml("token", "list").out + pml("audit", "list", "--json").out


def test_people_are_told_how_to_use_it(pml: Pml) -> None:
    made = pml("token", "create", "--role", "session", "--session", "nightly")
    first, *rest = made.out.splitlines()
    assert first.startswith("pml_")
    assert "Authorization: Bearer" in made.out
    assert "for the session nightly" in made.out
    assert any("pml token revoke" in line for line in rest)


def test_sessions_are_started_for_their_tokens_in_a_tree(pml: Pml) -> None:
    parent = pml("token", "create", "--role", "session", "--session", "nightly", "--json").json
    child = pml("token", "create", "--role", "child", "--parent", "nightly", "--json").json
    assert (parent["session"], parent["role"], parent["name"]) == ("nightly", "session", "nightly")
    assert (child["role"], len(child["session"])) == ("child", 36)
    again = pml("token", "create", "--role", "child", "--session", "nightly")
    assert again.code == 1
    assert "has the role session" in again.err


@promise("token:revocable")
def test_a_token_is_revoked_by_its_id_or_its_text_which_is_not_repeated(pml: Pml) -> None:
    made = [pml("token", "create", "--role", "person", "--json").json for _ in range(2)]
    by_id = pml("token", "revoke", made[0]["id"])
    by_text = pml("token", "revoke", made[1]["token"])
    assert (by_id.code, by_text.code) == (0, 0)
    assert made[1]["token"][-43:] not in by_text.out + by_text.err
    states = [each["revoked_at"] for each in pml("token", "list", "--json").json["tokens"]]
    assert None not in states
    assert "revoked" in pml("token", "list").out
    unknown = pml("token", "revoke", "0" * 12)
    assert unknown.code == 5


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["create"], 2),
        (["create", "--role", "king"], 2),
        (["create", "--role", "person", "--session", "a"], 2),
        (["create", "--role", "person", "--ttl", "0"], 2),
        (["create", "--role", "person", "--name", ""], 0),
        (["create", "--role", "child", "--parent", "nobody"], 5),
        (["revoke"], 2),
    ],
)
def test_what_cannot_be_made_is_told(pml: Pml, words: list[str], code: int) -> None:
    assert pml("token", *words).code == code


@promise("agent:cannot-decide")
@pytest.mark.parametrize(
    "words", [["create", "--role", "person"], ["create", "--role", "session"], ["list"], ["revoke", "a"]]
)
def test_an_agent_makes_no_tokens(pml: Pml, agent: None, words: list[str]) -> None:
    ran = pml("token", *words)
    assert ran.code == 1
    assert "beneath the agent session" in ran.err
    assert "pml_" not in ran.out


def test_its_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "token"]) == 0
    assert "pml token create --role person" in capsys.readouterr().out
