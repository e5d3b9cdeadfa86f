"""Approvals over HTTP: lists and pages, what is shown, deciding on exactly that, once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pml.core.approvals.record import Approval, Subject
from pml.core.digest import digest
from pml.core.errors import Unavailable
from pml.core.ports.session_store import Receipt
from pml.core.sessions.token import TokenRole
from pml.core.values import Json
from pml.hub.api.routes import Answer, ReceiptBook
from pml.service.approvals.lifecycle import ask
from tests.builders import NOW, uuid
from tests.hub.hubs import KID, STRANGER, TOP, HubRig, open_rig
from tests.promises import promise
from tests.service.offices import BOUND_S, until_idle


def ids(shapes: Sequence[dict[str, str]]) -> list[str]:
    return [shape["id"] for shape in shapes]


async def test_a_person_lists_what_waits_page_by_page_and_with_all_everything(rig: HubRig) -> None:
    asked = [await rig.ask(KID, n=n) for n in range(5)]
    await rig.decide(asked[0])
    first = await rig.send("GET", "/api/approvals?limit=3")
    second = await rig.send("GET", f"/api/approvals?limit=3&after={first.json['next']}")
    assert ids(first.json["approvals"]) + ids(second.json["approvals"]) == [each.id for each in asked[1:]]
    assert second.json["next"] is None
    everything = await rig.send("GET", "/api/approvals?all")
    assert ids(everything.json["approvals"]) == [each.id for each in asked]
    assert everything.json["approvals"][0]["session_name"] == "kid"
    of_another = await rig.send("GET", "/api/approvals?session=stranger")
    assert of_another.json == {"approvals": [], "next": None}


async def test_a_history_is_searched_by_state_text_and_workspace_newest_first(rig: HubRig) -> None:
    asked = [await rig.ask(KID, title=f"part {n}") for n in range(5)]
    for n in (1, 3):
        await rig.decide(asked[n], allow=False, message="Not today")
    await rig.decide(asked[2])

    async def found(query: str, role: TokenRole = TokenRole.PERSON) -> list[int]:
        got = await rig.send("GET", f"/api/approvals?{query}", role)
        assert got.status == 200, got.text
        return [[record.id for record in asked].index(each["id"]) for each in got.json["approvals"]]

    assert await found("all&newest") == [4, 3, 2, 1, 0]
    assert await found(f"all&newest&limit=2&after={asked[3].id}") == [2, 1]
    assert await found("states=denied,allowed&newest") == [3, 2, 1]
    assert await found("states=denied&search=not+TODAY") == [1, 3]
    assert await found("all&search=part+2") == [2]
    assert await found("all&search=part+%25") == []
    assert await found("search=") == [0, 4]
    assert await found(f"workspace={rig.office.workspace}") == [0, 4]
    assert await found("workspace=/elsewhere") == []
    assert await found("all&search=part", TokenRole.SESSION) == [0, 1, 2, 3, 4]


async def test_a_search_of_a_session_finds_nothing_that_it_may_not_see(rig: HubRig) -> None:
    await rig.ask(STRANGER, title="the plan")
    got = await rig.send("GET", "/api/approvals?all&newest&search=plan", TokenRole.SESSION)
    assert got.json["approvals"] == []
    assert len((await rig.send("GET", "/api/approvals?all&search=plan")).json["approvals"]) == 1


async def test_what_is_shown_has_the_workspace_what_always_writes_and_what_it_covers(rig: HubRig) -> None:
    asked, other = await rig.ask(KID, n=1), await rig.ask(STRANGER, n=2)
    got = await rig.send("GET", f"/api/approvals/{asked.id.upper()}")
    assert got.json["digest"] == asked.digest
    assert got.json["workspace"] == str(rig.office.workspace)
    assert (got.json["always"], got.json["covers"]) == ("github:create_issue", [other.id])


@promise("hub:decide-needs-digest")
async def test_a_decision_counts_only_for_what_was_shown(rig: HubRig) -> None:
    asked, other = await rig.ask(KID, n=1), await rig.ask(KID, n=2)
    without = await rig.send("POST", f"/api/approvals/{asked.id}/decision", json={"allow": True})
    assert (without.status, without.json["error"]["code"]) == (400, "invalid")
    assert "digest" in without.json["error"]["message"]
    for allow in (True, False):
        wrong = await rig.decide(asked, digest=other.digest, allow=allow)
        assert (wrong.status, wrong.json["error"]["code"]) == (409, "conflict")
    assert await rig.status(asked) == "pending"
    right = await rig.decide(asked)
    assert right.json["decided_by"] == {"kind": "person", "id": "person-token", "channel": "inbox"}
    again = await rig.decide(asked, allow=False)
    assert (again.status, "already allowed by person" in again.json["error"]["message"]) == (409, True)


@promise("hub:decide-needs-digest")
async def test_a_digest_counts_with_its_prefix_and_without(rig: HubRig) -> None:
    asked, other = await rig.ask(KID, n=1), await rig.ask(KID, n=2)
    assert (await rig.decide(asked, digest=other.digest.removeprefix("sha256:"))).status == 409
    for cut in ("", "sha256:", asked.digest[:-1], f"sha256:{asked.digest}"):
        assert (await rig.decide(asked, digest=cut)).status == 409
    assert await rig.status(asked) == "pending"
    assert (await rig.decide(asked, digest=asked.digest.removeprefix("sha256:"))).status == 200


async def test_a_decision_can_edit_remember_and_release(rig: HubRig) -> None:
    asked, covered = await rig.ask(KID, n=1), await rig.ask(KID, n=2)
    got = await rig.decide(asked, scope="session", message="go on", release=[covered.id])
    assert (got.json["scope"], got.json["remembered"]["entry"]) == ("session", "github:create_issue")
    assert got.json["released"] == [covered.id]
    third = await rig.ask(STRANGER, n=3)
    edited = await rig.decide(third, updated_input={"n": 4})
    assert edited.json["updated_input"] == {"n": 4}
    denied = await rig.decide(await rig.ask(TOP, n=5), allow=False, message="no")
    assert (denied.json["status"], denied.json["message"]) == ("denied", "no")


async def test_an_edit_that_a_rule_denies_is_refused(rig: HubRig) -> None:
    rig.office.write_rules(deny=[{"tool": "github:create_issue", "args": {"n": 13}}])
    asked = await rig.ask(KID, n=1)
    got = await rig.decide(asked, updated_input={"n": 13})
    assert (got.status, await rig.status(asked)) == (403, "pending")


@pytest.mark.parametrize(
    "more",
    [
        {"allow": "yes"},
        {"allow": None},
        {"scope": "forever"},
        {"unknown": 1},
        {"updated_input": [1]},
        {"release": "x"},
        {"release": ["x"], "scope": "session"},
        {"release": [uuid(1)]},
        {"literal": True},
        {"message": 7},
        {"digest": 1},
    ],
)
async def test_a_decision_that_is_not_understood_decides_nothing(rig: HubRig, more: dict[str, Any]) -> None:
    asked = await rig.ask()
    got = await rig.decide(asked, **more)
    assert (got.status, got.json["error"]["code"]) == (400, "invalid")
    assert await rig.status(asked) == "pending"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"input": {}}, "there is no `input` here"),
        ({"`a\n`": 1}, "there is no ``a\\n`` here"),
        ({"scope": "forever"}, "`scope` must be once, session or always"),
        ({"scope": 1}, "`scope` must be once, session or always"),
        ({"allow": "yes"}, "`allow` must be true or false"),
        ({"message": 7}, "`message` must be a text or null"),
        ({"updated_input": [1]}, "`updated_input` must be an object or null"),
        ({"release": "x"}, "`release` must be a list of texts"),
    ],
)
async def test_what_does_not_fit_is_told_with_what_there_is(
    rig: HubRig, more: dict[str, Any], message: str
) -> None:
    asked = await rig.ask()
    there = "there are: allow, digest, scope, literal, message, updated_input, release"
    error = (await rig.decide(asked, **more)).json["error"]
    hint = there if message.startswith("there is no") else None
    assert (error["message"], error["hint"]) == (f"the body: {message}", hint)
    item = {"id": asked.id, "allow": True, "digest": asked.digest, **more}
    got = await rig.send("POST", "/api/approvals/decisions", json={"decisions": [item]})
    assert got.json["results"][0]["error"]["message"] == f"the decision: {message}"
    assert await rig.status(asked) == "pending"


async def test_what_is_missing_is_told(rig: HubRig) -> None:
    asked = await rig.ask()
    error = (await rig.send("POST", f"/api/approvals/{asked.id}/decision", json={})).json["error"]
    assert error["message"] == "the body: `allow` and `digest` must be given"
    batch = await rig.send("POST", "/api/approvals/decisions", json={"decisions": [1]})
    assert batch.json["error"]["message"] == "the body: `decisions` must be a list of objects"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"allow": true, "allow": false, "digest": "x"}',
        b'{"allow": true, "digest": "\\ud800"}',
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
    ],
)
async def test_a_body_that_two_readers_could_read_differently_is_refused(rig: HubRig, content: bytes) -> None:
    asked = await rig.ask()
    got = await rig.send("POST", f"/api/approvals/{asked.id}/decision", content=content)
    assert (got.status, got.json["error"]["code"]) == (400, "invalid")
    assert await rig.status(asked) == "pending"


@pytest.mark.parametrize(
    "named", ["x", "0" * 36, "%00", "%ff", "..%2e", "a" * 3000, "'; drop table", "\u202e"]
)
async def test_an_id_that_is_none_is_told_and_never_a_mistake_of_ours(rig: HubRig, named: str) -> None:
    for method, path in (
        ("GET", f"/api/approvals/{named}"),
        ("POST", f"/api/approvals/{named}/decision"),
        ("GET", f"/api/approvals?after={named}"),
        ("GET", f"/api/sessions/{named}"),
        ("GET", f"/api/sessions?after={named}"),
        ("POST", f"/api/sessions/{named}/stop"),
        ("DELETE", f"/api/grants/{named}"),
    ):
        got = await rig.send(method, path)
        assert got.status in (400, 404), (method, path, got.text)
        assert set(got.json["error"]) == {"code", "message", "hint"}


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=1001",
        "limit=x",
        "limit=1&limit=2",
        "nothing=1",
        "all=perhaps",
        "newest=perhaps",
        "states=",
        "states=denied,gone",
        "states=Denied",
        "states=denied,",
        "all&states=denied",
        f"search={'x' * 4097}",
        "limit=%ff",
    ],
)
async def test_a_query_that_is_not_understood_is_told(rig: HubRig, query: str) -> None:
    got = await rig.send("GET", f"/api/approvals?{query}")
    assert (got.status, got.json["error"]["code"]) == (400, "invalid")


async def test_a_batch_tells_of_each_what_came_of_it(rig: HubRig) -> None:
    asked = [await rig.ask(KID, n=n) for n in range(4)]
    await rig.decide(asked[1])
    items: list[Json] = [
        {"id": asked[0].id, "allow": True, "digest": asked[0].digest},
        {"id": asked[1].id, "allow": True, "digest": asked[1].digest},
        {"id": asked[2].id, "allow": True, "digest": "sha256:other"},
        {"id": uuid(999), "allow": True, "digest": "x"},
        {"id": "x", "allow": True, "digest": "x"},
        {"allow": True},
        {"id": asked[3].id, "allow": False, "digest": asked[3].digest},
    ]
    got = await rig.send("POST", "/api/approvals/decisions", json={"decisions": items})
    told = [each.get("status") or each["error"]["code"] for each in got.json["results"]]
    assert told == ["allowed", "conflict", "conflict", "not_found", "invalid", "invalid", "denied"]
    assert [await rig.status(each) for each in asked] == ["allowed", "allowed", "pending", "denied"]
    for count in (0, 501):
        body: Json = {"decisions": [{"allow": True}] * count}
        assert (await rig.send("POST", "/api/approvals/decisions", json=body)).status == 400


async def test_many_are_denied_by_their_ids_alone(rig: HubRig) -> None:
    asked = [await rig.ask(KID, n=n) for n in range(3)]
    await rig.decide(asked[1])
    ids: list[Json] = [asked[0].id, asked[1].id, uuid(999), "x", asked[2].id]
    got = await rig.send("POST", "/api/approvals/decisions", json={"deny": ids})
    told = [each.get("status") or each["error"]["code"] for each in got.json["results"]]
    assert told == ["denied", "conflict", "not_found", "invalid", "denied"]
    assert [await rig.status(each) for each in asked] == ["denied", "allowed", "denied"]
    both: Json = {"deny": ["x"], "decisions": [{"id": "x"}]}
    bodies: list[Json] = [{"deny": []}, {"deny": ["x"] * 501}, both, {}]
    for body in bodies:
        assert (await rig.send("POST", "/api/approvals/decisions", json=body)).status == 400


async def test_the_same_key_and_request_get_the_very_same_answer(rig: HubRig) -> None:
    asked = await rig.ask()
    first = await rig.decide(asked, key="k-1")
    rig.office.clock.advance(5)
    second = await rig.decide(asked, key="k-1")
    assert (second.status, second.text) == (first.status, first.text)
    refused = await rig.decide(asked, key="k-1", allow=False)
    assert (refused.status, "idempotency key" in refused.json["error"]["message"]) == (409, True)
    assert (await rig.decide(asked, key="k-2")).status == 409


async def test_a_refusal_is_answered_again_in_the_same_words(rig: HubRig) -> None:
    asked = await rig.ask()
    refused = await rig.decide(asked, key="k", digest="sha256:other")
    assert refused.status == 409
    assert (await rig.decide(asked, key="k", digest="sha256:other")).text == refused.text
    assert (await rig.decide(asked, key="k")).status == 409
    assert await rig.status(asked) == "pending"


async def test_a_key_of_one_token_is_not_anothers(rig: HubRig) -> None:
    asked, other = await rig.ask(KID, n=1), await rig.ask(KID, n=2)
    assert (await rig.decide(asked, key="k")).status == 200
    assert (await rig.decide(other, TokenRole.SESSION, key="k")).status == 200


async def test_duplicates_at_the_same_time_decide_once_and_are_answered_alike(rig: HubRig) -> None:
    asked = await rig.ask()
    answers = await asyncio.gather(*(rig.decide(asked, key="same") for _ in range(8)))
    assert {(answer.status, answer.text) for answer in answers} == {(200, answers[0].text)}
    assert (await rig.office.kinds()).count("approval.allowed") == 1


async def test_whoever_comes_while_the_first_is_answered_waits_for_that_answer(rig: HubRig) -> None:
    book, produced, released = ReceiptBook(rig.context), 0, asyncio.Event()

    async def produce() -> Answer:
        nonlocal produced
        produced += 1
        await released.wait()
        return Answer(status=200, body=str(produced).encode())

    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(book.answer_once("me", "key", "same", produce)) for _ in range(3)]
        for task in tasks:
            await until_idle(task)
        released.set()
    assert [task.result().body for task in tasks] == [b"1"] * 3


async def test_a_launch_with_a_key_launches_once(rig: HubRig) -> None:
    body: Json = {"prompt": "go"}
    answers = [
        await rig.send("POST", "/api/sessions", json=body, headers={"idempotency-key": "one"})
        for _ in range(2)
    ]
    assert (answers[0].status, answers[0].text) == (201, answers[1].text)
    await rig.agents.started(1)
    assert len(rig.agents.orders) == 1


async def test_what_a_hub_that_died_had_begun_is_answered_anew(rig: HubRig, tmp_path: Path) -> None:
    asked = await rig.ask()
    key = "begun"
    body = {"allow": True, "digest": asked.digest}
    tokens = await rig.context.store.tokens.all()
    person = next(token for token in tokens if token.role is TokenRole.PERSON)
    await rig.context.store.receipts.begin(
        Receipt(
            principal=f"token:{person.id}",
            key=key,
            request=digest(["POST", f"/api/approvals/{asked.id}/decision", body]),
            made_at=NOW,
        )
    )
    first = await rig.decide(asked, key=key)
    assert (first.status, first.json["status"]) == (200, "allowed")
    assert (await rig.decide(asked, key=key)).text == first.text


async def test_what_failed_for_a_reason_of_ours_is_not_kept(tmp_path: Path) -> None:
    rig = await open_rig(tmp_path)
    asked = await rig.ask()
    rig.tokens[TokenRole.PERSON] = await rig.token(TokenRole.PERSON)
    working = rig.context.store.approvals.advance

    async def failing(*args: object, **more: object) -> Approval:
        raise Unavailable("the database is busy")

    rig.context.store.approvals.advance = failing  # pyright: ignore[reportAttributeAccessIssue]
    assert (await rig.decide(asked, key="k")).status == 503
    rig.context.store.approvals.advance = working  # pyright: ignore[reportAttributeAccessIssue]
    assert (await rig.decide(asked, key="k")).status == 200


@pytest.mark.parametrize("key", ["", "a b", "a" * 201])
async def test_a_key_that_is_none_is_told(rig: HubRig, key: str) -> None:
    asked = await rig.ask()
    assert (await rig.decide(asked, key=key)).status == 400
    assert await rig.status(asked) == "pending"


@promise("approval:alone")
async def test_a_batch_allows_nothing_that_is_decided_by_itself(rig: HubRig) -> None:
    plain = await rig.ask(KID, n=1)
    question = await rig.office.question("memory:read_graph", {"diff": []}, subject=Subject.TOOL_CHANGED)
    alone = await ask(rig.office.context, question)
    yes = [{"id": each.id, "digest": each.digest, "allow": True} for each in (plain, alone)]
    got = await rig.send("POST", "/api/approvals/decisions", json={"decisions": yes})
    first, second = got.json["results"]
    assert first["status"] == "allowed"
    assert second["error"]["code"] == "forbidden"
    shown = await rig.send("GET", f"/api/approvals/{alone.id}")
    assert shown.json["status"] == "pending"


@promise("approval:undo-remembered")
async def test_a_person_takes_a_remembered_answer_back_and_nobody_else_does(rig: HubRig) -> None:
    asked = await rig.ask(KID, n=1)
    answer = {"allow": True, "digest": asked.digest, "scope": "session"}
    decided = await rig.send("POST", f"/api/approvals/{asked.id}/decision", json=answer)
    assert decided.json["remembered"]["added"] is True
    path = f"/api/approvals/{asked.id}/undo"
    assert (await rig.send("POST", path, TokenRole.SESSION, json={})).status == 403
    undone = await rig.send("POST", path, json={})
    assert undone.json == {"id": asked.id, "status": "cancelled", "taken_back": True, "has_run": False}
    assert (await rig.send("GET", "/api/grants")).json == {"grants": []}
