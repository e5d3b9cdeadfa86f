"""Secrets over HTTP, for a person: names come out, values only go in.

A value is in no answer, no error and no log: a body that is wrong is not quoted, and of what goes wrong with
storing only the kind is told. Where values are kept is not known here.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from pml.core.audit.entries import secret_changed
from pml.core.errors import Invalid, PmlError, Unavailable
from pml.core.values import Json
from pml.hub.api.api_request import PERSON, ApiRequest, Route

_T = TypeVar("_T")


class SecretBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: str

    def __repr__(self) -> str:
        return "SecretBody()"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


async def list_secrets(request: ApiRequest) -> Mapping[str, Json]:
    names = await asyncio.to_thread(request.hub.secrets.names)
    return {"secrets": [{"name": name, "stored_in": str(where)} for name, where in names.items()]}


async def store_secret(request: ApiRequest) -> Mapping[str, Json]:
    body = _read(request.body)
    stored = await _unquoted(lambda: request.hub.secrets.store(body.name, body.value))
    await request.context.store.audit.record(
        secret_changed(body.name, "stored", at=request.context.clock.now(), by=request.by)
    )
    return {"name": body.name, "stored_in": str(stored.where), "problem": stored.problem}


async def remove_secret(request: ApiRequest) -> Mapping[str, Json]:
    name = request.path["name"]
    problem = await _unquoted(lambda: request.hub.secrets.remove(name))
    await request.context.store.audit.record(
        secret_changed(name, "removed", at=request.context.clock.now(), by=request.by)
    )
    return {"removed": name, "problem": problem}


def _read(body: bytes) -> SecretBody:
    """Return the body. Raises: Invalid, which quotes nothing and carries no other error."""
    try:
        return msgspec.json.decode(body, type=SecretBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # the error may carry what was sent
    raise Invalid(
        "the body must be an object with the texts `name` and `value`, and nothing else",
        hint="it is not repeated here, since it may hold the value",
    )


async def _unquoted(work: Callable[[], _T]) -> _T:
    """Return what `work` returns, which may wait for a keyring. Raises: what it raises on purpose."""
    try:
        return await asyncio.to_thread(work)
    except PmlError:
        raise
    except Exception:
        pass  # an unforeseen error may carry the value
    raise Unavailable(
        "the secrets cannot be changed now", hint="`pml secrets set NAME` in a terminal tells more"
    )


ROUTES: Final = (
    Route(method="GET", path="/api/secrets", roles=PERSON, serve=list_secrets),
    Route(method="POST", path="/api/secrets", roles=PERSON, serve=store_secret),
    Route(method="DELETE", path="/api/secrets/{name}", roles=PERSON, serve=remove_secret),
)
