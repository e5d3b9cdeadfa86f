"""Calls to a cloud: one POST each, with the key, that runs there at most once.

A call is sent again only where nothing can have run; whatever is lost after that is told as unknown. What the
cloud decides, and whether the call is allowed here, is not known here.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from pml.core.values import JsonObject
from pml.upstream.cloud.cloud_call import CloudCall, NotRun
from pml.web.clients import open_client, reason

if TYPE_CHECKING:
    import httpx2

RETRIES: Final = 2
_MAX_REFUSAL: Final = 64 * 1024
_SMALL: Final = 256 * 1024  # what is larger is read beside the event loop: it takes milliseconds


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited, and how much is taken.

    An answer may take as long as a tool does, and a cloud gives its own servers 600 s; once it begins it has
    `body_s` to end. A cloud that wants to be left alone for more than `pause_s` is told of, not waited for.
    """

    connect_s: float = 5.0
    answer_s: float = 630.0
    body_s: float = 60.0
    backoff_s: float = 0.3
    pause_s: float = 5.0
    answer_bytes: int = 64 * 1024 * 1024


class CloudClient:
    """The port `Cloud`. One for a process; its connections are used again."""

    def __init__(
        self,
        *,
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._patience = patience or Patience()
        self._sleep = sleep
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def call(self, url: str, name: str, arguments: JsonObject, *, key: str | None) -> bytes:
        """As `Cloud.call`."""
        call = CloudCall(url, name, arguments, key)
        for left in range(RETRIES, -1, -1):
            try:
                return await self._attempt(call)
            except NotRun as exc:
                pause_s = self._pause_s(RETRIES - left, exc.after_s)
                if not left or pause_s is None:
                    raise exc.told from exc
                await self._sleep(pause_s)
        raise AssertionError  # the last attempt returns or raises

    async def close(self) -> None:
        """End all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _pause_s(self, attempt: int, after_s: float | None) -> float | None:
        """Return how long to wait before the next attempt, None for longer than anybody waits."""
        if after_s is not None:
            return after_s if after_s <= self._patience.pause_s else None
        return random.uniform(0.5, 1.0) * self._patience.backoff_s * 2**attempt

    async def _attempt(self, call: CloudCall) -> bytes:
        response = await self._send(call)
        try:
            if response.status_code != 200:
                body = await self._refusal(response)
                call.refuse(response.status_code, body, retry_after=response.headers.get("retry-after"))
            body = await self._answer(call, response)
        finally:
            await response.aclose()
        if len(body) < _SMALL:
            return call.result(body, max_bytes=self._patience.answer_bytes)
        return await asyncio.to_thread(call.result, body, max_bytes=self._patience.answer_bytes)

    async def _send(self, call: CloudCall) -> "httpx2.Response":
        """Return the answer as soon as its head is there. Raises: NotRun, ServerFailed."""
        import httpx2

        client = self._client(call.url)
        try:
            request = client.build_request("POST", call.target, headers=call.headers, content=call.body)
            async with asyncio.timeout(self._patience.answer_s):
                return await client.send(request, stream=True, auth=None)
        except (
            httpx2.ConnectError,
            httpx2.ConnectTimeout,
            httpx2.PoolTimeout,
            httpx2.ProxyError,
            httpx2.InvalidURL,
        ) as exc:
            raise NotRun(call.offline(reason(exc))) from exc
        except (httpx2.TimeoutException, TimeoutError) as exc:
            raise call.unknown(f"gave no answer within {self._patience.answer_s:g} s") from exc
        except httpx2.HTTPError as exc:
            raise call.unknown(f"was lost after the call was sent ({reason(exc)})") from exc

    async def _answer(self, call: CloudCall, response: "httpx2.Response") -> bytes:
        """Return the whole body of an answer. Raises: ServerFailed."""
        import httpx2

        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise call.unknown("answered in an encoding that was not asked for")
        try:
            return await self._read(response, self._patience.answer_bytes)
        except _TooMuch as exc:
            raise call.unknown(f"answered with more than {self._patience.answer_bytes:,} bytes") from exc
        except (httpx2.TimeoutException, TimeoutError) as exc:
            raise call.unknown(f"gave no whole answer within {self._patience.body_s:g} s") from exc
        except httpx2.HTTPError as exc:
            raise call.unknown(f"was lost while it answered ({reason(exc)})") from exc

    async def _refusal(self, response: "httpx2.Response") -> bytes:
        """Return what a refusal says for itself; nothing if that cannot be had: its status says enough."""
        import httpx2

        try:
            return await self._read(response, _MAX_REFUSAL)
        except (_TooMuch, TimeoutError, httpx2.HTTPError):
            return b""

    async def _read(self, response: "httpx2.Response", limit: int) -> bytes:
        body = bytearray()
        async with asyncio.timeout(self._patience.body_s):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > limit:
                    raise _TooMuch
        return bytes(body)

    def _client(self, url: str) -> "httpx2.AsyncClient":
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._clients:
            self._clients[origin] = open_client(
                url, connect_s=self._patience.connect_s, read_s=self._patience.answer_s
            )
        return self._clients[origin]


class _TooMuch(Exception):
    """The body is longer than the bound allows."""
