"""The values of declared variables, from four places in order, read anew each time: what is set now applies.

The process's own environment, the workspace's `.env`, stored secrets, `PML_HOME/.env`. Each is looked at only
for what is still missing. Whether a workspace is trusted is not known here: the caller says so.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pml.core.errors import Invalid, Unavailable
from pml.host.private import too_open
from pml.settings.dotenv import MAX_DOTENV_BYTES, DotEnv, name_problem, parse_dotenv
from pml.settings.keyrings import SystemKeyring
from pml.settings.secrets import Keyring, Secrets, Where

DOTENV_FILE: Final = ".env"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    value: str = field(repr=False)
    where: str


class DiskVariables:
    """The variables of one `PML_HOME` and environment."""

    def __init__(self, home: Path, environ: Mapping[str, str], *, keyring: Keyring | None = None) -> None:
        self._home = home
        self._environ = environ
        self.secrets: Final = Secrets(home, keyring or SystemKeyring(home, environ))

    def values(self, names: Sequence[str], *, workspace: str | None) -> Mapping[str, str]:
        """Return those of `names` that are set; with `workspace`, its `.env` applies: it must be trusted.

        An empty value is none. May wait for the keyring, if a name is stored there: not for an event loop.
        """
        return {name: found.value for name, found in self._find(names, workspace=workspace).items()}

    def where(self, name: str, *, workspace: str | None) -> str | None:
        """Return the place that the value of `name` would come from, for people."""
        found = self._find([name], workspace=workspace).get(name)
        return None if found is None else found.where

    def problems(self, *, workspace: str | None) -> list[str]:
        """Return what in the files is ignored, and why; never a value."""
        files = [self._home / DOTENV_FILE]
        if workspace is not None:
            files.insert(0, Path(workspace) / DOTENV_FILE)
        problems = [
            f"{file}: {problem}"
            for file in files
            for problem in _read(file, beneath=None if file is files[-1] else workspace).problems
        ]
        with suppress(OSError):
            if too_open(files[-1]):
                problems.append(f"{files[-1]} can be read by others: chmod 600 it")
        stored = self.secrets.problem()
        return [*problems, *([] if stored is None else [stored])]

    def _find(self, names: Sequence[str], *, workspace: str | None) -> dict[str, _Found]:
        found: dict[str, _Found] = {}
        missing = [name for name in names if name_problem(name) is None]
        for look in self._places(workspace):
            if not missing:
                break
            found |= {name: each for name, each in look(missing).items() if _counts(each.value)}
            missing = [name for name in missing if name not in found]
        return found

    def _places(self, workspace: str | None) -> list[Callable[[list[str]], dict[str, _Found]]]:
        places = [self._in_environment, self._in_secrets, self._in_file(self._home, beneath=None)]
        if workspace is not None:
            places.insert(1, self._in_file(Path(workspace), beneath=workspace))
        return places

    def _in_environment(self, names: list[str]) -> dict[str, _Found]:
        return _chosen(names, self._environ, lambda _: "the environment")

    def _in_file(self, folder: Path, *, beneath: str | None) -> Callable[[list[str]], dict[str, _Found]]:
        path = folder / DOTENV_FILE
        return lambda names: _chosen(names, _read(path, beneath=beneath).values, lambda _: str(path))

    def _in_secrets(self, names: list[str]) -> dict[str, _Found]:
        """Return what is stored; a broken file or keyring has nothing, as `problems` tells."""
        stored: dict[str, Where] = {}
        values: dict[str, str] = {}
        with suppress(Invalid):
            stored = self.secrets.names()
        for kept in Where:  # each for itself: a keyring that fails hides nothing of the file
            with suppress(Invalid, Unavailable):
                values |= self.secrets.values([name for name in names if stored.get(name) is kept])
        places = {Where.KEYRING: "the keyring", Where.FILE: str(self.secrets.path)}
        return _chosen(names, values, lambda name: places[stored[name]])


def _chosen(names: list[str], values: Mapping[str, str], where: Callable[[str], str]) -> dict[str, _Found]:
    return {name: _Found(value=values[name], where=where(name)) for name in names if name in values}


def _counts(value: str) -> bool:
    return value != "" and "\0" not in value


def _read(path: Path, *, beneath: str | None) -> DotEnv:
    """Return what the file sets. One that leads out of `beneath`, or cannot be read, sets nothing."""
    try:
        real = os.path.realpath(path)
        if beneath is not None and not Path(real).is_relative_to(os.path.realpath(beneath)):
            return DotEnv(problems=("ignored: it is a link that leads out of the workspace",))
        with open(real, "rb", opener=_open_itself) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return DotEnv(problems=("ignored: it is not a regular file",))
            return parse_dotenv(file.read(MAX_DOTENV_BYTES + 1))
    except FileNotFoundError:
        return DotEnv()
    except IsADirectoryError:
        return DotEnv(problems=("ignored: it is not a regular file",))
    except OSError as exc:
        return DotEnv(problems=(f"ignored: it cannot be read: {exc.strerror}",))


def _open_itself(path: str, flags: int) -> int:
    """Open neither a link that was put there meanwhile, nor a FIFO that would let us wait."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
