"""A request to the API as its functions see it, and the table's rows. Knows no HTTP but words and bytes."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol, TypeAlias

from pml.core.approvals.record import ApprovalId, Channel, Decider, DeciderKind, SessionId
from pml.core.errors import Invalid, PmlError
from pml.core.ports.server_logins import LoginWish, OnLogin
from pml.core.ports.servers import ServerHost
from pml.core.sessions.token import Identity, TokenRole
from pml.core.values import Json, JsonObject, loads_object
from pml.hub.api.bodies import Shape, read_shape
from pml.service.context import Context
from pml.service.sessions.launcher import Launcher
from pml.service.sessions.tokens import token_principal

PERSON: Final = frozenset({TokenRole.PERSON})
DECIDERS: Final = frozenset({TokenRole.PERSON, TokenRole.SESSION})
MAX_PAGE: Final = 1000
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FLAGS: Final = {"": True, "1": True, "true": True, "0": False, "false": False}


class StoredSecret(Protocol):
    """Where a value went; `problem` says why it is not the keyring."""

    @property
    def where(self) -> str: ...
    @property
    def problem(self) -> str | None: ...


class SecretShelf(Protocol):
    """Where secrets are kept. Each may wait for a keyring: not for an event loop. Raises: PmlError."""

    def names(self) -> Mapping[str, str]:
        """Return where each is kept, by name."""
        ...

    def store(self, name: str, value: str) -> StoredSecret: ...

    def remove(self, name: str) -> str | None:
        """Forget the value; return why it may still be in the keyring, if it may."""
        ...


class LoginDesk(Protocol):
    """The logins to remote servers that the hub has begun, by the question that each is for."""

    async def begin(self, key: str, wish: LoginWish, on_login: OnLogin) -> str:
        """Return the page where a person logs in. Raises: PmlError."""
        ...

    def paste(self, key: str, text: str) -> None:
        """Take the address that the browser was sent back to. Raises: PmlError."""
        ...

    def problem(self, key: str) -> PmlError | None:
        """Return why the last login for this did not come about, if it did not."""
        ...

    def is_open(self, key: str) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Hub:
    """What the API works with. `workspace` is the hub's own, where none is named."""

    context: Context
    launcher: Launcher | None
    server_host: ServerHost
    secrets: SecretShelf
    logins: LoginDesk
    workspace: str


@dataclass(frozen=True, kw_only=True)
class ApiRequest:
    """One request: whose it is, and what it brings."""

    hub: Hub
    identity: Identity
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes

    @property
    def context(self) -> Context:
        return self.hub.context

    @property
    def principal(self) -> str:
        return token_principal(self.identity.token_id)

    @property
    def is_person(self) -> bool:
        return self.identity.role is TokenRole.PERSON

    @property
    def by(self) -> Decider:
        """Return as whom the visitor decides."""
        if self.is_person:
            return Decider(kind=DeciderKind.PERSON, id=self.identity.name, channel=Channel.INBOX)
        return Decider(kind=DeciderKind.PARENT, id=self.session_id, channel=Channel.LOOPBACK)

    @property
    def session_id(self) -> SessionId:
        """Return the session that the visitor speaks for; a person has none."""
        assert self.identity.session_id is not None, "only a person's token has no session"
        return self.identity.session_id

    async def below(self) -> frozenset[SessionId]:
        """Return the sessions that the visitor's own session started, and those they started."""
        return frozenset(each.id for each in await self.context.store.sessions.descendants(self.session_id))

    @cached_property
    def json(self) -> JsonObject:
        """Return the body, read strictly. Raises: Invalid."""
        return loads_object(self.body, what="the body")

    def read(self, shape: type[Shape]) -> Shape:
        """Return the body as `shape`. Raises: Invalid."""
        return read_shape(self.json, shape, what="the body")

    def approval_id(self) -> ApprovalId:
        """Raises: Invalid."""
        return read_approval_id(self.path["id"])

    def flag(self, name: str) -> bool:
        """Raises: Invalid."""
        given = self.query.get(name, "false").lower()
        if given not in _FLAGS:
            raise Invalid(f"`{name}` must be true or false")
        return _FLAGS[given]

    def number(self, name: str, *, default: int, low: int, high: int) -> int:
        """Raises: Invalid."""
        given = self.query.get(name, str(default))
        if not (given.isascii() and given.isdigit() and len(given) < 20 and low <= int(given) <= high):
            raise Invalid(f"`{name}` must be a number from {low} to {high}")
        return int(given)

    def limit(self) -> int:
        """Return how many to list at the most. Raises: Invalid."""
        return self.number("limit", default=100, low=1, high=MAX_PAGE)


Serve: TypeAlias = Callable[[ApiRequest], Awaitable[Mapping[str, Json]]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """A row of the table. `query` are the parameters it knows; `once`: it heeds an idempotency key.

    `waits`: it may take long, and is given up when the client goes away.
    """

    method: str
    path: str
    roles: frozenset[TokenRole]
    serve: Serve
    query: tuple[str, ...] = ()
    status: int = 200
    once: bool = False
    waits: bool = False


def read_approval_id(text: str) -> ApprovalId:
    """Raises: Invalid."""
    if _UUID.fullmatch(text.lower()) is None:
        raise Invalid("that is not an id of an approval", hint="give the whole id, as lists have it")
    return ApprovalId(text.lower())
