"""The keyring of the system, asked in a process of its own: a keyring that hangs is ended with it.

Values pass through pipes, never through arguments, the environment or a message; of an error only its kind is
told, since its text is the keyring's. Which names are stored is not known here.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec

from pml.core.errors import Unavailable
from pml.host.folders import absolute_only
from pml.host.processes import SystemProcesses
from pml.host.watched import watched

KEYRING_WAIT_S: Final = 20.0  # a locked keyring asks a person for its password: longer: no one is there

# What keyrings are found by, and what this very process was found by. Nothing else of the user's gets there.
_PASSED: Final = re.compile(
    r"HOME|PATH|USER|LOGNAME|LANG|LC_.*|TMPDIR|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_.*|DBUS_.*"
    r"|GNOME_KEYRING_.*|KDE_.*|KEYRING_PROPERTY_.*|PYTHON.*|VIRTUAL_ENV"
    r"|APPDATA|LOCALAPPDATA|PROGRAMDATA|SYSTEMDRIVE|SYSTEMROOT|TEMP|TMP|USERPROFILE|WINDIR"
)
_SEARCHED: Final = frozenset({"PATH", "PYTHONPATH"})
_MODULE: Final = "pml.settings.keyrings"


class _Verb(StrEnum):
    GET = "get"
    SET = "set"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    verb: _Verb
    service: str
    names: tuple[str, ...]
    value: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reply:
    values: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    problem: str | None = None


class _Backend(Protocol):
    """What is used of a `keyring.backend.KeyringBackend`, which has no types for all of it."""

    @property
    def priority(self) -> float: ...

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


class SystemKeyring:
    """The entries of one `PML_HOME`. Raises everywhere: Unavailable if no keyring can serve now."""

    def __init__(self, home: Path, environ: Mapping[str, str], *, wait_s: float = KEYRING_WAIT_S) -> None:
        self._service = f"pml {os.path.realpath(home)}"
        self._environ = {
            name: absolute_only(value) if name in _SEARCHED else value
            for name, value in environ.items()
            if _PASSED.fullmatch(name)
        }
        self._wait_s = wait_s

    def get(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of `names` that the keyring has."""
        return self._ask(_Request(verb=_Verb.GET, service=self._service, names=tuple(names)))

    def set(self, name: str, value: str) -> None:
        """Store the value, read back before this returns."""
        self._ask(_Request(verb=_Verb.SET, service=self._service, names=(name,), value=value))

    def delete(self, name: str) -> None:
        """Remove the value, if there is one."""
        self._ask(_Request(verb=_Verb.DELETE, service=self._service, names=(name,)))

    def _ask(self, request: _Request) -> dict[str, str]:
        reply = _understood(self._run(msgspec.json.encode(request)))
        if reply.problem is not None:
            raise Unavailable(reply.problem)
        return reply.values

    def _run(self, request: bytes) -> bytes:
        answer: bytes | None = None
        try:
            with (
                subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE],  # -P: nothing is imported from the workspace
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=self._environ,
                    start_new_session=True,
                ) as process,
                watched(SystemProcesses().find(process.pid)),
            ):
                try:
                    answer, _ = process.communicate(request, timeout=self._wait_s)
                except BaseException:
                    _kill(process)
                    raise
        except subprocess.TimeoutExpired:
            pass  # it holds what was read so far: left behind here, and not part of the error below
        except OSError as exc:
            raise Unavailable(f"the keyring cannot be asked: {exc.strerror}") from exc
        if answer is None:
            raise Unavailable(f"the keyring did not answer within {self._wait_s:g} s")
        return answer


def _understood(answer: bytes) -> _Reply:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(answer, type=_Reply)
    return _Reply(problem="the keyring broke off before it answered")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End the process and all that it started: a helper that lives on would hold the pipes open."""
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _serve(request: _Request) -> _Reply:
    backend = _usable()
    if backend is None:
        return _Reply(problem="no usable keyring is on this system")
    match request.verb:
        case _Verb.GET:
            found = {name: backend.get_password(request.service, name) for name in request.names}
            return _Reply(values={name: value for name, value in found.items() if value is not None})
        case _Verb.SET:
            for name in request.names:
                backend.set_password(request.service, name, request.value)
                if backend.get_password(request.service, name) != request.value:
                    return _Reply(problem="the keyring did not keep the value")
        case _Verb.DELETE:
            for name in request.names:
                if backend.get_password(request.service, name) is not None:
                    backend.delete_password(request.service, name)
    return _Reply()


def _usable() -> _Backend | None:
    """Return the keyring, or None for what only stands in for one: it fails, forgets, or hides nothing."""
    import keyring
    from keyring.backends.chainer import ChainerBackend

    backend = keyring.get_keyring()
    asked: list[Any] = [*backend.backends] if isinstance(backend, ChainerBackend) else [backend]
    return cast("_Backend", backend) if asked and asked[0].priority >= 1 else None


def _main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what a backend prints is not an answer
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_Request)
    try:
        reply = _serve(request)
    except Exception as exc:
        kind = type(exc).__name__
        is_locked = kind == "KeyringLocked"
        reply = _Reply(problem="the keyring is locked" if is_locked else f"the keyring failed: {kind}")
    with os.fdopen(answers, "wb") as file:
        file.write(msgspec.json.encode(reply))


if __name__ == "__main__":
    _main()
