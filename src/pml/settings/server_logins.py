"""Logins to remote servers on disk: facts in `PML_HOME/logins.json` (0600), tokens in the system's keyring.

Where no keyring serves, the tokens are in that file too. The file is replaced whole under a lock, and never
written when it cannot be understood. No token is ever in a message.
"""

import os
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from pml.core.errors import ConfigInvalid, Invalid, Unavailable
from pml.core.ports.server_logins import HeldLogin, LoginTokens, ServerLogin, place_of
from pml.host.disk import unavailable
from pml.host.locks import LOCK_TIMEOUT_S, locked
from pml.host.private import private_directory
from pml.host.replace import replace_file
from pml.settings.keyrings import KEYRING_WAIT_S
from pml.settings.secrets import Keyring
from pml.settings.watched_file import MAX_BYTES, Signature, read_bytes, signature_of

LOGINS_FILE: Final = "logins.json"
_LOCK_WAIT_S: Final = LOCK_TIMEOUT_S + KEYRING_WAIT_S  # its holder may be waiting for the keyring


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    login: ServerLogin
    tokens: LoginTokens | None  # None: they are in the keyring


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    logins: list[_Row]


class DiskServerLogins:
    """The logins of one `PML_HOME`. Implements `ServerLogins`."""

    def __init__(self, home: Path, keyring: Keyring) -> None:
        self._home = home
        self._keyring = keyring
        self._seen: Signature | None = None
        self._rows: list[_Row] = []
        self._tokens: dict[str, LoginTokens] = {}

    @property
    def path(self) -> Path:
        return self._home / LOGINS_FILE

    def all(self) -> list[ServerLogin]:
        return [row.login for row in self._known()]

    def facts(self, server: str, url: str) -> ServerLogin | None:
        row = self._newest(server, url)
        return None if row is None else row.login

    def find(self, server: str, url: str) -> HeldLogin | None:
        row = self._newest(server, url)
        return None if row is None else HeldLogin(login=row.login, tokens=self._tokens_of(row))

    def _newest(self, server: str, url: str) -> _Row | None:
        """Return the login in use; without one, the registration that was kept last."""
        place = place_of(url)
        rows = [row for row in self._known() if (row.login.server, row.login.place) == (server, place)]
        logged_in = [row for row in rows if row.login.logged_in_at is not None]
        return (logged_in or rows or [None])[-1]

    def read(self, key: str) -> HeldLogin | None:
        row = next((row for row in self._known() if row.login.key == key), None)
        return None if row is None else HeldLogin(login=row.login, tokens=self._tokens_of(row))

    def keep(self, held: HeldLogin) -> str | None:
        key, problem = held.login.key, None
        login = replace(held.login, revision=str(uuid.uuid4()))
        with self._writing():
            old, rows = self._read()
            kept = [row for row in rows if row.login.key != key]
            try:
                self._keyring.set(f"login {key}", msgspec.json.encode(held.tokens).decode())
                row = _Row(login=login, tokens=None)
            except Unavailable as exc:
                problem, row = exc.message, _Row(login=login, tokens=held.tokens)
            self._write(old, [*kept, row])
        return problem

    def forget(self, server: str) -> str | None:
        problem = None
        with self._writing():
            old, rows = self._read()
            gone = [row for row in rows if row.login.server == server]
            for row in gone:
                if row.tokens is None:
                    try:
                        self._keyring.delete(f"login {row.login.key}")
                    except Unavailable as exc:
                        problem = exc.message
            if gone:
                self._write(old, [row for row in rows if row not in gone])
        return problem

    def _known(self) -> list[_Row]:
        """Return what is kept, read again only once the file has changed."""
        try:
            now = signature_of(os.stat(self.path))
        except FileNotFoundError:
            now = None
        except OSError as exc:
            raise unavailable(f"cannot read {self.path}", exc) from exc
        if now != self._seen or now is None:
            self._rows, self._tokens = self._read()[1], {}
            self._seen = now
        return self._rows

    def _tokens_of(self, row: _Row) -> LoginTokens:
        if row.tokens is not None:
            return row.tokens
        key = row.login.revision
        if key not in self._tokens:
            name = f"login {row.login.key}"
            self._tokens[key] = _understood(self._keyring.get([name]), name)
        return self._tokens[key]

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            lock = private_directory(self._home) / "locks" / "logins.lock"
        except OSError as exc:
            raise unavailable(f"cannot create `{self._home}`", exc) from exc
        with locked(lock, timeout_s=_LOCK_WAIT_S):
            yield

    def _read(self) -> tuple[bytes | None, list[_Row]]:
        try:
            found = read_bytes(self.path)
        except ConfigInvalid as exc:
            raise Unavailable(exc.message) from exc
        if found is None:
            return None, []
        file = _parse(found[0])
        if file is None:
            raise Invalid(
                f"{self.path} is not as PML writes it, and is left alone",
                hint="fix it, or move it away and log in again with `pml login NAME`",
            )
        return found[0], file.logins

    def _write(self, old: bytes | None, rows: list[_Row]) -> None:
        path = Path(os.path.realpath(self.path))
        content = msgspec.json.format(msgspec.json.encode(_File(1, rows)), indent=2) + b"\n"
        if len(content) > MAX_BYTES:
            raise Invalid(f"{path} would be larger than PML reads; nothing was written")
        found = read_bytes(path)
        if (found[0] if found else None) != old:
            raise Unavailable(f"another program changed {path} meanwhile; nothing was written")
        try:
            replace_file(path, content, mode=0o600)
        except OSError as exc:
            raise unavailable(f"cannot write {path}", exc) from exc
        self._seen = None


def _parse(content: bytes) -> _File | None:
    try:
        return msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # the error may carry what was in the file


def _understood(values: Mapping[str, str], name: str) -> LoginTokens:
    """Return the tokens; none where the keyring has lost them: then a login is needed."""
    try:
        return msgspec.json.decode(values.get(name, "{}"), type=LoginTokens)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LoginTokens()
