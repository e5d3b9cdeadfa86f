"""The state that a modern client carries between two rounds of one call: sealed, bound to it, used once."""

import asyncio
import hashlib
import hmac
import os
from typing import Final

import msgspec

from pml.downstream.connection import RpcError
from pml.downstream.eras import INVALID_PARAMS

_KEPT: Final = 10_000  # spent seals remembered; what they led to is decided or gone long before


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """What a state says: which kind of round it belongs to, what it refers to, and how old it is."""

    kind: str
    ref: str
    age_s: float


class Seals:
    """Seals of this process; a state that another one sealed is nobody's."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._spent: dict[str, None] = {}

    def seal(self, kind: str, ref: str, *, call: str) -> str:
        """Return the state for a round of the call with the digest `call`."""
        at_ms = int(asyncio.get_running_loop().time() * 1000)
        body = f"{kind}.{ref}.{at_ms}.{os.urandom(8).hex()}"
        return f"{body}.{self._mark(body, call)}"

    def open(self, state: object, *, call: str) -> Sealed:
        """Return what the state says, and spend it. Raises: RpcError if it is not of this call, or spent."""
        body, _, mark = state.rpartition(".") if isinstance(state, str) else ("", "", "")
        if not hmac.compare_digest(mark.encode(), self._mark(body, call).encode()):
            raise RpcError(INVALID_PARAMS, "`requestState` does not belong to this call")
        if body in self._spent:
            raise RpcError(INVALID_PARAMS, "`requestState` was used before")
        self._spent[body] = None
        if len(self._spent) > _KEPT:
            del self._spent[next(iter(self._spent))]
        kind, ref, at_ms, _ = body.split(".")
        age_s = asyncio.get_running_loop().time() - int(at_ms) / 1000
        return Sealed(kind=kind, ref=ref, age_s=age_s)

    def _mark(self, body: str, call: str) -> str:
        return hmac.new(self._key, f"{body}|{call}".encode(), hashlib.sha256).hexdigest()
