"""Discovery: from a server that wants a login to the metadata of the issuer that gives it.

The resource must be the server, the issuer the one that its metadata names, letter by letter, and PKCE with
S256 must be there. What is published is read with the `mcp` SDK, imported here only.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pml.core.errors import LoginFailed, Unavailable
from pml.core.ports.server_logins import LoginWish
from pml.core.text import quote, visible
from pml.oauth.login_web import Answer, LoginWeb

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

_FIELD: Final = re.compile(r'([A-Za-z_-]+)=(?:"([^"\\]*)"|([^\s,"]+))')
_PROBE: Final = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "pml", "version": "1"},
    },
}


def challenge_fields(header: str | None) -> dict[str, str]:
    """Return the parameters of a `WWW-Authenticate` header, by lowercase name."""
    return {name.lower(): quoted or plain for name, quoted, plain in _FIELD.findall(header or "")}


@dataclass(frozen=True, kw_only=True)
class Discovered:
    """Where to log in for a server: its issuer, and what that says of itself."""

    issuer: str
    metadata: "OAuthMetadata"
    resource: str
    scopes: str | None  # what to ask for, where nothing else says


async def discover(web: LoginWeb, wish: LoginWish) -> Discovered:
    """Return where to log in for the server. Raises: LoginFailed, Invalid, Unavailable."""
    url = wish.url
    challenge = await _challenge(web, url)
    protected = await _protected_resource(web, url, challenge.get("resource_metadata"))
    from mcp.client.auth.utils import get_client_metadata_scopes
    from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

    resource = resource_url_from_server_url(url.partition("?")[0])  # what follows may be a secret
    if protected is not None:
        named = str(protected.resource)
        if not check_resource_allowed(requested_resource=resource, configured_resource=named):
            raise LoginFailed(
                f"server {quote(wish.server)} at {quote(wish.shown_url)} says that it is {quote(named)}",
                hint="its metadata belongs to another server: tell whoever runs it",
            )
        resource = named
    issuer, metadata = await _issuer(web, wish, protected)
    scopes = get_client_metadata_scopes(
        challenge.get("scope"), protected, metadata, ["authorization_code", "refresh_token"]
    )
    return Discovered(issuer=issuer, metadata=metadata, resource=resource, scopes=scopes)


async def _challenge(web: LoginWeb, url: str) -> dict[str, str]:
    """Return what the server says to a request without a token."""
    headers = {"accept": "application/json, text/event-stream"}
    answer = await web.send("POST", url, whose="the server", headers=headers, json=_PROBE)
    return challenge_fields(answer.headers.get("www-authenticate")) if answer.status in (401, 403) else {}


async def _protected_resource(
    web: LoginWeb, url: str, named: str | None
) -> "ProtectedResourceMetadata | None":
    """Return the metadata of RFC 9728; None if the server publishes none."""
    from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls
    from mcp.shared.auth import ProtectedResourceMetadata
    from pydantic import ValidationError

    for candidate in build_protected_resource_metadata_discovery_urls(named, url):
        answer = await web.send("GET", candidate, whose="the server's metadata")
        if answer.status >= 500 or answer.status == 429:
            raise Unavailable(f"the server's metadata at {quote(candidate)} answers {answer.status}")
        if answer.status != 200:
            continue
        try:
            return ProtectedResourceMetadata.model_validate_json(answer.body)
        except ValidationError:
            if candidate == named:
                raise _not_metadata("the server's metadata", answer) from None
    return None


async def _issuer(
    web: LoginWeb, wish: LoginWish, protected: "ProtectedResourceMetadata | None"
) -> tuple[str, "OAuthMetadata"]:
    """Return the issuer and its metadata. Without RFC 9728 it is the server's own origin, as of old."""
    from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls, issuers_match
    from mcp.shared.auth import OAuthMetadata
    from pydantic import ValidationError

    named = None if protected is None else str(protected.authorization_servers[0])
    parts = web.check(named or wish.url, whose="the authorization server")
    expected = named or f"{parts.scheme}://{parts.netloc}"
    problem: LoginFailed | None = None
    for candidate in build_oauth_authorization_server_metadata_discovery_urls(named, wish.url):
        answer = await web.send("GET", candidate, whose="the authorization server")
        if answer.status >= 500:
            raise Unavailable(f"the authorization server at {quote(candidate)} answers {answer.status}")
        if answer.status != 200:
            continue
        try:
            metadata = OAuthMetadata.model_validate_json(answer.body)
        except ValidationError:
            problem = _not_metadata("the authorization server", answer)
            continue
        found = str(metadata.issuer)
        if not issuers_match(found, expected):  # letter by letter, but for the slash after a bare host
            raise LoginFailed(
                f"the authorization server at {quote(candidate)} says that it is {quote(found)}, "
                f"not {quote(expected)}",
                hint="nothing was sent to it; tell whoever runs the server",
            )
        _check_metadata(web, metadata, found)
        return found, metadata
    if problem is not None:
        raise problem
    raise LoginFailed(
        f"{quote(wish.shown_url)} does not say where to log in: neither it nor its origin has metadata",
        hint="it may want a header instead: `headers` in its entry, with the value in `pml secrets`",
    )


def _check_metadata(web: LoginWeb, metadata: "OAuthMetadata", issuer: str) -> None:
    """Raises: LoginFailed without PKCE; Invalid for an endpoint that may not be reached."""
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise LoginFailed(
            f"the authorization server {quote(issuer)} does not say that it supports PKCE with S256",
            hint="without it a code can be stolen on its way: PML does not log in there",
        )
    for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"):
        given = getattr(metadata, name)
        if given is not None:
            web.check(str(given), whose=f"the {name} of {issuer}")


def _not_metadata(whose: str, answer: Answer) -> LoginFailed:
    is_json = answer.object() is not None
    what = "an object that lacks what metadata must have" if is_json else f"{visible(answer.kind)}, not JSON"
    return LoginFailed(
        f"{whose} at {quote(answer.url)} answered with {what}",
        hint="tell whoever runs the server, or try again later",
    )
