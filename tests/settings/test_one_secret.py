"""One secret that is needed all the time: the keyring is not asked all the time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pml.core.errors import Unavailable
from pml.settings import secrets as one_secret
from pml.settings.secrets import OneSecret, Secrets

NAME = "PML_WEBHOOK_SECRET"


class CountingKeyring:
    """Keeps values, and counts how often it was asked; locked, it has none."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_locked = False
        self._kept: dict[str, str] = {}

    def get(self, names: Sequence[str]) -> Mapping[str, str]:
        self.asked += 1
        if self.is_locked:
            raise Unavailable("the keyring is locked")
        return {name: self._kept[name] for name in names if name in self._kept}

    def set(self, name: str, value: str) -> None:
        self._kept[name] = value

    def delete(self, name: str) -> None:
        del self._kept[name]


def test_a_secret_is_read_once_until_it_is_stored_anew_or_removed(tmp_path: Path) -> None:
    keyring = CountingKeyring()
    secrets = Secrets(tmp_path, keyring)
    secret = OneSecret(secrets, NAME)
    assert secret() is None
    secrets.store("ANOTHER", "x")
    assert (secret(), keyring.asked) == (None, 0)

    secrets.store(NAME, "first")
    assert (secret(), secret(), secret(), keyring.asked) == ("first", "first", "first", 1)
    secrets.store(NAME, "second")
    assert (secret(), secret(), keyring.asked) == ("second", "second", 2)
    secrets.remove(NAME)
    assert secret() is None


def test_a_keyring_that_fails_is_asked_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = CountingKeyring()
    secrets = Secrets(tmp_path, keyring)
    secrets.store(NAME, "value")
    secret = OneSecret(secrets, NAME)
    keyring.is_locked = True
    for _ in range(3):
        with pytest.raises(Unavailable, match="the keyring is locked"):
            secret()
    assert keyring.asked == 1

    keyring.is_locked = False
    monkeypatch.setattr(one_secret.time, "monotonic", lambda: float("inf"))
    assert (secret(), keyring.asked) == ("value", 2)
