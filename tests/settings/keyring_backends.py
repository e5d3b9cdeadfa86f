"""Keyrings for tests, found by `PYTHON_KEYRING_BACKEND` as any other: one that keeps, and all that fail."""

# pyright: reportAssignmentType=false, reportIncompatibleVariableOverride=false, reportUnknownMemberType=false
# The priority of a backend is a property of its class, for which there is no type.

import json
import subprocess
import sys
import threading
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.backends.chainer import ChainerBackend
from keyring.errors import KeyringLocked


class Keeping(KeyringBackend):
    """Keeps everything in the file at `KEYRING_PROPERTY_PATH`."""

    priority = 5
    path = ""

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service}|{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        Path(self.path).write_text(json.dumps({**self._entries(), f"{service}|{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        left = self._entries()
        del left[f"{service}|{username}"]
        Path(self.path).write_text(json.dumps(left))

    def _entries(self) -> dict[str, str]:
        return json.loads(Path(self.path).read_text()) if Path(self.path).exists() else {}


class Printing(Keeping):
    def get_password(self, service: str, username: str) -> str | None:
        print("unlocking…", flush=True)
        return super().get_password(service, username)


class Weak(Keeping):
    priority = 0.5


class Forgetful(Keeping):
    def set_password(self, service: str, username: str, password: str) -> None:
        pass


class Locked(Keeping):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("locked")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(f"cannot store {password}")


class Telling(Keeping):
    """Fails with the value in its error, and prints it."""

    def set_password(self, service: str, username: str, password: str) -> None:
        print(password, file=sys.stderr)
        raise ValueError(f"cannot store {password}")


class Ending(Keeping):
    def get_password(self, service: str, username: str) -> str | None:
        sys.stdout.flush()
        raise SystemExit(3)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise SystemExit(3)


class Hanging(Keeping):
    """Never answers, and has started a process that does not end either; both hold the FIFO `path` open."""

    def get_password(self, service: str, username: str) -> str | None:
        with open(self.path, "wb") as fifo:
            subprocess.Popen(
                [sys.executable, "-c", "import threading; threading.Event().wait()"], stderr=fifo
            )
            threading.Event().wait()

    def set_password(self, service: str, username: str, password: str) -> None:
        self.get_password(service, username)


class EmptyChain(ChainerBackend):
    priority = 10
    backends: list[KeyringBackend] = []  # noqa: RUF012
