"""Secrets of the user: in the keyring of the system where it serves, else in `PML_HOME/secrets.json` (0600).

The file is also the index: a name that is not in it was never stored, and no keyring is asked for it. It is
replaced whole under a lock, and never written when it cannot be understood. No value is ever in a message.
"""

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from pml.core.errors import Changed, Invalid, NotFound, PmlError, Unavailable
from pml.core.text import quote
from pml.host.disk import unavailable
from pml.host.locks import LOCK_TIMEOUT_S, locked
from pml.host.private import private_directory, too_open
from pml.host.replace import replace_file
from pml.settings.dotenv import name_problem
from pml.settings.keyrings import KEYRING_WAIT_S
from pml.settings.watched_file import MAX_BYTES, Signature, read_bytes, signature_of

SECRETS_FILE: Final = "secrets.json"
MAX_VALUE_BYTES: Final = 32 * 1024  # the systems bound one variable: Windows at 32 K characters

_LOCK_WAIT_S: Final = LOCK_TIMEOUT_S + KEYRING_WAIT_S  # its holder may be waiting for the keyring


class Where(StrEnum):
    KEYRING = "keyring"
    FILE = "file"


class Keyring(Protocol):
    """A keyring, or what stands for one in tests. Raises everywhere: Unavailable."""

    def get(self, names: Sequence[str]) -> Mapping[str, str]: ...

    def set(self, name: str, value: str) -> None: ...

    def delete(self, name: str) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """Where a value went; `problem` says why it is not the keyring."""

    where: Where
    problem: str | None = None


class _InKeyring(msgspec.Struct, frozen=True, tag_field="in", tag="keyring", forbid_unknown_fields=True):
    pass


class _InFile(msgspec.Struct, frozen=True, tag_field="in", tag="file", forbid_unknown_fields=True):
    value: str

    def __repr__(self) -> str:
        return "_InFile()"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


_Secrets: TypeAlias = dict[str, _InKeyring | _InFile]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    secrets: _Secrets


class SecretNames:
    """The names of the secrets of one `PML_HOME`; no keyring is asked, and no value is read out."""

    def __init__(self, home: Path) -> None:
        self.path: Final = home / SECRETS_FILE

    def names(self) -> dict[str, Where]:
        """Return what is stored, and where, by name. Raises: Invalid."""
        found = read_bytes(self.path)
        file = None if found is None else _parse(found[0])
        if found is not None and file is None:
            raise Invalid(f"{self.path} is not as PML writes it")
        secrets = {} if file is None else file.secrets
        return {
            name: Where.FILE if isinstance(secret, _InFile) else Where.KEYRING
            for name, secret in sorted(secrets.items())
        }


class Secrets:
    """The secrets of one `PML_HOME`. Raises everywhere: Invalid if the file cannot be understood."""

    def __init__(self, home: Path, keyring: Keyring) -> None:
        self._home = home
        self._keyring = keyring

    @property
    def path(self) -> Path:
        return self._home / SECRETS_FILE

    def names(self) -> dict[str, Where]:
        """Return what is stored, and where, by name."""
        return {
            name: Where.FILE if isinstance(secret, _InFile) else Where.KEYRING
            for name, secret in sorted(self._read()[1].items())
        }

    def values(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of `names` that are stored. Raises: Unavailable if one is in a keyring that fails."""
        secrets = self._read()[1]
        wanted = {name: secrets[name] for name in names if name in secrets}
        found = {name: secret.value for name, secret in wanted.items() if isinstance(secret, _InFile)}
        in_keyring = [name for name in wanted if name not in found]
        return {**found, **(self._keyring.get(in_keyring) if in_keyring else {})}

    def store(self, name: str, value: str) -> Stored:
        """Store the value, durably. Raises: Invalid for what cannot be a variable, Changed, Unavailable."""
        check_name(name)
        _check_value(value)
        with self._writing():
            old, secrets = self._read()
            try:
                self._keyring.set(name, value)
                stored, secret = Stored(where=Where.KEYRING), _InKeyring()
            except Unavailable as exc:
                stored, secret = Stored(where=Where.FILE, problem=exc.message), _InFile(value)
            self._write(old, {**secrets, name: secret})
        return stored

    def remove(self, name: str) -> str | None:
        """Forget the value; return why it may still be in the keyring, if it may.

        Raises: NotFound, Changed, Unavailable.
        """
        check_name(name)
        problem = None
        with self._writing():
            old, secrets = self._read()
            if name not in secrets:
                raise NotFound(f"no secret {quote(name)} is stored", hint="`pml secrets list` shows all")
            if isinstance(secrets.pop(name), _InKeyring):
                try:
                    self._keyring.delete(name)
                except Unavailable as exc:
                    problem = exc.message
            self._write(old, secrets)
        return problem

    def problem(self) -> str | None:
        """Return what is wrong with the file, if anything is."""
        try:
            self._read()
            is_open = self.path.exists() and too_open(self.path)
        except Invalid as exc:
            return exc.message
        except OSError as exc:
            return f"{self.path}: {exc.strerror}"
        return f"{self.path} can be read by others: chmod 600 it" if is_open else None

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            lock = private_directory(self._home) / "locks" / "secrets.lock"
        except OSError as exc:
            raise unavailable(f"cannot create `{self._home}`", exc) from exc
        with locked(lock, timeout_s=_LOCK_WAIT_S):
            yield

    def _read(self) -> tuple[bytes | None, _Secrets]:
        found = read_bytes(self.path)
        if found is None:
            return None, {}
        file = _parse(found[0])
        if file is None:
            raise Invalid(
                f"{self.path} is not as PML writes it, and is left alone",
                hint="fix it, or move it away and set its secrets again",
            )
        return found[0], file.secrets

    def _write(self, old: bytes | None, secrets: _Secrets) -> None:
        path = Path(os.path.realpath(self.path))  # the user's own link is followed, as for config.json
        content = msgspec.json.format(msgspec.json.encode(_File(1, secrets)), indent=2) + b"\n"
        if len(content) > MAX_BYTES:
            raise Invalid(f"{path} would be larger than PML reads; nothing was written")

        def check_unchanged() -> None:
            found = read_bytes(path)
            if (found[0] if found else None) != old:
                raise Changed(f"another program changed {path} meanwhile; nothing was written")

        try:
            replace_file(path, content, mode=0o600, last_check=check_unchanged)
        except OSError as exc:
            raise unavailable(f"cannot write {path}", exc) from exc


def check_name(name: str) -> None:
    """Raise Invalid for what no secret may be called. What was typed is not repeated: it may be the value."""
    problem = name_problem(name)
    if problem is not None:
        raise Invalid(f"the given name {problem}", hint="the name of a variable, such as `GITHUB_TOKEN`")


def _check_value(value: str) -> None:
    """Raises: Invalid."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        size = -1
    if size == 0:
        raise Invalid("the value is empty; nothing was stored")
    if size < 0 or any(char in value for char in "\0\r\n"):
        raise Invalid("the value must be one line of text; nothing was stored")
    if size > MAX_VALUE_BYTES:
        raise Invalid(f"the value is larger than {MAX_VALUE_BYTES // 1024} KiB; nothing was stored")


def _parse(content: bytes) -> _File | None:
    try:
        file = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if any(map(name_problem, file.secrets)) else file


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
