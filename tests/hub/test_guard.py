"""The guard: which names, pages, tokens and bodies get in, and what every answer looks like."""

import hmac
from pathlib import Path

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from pml.core.errors import Invalid
from pml.core.ports.queries import AuditQuery
from pml.core.sessions.token import TokenRole, read_token
from pml.hub.guard import Guard
from pml.hub.origins import allowed_names
from pml.service.sessions.tokens import revoke_token
from pml.service.upkeep import end_session
from tests.builders import PERSON
from tests.hub.hubs import BASE, KID, PORT, TOP, HubRig
from tests.promises import promise

PATHS = ("/", "/health", "/metrics", "/mcp", "/events", "/api/approvals", "/nowhere")


@promise("hub:host-and-origin")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        f"127.0.0.1.evil.example:{PORT}",
        f"localhost.evil.example:{PORT}",
        f"evil.example@localhost:{PORT}",
        f"localhost:{PORT}",
        f"LocalHost:{PORT}",
        f"[::1]:{PORT}",
        f"sub.localhost:{PORT}",
        f"localhost.:{PORT}",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:1",
        f"127.0.0.2:{PORT}",
        f"0.0.0.0:{PORT}",
        f"[::]:{PORT}",
        f"::1:{PORT}",
        "",
    ],
)
async def test_a_name_that_is_not_the_hubs_own_with_its_port_gets_nothing(rig: HubRig, host: str) -> None:
    for path in PATHS:
        got = await rig.send("GET", path, headers={"host": host})
        if got.status == 307:
            assert (path, got.headers["location"]) == ("/", f"{BASE}/")
        else:
            assert (got.status, got.json["error"]["code"]) == (421, "forbidden")


async def test_whoever_opens_the_page_as_localhost_is_sent_to_the_address_that_the_hub_has(
    rig: HubRig,
) -> None:
    here = {"host": f"localhost:{PORT}"}
    opened = await rig.send("GET", "/", None, headers=here)
    assert (opened.status, opened.headers["location"]) == (307, f"{BASE}/")
    for method, path in (("POST", "/"), ("GET", "/api/approvals"), ("GET", "/proof")):
        refused = await rig.send(method, path, headers=here)
        assert (refused.status, refused.json["error"]["hint"]) == (421, f"it is at {BASE}")
    other = await rig.send("GET", "/", None, headers={"host": f"[::1]:{PORT}"})
    assert other.status == 421


@pytest.mark.parametrize(
    ("host", "address", "names"),
    [
        ("127.0.0.1", "127.0.0.1", ["127.0.0.1"]),
        ("localhost", "127.0.0.1", ["127.0.0.1"]),
        ("127.1", "127.0.0.1", ["127.0.0.1", "127.1"]),
        ("0.0.0.0", "0.0.0.0", ["127.0.0.1"]),
        ("::1", "::1", ["[::1]"]),
        ("0:0:0:0:0:0:0:1", "::1", ["[::1]", "[0:0:0:0:0:0:0:1]"]),
        ("::", "::", ["[::1]"]),
        ("Box.lan", "10.0.0.5", ["10.0.0.5", "box.lan"]),
    ],
)
def test_without_a_certificate_the_hub_answers_to_where_it_listens_and_as_it_was_told_to(
    host: str, address: str, names: list[str]
) -> None:
    allowed = allowed_names(host, address, PORT, scheme="http")
    assert allowed.hosts == {f"{name}:{PORT}" for name in names}
    assert allowed.origins == {f"http://{name}:{PORT}" for name in names}
    assert allowed.moved == {f"localhost:{PORT}": f"http://{names[0]}:{PORT}"}


def test_only_with_a_certificate_the_hub_answers_to_localhost() -> None:
    allowed = allowed_names("127.0.0.1", "127.0.0.1", PORT, scheme="https")
    assert f"localhost:{PORT}" in allowed.hosts
    assert allowed.moved == {}
    for name in ("localhost", "LocalHost:8080", "hub.localhost"):
        with pytest.raises(Invalid, match="two addresses"):
            allowed_names("127.0.0.1", "127.0.0.1", PORT, scheme="http", more=[name])
    assert allowed_names("127.0.0.1", "127.0.0.1", PORT, scheme="http", more=["localhost:443"]).public


@promise("hub:host-and-origin")
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://localhost:3000",
        "http://127.0.0.1:8080",
        "http://localhost",
        f"https://localhost:{PORT}",
        f"http://localhost:{PORT}",
        f"http://evil.example:{PORT}",
        "https://evil.example",
        f"http://localhost:{PORT}.evil.example",
        f"http://localhost:{PORT}/",
        "",
    ],
)
async def test_a_page_of_another_origin_gets_nothing(rig: HubRig, origin: str) -> None:
    for method, path in (*(("GET", path) for path in PATHS), ("OPTIONS", "/api/approvals")):
        got = await rig.send(method, path, headers={"origin": origin})
        assert (got.status, got.json["error"]["code"]) == (403, "forbidden")
        assert not [name for name in got.headers if name.startswith("access-control-")]


