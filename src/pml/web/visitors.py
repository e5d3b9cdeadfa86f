"""The maker of a request: the guard tells, applications read. Kept in the request's scope alone."""

from typing import Final

from starlette.types import Scope

from pml.core.sessions.token import Identity

_KEY: Final = "pml.identity"


def set_identity(scope: Scope, identity: Identity) -> None:
    """Tell whose request this is."""
    scope[_KEY] = identity


def identity_of(scope: Scope) -> Identity:
    """Return whose request this is. Raises: KeyError where no guard stands before the application."""
    identity = scope[_KEY]
    assert isinstance(identity, Identity)
    return identity
