"""Files in which agent clients keep their MCP servers: where they lie on each system, and how to read them.

Each client's rows are supplied by `agents/<client>`. Nothing here opens a file.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pml.core.config.jsontext import parse_relaxed
from pml.core.errors import ConfigInvalid
from pml.core.imports.client_entries import Reading, Words, common_words
from pml.core.values import Json, JsonObject

ANY: Final = "*"  # in `keys`: the folder of a project


class Syntax(StrEnum):
    """How a file is written."""

    JSON = "json"  # with comments and commas at the end, as editors take it
    TOML = "toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientFile:
    """One file of a client, or several of one kind.

    `places` are templates by the name of the system (`linux`, `darwin`, `win32`), with `{home}`, `{config}`,
    `{appdata}` and `{workspace}`; `moved_by` is the variable that names another folder for a file of that
    name. `keys` lead to the servers. `is_project`: it is about one workspace.
    """

    client: str
    places: Mapping[str, str]
    keys: tuple[str, ...] = ("mcpServers",)
    moved_by: tuple[str, str] | None = None
    is_project: bool = False
    syntax: Syntax = Syntax.JSON
    words: Words = common_words


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientServer:
    """One server of a client: where it stands, and what it says in the words of `mcpServers`.

    `pointer` leads to its entry in the file. `is_project`: the client starts it in one workspace only.
    """

    client: str
    name: str
    path: str
    line: int
    pointer: tuple[str, ...]
    is_project: bool
    reading: Reading = field(repr=False)


def everywhere(place: str) -> dict[str, str]:
    """Return the same place for every system."""
    return dict.fromkeys(("linux", "darwin", "win32"), place)


def per_system(*, linux: str, darwin: str, win32: str) -> dict[str, str]:
    return {"linux": linux, "darwin": darwin, "win32": win32}


def editor_place(below: str) -> dict[str, str]:
    """Return where an editor that is made as VS Code is keeps a user's file."""
    return per_system(
        linux=f"{{config}}/{below}",
        darwin=f"{{home}}/Library/Application Support/{below}",
        win32=f"{{appdata}}/{below}",
    )


def servers_in(
    file: ClientFile, text: str, *, path: str, workspace: str, toml: Callable[[str], JsonObject]
) -> list[ClientServer]:
    """Return the servers that `text`, read from `path`, has; of projects only the one of `workspace`.

    `toml` reads that syntax. Raises: ConfigInvalid, with the place.
    """
    if file.syntax is Syntax.TOML:
        found = _in_toml(file, toml(text), text)
    else:
        found = _in_json(file, text, path=path, workspace=workspace)
    return [
        ClientServer(
            client=file.client,
            name=name,
            path=path,
            line=line,
            pointer=pointer,
            is_project=file.is_project,
            reading=file.words(value) if isinstance(value, Mapping) else _not_an_object(),
        )
        for pointer, name, value, line in found
    ]


def value_at(text: str, pointer: tuple[str, ...], *, path: str) -> Json:
    """Return what stands there in a client's JSON. Raises: ConfigInvalid, KeyError."""
    node = parse_relaxed(text, path=path)
    for key in pointer:
        node = node.members[key]
    return node.value


def _not_an_object() -> Reading:
    return Reading(entry={}, refused="is not an object")


_Found = Iterator[tuple[tuple[str, ...], str, Json, int]]


def _in_json(file: ClientFile, text: str, *, path: str, workspace: str) -> _Found:
    node = parse_relaxed(text, path=path)
    if not isinstance(node.value, dict):
        raise ConfigInvalid(path, node.line, node.column, "the file must be an object")
    pointer: tuple[str, ...] = ()
    for key in file.keys:
        name = workspace if key == ANY else key
        if name not in node.members:
            return
        pointer, node = (*pointer, name), node.members[name]
    if not isinstance(node.value, dict):
        raise ConfigInvalid(path, node.line, node.column, f"`{'.'.join(file.keys)}` must be an object")
    for name, entry in node.members.items():
        yield (*pointer, name), name, entry.value, node.keys[name].line


def _in_toml(file: ClientFile, root: JsonObject, text: str) -> _Found:
    inner: Json = root
    for key in file.keys:
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping):
        return
    for name, entry in inner.items():
        yield (*file.keys, name), name, entry, _toml_line(text, (*file.keys, name))


def _toml_line(text: str, keys: tuple[str, ...]) -> int:
    """Return the line of a table's head; 1 where it is spelled so that this does not find it."""
    spellings = {f"[{'.'.join(keys)}]", f'[{".".join(keys[:-1])}."{keys[-1]}"]'}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.partition("#")[0].strip() in spellings:
            return number
    return 1
