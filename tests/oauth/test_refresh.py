"""Tokens at work: refreshed once for all processes, and back to a login where that is refused."""

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx2
import pytest
from msgspec.structs import replace

from pml.core.errors import LoginFailed, Unavailable
from pml.core.ports.server_logins import HeldLogin, LoginWish
from pml.core.servers.remote_target import RemoteTarget
from pml.oauth import login_web
from pml.oauth.credentials import OAuthCredentials
from pml.oauth.login_web import LoginWeb
from pml.oauth.open_logins import OpenLogins
from pml.oauth.revocation import revoke_login
from pml.oauth.token_endpoint import fetch_tokens
from pml.settings.server_logins import DiskServerLogins
from tests.oauth.fakes import MemoryKeyring
from tests.oauth.rig import Issuer
from tests.oauth.test_login import log_in, question
from tests.promises import promise

SOON_S: Final = 20  # within the margin: such a token is taken for ended at once
CHALLENGE: Final = 'Bearer error="insufficient_scope", scope="tools admin"'
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def credentials(logins: DiskServerLogins, home: Path) -> OAuthCredentials:
    return OAuthCredentials(logins, home / ".pml", now=lambda: datetime.now(UTC))


@pytest.fixture
def target(wish: LoginWish) -> RemoteTarget:
    return RemoteTarget(url=wish.url)


def kept(logins: DiskServerLogins, wish: LoginWish) -> HeldLogin:
    held = logins.find("vault", wish.url)
    assert held is not None
    return held


async def test_nobody_logged_in_is_nothing_to_send(
    credentials: OAuthCredentials, target: RemoteTarget
) -> None:
    assert await credentials.authorization("vault", target) is None
    assert await credentials.challenged("vault", target, status=401, challenge=None, sent=None) is None


async def test_another_name_or_url_has_nothing_of_a_login(
    opened: OpenLogins, wish: LoginWish, credentials: OAuthCredentials, target: RemoteTarget
) -> None:
    await log_in(opened, wish)

    assert await credentials.authorization("vault", target) is not None
    assert await credentials.authorization("other", target) is None
    assert await credentials.authorization("vault", RemoteTarget(url=f"{wish.url}/evil")) is None
    assert await credentials.authorization("vault", RemoteTarget(url="https://evil.example/mcp")) is None


@promise("login:one-refresh")
async def test_two_processes_refresh_one_ended_token_once(
    opened: OpenLogins, wish: LoginWish, issuer: Issuer, keyring: MemoryKeyring, home: Path
) -> None:
    keyring.broken = True  # so that the processes find the tokens in the file
    issuer.control(ttl=SOON_S)
    await log_in(opened, wish)
    before = issuer.control(ttl=3600)["refresh_token"]

    said = await asyncio.to_thread(wanted_at_once, home / ".pml", wish.url)

    assert issuer.control()["refresh_token"] == before + 1
    assert len(said) == 1
    assert said.pop().startswith("Bearer ")


def wanted_at_once(home: Path, url: str) -> set[str]:
    """Return the tokens that three processes get which want one at the same time."""
    argv = [sys.executable, "-m", "tests.oauth.refresher", str(home), url]
    with ExitStack() as stack:
        all_of_them = [
            stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            )
            for _ in range(3)
        ]
        for each in all_of_them:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in all_of_them:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        return {each.communicate()[0] for each in all_of_them}


@promise("login:one-refresh")
async def test_many_requests_of_one_process_refresh_once(
    opened: OpenLogins,
    wish: LoginWish,
    issuer: Issuer,
    credentials: OAuthCredentials,
    target: RemoteTarget,
) -> None:
    issuer.control(ttl=SOON_S)
    await log_in(opened, wish)
    before = issuer.control(ttl=3600)["refresh_token"]

    said = await asyncio.gather(*(credentials.authorization("vault", target) for _ in range(8)))

    assert (issuer.control()["refresh_token"], len({*said})) == (before + 1, 1)


async def test_a_refused_token_is_refreshed_and_one_that_was_replaced_is_not(
    opened: OpenLogins,
    wish: LoginWish,
    issuer: Issuer,
    credentials: OAuthCredentials,
    target: RemoteTarget,
) -> None:
    await log_in(opened, wish)
    old = await credentials.authorization("vault", target)
    before = issuer.control()["refresh_token"]

    new = await credentials.challenged("vault", target, status=401, challenge=None, sent=old)
    again = await credentials.challenged("vault", target, status=401, challenge=None, sent=old)

    assert new not in (None, old)
    assert (again, issuer.control()["refresh_token"]) == (new, before + 1)


async def test_a_refresh_that_is_refused_leads_back_to_a_login(
    opened: OpenLogins,
    wish: LoginWish,
    logins: DiskServerLogins,
    credentials: OAuthCredentials,
    target: RemoteTarget,
) -> None:
    await log_in(opened, wish)
    held = kept(logins, wish)
    revoked = await revoke_login(held)
    sent = await credentials.authorization("vault", target)

    assert revoked is None
    assert await credentials.challenged("vault", target, status=401, challenge=None, sent=sent) is None
    left = kept(logins, wish)
    assert (left.login.is_logged_in, left.login.client_id) == (False, held.login.client_id)
    assert (left.tokens.access_token, left.tokens.refresh_token) == (None, None)
    assert await credentials.authorization("vault", target) is None
    await log_in(opened, wish)
    assert await credentials.authorization("vault", target) is not None


