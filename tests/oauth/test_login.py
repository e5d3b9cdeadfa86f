"""A login from the server's URL to tokens, against a real authorization server; and all that may go wrong."""

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from msgspec.structs import replace

from pml.core.errors import Invalid, LoginFailed, NotFound, PmlError, Unavailable
from pml.core.ports.server_logins import HeldLogin, LoginWish
from pml.oauth.callback import open_callback
from pml.oauth.open_logins import OpenLogins
from pml.settings.server_logins import DiskServerLogins
from tests.oauth.fakes import MemoryKeyring
from tests.oauth.rig import Issuer, consent
from tests.promises import promise


async def no_news(_: HeldLogin) -> None:
    """Nobody waits for the login."""


async def log_in(opened: OpenLogins, wish: LoginWish) -> str:
    """Log in as a person does; return the page that the browser was sent to."""
    url = await opened.begin("test", wish, no_news)
    await asyncio.to_thread(consent, url)
    await opened.finished("test")
    return url


def question(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


@promise("login:as-the-standard-says")
async def test_a_login_registers_proves_its_code_and_names_the_resource(
    opened: OpenLogins, wish: LoginWish, logins: DiskServerLogins, issuer: Issuer
) -> None:
    asked = question(await log_in(opened, wish))

    assert (asked["code_challenge_method"], len(asked["code_challenge"])) == ("S256", 43)
    assert (asked["resource"], asked["response_type"]) == (wish.url, "code")
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    held = logins.find("vault", wish.url)
    assert held is not None
    assert held.login.issuer.rstrip("/") == issuer.url
    assert held.login.is_logged_in
    assert held.login.can_refresh
    assert "tools" in (held.login.scope or "").split()
    answer = await asyncio.to_thread(
        httpx2.post,
        wish.url,
        json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
        headers={"authorization": f"Bearer {held.tokens.access_token}", "accept": "application/json"},
        trust_env=False,
    )
    assert answer.status_code not in (401, 403)


async def test_a_registered_id_is_used_and_nothing_is_registered(
    opened: OpenLogins, wish: LoginWish, logins: DiskServerLogins, issuer: Issuer
) -> None:
    before = issuer.control()["registration"]

    asked = question(await log_in(opened, replace(wish, client_id="known")))

    assert (asked["client_id"], issuer.control()["registration"]) == ("known", before)
    held = logins.find("vault", wish.url)
    assert held is not None
    assert held.login.is_logged_in


async def test_a_server_that_registers_nobody_says_to_set_the_id(
    opened: OpenLogins, wish: LoginWish, issuer: Issuer
) -> None:
    issuer.control(no_registration=True)

    with pytest.raises(LoginFailed, match="registers no clients") as refused:
        await opened.begin("test", wish, no_news)

    assert "oauth.client_id" in (refused.value.hint or "")


@promise("login:issuer-checked")
async def test_metadata_of_another_issuer_is_refused_before_anything_is_sent_there(
    opened: OpenLogins, wish: LoginWish, issuer: Issuer
) -> None:
    before = issuer.control(lie_issuer="http://127.0.0.1:9/elsewhere")["registration"]

    with pytest.raises(LoginFailed, match="says that it is"):
        await opened.begin("test", wish, no_news)

    assert issuer.control()["registration"] == before


@promise("login:issuer-checked")
async def test_an_answer_without_the_promised_iss_is_refused(
    opened: OpenLogins, wish: LoginWish, issuer: Issuer, logins: DiskServerLogins
) -> None:
    before = issuer.control(drop_iss=True)["authorization_code"]

    with pytest.raises(LoginFailed, match="lacks `iss`"):
        await log_in(opened, wish)

    assert (issuer.control()["authorization_code"], logins.all()) == (before, [])


@promise("login:foreign-state-refused")
async def test_a_foreign_state_is_refused_and_the_login_waits_on(
    opened: OpenLogins, wish: LoginWish, logins: DiskServerLogins
) -> None:
    url = await opened.begin("test", wish, no_news)
    back = question(url)["redirect_uri"]

    def visit(query: str) -> httpx2.Response:
        return httpx2.get(f"{back}?{query}", trust_env=False)

    foreign = await asyncio.to_thread(visit, "code=stolen&state=another")
    missing = await asyncio.to_thread(visit, "code=stolen")
    twice = await asyncio.to_thread(visit, "code=a&code=b&state=c")
    assert [each.status_code for each in (foreign, missing, twice)] == [400, 400, 400]
    assert "stolen" not in foreign.text
    assert "<script" not in foreign.text
    assert opened.is_open("test")

    await asyncio.to_thread(consent, url)
    await opened.finished("test")
    assert logins.find("vault", wish.url) is not None


async def test_the_address_of_the_callback_serves_one_path_of_one_host() -> None:
    async with open_callback(None) as callback:
        origin = callback.redirect_uri.removesuffix("/callback")

        def ask(path: str, **options: Any) -> int:
            return httpx2.request(
                options.pop("method", "GET"), origin + path, trust_env=False, **options
            ).status_code

        assert await asyncio.to_thread(ask, "/") == 404
        assert await asyncio.to_thread(ask, "/callback", method="POST") == 405
        assert await asyncio.to_thread(ask, "/callback", headers={"host": "evil.example"}) == 404


async def test_a_port_that_is_taken_is_said_with_what_to_do(opened: OpenLogins, wish: LoginWish) -> None:
    async with open_callback(None) as taken:
        port = urlsplit(taken.redirect_uri).port

        with pytest.raises(Unavailable, match=f"port {port} ") as refused:
            await opened.begin("test", replace(wish, callback_port=port), no_news)

    assert "--callback-port" in (refused.value.hint or "")


async def test_an_authorization_server_that_answers_with_html_is_named(
    opened: OpenLogins, wish: LoginWish, issuer: Issuer
) -> None:
    issuer.control(html=True)

    with pytest.raises(LoginFailed, match="text/html, not JSON") as refused:
        await opened.begin("test", wish, no_news)

    assert issuer.url in refused.value.message


@promise("login:urls-checked")
@pytest.mark.parametrize(
    "place",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/latest",
        "https://[fe80::1]/token",
        "https://metadata.google.internal/token",
        "http://10.0.0.7/token",
        "https://0.0.0.0/token",
    ],
)
async def test_metadata_that_leads_to_link_local_or_plain_http_is_refused(
    opened: OpenLogins, wish: LoginWish, issuer: Issuer, place: str
) -> None:
    issuer.control(endpoint=place)

    with pytest.raises(Invalid):
        await opened.begin("test", wish, no_news)


