"""Calls to a cloud: the key stays with it, only an answer is believed, and nothing runs twice."""

import asyncio
import ssl
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.errors import ServerFailed, ServerRefused, Unavailable
from pml.core.ports.cloud import Cloud
from pml.upstream.cloud.client import Patience
from tests.promises import promise
from tests.registry import executors
from tests.registry.places import GREET, fill
from tests.tools import need
from tests.upstream.clouds import (
    ARGUMENTS,
    KEY,
    RESULT,
    TIMEOUT_S,
    Caller,
    LyingCloud,
    answer,
    endless,
    fall_silent,
    lying_cloud,
    refusal,
    result,
)


@pytest.fixture
async def caller() -> AsyncGenerator[Caller]:
    caller = Caller()
    yield caller
    await caller.client.close()


# --- what is sent, and what comes back


async def test_a_call_is_one_post_with_the_key_and_its_result_comes_as_it_was_written(caller: Caller) -> None:
    port: Cloud = caller.client
    async with lying_cloud(result()) as cloud:
        assert await port.call(f"{cloud.url}/deep/", GREET, ARGUMENTS, key=KEY) == RESULT
    (sent,) = cloud.sent
    assert sent.line == "POST /deep/mcp/tools/call HTTP/1.1"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["content-type"] == "application/json"
    assert uuid.UUID(sent.headers["idempotency-key"])
    assert sent.json == {
        "jsonrpc": "2.0",
        "id": sent.json["id"],
        "method": "tools/call",
        "params": {"name": GREET, "arguments": ARGUMENTS},
    }


async def test_a_real_cloud_runs_it_and_refuses_a_token_that_was_revoked(
    caller: Caller, tmp_path: Path
) -> None:
    async with executors.executing(fill(tmp_path / "registry")) as cloud:
        assert await caller.call(cloud.served.url, key=cloud.token) == executors.RESULT
        assert await caller.call(cloud.served.url, key=cloud.token) == executors.RESULT
        cloud.executor.revoke(cloud.token)
        error = await caller.fail(cloud.served.url, key=cloud.token)
    assert isinstance(error, Unavailable)
    assert "refuses the key" in error.message
    assert "pml secrets set PML_CLOUD_KEY" in (error.hint or "")
    assert len(cloud.executor.called) == 2


async def test_a_large_result_comes_whole(caller: Caller) -> None:
    large = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * 1_000_000)
    async with lying_cloud(result(large)) as cloud:
        assert await caller.call(cloud.url) == large


async def test_a_json_rpc_error_is_passed_on_as_it_is(caller: Caller) -> None:
    error = b'{"code": -32602, "message": "no `who`", "data": 1}'
    for status in ("200 OK", "400 Bad Request", "500 Internal Server Error"):
        async with lying_cloud(
            answer(b'{"jsonrpc":"2.0","id":ID,"error":%b}' % error, status=status)
        ) as cloud:
            failure = await caller.fail(cloud.url)
        assert isinstance(failure, ServerRefused)
        assert failure.error == error
        assert len(cloud.sent) == 1


async def test_a_call_that_nobody_waits_for_any_more_is_broken_off_there_too(
    caller: Caller, tmp_path: Path
) -> None:
    async with executors.executing(fill(tmp_path / "registry")) as cloud, asyncio.timeout(TIMEOUT_S):
        cloud.executor.may_answer.clear()
        call = asyncio.ensure_future(caller.call(cloud.served.url, key=cloud.token))
        await cloud.executor.begun.acquire()
        call.cancel()
        await cloud.executor.ended.acquire()
        assert cloud.executor.broken_off == 1


# --- where the key goes


@promise("cloud:key-stays")
@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
@pytest.mark.parametrize("where", ["elsewhere", "here"])
async def test_a_redirect_does_not_get_the_key(caller: Caller, status: str, where: str) -> None:
    async with lying_cloud(result()) as thief, lying_cloud() as cloud:
        target = f"{thief.url}/steal" if where == "elsewhere" else "/mcp/other"
        cloud.replies.append(answer(b"", status=status, location=target))
        error = await caller.fail(cloud.url)
    assert "leads elsewhere" in error.message
    assert (len(cloud.sent), thief.sent) == (1, [])


