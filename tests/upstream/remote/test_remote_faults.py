"""Remote servers that lie, break off, or lead elsewhere: each costs its call, and nothing is repeated."""

import asyncio

import pytest

from pml.core.errors import Changed, LoginRequired, ServerFailed
from pml.core.servers.remote_target import RemoteKind, RemoteTarget
from pml.upstream.board import list_servers
from pml.upstream.limits import Limits
from tests.promises import promise
from tests.upstream.fleets import Harbour, until, use
from tests.upstream.remote.rough_server import (
    Request,
    RoughServer,
    error,
    events,
    http,
    result,
    rough_server,
)

SECRET = {"Authorization": "Bearer hush-hush-value"}


async def failure(harbour: Harbour, rough: RoughServer) -> str:
    with pytest.raises(ServerFailed) as caught:
        await use(harbour.fleet(limits=Limits(call_s=20, line_bytes=1 << 20)), rough.spec(), "echo")
    return caught.value.message


@promise("remote:one-origin")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("when", ["initialize", "tools/call"])
async def test_a_redirect_to_another_origin_is_not_followed(
    harbour: Harbour, rough: RoughServer, status: int, when: str
) -> None:
    async with rough_server() as other:

        async def elsewhere(request: Request) -> bytes:
            return http(status, location=other.url)

        rough.answers[when] = elsewhere
        with pytest.raises(ServerFailed, match="which is not followed"):
            await use(harbour.fleet(), rough.spec(headers=SECRET), "echo")
        assert other.seen == []


@promise("remote:one-origin")
@pytest.mark.parametrize(("status", "is_followed"), [(307, True), (308, True), (302, False), (303, False)])
async def test_a_redirect_within_the_origin_keeps_its_method_or_is_not_followed(
    harbour: Harbour, rough: RoughServer, status: int, is_followed: bool
) -> None:
    async def moved(request: Request) -> bytes | None:
        if request.path == "/mcp":
            return http(status, location="/new")
        rough.answers.pop("tools/call")
        return await rough.answer(request)

    rough.answers["tools/call"] = moved
    if is_followed:
        assert await use(harbour.fleet(), rough.spec(), "echo", a=1) == {"a": 1}
    else:
        with pytest.raises(ServerFailed, match="is not followed"):
            await use(harbour.fleet(), rough.spec(), "echo", a=1)


async def test_redirects_without_end_are_given_up(harbour: Harbour, rough: RoughServer) -> None:
    async def again(request: Request) -> bytes:
        return http(307, location="/mcp")

    rough.answers["tools/call"] = again
    assert "redirects without end" in await failure(harbour, rough)


@promise("remote:one-origin")
async def test_the_older_transport_posts_to_no_other_origin(harbour: Harbour, rough: RoughServer) -> None:
    async with rough_server() as other:

        async def stream(request: Request) -> bytes:
            return events(f"event: endpoint\ndata: {other.url}")

        rough.answers["GET"] = stream
        with pytest.raises(ServerFailed, match="another origin"):
            await use(harbour.fleet(), rough.spec(kind=RemoteKind.SSE), "echo")
        assert other.seen == []


async def test_html_is_not_an_answer(harbour: Harbour, rough: RoughServer) -> None:
    async def page(request: Request) -> bytes:
        return http(200, b"<html>hello</html>", content_type="text/html")

    rough.answers["initialize"] = page
    assert "answered with `text/html` in place of JSON" in await failure(harbour, rough)


