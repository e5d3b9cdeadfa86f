"""One login: from the server's URL to the page where a person consents, and from its answer to tokens.

Authorization code with PKCE (S256), `state`, `resource` (RFC 8707) and `iss` (RFC 9207). How the page is
opened and how its answer comes back is not known here.
"""

import hmac
from datetime import datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec.structs import replace

from pml.core.errors import Invalid, LoginFailed
from pml.core.ports.server_logins import HeldLogin, LoginTokens, LoginWish, ServerLogin, place_of
from pml.core.servers.remote_target import origin_of
from pml.core.text import quote, visible
from pml.oauth.client_registration import find_client
from pml.oauth.discovery import Discovered, discover
from pml.oauth.login_web import LoginWeb
from pml.oauth.token_endpoint import Refused, fetch_tokens


class Returned(NamedTuple):
    """What came back from the page: the parameters of the redirect."""

    code: str | None
    state: str | None
    iss: str | None
    error: str | None


def returned(query: str) -> Returned:
    """Return the parameters of a redirect, each at most once. Raises: Invalid."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Invalid("the redirect has too many parameters") from None
    given = dict(pairs)
    if len(given) != len(pairs):
        raise Invalid("the redirect has a parameter twice")
    return Returned(*(given.get(name) or None for name in ("code", "state", "iss", "error")))


def pasted(text: str, redirect_uri: str) -> Returned:
    """Return what a pasted redirect URL holds. Raises: Invalid if it is not one of this login."""
    parts, expected = urlsplit(text.strip()), urlsplit(redirect_uri)
    if (parts.scheme, parts.netloc, parts.path) != (expected.scheme, expected.netloc, expected.path):
        raise Invalid(
            f"that is not the address the browser was sent to: it begins with {redirect_uri}?",
            hint="copy all of the address bar, also where the page says that it cannot be reached",
        )
    return returned(parts.query)


class LoginFlow:
    """A login under way. `url` is the page for a person's browser."""

    def __init__(
        self, web: LoginWeb, wish: LoginWish, at: Discovered, held: HeldLogin, *, redirect_uri: str
    ) -> None:
        import secrets

        from mcp.client.auth import PKCEParameters

        self._web = web
        self._wish = wish
        self._at = at
        self._held = held
        self._redirect_uri = redirect_uri
        self._pkce = PKCEParameters.generate()
        self._state = secrets.token_urlsafe(32)
        self.url = self._authorization_url()

    @classmethod
    async def begin(cls, wish: LoginWish, kept: HeldLogin | None, *, redirect_uri: str) -> "LoginFlow":
        """Find out where to log in, as whom, and for what. Raises: LoginFailed, Invalid, Unavailable."""
        web = await LoginWeb.of(wish.url)
        at = await discover(web, wish)
        if kept is not None and kept.login.issuer != at.issuer:
            raise LoginFailed(
                f"server {quote(wish.server)} was logged in to at {quote(kept.login.issuer)}, and now names "
                f"{quote(at.issuer)}",
                hint=f"if that is right, `pml logout {wish.server}` forgets the former; then log in again",
            )
        scope = _scopes(wish, at, kept)
        client = await find_client(web, wish, at, kept, redirect_uri=redirect_uri, scope=scope)
        metadata = at.metadata
        revocation = metadata.revocation_endpoint
        login = ServerLogin(
            server=wish.server,
            place=place_of(wish.url),
            origin=origin_of(wish.url),
            issuer=at.issuer,
            client_id=client.id,
            auth_method=client.auth_method,
            token_endpoint=str(metadata.token_endpoint),
            revocation_endpoint=None if revocation is None else str(revocation),
            redirect_uri=redirect_uri,
            resource=at.resource,
            scope=scope,
        )
        held = HeldLogin(login=login, tokens=LoginTokens(client_secret=client.secret))
        return cls(web, wish, at, held, redirect_uri=redirect_uri)

    @property
    def issuer(self) -> str:
        return self._at.issuer

    @property
    def scope(self) -> str | None:
        return self._held.login.scope

    def is_mine(self, answer: Returned) -> bool:
        """Tell whether the answer belongs to this login: any program, or page, can send one here."""
        return answer.state is not None and hmac.compare_digest(answer.state.encode(), self._state.encode())

    async def finish(self, answer: Returned, *, now: datetime) -> HeldLogin:
        """Return the login. Raises: LoginFailed, Unavailable."""
        if not self.is_mine(answer):
            raise LoginFailed("the answer belongs to another login: its `state` is not the one that was sent")
        self._check_issuer(answer.iss)
        if answer.error is not None or answer.code is None:
            said = visible(answer.error or "no code came with it")[:100]
            raise LoginFailed(
                f"{quote(self.issuer)} did not log in: {said}", hint=f"`pml login {self._wish.server}` again"
            )
        grant = {
            "grant_type": "authorization_code",
            "code": answer.code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": self._pkce.code_verifier,
        }
        try:
            return await fetch_tokens(self._web, self._held, grant, now=now)
        except Refused as exc:
            raise LoginFailed(
                f"{quote(self.issuer)} refused the code: {exc.code}",
                hint=f"`pml login {self._wish.server}` again",
            ) from None

    def _check_issuer(self, iss: str | None) -> None:
        """Raise LoginFailed if the answer is another server's, or hides whose it is (RFC 9207)."""
        is_promised = self._at.metadata.authorization_response_iss_parameter_supported
        if iss is None and is_promised:
            raise LoginFailed(
                f"the answer lacks `iss`, which {quote(self.issuer)} promises",
                hint="nothing was sent to it; log in again, and if it happens again do not trust the server",
            )
        if iss is not None and iss != self.issuer:
            raise LoginFailed(
                f"the answer comes from {quote(iss)}, not from {quote(self.issuer)}",
                hint="nothing was sent to either; log in again from the beginning",
            )

    def _authorization_url(self) -> str:
        login = self._held.login
        query = {
            "response_type": "code",
            "client_id": login.client_id,
            "redirect_uri": self._redirect_uri,
            "state": self._state,
            "code_challenge": self._pkce.code_challenge,
            "code_challenge_method": "S256",
            "resource": self._at.resource,
        }
        if login.scope:
            query["scope"] = login.scope
            if "offline_access" in login.scope.split():
                query["prompt"] = "consent"  # OpenID Connect gives no refresh token without
        endpoint = str(self._at.metadata.authorization_endpoint)
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"


def _scopes(wish: LoginWish, at: Discovered, kept: HeldLogin | None) -> str | None:
    """Return what to ask for: what the entry says, else the server; and what it has asked for since."""
    from mcp.client.auth.utils import union_scopes

    base = " ".join(wish.scopes) or at.scopes
    if kept is None or kept.login.issuer != at.issuer or kept.login.wants is None:
        return base
    return union_scopes(union_scopes(kept.login.scope, base), kept.login.wants)


def replaced(held: HeldLogin, *, wants: str) -> HeldLogin:
    """Return the login with the scopes that the server asks for beyond it."""
    return HeldLogin(login=replace(held.login, wants=wants), tokens=held.tokens)
