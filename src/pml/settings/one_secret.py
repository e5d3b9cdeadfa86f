"""One secret, for whoever needs it all the time: asked for again only when the file of secrets has changed.

A keyring may ask a person for its password, and takes a process of its own to be asked.
"""

import os
import time
from typing import Final

from pml.core.errors import PmlError
from pml.settings.reading import Signature, signature_of
from pml.settings.secrets import Secrets

_AGAIN_S: Final = 60.0  # a keyring that was locked may have been opened meanwhile


class OneSecret:
    """The secret `name`; call it for the value, None while it is not stored."""

    def __init__(self, secrets: Secrets, name: str) -> None:
        self._secrets = secrets
        self._name = name
        self._seen: Signature | None = None
        self._value: str | None = None
        self._problem: PmlError | None = None
        self._again_at = 0.0

    def __call__(self) -> str | None:
        """May wait for the keyring: not for an event loop. Raises: Invalid, Unavailable."""
        now = self._signature()
        is_again = self._problem is not None and time.monotonic() >= self._again_at
        if now != self._seen or is_again:
            self._look()
            self._seen = now
        if self._problem is not None:
            raise self._problem
        return self._value

    def _look(self) -> None:
        self._value = self._problem = None
        try:
            self._value = self._secrets.values([self._name]).get(self._name)
        except PmlError as exc:
            self._problem, self._again_at = exc, time.monotonic() + _AGAIN_S

    def _signature(self) -> Signature | None:
        try:
            return signature_of(os.stat(self._secrets.path))
        except OSError:
            return None