async def test_the_hubs_own_pages_get_in(rig: HubRig) -> None:
    assert (await rig.send("GET", "/api/approvals", headers={"origin": BASE})).status == 200


def test_other_names_are_the_hubs_own_only_if_they_were_given() -> None:
    allowed = allowed_names(
        "0.0.0.0", "0.0.0.0", 4445, scheme="https", more=["hub.example", "Inbox.example:443"]
    )
    assert {"hub.example:4445", "inbox.example:443", "inbox.example", "localhost:4445"} <= allowed.hosts
    assert not {"hub.example", "0.0.0.0:4445"} & allowed.hosts
    assert {"https://hub.example:4445", "https://inbox.example"} <= allowed.origins
    assert not [origin for origin in allowed.origins if origin.startswith("http:")]
    for wrong in (
        "http://hub.example",
        "hub.example/a",
        "a b",
        "",
        "hub.example:0",
        "hub.example:99999",
        "*",
    ):
        with pytest.raises(Invalid, match="is not a name of a host"):
            allowed_names("127.0.0.1", "127.0.0.1", 4445, scheme="http", more=[wrong])


@promise("hub:host-and-origin")
@pytest.mark.parametrize("twice", ["host", "origin", "authorization"])
async def test_a_header_that_comes_twice_is_refused_whichever_would_do(rig: HubRig, twice: str) -> None:
    right = {
        "host": f"127.0.0.1:{PORT}",
        "origin": f"http://127.0.0.1:{PORT}",
        "authorization": f"Bearer {rig.tokens[TokenRole.PERSON]}",
    }
    for pair in ([right[twice], "evil"], ["evil", right[twice]]):
        headers = [*((name, value) for name, value in right.items() if name != twice)]
        headers += [(twice, value) for value in pair]
        transport = httpx2.ASGITransport(app=rig.app)
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            answer = await client.get("/api/grants", headers=headers)
        assert answer.status_code in (401, 403, 421)


@promise("hub:token-required")
async def test_every_token_that_does_not_count_is_answered_the_same(rig: HubRig) -> None:
    token = rig.tokens[TokenRole.PERSON]
    read = read_token(token)
    assert read is not None
    revoked, expired = await rig.token(TokenRole.PERSON), await rig.token(TokenRole.PERSON, ttl_s=60)
    revoked_id = read_token(revoked)
    assert revoked_id is not None
    await revoke_token(rig.context, revoked_id[0], by=PERSON)
    assert (await rig.send("GET", "/api/grants", headers=_bearer(expired))).status == 200
    rig.office.clock.advance(60)
    wrong = [
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        f"pml_{'0' * 12}_{read[1]}",
        revoked,
        expired,
        token.upper(),
        f"{token} {token}",
        "garbage",
        "pml__",
        "",
    ]
    headers = [{}, {"authorization": token}, {"authorization": f"Basic {token}"}, *map(_bearer, wrong)]
    answers = [await rig.send("GET", "/api/grants", None, headers=each) for each in headers]
    assert {(answer.status, answer.text) for answer in answers} == {(401, answers[0].text)}
    assert {answer.headers["www-authenticate"] for answer in answers} == {'Bearer realm="pml"'}
    assert (await rig.send("GET", f"/api/grants?token={token}", None)).status == 401
    assert (await rig.send("GET", "/api/grants", None, headers=_bearer(token))).status == 200


@promise("token:revocable")
async def test_a_revoked_token_and_one_whose_session_ended_count_no_longer(rig: HubRig) -> None:
    read = read_token(rig.tokens[TokenRole.SESSION])
    assert read is not None
    assert (await rig.send("GET", "/api/sessions", TokenRole.SESSION)).status == 200
    await revoke_token(rig.context, read[0], by=PERSON)
    assert (await rig.send("GET", "/api/sessions", TokenRole.SESSION)).status == 401
    assert (await rig.send("POST", "/mcp", TokenRole.CHILD)).status == 200
    kid = await rig.context.store.sessions.get(KID)
    assert kid is not None
    await end_session(rig.context, kid)
    assert (await rig.send("POST", "/mcp", TokenRole.CHILD)).status == 401


