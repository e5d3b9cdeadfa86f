"""The inbox over HTTP: cards for people, and for nobody else."""

import asyncio

import pytest

from pml.core.sessions.token import TokenRole
from pml.core.values import Json
from tests.hub.hubs import KID, HubRig
from tests.promises import promise

UNKNOWN = "00000000-0000-4000-8000-00000000ffff"


async def test_what_waits_is_listed_oldest_first_page_by_page(rig: HubRig) -> None:
    asked = [await rig.ask(KID, n=n) for n in range(5)]
    first = (await rig.send("GET", "/api/inbox?limit=2")).json
    assert [each["id"] for each in first["cards"]] == [record.id for record in asked[:2]]
    assert (first["next"], first["waiting"]) == (asked[1].id, 5)
    rest = (await rig.send("GET", f"/api/inbox?after={first['next']}&limit=5")).json
    assert [each["id"] for each in rest["cards"]] == [record.id for record in asked[2:]]
    assert (rest["next"], rest["waiting"]) == (None, 5)


async def test_the_hub_tells_its_own_time(rig: HubRig) -> None:
    record = await rig.ask()
    for path in ("/api/inbox", f"/api/inbox/{record.id}"):
        assert (await rig.send("GET", path)).json["now"] == "2026-11-03T12:00:00Z"


async def test_an_empty_inbox_is_empty(rig: HubRig) -> None:
    got = await rig.send("GET", "/api/inbox")
    assert got.json == {
        "cards": [],
        "next": None,
        "now": "2026-11-03T12:00:00Z",
        "waiting": 0,
        "notices": [],
    }


async def test_a_decided_question_leaves_the_list_and_keeps_its_card(rig: HubRig) -> None:
    record = await rig.ask()
    await rig.decide(record, message="go on")
    assert (await rig.send("GET", "/api/inbox")).json["cards"] == []
    shown = (await rig.send("GET", f"/api/inbox/{record.id}")).json["card"]
    assert (shown["status"], shown["outcome"]["message"]) == ("allowed", "go on")
    assert shown["outcome"]["by"] == {"kind": "person", "id": "person-token", "channel": "inbox"}


async def test_a_card_has_what_the_decision_must_name(rig: HubRig) -> None:
    record = await rig.ask()
    shown = (await rig.send("GET", "/api/inbox")).json["cards"][0]
    assert (shown["digest"], shown["tool"], shown["cut"]) == (record.digest, "github:create_issue", False)
    body: Json = {"allow": True, "digest": shown["digest"]}
    assert (await rig.send("POST", f"/api/approvals/{shown['id']}/decision", json=body)).status == 200


@promise("card:cut-is-told")
async def test_a_long_card_is_cut_in_the_list_and_whole_by_itself(rig: HubRig) -> None:
    record = await rig.ask(KID, "Bash", command="x" * 1_000_000)
    listed = await rig.send("GET", "/api/inbox")
    assert listed.json["cards"][0]["cut"] is True
    assert len(listed.text) < 100_000
    shown = (await rig.send("GET", f"/api/inbox/{record.id}")).json["card"]
    assert (shown["cut"], shown["blocks"][0]["lines"]) == (False, [["x" * 1_000_000]])


@promise("card:only-for-people")
@pytest.mark.parametrize("role", [None, TokenRole.SESSION, TokenRole.CHILD])
async def test_nobody_but_a_person_gets_a_card(rig: HubRig, role: TokenRole | None) -> None:
    (rig.office.workspace / "notes.txt").write_text("what the person wrote")
    record = await rig.ask(KID, "Write", file_path="notes.txt", content="x")
    for path in ("/api/inbox", f"/api/inbox/{record.id}"):
        got = await rig.send("GET", path, role)
        assert got.status == (401 if role is None else 403)
        assert "wrote" not in got.text
    assert "what the person wrote" in (await rig.send("GET", "/api/inbox")).text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/inbox/{UNKNOWN}", 404),
        ("/api/inbox/nonsense", 400),
        (f"/api/inbox?after={UNKNOWN}", 404),
        ("/api/inbox?after=x", 400),
        ("/api/inbox?limit=0", 400),
        ("/api/inbox?all=1", 400),
    ],
)
async def test_what_is_not_there_or_makes_no_sense_is_told(rig: HubRig, path: str, status: int) -> None:
    assert (await rig.send("GET", path)).status == status


async def test_cards_are_made_while_questions_are_decided(rig: HubRig) -> None:
    asked = [await rig.ask(KID, n=n) for n in range(10)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        listing = [group.create_task(rig.send("GET", "/api/inbox")) for _ in range(5)]
        for record in asked:
            group.create_task(rig.decide(record))
    assert {got.result().status for got in listing} == {200}
