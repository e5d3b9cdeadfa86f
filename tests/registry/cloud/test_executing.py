"""A cloud runs calls: of whom a token tells, in a shape that cannot be misread, each at most once."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import ErrorCode, Invalid, NotFound, ServerRefused, Unavailable
from pml.core.sessions.token import TokenRole
from pml.jsonrpc.messages import RpcError
from pml.registry.cloud import served_calls
from pml.registry.cloud.served_calls import PATH, RPC_CODE, CallLimits
from tests.promises import promise
from tests.registry.executors import RESULT, Cloud, executing, request
from tests.registry.places import CODE, GREET, fill
from tests.registry.serving import TIMEOUT_S, serving

PARAMS = {"name": GREET, "arguments": {"who": "Ann"}}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncGenerator[Cloud]:
    async with executing(fill(tmp_path / "registry")) as cloud, asyncio.timeout(TIMEOUT_S):
        yield cloud


async def test_a_call_with_a_token_is_run_and_its_result_passed_on_as_it_is(cloud: Cloud) -> None:
    answer = await cloud.post()
    assert answer.status == 200
    assert answer.body == b'{"jsonrpc":"2.0","id":1,"result":%b}' % RESULT
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert cloud.executor.called == [("agent 1", PARAMS)]


async def test_the_registry_is_read_without_a_token_beside_it(cloud: Cloud) -> None:
    answer = await cloud.served.get(f"/mcp/{GREET}", accept="application/typescript")
    assert (answer.status, answer.body) == (200, CODE)


async def test_a_registry_that_runs_nothing_says_so(tmp_path: Path) -> None:
    async with serving(fill(tmp_path / "registry")) as served:
        answer = await served.get(PATH, method="POST", body=request(), content_type="application/json")
    assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
    assert "pml cloud --execute" in answer.json["error"]["hint"]


# --- whose call it is


@promise("cloud:only-with-token")
@pytest.mark.parametrize(
    "headers",
    [
        {"token": "-"},
        {"token": "pml_000000000001_" + "2" * 43},
        {"token": "pml_000000000009_" + "9" * 43},
        {"token": "x"},
        {"authorization": "Basic abc"},
        {"authorization": ""},
    ],
)
async def test_nothing_runs_without_a_token_that_counts(cloud: Cloud, headers: dict[str, Any]) -> None:
    answer = await cloud.post(**headers)
    assert (answer.status, answer.json["error"]["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert cloud.executor.called == []


@promise("cloud:only-with-token")
async def test_a_revoked_token_runs_nothing_and_gets_no_answer_of_before(cloud: Cloud) -> None:
    assert (await cloud.post(idempotency_key="a")).status == 200
    cloud.executor.revoke(cloud.token)
    assert (await cloud.post(idempotency_key="a")).status == 401
    assert (await cloud.post()).status == 401
    assert len(cloud.executor.called) == 1


@promise("cloud:only-with-token")
async def test_a_token_that_is_revoked_while_the_body_comes_runs_nothing(cloud: Cloud) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", cloud.served.port)
    body = request()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += (
        f"Authorization: Bearer {cloud.token}\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    writer.write(head.encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")  # the token was looked at
    cloud.executor.revoke(cloud.token)
    writer.write(body)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 401")
    assert cloud.executor.called == []
    writer.close()


@promise("login:link-token-does-nothing-else")
@pytest.mark.parametrize("role", [TokenRole.PERSON, TokenRole.LOGIN])
async def test_a_persons_token_calls_no_tool(cloud: Cloud, role: TokenRole) -> None:
    answer = await cloud.post(token=cloud.executor.make_token(2, role=role))
    assert (answer.status, answer.json["error"]["code"]) == (403, "forbidden")
    assert cloud.executor.called == []


@promise("cloud:only-with-token")
async def test_pages_and_other_host_names_are_refused_whatever_they_send(cloud: Cloud) -> None:
    assert (await cloud.post(origin="http://localhost")).status == 403
    assert (await cloud.post(host="evil.example")).status == 421
    answer = await cloud.served.get(PATH, method="OPTIONS", origin="https://evil.example")
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert cloud.executor.called == []


async def test_tokens_that_cannot_be_looked_at_now_mean_that_nothing_has_run(cloud: Cloud) -> None:
    cloud.executor.lookup_error = Unavailable("the store at /srv/secret is locked")
    answer = await cloud.post()
    assert (answer.status, answer.json["error"]["code"]) == (503, "busy")
    assert b"/srv/secret" not in answer.body
    assert "/srv/secret" in cloud.warnings[0]


# --- what a request must be


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b"\xff", 400, -32700),
        (request().replace(b'"id": 1', b'"id": 1, "id": 2'), 400, -32700),
        (request().replace(b'"who": "Ann"', b'"who": "Ann", "who": "Bob"'), 400, -32700),
        (request(more=0).replace(b'"more": 0', b'"more": ' + b"[" * 300 + b"]" * 300), 400, -32700),
        (request().replace(b'"Ann"', b'"\\ud800"'), 400, -32700),
        (b"[" + request() + b"]", 400, -32600),
        (b'"text"', 400, -32600),
        (request(id=None), 400, -32600),
        (request(id=True), 400, -32600),
        (request(id=1.5), 400, -32600),
        (request().replace(b'"2.0"', b'"1.0"'), 400, -32600),
        (request().replace(b'"tools/call"', b"7"), 400, -32600),
        (request().replace(b'"tools/call"', b'"tools/list"'), 404, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', 400, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}', 400, -32602),
        (request(name=7), 400, -32602),
        (request(name=""), 400, -32602),
        (request(arguments=[]), 400, -32602),
        (request(arguments=None), 400, -32602),
    ],
)
async def test_what_is_no_call_is_refused_in_the_shape_of_json_rpc(
    cloud: Cloud, body: bytes, status: int, code: int
) -> None:
    answer = await cloud.post(body)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    assert answer.json["id"] == (1 if code in (-32601, -32602) or b"1.0" in body or b'": 7' in body else None)
    assert cloud.executor.called == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_encoding": "gzip"}, 415),
        ({"content_type": "application/json; charset=utf-8"}, 200),
        ({"idempotency_key": "a b"}, 400),
        ({"idempotency_key": ""}, 400),
        ({"idempotency_key": "a" * 129}, 400),
    ],
)
async def test_the_headers_must_be_those_of_a_call(
    cloud: Cloud, headers: dict[str, Any], status: int
) -> None:
    assert (await cloud.post(**headers)).status == status
    assert len(cloud.executor.called) == (status == 200)


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_body_that_is_too_large_is_not_taken(tmp_path: Path, is_told: bool) -> None:
    body = request(more="x" * 200)
    async with executing(fill(tmp_path / "registry"), limits=CallLimits(body_bytes=200)) as cloud:
        if is_told:
            answer = await cloud.post(body)
        else:
            chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            answer = await cloud.served.get(
                PATH,
                method="POST",
                transfer_encoding="chunked",
                content_type="application/json",
                authorization=f"Bearer {cloud.token}\r\n\r\n{chunked.decode()}",
            )
    assert (answer.status, answer.json["error"]["code"]) == (413, "too_large")
    assert cloud.executor.called == []


async def test_whoever_sends_a_body_too_slowly_is_not_waited_for(tmp_path: Path) -> None:
    async with (
        executing(fill(tmp_path / "registry"), limits=CallLimits(body_s=0.05)) as cloud,
        asyncio.timeout(TIMEOUT_S),
    ):
        answer = await cloud.post(b"{", content_length="100")
    assert (answer.status, answer.json["error"]["code"]) == (408, "too_slow")


# --- what comes of it


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            Invalid("no `who`"),
            {"code": -32602, "message": "no `who`", "data": {"code": "invalid", "hint": None}},
        ),
        (
            NotFound("no such tool", hint="look again"),
            {"code": -32000, "message": "no such tool", "data": {"code": "not_found", "hint": "look again"}},
        ),
        (
            RpcError(-32000, "Workflow aborted by user"),
            {"code": -32000, "message": "Workflow aborted by user"},
        ),
        (
            ServerRefused("refused", error=b'{"code":7,"message":"x","a":1}'),
            {"code": 7, "message": "x", "a": 1},
        ),
        (ValueError("/srv/secret"), {"code": -32603, "message": "internal error"}),
    ],
)
async def test_an_error_of_a_call_is_told_in_the_shape_of_json_rpc(
    cloud: Cloud, error: Exception, told: dict[str, object]
) -> None:
    cloud.executor.error = error
    answer = await cloud.post(request(id="a"))
    assert (answer.status, answer.json) == (200, {"jsonrpc": "2.0", "id": "a", "error": told})


def test_every_kind_of_error_has_a_code_of_json_rpc() -> None:
    assert set(RPC_CODE) == set(ErrorCode)


@promise("cloud:busy-ran-nothing")
async def test_what_there_is_no_room_for_is_turned_away_before_it_runs(tmp_path: Path) -> None:
    async with (
        executing(fill(tmp_path / "registry"), limits=CallLimits(running=2)) as cloud,
        asyncio.timeout(TIMEOUT_S),
        asyncio.TaskGroup() as group,
    ):
        cloud.executor.may_answer.clear()
        first = [group.create_task(cloud.post(idempotency_key=str(number))) for number in range(2)]
        for _ in first:
            await cloud.executor.begun.acquire()
        answer = await cloud.post(idempotency_key="late")
        assert (answer.status, answer.json["error"]["code"]) == (503, "busy")
        assert answer.headers["retry-after"].isdigit()
        assert len(cloud.executor.called) == 2
        cloud.executor.may_answer.set()
        assert [(await each).status for each in first] == [200, 200]
        assert (await cloud.post(idempotency_key="late")).status == 200


@promise("cloud:gone-caller-cancels")
async def test_a_call_ends_when_its_caller_goes(cloud: Cloud) -> None:
    cloud.executor.may_answer.clear()
    call = asyncio.ensure_future(cloud.post(idempotency_key="a"))
    await cloud.executor.begun.acquire()
    call.cancel()
    await cloud.executor.ended.acquire()
    assert cloud.executor.broken_off == 1
    cloud.executor.may_answer.set()
    again = await cloud.post(idempotency_key="a")
    assert "nobody knows whether it ran" in again.json["error"]["message"]
    assert len(cloud.executor.called) == 1


async def test_a_cloud_that_ends_breaks_off_what_runs_and_says_so(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        async with executing(fill(tmp_path / "registry")) as cloud:
            cloud.executor.may_answer.clear()
            call = group.create_task(cloud.post())
            await cloud.executor.begun.acquire()
        assert "nobody knows whether it ran" in (await call).json["error"]["message"]
    assert cloud.executor.broken_off == 1


# --- the same call again


@promise("cloud:same-call-once")
async def test_a_call_that_is_sent_again_runs_once_and_gets_the_same_answer(cloud: Cloud) -> None:
    first = await cloud.post(idempotency_key="a")
    cloud.executor.result = b'{"content":[]}'
    assert (await cloud.post(idempotency_key="a")).body == first.body
    assert len(cloud.executor.called) == 1
    assert (await cloud.post(idempotency_key="b")).body != first.body
    assert (await cloud.post()).body != first.body


@promise("cloud:same-call-once")
async def test_a_call_that_is_sent_again_while_it_runs_is_waited_for_by_both(cloud: Cloud) -> None:
    cloud.executor.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        first = asyncio.ensure_future(cloud.post(idempotency_key="a"))
        await cloud.executor.begun.acquire()
        second = group.create_task(cloud.post(idempotency_key="a"))
        for _ in range(4):
            await cloud.executor.looked.acquire()
        first.cancel()
        assert (await cloud.served.get("/health")).status == 200  # by now it has seen the first one go
        cloud.executor.may_answer.set()
        assert (await second).status == 200
    assert (len(cloud.executor.called), cloud.executor.broken_off) == (1, 0)


@promise("cloud:same-call-once")
async def test_another_call_under_the_same_key_is_refused(cloud: Cloud) -> None:
    await cloud.post(idempotency_key="a")
    answer = await cloud.post(request(name="acme.tools.text.other"), idempotency_key="a")
    assert (answer.status, answer.json["error"]["code"]) == (409, "conflict")
    assert len(cloud.executor.called) == 1


@promise("cloud:same-call-once")
async def test_a_key_is_its_holders_alone(cloud: Cloud) -> None:
    await cloud.post(idempotency_key="a")
    answer = await cloud.post(token=cloud.executor.make_token(2), idempotency_key="a")
    assert answer.status == 200
    assert [name for name, _ in cloud.executor.called] == ["agent 1", "agent 2"]


@promise("cloud:same-call-once")
async def test_a_long_answer_is_not_kept_but_its_call_is_not_run_again(cloud: Cloud) -> None:
    cloud.executor.result = b'{"content":"%b"}' % (b"x" * served_calls.MAX_ANSWER)
    assert "result" in (await cloud.post(idempotency_key="a")).json
    again = await cloud.post(idempotency_key="a")
    assert "answered before" in again.json["error"]["message"]
    assert len(cloud.executor.called) == 1


async def test_one_token_does_not_push_the_calls_of_another_out(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_calls, "MAX_KEYS", 2)
    other = cloud.executor.make_token(2)
    await cloud.post(token=other, idempotency_key="a")
    for key in "abc":
        await cloud.post(idempotency_key=key)
    before = len(cloud.executor.called)
    await cloud.post(token=other, idempotency_key="a")
    await cloud.post(idempotency_key="c")
    assert len(cloud.executor.called) == before
    await cloud.post(idempotency_key="a")
    assert len(cloud.executor.called) == before + 1


async def test_old_calls_are_forgotten(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_calls, "KEPT_S", -1.0)
    await cloud.post(idempotency_key="a")
    await cloud.post(token=cloud.executor.make_token(2), idempotency_key="b")
    await cloud.post(idempotency_key="a")
    assert len(cloud.executor.called) == 3