async def test_secrets_are_compared_in_constant_time_also_of_unknown_tokens(
    rig: HubRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def compare(kept: str, given: str) -> bool:
        compared.append(len(given))
        return kept == given

    monkeypatch.setattr(hmac, "compare_digest", compare)
    token = rig.tokens[TokenRole.PERSON]
    for each in (token, f"pml_{'0' * 12}_{token[-43:]}"):
        await rig.send("GET", "/api/grants", None, headers=_bearer(each))
    assert compared == [64, 64]


async def test_an_application_is_told_whose_request_it_is(rig: HubRig) -> None:
    got = [(await rig.send("POST", "/mcp", role)).json for role in TokenRole if role is not TokenRole.LOGIN]
    assert got == [
        {"role": "person", "session": None},
        {"role": "session", "session": TOP},
        {"role": "child", "session": KID},
    ]


async def test_every_answer_has_the_security_headers_and_lets_no_other_origin_read_it(rig: HubRig) -> None:
    answers = [await rig.send("GET", path, role) for path in PATHS for role in (None, TokenRole.PERSON)]
    answers += [
        await rig.send("PUT", "/api/approvals"),
        await rig.send("POST", "/health"),
        await rig.send("GET", "/health", headers={"host": "evil.example"}),
        await rig.send("POST", "/api/rules", json=["not an object"]),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        if answer.status >= 400:
            assert set(answer.json) == {"error"}
            assert set(answer.json["error"]) == {"code", "message", "hint"}


async def test_what_an_application_says_to_other_origins_does_not_get_out(rig: HubRig) -> None:
    async def lax(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"access-control-allow-origin", b"*"), (b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    rig.app = _guarded(rig, lax)
    got = await rig.send("GET", "/health")
    assert "access-control-allow-origin" not in got.headers
    assert got.headers["cache-control"] == "max-age=60"


async def test_a_mistake_of_ours_is_told_bare_and_logged_whole(tmp_path: Path, rig: HubRig) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("/home/ana/secret")

    complaints: list[Exception] = []
    rig.app = _guarded(rig, broken, complaints)
    got = await rig.send("GET", "/api/approvals")
    assert (got.status, got.json["error"]["code"]) == (500, "internal")
    assert "secret" not in got.text
    assert [str(each) for each in complaints] == ["/home/ana/secret"]


async def test_half_an_answer_never_looks_whole(rig: HubRig) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"[", "more_body": True})
        raise RuntimeError("too late")

    rig.app = _guarded(rig, broken, [])
    with pytest.raises(ConnectionAbortedError):
        await rig.send("GET", "/api/approvals")


@pytest.mark.parametrize(
    "path",
    [
        *("/api", "/api/", "/api/nothing", "/api/approvals/", "//api/approvals", "/API/approvals"),
        *("/mcp/", "/mcp/a", "/events/", "/health/", "/api/approvals/x/y/z"),
    ],
)
async def test_what_is_not_in_the_table_is_not_there(rig: HubRig, path: str) -> None:
    got = await rig.send("GET", path)
    assert (got.status, got.json["error"]["code"]) == (404, "not_found")


async def test_a_method_that_a_path_does_not_know_is_told_with_those_it_knows(rig: HubRig) -> None:
    got = await rig.send("PATCH", "/api/rules")
    assert (got.status, got.json["error"]["code"], got.headers["allow"]) == (
        405,
        "method_not_allowed",
        "GET, POST",
    )


async def test_health_tells_everybody_that_it_is_a_hub_and_nothing_secret(rig: HubRig) -> None:
    got = await rig.send("GET", "/health", None)
    assert set(got.json) == {"status", "name", "version", "started_at"}
    assert (got.json["status"], got.json["name"]) == ("ok", "pml")


async def test_the_root_is_the_same_page_for_everybody_and_tells_nothing_secret(rig: HubRig) -> None:
    empty = await rig.send("GET", "/", None)
    await rig.ask()
    answers = [await rig.send("GET", "/", role) for role in (None, *TokenRole)]
    assert {(answer.status, answer.text) for answer in answers} == {(200, empty.text)}
    assert (await rig.send("POST", "/", None)).status == 405


@promise("hub:token-required")
@pytest.mark.parametrize(
    "path",
    [
        *("/%2f", "/%2e", "/%00", "/index.html", "/health/", "/health%2f", "/Health", "/api/../health/x"),
        *("/api", "/api/approvals", "/api/approvals?/health", "/mcp", "/events", "/metrics"),
        *("/assets", "/assets%20/a", "/Assets/a", "//assets/a", "/api/assets/a"),
    ],
)
async def test_only_the_page_its_files_and_health_are_open(rig: HubRig, path: str) -> None:
    got = await rig.send("GET", path, None)
    assert (got.status, got.json["error"]["message"]) == (401, "no valid token was sent")


async def test_a_token_appears_in_no_answer_and_in_no_log(rig: HubRig) -> None:
    token = rig.tokens[TokenRole.PERSON]
    secret = token[-43:]
    asked = await rig.ask()
    await rig.decide(asked)
    got = [
        await rig.send("GET", path)
        for path in (
            *("/metrics", "/api/audit", "/api/approvals", f"/api/{token}", f"/api/sessions?{token}=1"),
            *(f"/api/sessions/{token}", f"/api/approvals/{token}", f"/api/approvals?session={token}"),
        )
    ]
    assert not [each for each in got if secret in each.text]
    links = await rig.context.store.audit.list(AuditQuery(limit=1000))
    assert not [link for link in links if secret in repr(link)]
    assert secret not in repr(await rig.context.store.tokens.all())


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _guarded(rig: HubRig, app: object, complaints: list[Exception] | None = None) -> Guard:
    return Guard(
        app,  # pyright: ignore[reportArgumentType]
        context=rig.context,
        allowed=allowed_names("127.0.0.1", "127.0.0.1", PORT, scheme="http"),
        seen=lambda method, route, status: None,
        complain=(rig.complaints if complaints is None else complaints).append,
    )
