"""Requests that are answered once, however often they come: by their idempotency key.

As a rule one hub serves a store, so what has a receipt without an answer and is not being answered here was
begun by a hub that died, and is answered anew.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from pml.core.errors import Conflict, Invalid
from pml.core.ports.session_store import Receipt
from pml.service.context import Context

_KEY: Final = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: bytes


class ReceiptBook:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: dict[tuple[str, str], asyncio.Event] = {}

    async def answer_once(
        self, principal: str, key: str, request: str, produce: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Return the answer that this request was given before, or else the one that `produce` gives.

        `request` is the digest of what is asked. What failed for a reason of ours is not kept.
        Raises: Invalid for a key that is none; Conflict if it belongs to another request.
        """
        if _KEY.fullmatch(key) is None:
            raise Invalid("an idempotency key has 1 to 200 printable ASCII characters")
        place = (principal, key)
        while (other := self._open.get(place)) is not None:
            await other.wait()
        done = self._open[place] = asyncio.Event()
        try:
            return await self._answer(
                Receipt(principal=principal, key=key, request=request, made_at=self._context.clock.now()),
                produce,
            )
        finally:
            del self._open[place]
            done.set()

    async def _answer(self, receipt: Receipt, produce: Callable[[], Awaitable[Answer]]) -> Answer:
        before = await self._context.store.receipts.begin(receipt)
        if before is not None and before.request != receipt.request:
            raise Conflict(
                "this idempotency key was used for another request", hint="take a new key for each request"
            )
        if before is not None and before.body is not None:
            return Answer(status=before.status, body=before.body)
        answer = await produce()
        if answer.status < 500:
            await self._context.store.receipts.close(
                msgspec.structs.replace(before or receipt, body=answer.body, status=answer.status)
            )
        return answer