async def test_a_refused_consent_is_told(opened: OpenLogins, wish: LoginWish) -> None:
    url = await opened.begin("test", wish, no_news)
    asked = question(url)
    query = {"error": "access_denied", "state": asked["state"]}

    await asyncio.to_thread(httpx2.get, asked["redirect_uri"], params=query, trust_env=False)

    with pytest.raises(LoginFailed):  # an answer without `iss` cannot even say no for the issuer
        await opened.finished("test")


async def test_what_is_pasted_counts_as_what_the_browser_brought(
    opened: OpenLogins, wish: LoginWish, logins: DiskServerLogins
) -> None:
    url = await opened.begin("test", wish, no_news)
    ended_at = await asyncio.to_thread(consent, url, visit_last=False)

    with pytest.raises(Invalid, match="not the address"):
        opened.paste("test", "https://evil.example/callback?code=1&state=2")
    with pytest.raises(LoginFailed, match="another login"):
        opened.paste("test", f"{question(url)['redirect_uri']}?code=1&state=2")
    opened.paste("test", ended_at)
    await opened.finished("test")

    assert logins.find("vault", wish.url) is not None


async def test_a_login_that_is_begun_anew_ends_the_older(opened: OpenLogins, wish: LoginWish) -> None:
    old = await opened.begin("test", wish, no_news)
    new = await opened.begin("test", wish, no_news)

    with pytest.raises(httpx2.ConnectError):
        await asyncio.to_thread(consent, old)
    await asyncio.to_thread(consent, new)
    await opened.finished("test")
    with pytest.raises(NotFound):
        opened.paste("test", new)


@promise("login:tokens-shown-nowhere")
@pytest.mark.parametrize("is_broken", [False, True])
async def test_tokens_are_in_the_keyring_or_a_private_file_and_in_no_words(
    opened: OpenLogins,
    wish: LoginWish,
    logins: DiskServerLogins,
    keyring: MemoryKeyring,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    is_broken: bool,
) -> None:
    caplog.set_level(0)
    keyring.broken = is_broken
    await log_in(opened, wish)

    held = logins.find("vault", wish.url)
    assert held is not None
    tokens = [held.tokens.access_token or "?", held.tokens.refresh_token or "?"]
    file = logins.path.read_text()
    assert logins.path.stat().st_mode & 0o077 == 0
    assert [token in file for token in tokens] == [is_broken, is_broken]
    said = caplog.text + "".join(capfd.readouterr()) + repr(held) + repr(held.tokens)
    assert not any(token in said for token in tokens)


async def test_a_wrong_resource_is_refused(opened: OpenLogins, wish: LoginWish, issuer: Issuer) -> None:
    other = await asyncio.start_server(_lying_about(wish.url), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/mcp"
    async with other:
        with pytest.raises(LoginFailed, match="says that it is") as refused:
            await opened.begin("test", replace(wish, url=url, shown_url=url), no_news)
    assert wish.url in refused.value.message


def _lying_about(resource: str) -> Any:
    """Return what serves the metadata of another server."""
    body = f'{{"resource": "{resource}", "authorization_servers": ["http://127.0.0.1:9"]}}'.encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
            + f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        writer.close()

    return serve


async def test_a_server_that_says_nothing_of_logins_is_told_to_want_a_header(
    opened: OpenLogins, wish: LoginWish
) -> None:
    with pytest.raises((LoginFailed, PmlError)) as refused:
        await opened.begin("test", replace(wish, url=wish.url.replace("/mcp", "/"), shown_url="x"), no_news)
    assert refused.value.message


@promise("login:issuer-pinned")
async def test_a_server_that_names_another_issuer_than_before_is_not_logged_in_to(
    opened: OpenLogins, wish: LoginWish, logins: DiskServerLogins, issuer: Issuer
) -> None:
    """A server that was taken over could have a person log in at a page of its own."""
    await log_in(opened, wish)
    held = logins.find("vault", wish.url)
    assert held is not None
    logins.forget("vault")
    logins.keep(replace(held, login=replace(held.login, issuer="https://before.example")))
    registered = issuer.control().get("registration", 0)
    with pytest.raises(LoginFailed, match=r"was logged in to at `https://before\.example`") as caught:
        await opened.begin("test", wish, no_news)
    assert caught.value.hint is not None
    assert "pml logout vault" in caught.value.hint
    assert issuer.control().get("registration", 0) == registered
    logins.forget("vault")
    await log_in(opened, wish)
