"""`pml token`: made and shown once, listed without their text, revoked; never by an agent."""

import asyncio
from datetime import datetime, timedelta

import pytest

from pml.app import find_place, open_context
from pml.cli.main import main
from pml.core.approvals.record import SessionId
from pml.service.session_tree import start_session
from pml.service.upkeep import end_session
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


@promise("token:persons-end")
def test_a_persons_token_ends_after_30_days_unless_never_is_said(pml: Pml) -> None:
    for words, days in (([], 30), (["--ttl", "86400"], 1), (["--ttl", "never"], None)):
        made = pml("token", "create", "--role", "person", *words, "--json").json
        created, ends = made["created_at"], made["expires_at"]
        lasts = None if ends is None else datetime.fromisoformat(ends) - datetime.fromisoformat(created)
        assert lasts == (None if days is None else timedelta(days=days))
    assert "it ends at " in pml("token", "create", "--role", "person").out
    assert "it has no end" in pml("token", "create", "--role", "person", "--ttl", "never").out
    assert pml("token", "create", "--role", "session", "--json").json["expires_at"] is None
    refused = pml("token", "create", "--role", "person", "--ttl", "forever")
    assert (refused.code, "or `never`" in refused.err) == (2, True)


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
    states = [each["revoked_at"] for each in pml("token", "list", "--all", "--json").json["tokens"]]
    assert (len(states), None in states) == (2, False)
    assert "revoked" in pml("token", "list", "--all").out
    assert pml("token", "list", "--json").json == {"tokens": []}
    assert "no token is valid" in pml("token", "list").out
    unknown = pml("token", "revoke", "0" * 12)
    assert (unknown.code, "pml token list" in unknown.err) == (5, True)


def test_the_start_of_an_id_is_enough_to_revoke_if_only_one_begins_so(pml: Pml) -> None:
    ids = [pml("token", "create", "--role", "person", "--json").json["id"] for _ in range(17)]
    begins = [each[0] for each in ids]
    several = next(first for first in begins if begins.count(first) > 1)
    assert pml("token", "revoke", several).code == 2
    assert pml("token", "revoke", "").code == 5
    assert len(pml("token", "list", "--json").json["tokens"]) == 17
    assert pml("token", "revoke", ids[0][:11]).out.startswith(f"revoked {ids[0]}")
    assert "valid" in pml("token", "list").out


def test_what_may_be_a_token_is_not_repeated_though_there_is_none(pml: Pml) -> None:
    token = pml("token", "create", "--role", "person", "--json").json["token"]
    ran = pml("token", "revoke", f"x{token}")
    assert ran.code == 5
    assert token[-43:] not in ran.out + ran.err


def test_a_session_that_was_started_for_no_token_does_not_begin_anew(pml: Pml) -> None:
    async def fill() -> None:
        async with open_context(find_place()) as context:
            session = await start_session(
                context,
                session_id=SessionId("nightly"),
                name="nightly",
                principal="session:nightly",
                workspace=str(find_place().workspace),
                process=None,
                is_agent=True,
            )
            await end_session(context, session)

    asyncio.run(fill())
    ran = pml("token", "create", "--role", "session", "--session", "nightly")
    assert (ran.code, "has ended" in ran.err, "name another" in ran.err) == (1, True, True)
    assert pml("token", "list", "--all", "--json").json == {"tokens": []}


@promise("token:revocable")
def test_a_session_ends_with_its_token_and_begins_anew_with_another(pml: Pml) -> None:
    def make() -> str:
        ran = pml("token", "create", "--role", "session", "--session", "nightly", "--json")
        assert ran.code == 0, ran.out
        return ran.json["id"]

    def state() -> str:
        return pml("sessions", "show", "nightly", "--json").json["state"]

    for _ in range(3):
        made = make()
        assert state() == "connected"
        assert "the session nightly ended with it" in pml("token", "revoke", made).out
        assert state() == "ended"
    first, second = make(), make()
    assert "ended" not in pml("token", "revoke", first).out
    assert state() == "connected"
    assert "the session nightly ended with it" in pml("token", "revoke", second).out


def test_a_session_begins_anew_only_in_its_own_role(pml: Pml) -> None:
    made = pml("token", "create", "--role", "session", "--session", "nightly", "--json").json["id"]
    pml("token", "revoke", made)
    other = pml("token", "create", "--role", "child", "--session", "nightly")
    assert (other.code, "choose another id" in other.err) == (1, True)


def test_how_long_it_lasts_is_told_alike_whatever_is_wrong(pml: Pml) -> None:
    told = {pml("token", "create", "--role", "person", "--ttl", ttl).err for ttl in ("x", "0", "9" * 30)}
    assert len(told) == 1
    assert "must be a number of seconds from 1 to 315360000" in told.pop()


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
