"""Events of an approval: what can happen to it. `states.advance` says which may happen when."""

from datetime import datetime

import msgspec

from pml.core.approvals.record import Decider, OwnerId, Scope
from pml.core.values import JsonObject


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens to an approval at an instant."""

    at: datetime


class Allowed(Event, frozen=True, kw_only=True):
    by: Decider
    digest: str
    scope: Scope = Scope.ONCE
    message: str | None = None
    updated_input: JsonObject | None = None


class Denied(Event, frozen=True, kw_only=True):
    by: Decider
    digest: str
    message: str | None = None


class Expired(Event, frozen=True, kw_only=True):
    pass


class Cancelled(Event, frozen=True, kw_only=True):
    reason: str
    version: int | None = None  # of the record that is meant: what has changed since stays


class Abandoned(Event, frozen=True, kw_only=True):
    """The process that waited is gone; the question stays open for a while in case it comes back."""


class Attached(Event, frozen=True, kw_only=True):
    """The same question was asked again; its new asker takes it over only if the old one has left it."""

    owner: OwnerId


class Claimed(Event, frozen=True, kw_only=True):
    owner: OwnerId
    digest: str


class Delivered(Event, frozen=True, kw_only=True):
    """The answer was given to whoever runs the call itself: that is claim and completion in one."""

    owner: OwnerId
    digest: str


class Completed(Event, frozen=True, kw_only=True):
    pass


class Failed(Event, frozen=True, kw_only=True):
    message: str


class Unsent(Event, frozen=True, kw_only=True):
    """Nothing of the claimed call ran, since its server wants a login: the answer can be claimed anew."""


class Lost(Event, frozen=True, kw_only=True):
    """The owner died while the call ran."""
