"""The client as which PML logs in: registered beforehand, by a metadata document, kept, or registered now."""

from dataclasses import dataclass
from typing import Final

from pml.core.errors import LoginFailed
from pml.core.ports.server_logins import HeldLogin, LoginWish
from pml.core.text import quote, visible
from pml.oauth.discovery import Discovered
from pml.oauth.login_web import LoginWeb

_MAX_CHARS: Final = 8 * 1024
_METHODS: Final = ("none", "client_secret_post", "client_secret_basic")


@dataclass(frozen=True, kw_only=True)
class OAuthClient:
    id: str
    auth_method: str = "none"
    secret: str | None = None

    def __repr__(self) -> str:
        return f"OAuthClient(id={self.id!r})"


async def find_client(
    web: LoginWeb,
    wish: LoginWish,
    at: Discovered,
    kept: HeldLogin | None,
    *,
    redirect_uri: str,
    scope: str | None,
) -> OAuthClient:
    """Return the client to log in as; one that was kept belongs to this very issuer, and to these scopes.

    Raises: LoginFailed, Invalid, Unavailable.
    """
    from mcp.client.auth.utils import is_valid_client_metadata_url, should_use_client_metadata_url

    if wish.client_id is not None:
        return OAuthClient(id=wish.client_id)
    if wish.client_metadata_url is not None and not is_valid_client_metadata_url(wish.client_metadata_url):
        raise LoginFailed(
            f"`oauth.client_metadata_url` of server {quote(wish.server)} must be https, with a path"
        )
    if wish.client_metadata_url and should_use_client_metadata_url(at.metadata, wish.client_metadata_url):
        return OAuthClient(id=wish.client_metadata_url)
    login = None if kept is None else kept.login
    where = None if login is None else (login.issuer, login.redirect_uri, login.wants)
    if kept is not None and login is not None and where == (at.issuer, redirect_uri, None):
        return OAuthClient(
            id=login.client_id, auth_method=login.auth_method, secret=kept.tokens.client_secret
        )
    return await _register(web, wish, at, redirect_uri, scope)


async def _register(
    web: LoginWeb, wish: LoginWish, at: Discovered, redirect_uri: str, scope: str | None
) -> OAuthClient:
    """Register PML as a client, by RFC 7591, for the scopes that it will ask for."""
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
    from pydantic import AnyUrl, ValidationError

    if at.metadata.registration_endpoint is None:
        raise LoginFailed(
            f"the authorization server {quote(at.issuer)} registers no clients",
            hint=f"register one there, and set `oauth.client_id` of server `{wish.server}`",
        )
    asked = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect_uri)],
        token_endpoint_auth_method="none",
        client_name="PML",
        scope=scope,
    )
    whose = "the authorization server's registration"
    answer = await web.send(
        "POST",
        str(at.metadata.registration_endpoint),
        whose=whose,
        json=asked.model_dump(by_alias=True, mode="json", exclude_none=True),
    )
    if answer.status not in (200, 201):
        raise LoginFailed(
            f"{whose} at {quote(at.issuer)} refused: {refused(answer.status, answer.object())}",
            hint=f"register a client there yourself, and set `oauth.client_id` of server `{wish.server}`",
        )
    try:
        given = OAuthClientInformationFull.model_validate_json(answer.body)
    except ValidationError:
        raise LoginFailed(f"{whose} at {quote(at.issuer)} answered with no client: {answer.kind}") from None
    if max(len(given.client_id), len(given.client_secret or "")) > _MAX_CHARS:
        raise LoginFailed(f"{whose} at {quote(at.issuer)} gave an id or a secret that is too long")
    method = given.token_endpoint_auth_method or "none"
    if method not in _METHODS or (method != "none" and given.client_secret is None):
        raise LoginFailed(
            f"{whose} at {quote(at.issuer)} wants {quote(method)}, which PML cannot do",
            hint=f"register a client there yourself, and set `oauth.client_id` of server `{wish.server}`",
        )
    return OAuthClient(id=given.client_id, auth_method=method, secret=given.client_secret)


def refused(status: int, said: object) -> str:
    """Return an OAuth error in words: its code and description, shortened and without hidden characters."""
    fields: dict[str, object] = said if isinstance(said, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    words = [str(fields[name])[:200] for name in ("error", "error_description") if name in fields]
    return visible(": ".join(words)) if words else f"HTTP {status}"
