"""The end of a login at its issuer (RFC 7009)."""

from pml.core.errors import PmlError
from pml.core.ports.server_logins import HeldLogin
from pml.core.text import quote
from pml.oauth.login_web import LoginWeb
from pml.oauth.token_endpoint import client_headers, error_code


async def revoke_login(held: HeldLogin) -> str | None:
    """Revoke the tokens at their issuer; return why that failed, if it did."""
    login, tokens = held.login, held.tokens
    given = {"refresh_token": tokens.refresh_token, "access_token": tokens.access_token}
    if not any(given.values()):
        return None
    if login.revocation_endpoint is None:
        return f"{quote(login.issuer)} revokes no tokens: they hold until they end"
    try:
        web = await LoginWeb.of(login.origin)
        for kind, token in given.items():
            if token is None:
                continue
            form = {"token": token, "token_type_hint": kind, "client_id": login.client_id}
            whose = "the authorization server's revocation endpoint"
            headers = client_headers(held, form)
            answer = await web.send(
                "POST", login.revocation_endpoint, whose=whose, headers=headers, form=form
            )
            if answer.status != 200:
                kind = kind.replace("_", " ")
                return f"{quote(login.issuer)} did not revoke the {kind}: {error_code(answer)}"
    except PmlError as exc:
        return exc.message
    return None