@promise("remote:never-replayed")
async def test_a_connection_that_drops_in_a_call_is_told_as_unknown_and_not_sent_again(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def drop(request: Request) -> bytes | None:
        return None

    rough.answers["tools/call"] = drop
    assert "the outcome is not known, and it is not sent again" in await failure(harbour, rough)
    assert rough.methods().count("tools/call") == 1


@promise("remote:never-replayed")
async def test_a_body_that_breaks_off_is_told_as_unknown_and_not_sent_again(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def half(request: Request) -> bytes:
        whole = http(200, b"{" + b" " * 99, content_type="application/json", connection="close")
        return whole[:-99]

    rough.answers["tools/call"] = half
    assert "the outcome is not known" in await failure(harbour, rough)
    assert rough.methods().count("tools/call") == 1


async def test_a_server_that_is_gone_when_its_broken_stream_is_taken_up_leaves_the_outcome_unknown(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def begins_and_goes(request: Request) -> bytes:
        assert rough.listening is not None
        rough.listening.close()
        return events("id: 7\nretry: 1\ndata:")

    rough.answers["tools/call"] = begins_and_goes
    said = await failure(harbour, rough)
    assert "the outcome is not known" in said
    assert "nothing was sent" not in said


@promise("remote:never-replayed")
async def test_a_stream_that_ends_without_a_result_is_told_as_unknown(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def nothing(request: Request) -> bytes:
        return events(": ping")

    rough.answers["tools/call"] = nothing
    assert "the outcome is not known" in await failure(harbour, rough)


@promise("remote:bounded")
async def test_a_stream_without_end_is_cut_off(harbour: Harbour, rough: RoughServer) -> None:
    async def endless(request: Request) -> bytes | None:
        request.writer.write(events())
        while True:
            request.writer.write(b"data: " + b"x" * 65536)
            await request.writer.drain()

    rough.answers["tools/call"] = endless
    assert "answered with more than 1,048,576 bytes" in await failure(harbour, rough)


@promise("remote:bounded")
async def test_a_body_without_end_is_cut_off(harbour: Harbour, rough: RoughServer) -> None:
    async def endless(request: Request) -> bytes | None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
        request.writer.write(head.encode())
        while True:
            request.writer.write(b" " * 65536)
            await request.writer.drain()

    rough.answers["tools/call"] = endless
    assert "answered with more than 1,048,576 bytes" in await failure(harbour, rough)


@promise("remote:bounded")
async def test_ten_megabytes_of_headers_are_refused(harbour: Harbour, rough: RoughServer) -> None:
    async def huge(request: Request) -> bytes:
        return http(200, b"{}", content_type="application/json", x="y" * 10_000_000)

    rough.answers["tools/call"] = huge
    assert "lost the connection" in await failure(harbour, rough)


@promise("remote:bounded")
async def test_a_server_that_answers_byte_by_byte_costs_the_call_its_time_and_no_more(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def slowly(request: Request) -> bytes | None:
        while True:
            request.writer.write(b"H")
            await request.writer.drain()
            await asyncio.sleep(0.01)

    rough.answers["tools/call"] = slowly
    with pytest.raises(ServerFailed, match=r"did not answer for 0\.2 s"):
        await use(harbour.fleet(limits=Limits(call_s=0.2)), rough.spec(), "echo")


async def test_a_version_that_is_not_one_is_refused(harbour: Harbour, rough: RoughServer) -> None:
    async def lie(request: Request) -> bytes:
        return result(request, {"protocolVersion": "2024-11-05\r\nx: y", "capabilities": {}})

    rough.answers["initialize"] = lie
    assert "which PML does not" in await failure(harbour, rough)


@promise("remote:login-is-a-persons")
async def test_a_401_without_credentials_asks_for_a_login_and_is_shown(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def locked(request: Request) -> bytes:
        return http(401, www_authenticate='Bearer resource_metadata="http://127.0.0.1/x"')

    rough.answers["initialize"] = locked
    with pytest.raises(LoginRequired, match="requires a login"):
        await use(harbour.fleet(), rough.spec(), "echo")
    await until(lambda: [run.state for run in list_servers(harbour.home)] == ["needs login"])
    assert rough.methods() == ["initialize"]


class Tokens:
    """Credentials that hand out what a test gives them."""

    def __init__(self, *values: str | None) -> None:
        self.values = list(values)
        self.challenges: list[tuple[str, int, str | None, str | None]] = []

    async def authorization(self, server: str, target: RemoteTarget) -> str | None:
        return self.values[0]

    async def challenged(
        self, server: str, target: RemoteTarget, *, status: int, challenge: str | None, sent: str | None
    ) -> str | None:
        self.challenges.append((server, status, challenge, sent))
        self.values.pop(0)
        return self.values[0] if self.values else None


@promise("remote:login-is-a-persons")
async def test_a_401_in_a_run_is_answered_once_with_another_token(
    harbour: Harbour, rough: RoughServer
) -> None:
    tokens = Tokens("Bearer one", "Bearer two")

    async def guarded(request: Request) -> bytes | None:
        if request.headers.get("authorization") != "Bearer two":
            return http(401, www_authenticate="Bearer")
        rough.answers.pop("tools/call")
        return await rough.answer(request)

    rough.answers["tools/call"] = guarded
    assert await use(harbour.fleet(credentials=tokens), rough.spec(), "echo", a=1) == {"a": 1}
    assert tokens.challenges == [("far", 401, "Bearer", "Bearer one")]


@promise("remote:login-is-a-persons")
async def test_a_401_for_ever_ends(harbour: Harbour, rough: RoughServer) -> None:
    async def locked(request: Request) -> bytes:
        return http(401)

    rough.answers["tools/call"] = locked
    with pytest.raises(ServerFailed, match="refuses every token"):
        await use(harbour.fleet(credentials=Tokens("a", "b", "c")), rough.spec(), "echo")
    assert rough.methods().count("tools/call") == 2
    with pytest.raises(LoginRequired):
        await use(harbour.fleet(credentials=Tokens(None)), rough.spec(), "echo")


async def test_want_of_scope_is_a_challenge_and_another_403_is_not(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def forbidden(request: Request) -> bytes:
        return http(403, www_authenticate='Bearer error="insufficient_scope"')

    rough.answers["tools/call"] = forbidden
    with pytest.raises(LoginRequired):
        await use(harbour.fleet(credentials=Tokens("a")), rough.spec(), "echo")

    async def no(request: Request) -> bytes:
        return http(403)

    rough.answers["tools/call"] = no
    tokens = Tokens("a")
    with pytest.raises(ServerFailed, match="HTTP status 403"):
        await use(harbour.fleet(credentials=tokens), rough.spec(), "echo")
    assert tokens.challenges == []


async def test_a_header_of_the_entry_is_no_reason_for_a_login(harbour: Harbour, rough: RoughServer) -> None:
    async def locked(request: Request) -> bytes:
        return http(401)

    rough.answers["initialize"] = locked
    tokens = Tokens("Bearer mine", "Bearer other")
    with pytest.raises(ServerFailed, match="refuses the `Authorization` header of its entry"):
        await use(harbour.fleet(credentials=tokens), rough.spec(headers=SECRET), "echo")
    assert [request.headers["authorization"] for request in rough.seen] == ["Bearer hush-hush-value"]


@promise("remote:values-never-shown")
async def test_a_header_that_the_server_repeats_is_in_no_error_and_no_log(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def repeat(request: Request) -> bytes:
        return error(request, -32000, f"no: {request.headers['authorization']}")

    rough.answers["tools/call"] = repeat
    with pytest.raises(Exception, match="no: ") as caught:
        await use(harbour.fleet(), rough.spec(headers=SECRET), "echo")
    assert "hush-hush" not in str(caught.value)
    await harbour.close()
    assert "hush-hush" not in harbour.log()


async def test_what_cannot_be_reached_is_told_with_since_when(harbour: Harbour, rough: RoughServer) -> None:
    spec = rough.spec(url="http://127.0.0.1:9/mcp")
    fleet = harbour.fleet(limits=Limits(backoff_s=60, backoff_wait_s=0.01))
    with pytest.raises(ServerFailed, match=r"cannot be reached: .*; nothing was sent"):
        await use(fleet, spec, "echo")
    await until(lambda: [run.state for run in list_servers(harbour.home)] == ["unreachable"])
    with pytest.raises(ServerFailed, match="is unreachable; last: "):
        await use(fleet, spec, "echo")


async def test_a_session_that_ended_is_begun_anew_and_the_call_was_not_made(
    harbour: Harbour, rough: RoughServer
) -> None:
    fleet, spec = harbour.fleet(), rough.spec()
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}

    async def forgotten(request: Request) -> bytes:
        rough.answers.pop("tools/call")
        return http(404)

    rough.answers["tools/call"] = forgotten
    with pytest.raises(Changed, match="nothing of the call has run"):
        await use(fleet, spec, "echo", a=2)
    await until(lambda: fleet.live(spec) is None)
    assert await use(fleet, spec, "echo", a=3) == {"a": 3}
    assert rough.methods().count("initialize") == 2


@promise("remote:never-replayed")
async def test_a_session_that_ends_with_every_call_is_not_begun_anew_for_ever(
    harbour: Harbour, rough: RoughServer
) -> None:
    """A 404 says that nothing ran; whether that is true, only a server knows."""

    async def forgotten(request: Request) -> bytes:
        return http(404)

    fleet, spec = harbour.fleet(), rough.spec()
    rough.answers["tools/call"] = forgotten
    with pytest.raises(Changed, match="nothing of the call has run"):
        await use(fleet, spec, "echo")
    for _ in range(2):
        await until(lambda: fleet.live(spec) is None)
        with pytest.raises(ServerFailed, match="also ended a new session: the outcome is not known"):
            await use(fleet, spec, "echo")
    rough.answers.pop("tools/call")
    await until(lambda: fleet.live(spec) is None)
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}
    rough.answers["tools/call"] = forgotten
    with pytest.raises(Changed):
        await use(fleet, spec, "echo")


@promise("remote:values-never-shown")
@pytest.mark.parametrize("value", ["hush-hush-value ", " hush-hush-value", "\thush-hush-value\t"])
async def test_blanks_around_a_header_are_not_sent_and_not_told(
    harbour: Harbour, rough: RoughServer, value: str
) -> None:
    spec = rough.spec(headers={"X-Key": value})
    assert await use(harbour.fleet(), spec, "echo", a=1) == {"a": 1}
    assert rough.seen[-1].headers["x-key"] == "hush-hush-value"
