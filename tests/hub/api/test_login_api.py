"""Logging in over HTTP: the link's token opens one door, once; every other stays shut."""

import asyncio
from datetime import timedelta
from typing import Final

import pytest

from pml import __version__
from pml.core.approvals.record import SessionId, instant
from pml.core.config.file import FileKind
from pml.core.sessions.token import TokenRole, read_token
from pml.hub.api.routes import ROUTES
from pml.hub.pages import ASSETS_HASH
from pml.service.session_tree import start_session
from pml.service.sessions.logins import LINK_S, VISIT_S, make_login
from pml.service.sessions.tokens import revoke_token
from tests.builders import PERSON
from tests.hub.hubs import BASE, Got, HubRig
from tests.promises import promise

OTHER_DOORS: Final = sorted(
    {(route.method, route.path.replace("{id}", "x").replace("{name}", "x")) for route in ROUTES}
    - {("POST", "/api/login")}
    | {("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/events"), ("GET", "/metrics")}
    | {("GET", "/nothing"), ("POST", "/api/login/"), ("POST", "/api/Login")}
)


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def log_in(rig: HubRig, text: str | None = None, **headers: str) -> Got:
    sent = bearer(text or rig.tokens[TokenRole.LOGIN])
    return await rig.send("POST", "/api/login", None, headers={**sent, **headers})


async def live_roles(rig: HubRig) -> list[str]:
    now = rig.context.clock.now()
    return sorted(token.role for token in await rig.context.store.tokens.all() if token.is_live(now))


async def test_a_link_gives_a_persons_token_that_opens_the_inbox(rig: HubRig) -> None:
    got = await log_in(rig)
    assert got.status == 200
    assert got.headers["cache-control"] == "no-store"
    visit = got.json.pop("token")
    until = rig.office.clock.now() + timedelta(seconds=VISIT_S)
    assert got.json == {"name": "ana", "expires_at": instant(until)}
    me = await rig.send("GET", "/api/me", None, headers=bearer(visit))
    assert me.json == {
        "name": "ana",
        "role": "person",
        "version": __version__,
        "assets": ASSETS_HASH,
        "workspace": str(rig.office.workspace),
        "workspaces": [str(rig.office.workspace)],
        "expires_at": instant(until),
        "now": instant(rig.office.clock.now()),
        "asking": None,
        "kept": None,
    }
    record = await rig.ask()
    decided = await rig.send(
        "POST",
        f"/api/approvals/{record.id}/decision",
        None,
        json={"allow": True, "digest": record.digest},
        headers=bearer(visit),
    )
    assert decided.json["decided_by"] == {"kind": "person", "id": "ana", "channel": "inbox"}


@promise("login:link-works-once")
async def test_a_second_use_is_refused_in_words_and_logs_nobody_in(rig: HubRig) -> None:
    await log_in(rig)
    before = await live_roles(rig)
    again = await log_in(rig)
    assert (again.status, again.json["error"]["code"]) == (409, "conflict")
    assert "this link was used already" in again.json["error"]["message"]
    assert "pml inbox --link" in again.json["error"]["hint"]
    assert await live_roles(rig) == before


@promise("login:link-works-once")
async def test_of_many_uses_at_the_same_time_one_gets_in(rig: HubRig) -> None:
    before = await live_roles(rig)
    got = await asyncio.gather(*(log_in(rig) for _ in range(5)))
    assert sorted(answer.status for answer in got) == [200, 409, 409, 409, 409]
    assert await live_roles(rig) == sorted(["person", *(each for each in before if each != "login")])


@promise("login:link-works-once")
async def test_a_link_that_is_over_is_refused_in_words(rig: HubRig) -> None:
    rig.office.clock.advance(LINK_S)
    got = await log_in(rig)
    assert (got.status, got.json["error"]["code"]) == (404, "not_found")
    assert "this link is over" in got.json["error"]["message"]


async def test_a_revoked_link_is_refused_in_words(rig: HubRig) -> None:
    read = read_token(rig.tokens[TokenRole.LOGIN])
    assert read is not None
    await revoke_token(rig.context, read[0], by=PERSON)
    got = await log_in(rig)
    assert (got.status, "revoked" in got.json["error"]["message"]) == (409, True)


