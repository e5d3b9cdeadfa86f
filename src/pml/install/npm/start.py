"""The start of an installed npm server: by Deno, held to its permissions, or by node where it must be.

What is started is settled when the server is installed: a start reads no file that is not proven yet. Deno's
permissions follow links out of a folder, so they are the second wall and never the only one.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import Invalid, Unavailable
from pml.core.packages.capability import McpDependency
from pml.core.packages.package import Package
from pml.core.packages.permissions import Access, Permissions
from pml.core.text import quote
from pml.core.values import Json, JsonObject, loads_object
from pml.host.folders import expand_folder
from pml.install.ecosystems import Command, Entry, Room
from pml.install.package_managers import find_deno, find_program

NOTE: Final = "package.json"  # of the tree; by it Deno finds the packages beside it
DENO: Final = "deno"
NODE: Final = "node"
_NATIVE: Final = ".node"
# No code cache: it would be unproven bytecode, in a folder that the server may write.
_DENO: Final = (
    *("run", "--quiet", "--no-prompt", "--no-remote", "--cached-only", "--no-config", "--no-lock"),
    *("--no-code-cache", "--node-modules-dir=manual", "--allow-env", "--allow-sys"),
)


def note_of(name: str, version: str) -> bytes:
    """Return what is written down of the packages in a tree; the same packages give the same note."""
    note: Json = {"private": True, "dependencies": {name: version}}
    return msgspec.json.encode(note)


def runtime_of(tree: Path) -> str:
    """Return what the packages in `tree` must be run by."""
    is_native = any(path.is_file() for path in (tree / "node_modules").rglob(f"*{_NATIVE}"))
    return NODE if is_native else DENO


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
        raise Invalid(f"{quote(name)} has no program, so it is not a server")
    return found


def choose_program(programs: Mapping[str, str], package: Package) -> str:
    """Return the path of the program that `package` means: the one it names, the only one, or its namesake.

    Raises: Invalid with the programs that there are.
    """
    names = ", ".join(quote(program) for program in sorted(programs))
    if package.tool is not None and package.tool not in programs:
        raise Invalid(f"{quote(package.spec)} has no program {quote(package.tool)}: it has {names}")
    if package.tool is not None:
        return programs[package.tool]
    if len(set(programs.values())) == 1:
        return next(iter(programs.values()))
    namesake = programs.get(package.name.rpartition("/")[2])
    if namesake is None:
        raise Invalid(
            f"{quote(package.spec)} has several programs: {names}",
            hint="name one: `npx -p PACKAGE PROGRAM`",
        )
    return namesake


def read_manifest(folder: Path, name: str) -> JsonObject:
    """Return the `package.json` of an installed package. Raises: Invalid."""
    try:
        return loads_object((folder / "package.json").read_bytes(), what=f"package.json of {quote(name)}")
    except OSError as exc:
        raise Invalid(f"{quote(name)} has no package.json") from exc


def start_command(
    entry: Entry,
    dependency: McpDependency,
    room: Room,
    *,
    path: str,
    user_home: str,
    own_flags: tuple[str, ...] = (),
) -> Command:
    """Return how the server is started; node is looked for in `path`, and `~` is `user_home`.

    `own_flags` are Deno's, beside those of every server.

    Raises: Invalid, Unavailable.
    """
    chosen = os.path.join(room.tree, entry.path)
    args = tuple(room.fill(argument) for argument in dependency.argv)
    if entry.runtime == NODE:
        node = find_program("node", path=path)
        if node is None:
            raise Unavailable(
                f"server `{dependency.name}` has native parts, which need node", hint="install Node.js"
            )
        return Command(command=os.path.realpath(node), args=(chosen, *args), needs=(os.path.realpath(node),))
    if entry.runtime != DENO:
        raise Invalid(f"server `{dependency.name}` cannot be started by {quote(entry.runtime)}")
    deno = os.path.realpath(find_deno())
    flags = _flags(room, dependency.permissions, user_home=user_home)
    return Command(command=deno, args=(*_DENO, *own_flags, *flags, chosen, *args), needs=(deno,))


def _flags(room: Room, permissions: Permissions, *, user_home: str) -> list[str]:
    read, write = (
        [expand_folder(folder, home=user_home) for folder in folders]
        for folders in (permissions.read, permissions.write)
    )
    writes = [room.state, *write]
    reads = [room.tree, room.state, *read, *write]
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