async def test_an_issuer_that_is_out_of_order_ends_no_login(
    opened: OpenLogins,
    wish: LoginWish,
    logins: DiskServerLogins,
    credentials: OAuthCredentials,
    target: RemoteTarget,
) -> None:
    await log_in(opened, wish)
    held = kept(logins, wish)
    gone = replace(held.login, token_endpoint="http://127.0.0.1:9/token")
    logins.keep(HeldLogin(login=gone, tokens=held.tokens))
    sent = await credentials.authorization("vault", target)

    with pytest.raises(Unavailable, match="cannot be reached"):
        await credentials.challenged("vault", target, status=401, challenge=None, sent=sent)

    assert kept(logins, wish).login.is_logged_in


async def test_scopes_that_a_call_needs_are_asked_for_at_the_next_login(
    opened: OpenLogins,
    wish: LoginWish,
    logins: DiskServerLogins,
    credentials: OAuthCredentials,
    target: RemoteTarget,
) -> None:
    await log_in(opened, wish)
    sent = await credentials.authorization("vault", target)

    answer = await credentials.challenged("vault", target, status=403, challenge=CHALLENGE, sent=sent)
    asked = question(await log_in(opened, wish))

    assert answer is None
    assert {"tools", "admin"} <= set(asked["scope"].split())
    held = kept(logins, wish)
    assert (held.login.wants, "admin" in (held.login.scope or "").split()) == (None, True)


@promise("login:bounded")
async def test_a_server_that_wants_ever_more_scopes_fills_no_file(
    opened: OpenLogins, wish: LoginWish, credentials: OAuthCredentials, logins: DiskServerLogins
) -> None:
    """The file is every server's: one that fills it would end the logins of all."""
    await log_in(opened, wish)
    target = RemoteTarget(url=wish.url)
    for number in range(40):
        many = " ".join(f"scope-{number}-{index}-{'x' * 50}" for index in range(500))
        challenge = f'Bearer error="insufficient_scope", scope="{many}"'
        await credentials.challenged("vault", target, status=403, challenge=challenge, sent=None)
    assert len(kept(logins, wish).login.wants or "") <= 4096
    assert logins.path.stat().st_size < 64 * 1024


async def test_a_403_for_another_reason_asks_for_no_scopes(
    opened: OpenLogins,
    wish: LoginWish,
    logins: DiskServerLogins,
    credentials: OAuthCredentials,
    target: RemoteTarget,
) -> None:
    await log_in(opened, wish)
    sent = await credentials.authorization("vault", target)

    assert await credentials.challenged("vault", target, status=403, challenge=None, sent=sent) is None
    assert kept(logins, wish).login.wants is None


async def test_what_is_revoked_opens_nothing_any_more(
    opened: OpenLogins, wish: LoginWish, logins: DiskServerLogins
) -> None:
    await log_in(opened, wish)
    held = kept(logins, wish)

    assert await revoke_login(held) is None

    answer = await asyncio.to_thread(
        httpx2.post,
        wish.url,
        json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
        headers={"authorization": f"Bearer {held.tokens.access_token}"},
        trust_env=False,
    )
    assert answer.status_code == 401


async def test_a_file_that_is_not_understood_is_left_alone(
    opened: OpenLogins, wish: LoginWish, logins: DiskServerLogins
) -> None:
    await log_in(opened, wish)
    logins.path.write_text('{"version": 1, "logins": [{"token": "hunter2"}]}')

    with pytest.raises(Exception, match="is not as PML writes it") as refused:
        logins.all()

    assert "hunter2" not in str(refused.value)
    with pytest.raises(Exception, match="is not as PML writes it"):
        logins.forget("vault")
    assert "hunter2" in logins.path.read_text()


@promise("login:bounded")
@pytest.mark.parametrize("more", [{"access_token": "x" * 20_000}, {"refresh_token": "x" * 20_000}])
async def test_a_token_that_no_header_can_have_is_refused(
    opened: OpenLogins, wish: LoginWish, logins: DiskServerLogins, more: dict[str, str]
) -> None:
    await log_in(opened, wish)
    given = {"access_token": "short", **more}
    async with answering(json.dumps(given).encode()) as url:
        held = kept(logins, wish)
        there = replace(held, login=replace(held.login, token_endpoint=url))
        with pytest.raises(LoginFailed, match="gave a token that PML cannot send"):
            await fetch_tokens(await LoginWeb.of(url), there, {}, now=datetime.now(UTC))


@promise("login:bounded")
async def test_an_answer_without_end_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that needs the token waits for the lock that its refresh holds."""
    monkeypatch.setattr(login_web, "WHOLE_S", 0.5)
    async with answering(b"{", is_slow=True) as url:
        web = await LoginWeb.of(url)
        async with asyncio.timeout(30):
            with pytest.raises(Unavailable, match="did not answer in time"):
                await web.send("POST", url, whose="the token endpoint", form={"a": "b"})


@promise("login:bounded")
async def test_an_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * (64 * 1024**2))
    async with answering(packed, headers="content-encoding: gzip\r\n") as url:
        web = await LoginWeb.of(url)
        with pytest.raises(Unavailable, match="encoding that was not asked for"):
            await web.send("GET", url, whose="the token endpoint")


@asynccontextmanager
async def answering(body: bytes, *, headers: str = "", is_slow: bool = False) -> AsyncGenerator[str]:
    """Answer each request with `body`; slow: the answer never ends."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            length = "" if is_slow else f"content-length: {len(body)}\r\n"
            kind = "content-type: application/json\r\nconnection: close\r\n"
            writer.write(f"HTTP/1.1 200 OK\r\n{kind}{length}{headers}\r\n".encode() + body)
            await writer.drain()
            if is_slow:
                await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
    finally:
        over.set()
        server.close()
