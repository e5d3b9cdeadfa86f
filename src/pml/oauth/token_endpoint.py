"""The token endpoint: tokens for a code or a refresh token. No error holds any of them."""

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote as percent

import msgspec
from msgspec.structs import replace

from pml.core.errors import LoginFailed, Unavailable
from pml.core.ports.server_logins import HeldLogin, LoginTokens
from pml.core.text import quote, visible
from pml.oauth.login_web import Answer, LoginWeb

_TOKEN_CHARS: Final = 16 * 1024  # more does not fit into the headers that servers read
MAX_SCOPE_CHARS: Final = 4_096
_LONGEST_S: Final = 10 * 365 * 24 * 3600
_CODES: Final = frozenset(
    {"invalid_grant", "invalid_client", "unauthorized_client", "invalid_request", "invalid_scope"}
    | {"invalid_target", "unsupported_grant_type", "access_denied", "server_error"}
)


class _Given(msgspec.Struct, frozen=True):
    access_token: str
    token_type: str = "Bearer"
    expires_in: int | float | str | None = None
    scope: str | None = None
    refresh_token: str | None = None


class Refused(Exception):
    """The token endpoint says no, and would say so again."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


async def fetch_tokens(
    web: LoginWeb, held: HeldLogin, grant: Mapping[str, str], *, now: datetime
) -> HeldLogin:
    """Return the login with the tokens that the grant gives. Raises: Refused, LoginFailed, Unavailable."""
    login = held.login
    form = {**grant, "client_id": login.client_id}
    if login.resource is not None:
        form["resource"] = login.resource
    whose = "the authorization server's token endpoint"
    answer = await web.send(
        "POST", login.token_endpoint, whose=whose, headers=client_headers(held, form), form=form
    )
    if answer.status >= 500 or answer.status == 429:
        raise Unavailable(f"{whose} at {quote(login.token_endpoint)} answers {answer.status}")
    if answer.status not in (200, 201):
        raise Refused(error_code(answer))
    try:
        given = msgspec.json.decode(answer.body, type=_Given)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise LoginFailed(
            f"{whose} at {quote(login.token_endpoint)} answered with no token: {visible(answer.kind)}"
        ) from None
    is_sound = _is_token(given.access_token) and len(given.refresh_token or "") <= _TOKEN_CHARS
    if given.token_type.lower() != "bearer" or not is_sound:
        raise LoginFailed(f"{whose} at {quote(login.token_endpoint)} gave a token that PML cannot send")
    return _with_tokens(held, given, now=now)


def _is_token(text: str) -> bool:
    """Tell whether it can stand in a header: nothing it holds may end the line."""
    return 0 < len(text) <= _TOKEN_CHARS and text.isascii() and text.isprintable() and " " not in text


def _with_tokens(held: HeldLogin, given: _Given, *, now: datetime) -> HeldLogin:
    refresh_token = given.refresh_token or held.tokens.refresh_token
    tokens = replace(held.tokens, access_token=given.access_token, refresh_token=refresh_token)
    try:
        lasts_s = None if given.expires_in is None else min(float(given.expires_in), _LONGEST_S)
    except ValueError:
        lasts_s = None
    login = replace(
        held.login,
        scope=held.login.scope if not given.scope or len(given.scope) > MAX_SCOPE_CHARS else given.scope,
        wants=None,
        logged_in_at=held.login.logged_in_at or now,
        expires_at=None if lasts_s is None else now + timedelta(seconds=lasts_s),
        can_refresh=refresh_token is not None,
    )
    return HeldLogin(login=login, tokens=tokens)


def without_tokens(held: HeldLogin) -> HeldLogin:
    """Return the registration that is left when a login has ended."""
    login = replace(held.login, logged_in_at=None, expires_at=None, can_refresh=False)
    return HeldLogin(login=login, tokens=LoginTokens(client_secret=held.tokens.client_secret))


def client_headers(held: HeldLogin, form: dict[str, str]) -> dict[str, str]:
    """Return the headers that prove the client; a secret for the body is put into `form`."""
    secret, method = held.tokens.client_secret, held.login.auth_method
    if secret is None or method == "none":
        return {}
    if method == "client_secret_post":
        form["client_secret"] = secret
        return {}
    pair = f"{percent(held.login.client_id, safe='')}:{percent(secret, safe='')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def error_code(answer: Answer) -> str:
    """Return the error's code, if it is one of the known: what else a server says may repeat a token."""
    code = (answer.object() or {}).get("error")
    return code if isinstance(code, str) and code in _CODES else f"HTTP {answer.status}"
