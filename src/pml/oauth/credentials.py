"""Credentials of remote servers at work: the token for a request, refreshed once for all processes.

A process that finds a token ended takes the lock of its login, and looks again before refreshing: another
process may have done it meanwhile. A refresh that is refused leaves the registration, and a login is needed.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Final

from pml.core.errors import LoginFailed
from pml.core.ports.server_logins import HeldLogin, ServerLogin, ServerLogins
from pml.core.servers.remote_target import RemoteTarget
from pml.host.locks import locked_async
from pml.host.private import private_directory
from pml.oauth.discovery import challenge_fields
from pml.oauth.flow import replaced
from pml.oauth.login_web import LoginWeb
from pml.oauth.token_endpoint import MAX_SCOPE_CHARS, Refused, fetch_tokens, without_tokens

_LOCK_WAIT_S: Final = 90.0  # its holder asks the network, and a keyring before and after
_INSUFFICIENT: Final = "insufficient_scope"


class OAuthCredentials:
    """The tokens of one `PML_HOME`, by server name and URL. Implements `Credentials`.

    Raises everywhere: Invalid if what is kept cannot be understood, Unavailable.
    """

    def __init__(self, logins: ServerLogins, home: Path, *, now: Callable[[], datetime]) -> None:
        self._logins = logins
        self._home = home
        self._now = now

    async def authorization(self, server: str, target: RemoteTarget) -> str | None:
        held = await self._held(server, target.url)
        if held is not None and held.login.is_over(self._now()):
            held = await self._refreshed(held)
        return _bearer(held)

    async def challenged(
        self, server: str, target: RemoteTarget, *, status: int, challenge: str | None, sent: str | None
    ) -> str | None:
        held = await self._held(server, target.url)
        if held is None:
            return None
        if status == 403:
            fields = challenge_fields(challenge)
            if fields.get("error") == _INSUFFICIENT and held.login.is_logged_in:
                await self._want(held.login, fields.get("scope", ""))
            return None
        if _bearer(held) not in (None, sent):
            return _bearer(held)  # another process was faster
        return _bearer(await self._refreshed(held))

    async def _held(self, server: str, url: str) -> HeldLogin | None:
        return await asyncio.to_thread(self._logins.find, server, url)

    async def _again(self, login: ServerLogin) -> HeldLogin | None:
        """Return the login as it is kept now."""
        return await asyncio.to_thread(self._logins.read, login.key)

    async def _want(self, login: ServerLogin, scopes: str) -> None:
        """Keep what the server asks for beyond the login, for the next one."""
        async with self._locked(login):
            held = await self._again(login)
            known = set(((held and held.login.wants) or "").split())
            if held is not None and not set(scopes.split()) <= known:
                wants = " ".join(sorted(known | set(scopes.split())))
                if len(wants) > MAX_SCOPE_CHARS:
                    return  # its file is that of all logins
                await asyncio.to_thread(self._logins.keep, replaced(held, wants=wants))

    def _locked(self, login: ServerLogin) -> AbstractAsyncContextManager[None]:
        lock = private_directory(self._home) / "locks" / f"login-{login.key}.lock"
        return locked_async(lock, timeout_s=_LOCK_WAIT_S)

    async def _refreshed(self, seen: HeldLogin) -> HeldLogin | None:
        """Return the login with a new token; None if there is none to be had without a person."""
        login = seen.login
        if not login.is_logged_in:
            return None
        async with self._locked(login):
            held = await self._again(login)
            if held is None or not held.login.is_logged_in:
                return None
            if held.tokens.access_token != seen.tokens.access_token:
                return held
            return await self._refresh(held)

    async def _refresh(self, held: HeldLogin) -> HeldLogin | None:
        token = held.tokens.refresh_token
        if token is None:
            await asyncio.to_thread(self._logins.keep, without_tokens(held))
            return None
        grant = {"grant_type": "refresh_token", "refresh_token": token}
        try:
            web = await LoginWeb.of(held.login.origin)
            fresh = await fetch_tokens(web, held, grant, now=self._now())
        except (Refused, LoginFailed):
            await asyncio.to_thread(self._logins.keep, without_tokens(held))
            return None
        await asyncio.to_thread(self._logins.keep, fresh)
        return fresh


def _bearer(held: HeldLogin | None) -> str | None:
    token = None if held is None else held.tokens.access_token
    return None if token is None else f"Bearer {token}"
