"""Servers that the agent clients of this machine have: their files looked for, read and taken apart.

A file that cannot be read is told of with the place, and left as it is. What becomes of the servers is not
known here.
"""

import os
import re
import stat
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pml.core.config.jsonedit import without_members
from pml.core.config.jsontext import BOM
from pml.core.errors import ConfigInvalid, Unavailable
from pml.core.imports.client_files import ClientFile, ClientServer, servers_in
from pml.core.text import quote
from pml.core.values import JsonObject, check
from pml.host.disk import unavailable
from pml.host.replace import create_file, replace_file

MAX_BYTES: Final = 32 * 1024**2  # Claude Code keeps its history in the same file
_MAX_COPIES: Final = 100
_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Where the files of clients lie: by system, environment and folders."""

    environ: Mapping[str, str]
    home: Path
    workspace: Path
    system: str = sys.platform


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerLists:
    """All servers that were found, the files they are in, and what is wrong with others."""

    servers: Sequence[ClientServer]
    files: Sequence[Path]
    broken: Sequence[ConfigInvalid]


def path_of(file: ClientFile, machine: Machine) -> Path | None:
    """Return where the file would be; None on a system that is not known."""
    if file.moved_by is not None and (moved := machine.environ.get(file.moved_by[0])):
        return Path(moved) / file.moved_by[1]
    place = file.places.get(machine.system)
    if place is None:
        return None
    home = machine.home
    roots = {
        "home": str(home),
        "config": machine.environ.get("XDG_CONFIG_HOME") or str(home / ".config"),
        "appdata": machine.environ.get("APPDATA") or str(home / "AppData" / "Roaming"),
        "workspace": str(machine.workspace),
    }
    return Path(place.format_map(roots))


def read_lists(files: Sequence[ClientFile], machine: Machine) -> ServerLists:
    """Return the servers in those of `files` that exist."""
    servers: list[ClientServer] = []
    found: dict[Path, None] = {}
    broken: dict[str, ConfigInvalid] = {}
    for file in files:
        path = path_of(file, machine)
        if path is None or str(path) in broken:
            continue
        try:
            text = read_text(path)
            if text is None:
                continue
            found[path] = None
            if text.removeprefix(BOM).strip():  # some clients make an empty file
                servers += _servers(file, text, path, machine)
        except ConfigInvalid as exc:
            broken[str(path)] = exc
    return ServerLists(servers=servers, files=tuple(found), broken=tuple(broken.values()))


def _servers(file: ClientFile, text: str, path: Path, machine: Machine) -> list[ClientServer]:
    def toml(given: str) -> JsonObject:
        return _read_toml(given, path)

    return servers_in(file, text, path=str(path), workspace=str(machine.workspace), toml=toml)


def read_text(path: Path) -> str | None:
    """Return the text of a client's file, None if there is none. Raises: ConfigInvalid."""
    try:
        with open(path, "rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigInvalid(str(path), 1, 1, f"larger than {MAX_BYTES // 1024**2} MiB")
        return content.decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as exc:
        raise ConfigInvalid(str(path), 1, 1, "not UTF-8") from exc
    except OSError as exc:
        raise ConfigInvalid(str(path), 1, 1, f"cannot be read: {exc.strerror}") from exc


def without_servers(file_text: str, servers: Sequence[ClientServer], path: Path) -> str:
    """Return the text of a client's file without those servers. Raises: ConfigInvalid, Unavailable."""
    if path.suffix == ".toml":
        raise Unavailable(
            f"{quote(str(path))} is TOML, which PML does not write", hint="remove the entries there yourself"
        )
    return without_members(file_text, [server.pointer for server in servers], path=str(path))


def keep_copy(path: Path, text: str) -> Path:
    """Keep the text beside a client's file, for its user only, and return where. Raises: Unavailable."""
    for number in range(1, _MAX_COPIES):
        copy = path.with_name(f"{path.name}.before-pml{'' if number == 1 else f'-{number}'}")
        try:
            create_file(copy, text.encode(), mode=0o600)
        except FileExistsError:
            continue
        except OSError as exc:
            raise unavailable(f"cannot keep a copy of {quote(str(path))}", exc) from exc
        return copy
    raise Unavailable(f"there are too many copies beside {quote(str(path))}", hint="remove old ones")


def remove_copy(copy: Path) -> None:
    """Remove what `keep_copy` made. Raises: Unavailable."""
    try:
        copy.unlink(missing_ok=True)
    except OSError as exc:
        raise unavailable(f"cannot remove {quote(str(copy))}", exc) from exc


def replace_text(path: Path, text: str, *, was: str) -> None:
    """Give a client's file the text, if it still has the one that was read. Raises: Unavailable."""

    def check_unchanged() -> None:
        if read_text(path) != was:
            raise Unavailable(f"another program changed {quote(str(path))} meanwhile", hint="try again")

    try:
        target = path.resolve()  # a link stays one
        mode = stat.S_IMODE(os.stat(target).st_mode)
        replace_file(target, text.encode(), mode=mode, last_check=check_unchanged)
    except OSError as exc:
        raise unavailable(f"cannot write {quote(str(path))}", exc) from exc


def _read_toml(text: str, path: Path) -> JsonObject:
    try:
        found = tomllib.loads(text.removeprefix(BOM))
    except tomllib.TOMLDecodeError as exc:
        place = _PLACE.search(str(exc))
        line, column = (int(place[1]), int(place[2])) if place else (1, 1)
        raise ConfigInvalid(str(path), line, column, _PLACE.sub("", str(exc)).strip()) from exc
    plain = _plain(found)
    check(plain, what=str(path))
    return cast("JsonObject", plain)


def _plain(value: Any) -> Any:
    """Return TOML's values as JSON's: dates, which no server needs, as text."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[Any]", value)]
    return value if isinstance(value, str | int | float | bool) else str(value)
