"""Logins to remote servers: what is kept of each, and where.

Facts may be shown; tokens are in no message, no log and no text for a model, and have no `repr`.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from pml.core.digest import digest

EXPIRY_MARGIN_S: Final = 30.0  # a token that ends while its request is on the way would be refused


def place_of(url: str) -> str:
    """Return what a login is bound to: at another URL the same name has none."""
    return digest({"url": url})


class ServerLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A registration at an issuer, for one server at one URL, and the login made with it, if there is one.

    `place` is the digest of the URL, which may hold secrets of its own; `origin` is the open part of it.
    `wants` are scopes that the server has asked for since. `revision` is another one after each change.
    """

    server: str
    place: str
    origin: str
    issuer: str
    client_id: str
    auth_method: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    redirect_uri: str | None = None
    resource: str | None = None
    scope: str | None = None
    wants: str | None = None
    logged_in_at: datetime | None = None
    expires_at: datetime | None = None
    can_refresh: bool = False
    revision: str = ""

    @property
    def key(self) -> str:
        """What it is kept under: another URL or issuer behind the same name is another login."""
        kept = digest({"server": self.server, "place": self.place, "issuer": self.issuer})
        return kept.partition(":")[2][:32]

    @property
    def is_logged_in(self) -> bool:
        return self.logged_in_at is not None

    def is_over(self, now: datetime) -> bool:
        """Tell whether its token has ended, or ends before a request with it would arrive."""
        return self.expires_at is not None and (self.expires_at - now).total_seconds() <= EXPIRY_MARGIN_S


class LoginTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets of a login."""

    access_token: str | None = None
    refresh_token: str | None = None
    client_secret: str | None = None

    def __repr__(self) -> str:
        return "LoginTokens()"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class HeldLogin(msgspec.Struct, frozen=True, kw_only=True):
    login: ServerLogin
    tokens: LoginTokens


OnLogin: TypeAlias = Callable[[HeldLogin], Awaitable[None]]  # hears of a login that is stored


class ServerLogins(Protocol):
    """The logins of one `PML_HOME`. Each may wait for a keyring: not for an event loop.

    Raises everywhere: Invalid if what is kept cannot be understood, Unavailable.
    """

    def all(self) -> list[ServerLogin]: ...

    def facts(self, server: str, url: str) -> ServerLogin | None:
        """Return the facts of `find`; no keyring is asked."""
        ...

    def find(self, server: str, url: str) -> HeldLogin | None:
        """Return the newest login of the server at this very URL, or the registration left of it."""
        ...

    def read(self, key: str) -> HeldLogin | None:
        """Return the login that is kept under `key`."""
        ...

    def keep(self, held: HeldLogin) -> str | None:
        """Store it in place of what this server has at this issuer; return why not in a keyring, if so."""
        ...

    def forget(self, server: str) -> str | None:
        """Forget all of the server; return why something may still be in the keyring, if it may."""
        ...


class LoginWish(msgspec.Struct, frozen=True, kw_only=True):
    """A server to log in to, as its entry says it."""

    server: str
    url: str
    shown_url: str
    client_id: str | None = None
    client_metadata_url: str | None = None
    scopes: tuple[str, ...] = ()
    callback_port: int | None = None

    def __repr__(self) -> str:
        return f"LoginWish(server={self.server!r}, url={self.shown_url!r})"