async def test_a_wrong_secret_gets_the_answer_that_every_stranger_gets_also_for_a_spent_link(
    rig: HubRig,
) -> None:
    stranger = await rig.send("GET", "/api/approvals", None)
    text = rig.tokens[TokenRole.LOGIN]
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    unspent = await log_in(rig, wrong)
    await log_in(rig)
    for got in (unspent, await log_in(rig, wrong), await rig.send("POST", "/api/login", None)):
        assert (got.status, got.text) == (401, stranger.text)
        assert got.headers["www-authenticate"] == stranger.headers["www-authenticate"]


@promise("login:link-works-once")
@pytest.mark.parametrize("path", ["/api/me", "/api/approvals", "/events", "/mcp", "/api/login/"])
async def test_a_spent_link_is_told_of_only_where_one_logs_in(rig: HubRig, path: str) -> None:
    await log_in(rig)
    got = await rig.send("GET", path, TokenRole.LOGIN)
    assert (got.status, got.json["error"]["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("role", [TokenRole.PERSON, TokenRole.SESSION, TokenRole.CHILD])
async def test_only_a_links_token_logs_in(rig: HubRig, role: TokenRole) -> None:
    before = await live_roles(rig)
    got = await rig.send("POST", "/api/login", role)
    assert (got.status, await live_roles(rig)) == (403, before)


@promise("login:link-token-does-nothing-else")
@pytest.mark.parametrize(("method", "path"), OTHER_DOORS)
async def test_a_links_token_is_refused_at_every_other_door_and_stays_good_for_its_own(
    rig: HubRig, method: str, path: str
) -> None:
    asked = await rig.ask()
    got = await rig.send(method, path.replace("/x", f"/{asked.id}"), TokenRole.LOGIN)
    assert (got.status, set(got.json)) == (403, {"error"})
    assert got.json["error"]["code"] == "forbidden"
    assert await rig.status(asked) == "pending"
    assert rig.agents.orders == []
    assert (await log_in(rig)).status == 200


async def test_a_page_of_another_origin_cannot_log_in_and_does_not_spend_the_link(rig: HubRig) -> None:
    for origin in ("http://127.0.0.1:8080", "https://evil.example", "null"):
        assert (await log_in(rig, origin=origin)).status == 403
    assert (await log_in(rig, host="evil.example")).status == 421
    assert (await log_in(rig, origin=BASE)).status == 200


async def test_a_body_that_is_too_large_does_not_spend_the_link(rig: HubRig) -> None:
    got = await rig.send("POST", "/api/login", TokenRole.LOGIN, content=b"x" * (1024 * 1024 + 1))
    assert got.status == 413
    assert (await log_in(rig)).status == 200


async def test_an_idempotency_key_keeps_no_copy_of_the_token(rig: HubRig) -> None:
    first = await log_in(rig, **{"idempotency-key": "again"})
    again = await log_in(rig, **{"idempotency-key": "again"})
    assert (first.status, again.status) == (200, 409)
    assert first.json["token"] not in again.text


async def test_logging_out_ends_this_visit_and_no_other(rig: HubRig) -> None:
    mine = (await log_in(rig)).json["token"]
    other = (await log_in(rig, await make_login(rig.context, name="ana", by=PERSON))).json["token"]
    left = await rig.send("POST", "/api/logout", None, headers=bearer(mine))
    assert (left.status, left.json["revoked_at"]) == (200, instant(rig.office.clock.now()))
    assert (await rig.send("GET", "/api/me", None, headers=bearer(mine))).status == 401
    assert (await rig.send("GET", "/api/me", None, headers=bearer(other))).status == 200


async def test_a_page_is_told_every_workspace_where_somebody_works(rig: HubRig) -> None:
    for name, workspace in (("far", "/b"), ("near", "/a"), ("twin", "/a")):
        await start_session(
            rig.context,
            session_id=SessionId(name),
            name=name,
            principal=name,
            workspace=workspace,
            process=None,
            is_agent=True,
        )
    await rig.context.store.sessions.end(SessionId("far"), at=rig.office.clock.now())
    me = (await rig.send("GET", "/api/me")).json
    assert me["workspaces"] == sorted(["/a", str(rig.office.workspace)])
    assert me["expires_at"] is None  # this token was made without an end


async def test_a_page_is_told_loudly_when_nobody_is_asked(rig: HubRig) -> None:
    rig.office.write(FileKind.USER, {"approval": {"enabled": False}})
    me = (await rig.send("GET", "/api/me")).json
    assert me["asking"].startswith("ASKING IS OFF (`approval.enabled` in ")