@promise("cloud:key-stays")
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://cloud.example", "plain http"),
        ("http://192.0.2.1", "plain http"),
        ("http://10.0.0.1:80", "plain http"),
        ("http://127.0.0.1.evil.example", "plain http"),
        ("http://x.localhost", "plain http"),
        ("http://x.localhost.", "plain http"),
        ("http://0.0.0.0", "plain http"),
        ("http://user:pw@127.0.0.1", "user or password"),
        ("https://cloud.example?a=1", "`?`"),
        ("ftp://127.0.0.1", "not an http or https"),
        ("cloud.example", "not an http or https"),
        ("http://127.0.0.1\\@evil.example", "not an http or https"),
    ],
)
async def test_nothing_is_sent_where_somebody_on_the_way_could_read_it(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, url: str, problem: str
) -> None:
    async with lying_cloud(result()) as proxy:
        _use_proxy(monkeypatch, proxy)
        error = await caller.fail(url)
    assert isinstance(error, Unavailable)
    assert problem in error.message
    assert (proxy.sent, caller.pauses) == ([], [])


@promise("cloud:key-stays")
async def test_a_cloud_on_this_machine_is_not_reached_through_a_proxy(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lying_cloud(result()) as proxy, lying_cloud(result()) as cloud:
        _use_proxy(monkeypatch, proxy)
        for host in ("127.0.0.1", "localhost"):
            assert await caller.call(f"http://{host}:{cloud.port}") == RESULT
    assert (proxy.sent, len(cloud.sent)) == ([], 2)


@promise("cloud:key-stays")
async def test_a_certificate_that_nobody_vouches_for_does_not_get_the_key(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, certificate = _certificate(tmp_path)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    async with lying_cloud(result(), tls=context) as cloud:
        error = await caller.fail(f"https://localhost:{cloud.port}")
        assert isinstance(error, Unavailable)
        assert "CERTIFICATE_VERIFY_FAILED" in error.message
        assert cloud.sent == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        await caller.client.close()
        assert await caller.call(f"https://localhost:{cloud.port}") == RESULT
        assert cloud.sent[0].headers["authorization"] == f"Bearer {KEY}"


@promise("cloud:key-stays")
@pytest.mark.parametrize("key", ["", "a b", "a\r\nx: y", "k\u00fc", "\x1b[0m", "a\x00"])
async def test_a_key_that_no_header_can_hold_is_not_sent_and_not_shown(caller: Caller, key: str) -> None:
    async with lying_cloud(result()) as cloud:
        error = await caller.fail(cloud.url, key=key)
    assert "PML_CLOUD_KEY" in error.message
    assert not key or key not in error.message
    assert cloud.sent == []


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
@pytest.mark.parametrize(("key", "problem"), [(KEY, "refuses the key"), (None, "wants a key")])
async def test_a_key_that_is_missing_or_refused_is_told_with_the_command_that_sets_it(
    caller: Caller, status: str, key: str | None, problem: str
) -> None:
    async with lying_cloud(refusal(status, "unauthorized", f"you sent {KEY}")) as cloud:
        error = await caller.fail(cloud.url, key=key) if key else None
        if error is None:
            with pytest.raises(Unavailable) as caught:
                await caller.call(cloud.url, key=None)
            error = caught.value
    assert isinstance(error, Unavailable)
    assert problem in error.message
    assert "pml secrets set PML_CLOUD_KEY" in (error.hint or "")
    assert ("authorization" in cloud.sent[0].headers) == (key is not None)
    assert len(cloud.sent) == 1


async def test_a_cookie_is_never_sent_back(caller: Caller) -> None:
    async with lying_cloud(result(set_cookie="a=b; Path=/")) as cloud:
        await caller.call(cloud.url)
        await caller.call(cloud.url)
    assert [("cookie" in sent.headers) for sent in cloud.sent] == [False, False]


# --- what is believed


@promise("cloud:unknown-is-told")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "not strict JSON"),
        (b"<html>", "not strict JSON"),
        (b"\xff", "not strict JSON"),
        (b'{"jsonrpc":"2.0","id":ID,"result":{"a":1,"a":2}}', "twice"),
        (b'{"jsonrpc":"2.0","id":ID,"id":ID,"result":{}}', "twice"),
        (b'{"jsonrpc":"2.0","id":ID,"result":{"a":NaN}}', "NaN"),
        (b'{"jsonrpc":"2.0","id":ID,"result":%b}' % (b'{"a":' * 300 + b"1" + b"}" * 300), "nested"),
        (b'{"jsonrpc":"2.0","id":"other","result":{}}', "not an answer to the call"),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', "not an answer to the call"),
        (b'{"jsonrpc":"2.0","result":{}}', "not an answer to the call"),
        (b'{"jsonrpc":"1.0","id":ID,"result":{}}', "not an answer to the call"),
        (b'{"jsonrpc":"2.0","id":ID}', "not an answer to the call"),
        (
            b'{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}',
            "not an answer to the call",
        ),
        (b'[{"jsonrpc":"2.0","id":ID,"result":{}}]', "not an answer to the call"),
        (b'{"jsonrpc":"2.0","id":ID,"result":[]}', "not a result of a tool"),
        (b'{"jsonrpc":"2.0","id":ID,"result":null}', "not a result of a tool"),
        (b'{"jsonrpc":"2.0","id":ID,"error":"x"}', "an error that JSON-RPC does not know"),
    ],
)
async def test_what_is_no_answer_to_the_call_is_not_taken_for_one(
    caller: Caller, body: bytes, problem: str
) -> None:
    async with lying_cloud(answer(body)) as cloud:
        error = await caller.fail(cloud.url)
    assert isinstance(error, ServerFailed)
    assert problem in error.message
    assert "nobody knows whether it ran" in error.message
    assert len(cloud.sent) == 1


