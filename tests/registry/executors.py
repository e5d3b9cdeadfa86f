"""A stand-in for what runs the calls of a cloud, and the cloud around it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pml.core.approvals.record import SessionId
from pml.core.errors import PmlError
from pml.core.sessions.token import (
    Identity,
    Token,
    TokenId,
    TokenRole,
    identify,
    read_token,
    secret_hash,
    token_text,
)
from pml.core.values import JsonObject
from pml.registry.cloud.served_calls import PATH, CallLimits, Calls
from pml.web.connections import Limits
from tests.builders import NOW
from tests.registry.serving import Got, Served, serving

RESULT: Final = b'{"content":[{"type":"text","text":"done"}]}'


@dataclass
class FakeExecutor:
    """Runs nothing; `called` is what it was asked to run. It answers when it `may_answer`."""

    called: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])
    broken_off: int = 0
    result: bytes = RESULT
    error: Exception | None = None
    lookup_error: PmlError | None = None
    tokens: dict[str, Token] = field(default_factory=dict[str, Token])

    def __post_init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.looked = asyncio.Semaphore(0)  # at tokens: twice for each request
        self.begun = asyncio.Semaphore(0)
        self.ended = asyncio.Semaphore(0)

    def make_token(self, number: int = 1, *, role: TokenRole = TokenRole.SESSION) -> str:
        """Return the text of a token that counts until it is revoked."""
        token_id, secret = TokenId(f"{number:012x}"), str(number) * 43
        session = None if role is TokenRole.PERSON else SessionId(f"s{number}")
        self.tokens[token_id] = Token(
            id=token_id,
            role=role,
            name=f"agent {number}",
            hash=secret_hash(secret),
            session_id=session,
            created_at=NOW,
        )
        return token_text(token_id, secret)

    def revoke(self, text: str) -> None:
        read = read_token(text)
        assert read is not None
        del self.tokens[read[0]]

    async def identify(self, authorization: str | None) -> Identity | None:
        self.looked.release()
        if self.lookup_error is not None:
            raise self.lookup_error
        scheme, _, text = (authorization or "").partition(" ")
        read = read_token(text) if scheme.lower() == "bearer" else None
        return None if read is None else identify(self.tokens.get(read[0]), read[1], now=NOW)

    async def call(self, identity: Identity, params: JsonObject) -> bytes:
        self.called.append((identity.name, params))
        self.begun.release()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        finally:
            self.ended.release()
        if self.error is not None:
            raise self.error
        return self.result


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A cloud that runs calls, the token of one agent, and what its operator was told."""

    served: Served
    executor: FakeExecutor
    token: str
    warnings: list[str]

    async def post(self, body: bytes | None = None, *, token: str | None = None, **headers: str) -> Got:
        """Send a call; `-` for a token sends none."""
        sent = {
            "content_type": "application/json",
            "authorization": f"Bearer {token or self.token}",
            **headers,
        }
        if token == "-":
            del sent["authorization"]
        return await self.served.get(PATH, method="POST", body=request() if body is None else body, **sent)


def request(name: Any = "acme.tools.text.greet", id: Any = 1, **more: Any) -> bytes:
    params = {"name": name, "arguments": {"who": "Ann"}, **more}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode()


@asynccontextmanager
async def executing(
    folder: Path, *, limits: CallLimits | None = None, only_local: bool = True
) -> AsyncGenerator[Cloud]:
    """Serve `folder`, and run calls, on a free port of this machine."""
    executor, warnings = FakeExecutor(), list[str]()
    token = executor.make_token()
    calls = Calls(executor, warn=warnings.append, limits=limits)
    try:
        async with serving(
            folder, only_local=only_local, calls=calls, limits=Limits(answers_last=True)
        ) as served:
            yield Cloud(served=served, executor=executor, token=token, warnings=warnings)
            calls.stop()
    finally:
        await calls.close()
