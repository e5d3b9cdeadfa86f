"""Secrets over HTTP: a value goes in and comes out nowhere."""

from pathlib import Path

import pytest

from pml.core.approvals.record import OwnerId, Subject
from pml.core.audit.feed_events import NO_PAYLOAD, event_text
from pml.core.errors import Unavailable
from pml.core.ports.queries import AuditQuery
from pml.core.sessions.token import TokenRole
from pml.store.sqlite.store import SqliteStore
from tests.hub.hubs import KID, HubRig, open_rig
from tests.promises import promise

VALUE = "hunter2-correct-horse"


async def store(rig: HubRig, name: str = "SHOP_KEY", value: str = VALUE) -> None:
    got = await rig.send("POST", "/api/secrets", json={"name": name, "value": value})
    assert (got.status, got.json) == (200, {"name": name, "stored_in": "keyring", "problem": None})


async def test_a_secret_is_stored_listed_by_name_and_removed(rig: HubRig) -> None:
    await store(rig)
    assert rig.secrets.values(["SHOP_KEY"]) == {"SHOP_KEY": VALUE}
    listed = await rig.send("GET", "/api/secrets")
    assert listed.json == {"secrets": [{"name": "SHOP_KEY", "stored_in": "keyring"}]}
    removed = await rig.send("DELETE", "/api/secrets/SHOP_KEY")
    assert removed.json == {"removed": "SHOP_KEY", "problem": None}
    assert (await rig.send("GET", "/api/secrets")).json == {"secrets": []}
    assert (await rig.send("DELETE", "/api/secrets/SHOP_KEY")).status == 404


async def test_without_a_keyring_it_is_told_why_a_value_is_in_a_file(rig: HubRig) -> None:
    rig.keyring.broken = Unavailable("there is no keyring")
    got = await rig.send("POST", "/api/secrets", json={"name": "SHOP_KEY", "value": VALUE})
    assert got.json == {"name": "SHOP_KEY", "stored_in": "file", "problem": "there is no keyring"}


async def test_the_log_tells_who_stored_and_removed_which_name(rig: HubRig) -> None:
    await store(rig)
    await rig.send("DELETE", "/api/secrets/SHOP_KEY")
    links = await rig.context.store.audit.list(AuditQuery(limit=100))
    told = [
        (each.entry.kind, each.entry.by and each.entry.by.id, each.entry.detail)
        for each in links
        if each.entry.kind.startswith("secret.")
    ]
    assert told == [
        ("secret.stored", "person-token", {"name": "SHOP_KEY"}),
        ("secret.removed", "person-token", {"name": "SHOP_KEY"}),
    ]


@promise("secrets:never-shown")
async def test_the_value_of_a_secret_reaches_nothing_but_the_keyring(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "store"
    home.mkdir()
    opened = await SqliteStore.open(home, OwnerId("me"))
    rig = await open_rig(tmp_path, store=opened)
    try:
        session = await opened.sessions.get(KID)
        asked = await rig.office.ask(
            "shop:buy",
            {"server": "shop", "missing": ["SHOP_KEY"]},
            session=session,
            subject=Subject.API_KEY_REQUIRED,
        )
        key = {"idempotency-key": "k1"}
        body = {"name": "SHOP_KEY", "value": VALUE}
        got = await rig.send("POST", "/api/secrets", json=body, headers=key)
        allowed = await rig.decide(asked)
        answers = [got.text, allowed.text]
        for path in ("/api/secrets", "/api/audit", f"/api/approvals/{asked.id}", "/metrics"):
            answers.append((await rig.send("GET", path)).text)
        answers.append((await rig.send("POST", "/api/secrets", json=body, headers=key)).text)
        links = await opened.audit.list(AuditQuery(limit=100))
        answers += [(event_text(link, NO_PAYLOAD) or b"").decode() for link in links]
    finally:
        await rig.launcher.close()
        await opened.close()
    kept = [
        path.read_bytes() for root in (home, rig.office.home) for path in root.rglob("*") if path.is_file()
    ]
    assert kept, "nothing was searched"
    assert rig.keyring.kept == {"SHOP_KEY": VALUE}
    assert [allowed.status, got.status] == [200, 200]
    assert not [text for text in (*answers, *capfd.readouterr()) if VALUE in text]
    assert not [content for content in kept if VALUE.encode() in content]


WRONG = [
    b'{"name": "SHOP_KEY", "value": "hunter2-correct-horse"',
    b'{"name": "SHOP_KEY", "hunter2-correct-horse": ""}',
    b'{"name": "SHOP_KEY", "value": "a", "hunter2-correct-horse": "b"}',
    b'{"name": "SHOP_KEY", "value": ["hunter2-correct-horse"]}',
    b'{"name": "SHOP_KEY", "value": "hunter2-correct-horse\\nmore"}',
    b'{"name": "hunter2-correct-horse", "value": "SHOP_KEY"}',
    b'{"name": "SHOP KEY=hunter2-correct-horse", "value": "x"}',
    b'{"name": 7, "value": "hunter2-correct-horse"}',
    b'"hunter2-correct-horse"',
    b"hunter2-correct-horse",
    b'{"name": "SHOP_KEY", "value": "hunter2-correct-horse\xff"}',
    b'{"name": "SHOP_KEY", "value": "hunter2-correct-horse\\ud800"}',
    b'{"name": "SHOP_KEY", "value": "' + b"hunter2-correct-horse" * 4000 + b'"}',
    b'{"value": "hunter2-correct-horse"}',
    b"",
]


@promise("secrets:never-shown")
@pytest.mark.parametrize("body", WRONG)
async def test_a_body_that_is_wrong_is_not_repeated(rig: HubRig, body: bytes) -> None:
    got = await rig.send("POST", "/api/secrets", content=body)
    assert (got.status, got.json["error"]["code"]) == (400, "invalid")
    assert "hunter2" not in got.text
    assert (await rig.send("GET", "/api/secrets")).json == {"secrets": []}
    links = await rig.context.store.audit.list(AuditQuery(limit=100))
    assert not [each for each in links if each.entry.kind.startswith("secret.")]


@promise("secrets:never-shown")
async def test_an_error_that_nobody_foresaw_is_not_repeated(
    rig: HubRig, capfd: pytest.CaptureFixture[str]
) -> None:
    rig.keyring.broken = RuntimeError(f"cannot keep {VALUE}")
    got = await rig.send("POST", "/api/secrets", json={"name": "SHOP_KEY", "value": VALUE})
    assert (got.status, got.json["error"]["code"]) == (503, "unavailable")
    assert VALUE not in got.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("role", [TokenRole.SESSION, TokenRole.CHILD])
async def test_secrets_are_a_persons(rig: HubRig, role: TokenRole) -> None:
    body = {"name": "SHOP_KEY", "value": VALUE}
    assert (await rig.send("GET", "/api/secrets", role)).status == 403
    assert (await rig.send("POST", "/api/secrets", role, json=body)).status == 403
    assert (await rig.send("DELETE", "/api/secrets/SHOP_KEY", role)).status == 403
    assert rig.keyring.kept == {}
