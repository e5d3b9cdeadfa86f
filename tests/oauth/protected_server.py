"""A real MCP server of the SDK behind OAuth: it asks the authorization server about each token.

Its first line of output says where it is. `danger` wants the scope `admin` too; a call is a line in a file.
"""

import argparse
import json
import socket
import sys
from pathlib import Path

import httpx2
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl
from starlette.types import ASGIApp, Receive, Scope, Send


class Introspection:
    def __init__(self, issuer: str) -> None:
        self._issuer = issuer

    async def verify_token(self, token: str) -> AccessToken | None:
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.post(
                f"{self._issuer}/token/introspection", data={"token": token}, auth=("guard", "guarding")
            )
        told = answer.json()
        if not told.get("active"):
            return None
        return AccessToken(
            token=token,
            client_id=told["client_id"],
            scopes=told.get("scope", "").split(),
            expires_at=told["exp"],
            resource=told.get("aud"),
            subject=told.get("sub"),
            claims={"iss": self._issuer},
        )


class StepUp:
    """Answers 403 for want of scope where a token lacks `admin` for the tool `danger`."""

    def __init__(self, app: ASGIApp, verifier: Introspection, metadata: str) -> None:
        self._app = app
        self._verifier = verifier
        self._metadata = metadata

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        message = await receive()
        body = message.get("body", b"")
        headers = dict(scope["headers"])
        token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        if b'"tools/call"' in body and b'"danger"' in body and token:
            known = await self._verifier.verify_token(token)
            if known is not None and "admin" not in known.scopes:
                challenge = (
                    f'Bearer error="insufficient_scope", scope="tools admin", '
                    f'resource_metadata="{self._metadata}"'
                )
                await send(
                    {
                        "type": "http.response.start",
                        "status": 403,
                        "headers": [(b"www-authenticate", challenge.encode())],
                    }
                )
                await send({"type": "http.response.body", "body": b""})
                return
        first = [message]

        async def again() -> object:
            return first.pop() if first else await receive()

        await self._app(scope, again, send)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("issuer")
    parser.add_argument("calls", type=Path)
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        verifier = Introspection(args.issuer)
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(args.issuer),
            resource_server_url=AnyHttpUrl(f"{url}/mcp"),
            required_scopes=["tools"],
            validate_token_resource=True,
        )
        server = MCPServer("vault", token_verifier=verifier, auth=settings)

        def note(what: str) -> str:
            with args.calls.open("a") as file:
                file.write(f"{what}\n")
            return what

        @server.tool()
        def read(name: str) -> str:
            """Read a secret."""
            return note(f"read {name}")

        @server.tool()
        def danger(name: str) -> str:
            """Remove a secret."""
            return note(f"danger {name}")

        del read, danger
        metadata = f"{url}/.well-known/oauth-protected-resource/mcp"
        app = StepUp(server.streamable_http_app(), verifier, metadata)
        print(json.dumps({"url": f"{url}/mcp"}), flush=True)
        config = uvicorn.Config(app, log_level="error", lifespan="on")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())