@promise("cloud:unknown-is-told")
async def test_an_answer_without_end_is_not_taken(caller: Caller) -> None:
    caller.of(Patience(answer_bytes=1_000_000))
    async with lying_cloud(endless()) as cloud:
        error = await caller.fail(cloud.url)
    assert isinstance(error, ServerFailed)
    assert "more than 1,000,000 bytes" in error.message


@promise("cloud:unknown-is-told")
async def test_a_packed_answer_is_not_unpacked(caller: Caller) -> None:
    async with lying_cloud(result(content_encoding="gzip")) as cloud:
        error = await caller.fail(cloud.url)
    assert isinstance(error, ServerFailed)
    assert "encoding" in error.message


@promise("cloud:unknown-is-told")
@pytest.mark.parametrize(
    ("patience", "begin"),
    [
        (Patience(answer_s=0.2), b""),
        (Patience(answer_s=0.2), b"HTTP/1.1 200 OK\r\ncontent-ty"),
        (Patience(body_s=0.2), b'HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{"jsonrpc"'),
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_a_cloud_that_falls_silent_is_not_waited_for_for_ever(
    caller: Caller, patience: Patience, begin: bytes
) -> None:
    caller.of(patience)
    held = asyncio.Event()
    async with lying_cloud(fall_silent(begin, held)) as cloud:
        error = await caller.fail(cloud.url)
        held.set()
    assert isinstance(error, ServerFailed)
    assert "within 0.2 s; nobody knows whether it ran" in error.message
    assert len(cloud.sent) == 1


def test_the_http_library_is_imported_only_by_a_call() -> None:
    code = (
        "import sys; from pml.upstream.cloud.client import CloudClient; CloudClient(); "
        "assert 'httpx2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def _use_proxy(monkeypatch: pytest.MonkeyPatch, proxy: LyingCloud) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)


def _certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return a server's context for `localhost`, and the certificate, which is its own authority."""
    key, certificate = folder / "key.pem", folder / "cloud.pem"
    command = [need("openssl"), "req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
