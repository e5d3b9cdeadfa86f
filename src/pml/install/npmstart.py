"""How an installed npm server is started: by Deno, held to its permissions, or by node where it must be.

Deno's permissions follow links out of a folder, so they are the second wall and never the only one.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Final, cast

import msgspec

from pml.core.capability import McpDependency
from pml.core.errors import Invalid, Unavailable
from pml.core.permissions import Access, Permissions
from pml.core.text import quote
from pml.core.values import Json, JsonObject, loads_object
from pml.install.ecosystems import Command, Room
from pml.install.tools import find_deno

NOTE: Final = "package.json"  # of the tree; says which runtime the packages need
_NATIVE: Final = ".node"
# No code cache: it would be bytecode that nobody proved, in a folder that the server may write.
_DENO: Final = (
    *("run", "--quiet", "--no-prompt", "--no-remote", "--cached-only", "--no-config", "--no-lock"),
    *("--no-code-cache", "--node-modules-dir=manual", "--allow-env", "--allow-sys"),
)


def note_of(tree: Path, name: str, version: str) -> bytes:
    """Return what is written down of the packages in `tree`; the same packages give the same note."""
    is_native = any(path.is_file() for path in (tree / "node_modules").rglob(f"*{_NATIVE}"))
    note: Json = {
        "private": True,
        "dependencies": {name: version},
        "pml": {"runtime": "node" if is_native else "deno"},
    }
    return msgspec.json.encode(note)


def package_folder(tree: Path, name: str) -> Path:
    return tree / "node_modules" / name


def programs_of(tree: Path, name: str) -> dict[str, str]:
    """Return the programs of package `name` as paths relative to `tree`. Raises: Invalid."""
    folder = package_folder(tree, name)
    bins = read_manifest(folder, name).get("bin")
    named: JsonObject = bins if isinstance(bins, Mapping) else {name.rpartition("/")[2]: bins}
    top = tree.resolve()
    found: dict[str, str] = {}
    for program, target in named.items():
        if isinstance(target, str):
            path = (folder / target).resolve()
            if not path.is_relative_to(folder.resolve()) or not path.is_file():
                raise Invalid(f"the program {quote(program)} of {quote(name)} is not among its files")
            found[program] = path.relative_to(top).as_posix()
    if not found:
        raise Invalid(f"{quote(name)} has no program, so it is no server")
    return found


def default_program(programs: Mapping[str, str], name: str) -> str | None:
    """Return the entry that is meant if none is named: the only one, or the one called like the package."""
    if len(set(programs.values())) == 1:
        return next(iter(programs.values()))
    return programs.get(name.rpartition("/")[2])


def read_manifest(folder: Path, name: str) -> JsonObject:
    """Return the `package.json` of an installed package. Raises: Invalid."""
    try:
        return loads_object((folder / "package.json").read_bytes(), what=f"package.json of {quote(name)}")
    except OSError as exc:
        raise Invalid(f"{quote(name)} has no package.json") from exc


def start_command(
    entry: str,
    dependency: McpDependency,
    room: Room,
    permissions: Permissions,
    *,
    path: str | None,
) -> Command:
    """Return how the server is started; `path` is where node is looked for. Raises: Invalid, Unavailable."""
    tree = Path(room.tree)
    chosen = os.path.join(room.tree, _entry(entry, dependency, tree))
    args = tuple(room.fill(argument) for argument in dependency.argv)
    if _runtime(tree, dependency.name) == "node":
        node = which("node", path=path)
        if node is None:
            raise Unavailable(
                f"server `{dependency.name}` has native parts, which need node", hint="install Node.js"
            )
        return Command(command=os.path.realpath(node), args=(chosen, *args), needs=(os.path.realpath(node),))
    deno = os.path.realpath(find_deno())
    return Command(command=deno, args=(*_DENO, *_flags(room, permissions), chosen, *args), needs=(deno,))


def _entry(entry: str, dependency: McpDependency, tree: Path) -> str:
    package = dependency.package
    programs = programs_of(tree, package.name)
    if package.tool is not None and package.tool not in programs:
        names = ", ".join(quote(program) for program in sorted(programs))
        raise Invalid(f"{quote(package.spec)} has no program {quote(package.tool)}: it has {names}")
    if package.tool is not None:
        return programs[package.tool]
    if default_program(programs, package.name) is None:
        names = ", ".join(quote(program) for program in sorted(programs))
        raise Invalid(
            f"{quote(package.spec)} has several programs: {names}",
            hint="name one: `npx -p PACKAGE PROGRAM`",
        )
    return entry


def _runtime(tree: Path, server: str) -> str:
    try:
        note = loads_object((tree / NOTE).read_bytes(), what=f"package.json of server `{server}`")
    except OSError as exc:
        raise Unavailable(
            f"the files of server `{server}` are not there", hint="install it anew with `pml deps install`"
        ) from exc
    said = note.get("pml")
    return str(cast(JsonObject, said).get("runtime")) if isinstance(said, Mapping) else "deno"


def _flags(room: Room, permissions: Permissions) -> list[str]:
    writes = [room.state, *permissions.write]
    reads = [room.tree, room.state, *permissions.read, *permissions.write]
    if permissions.workspace is not Access.NONE:
        reads.append(room.workspace)
    if permissions.workspace is Access.WRITE:
        writes.append(room.workspace)
    flags = [_allow("read", reads), _allow("write", writes)]
    if permissions.net is True:
        flags.append("--allow-net")
    elif permissions.net:
        flags.append(_allow("net", permissions.net))
    if permissions.run:
        flags.append(_allow("run", permissions.run))
    return flags


def _allow(kind: str, values: Sequence[str]) -> str:
    for value in values:
        if "," in value or not value:  # Deno would read two permissions, or all of them
            raise Invalid(f"{quote(value)} has a comma, so Deno cannot be told to allow it")
    return f"--allow-{kind}={','.join(dict.fromkeys(values))}"
