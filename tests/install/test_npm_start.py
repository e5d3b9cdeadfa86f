"""How installed npm servers are started: with the flags of their permissions, and so that they answer."""

import asyncio
import json
import os
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from pml.core.capability import McpDependency
from pml.core.errors import Invalid, Unavailable
from pml.core.packages import Package
from pml.core.permissions import Access, Permissions
from pml.install.ecosystems import Command, Room
from pml.install.npm import NpmInstaller
from pml.install.npmstart import note_of
from pml.install.tools import find_deno
from tests.install.npm_bench import SRV, WAIT_S, Bench, publish_two
from tests.install.npm_registry import npm_registry

ENTRY = "node_modules/srv/index.js"
BASE = (
    *("run", "--quiet", "--no-prompt", "--no-remote", "--cached-only", "--no-config", "--no-lock"),
    *("--no-code-cache", "--node-modules-dir=manual", "--allow-env", "--allow-sys"),
)


@pytest.fixture
def bench(home: Path, tmp_path: Path) -> Generator[Bench]:
    with npm_registry() as registry:
        yield Bench(home, registry, tmp_path)


def dependency(package: Package = SRV, args: tuple[str, ...] = ()) -> McpDependency:
    return McpDependency(name="srv", install=f"npx {package.spec}", package=package, args=args)


def room(tree: Path, folder: Path) -> Room:
    """Return a room within `folder`, with a state folder of its own."""
    (folder / "state").mkdir(exist_ok=True)
    return Room(tree=str(tree), state=str(folder / "state"), workspace=str(folder / "workspace"))


def make_tree(folder: Path, *, bins: object = "index.js", native: bool = False) -> Path:
    package = folder / "tree/node_modules/srv"
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "srv", "version": "1.0.0", "bin": bins}))
    for name in ("index.js", "other.js", *(["addon.node"] if native else [])):
        (package / name).touch()
    tree = folder / "tree"
    (tree / "package.json").write_bytes(note_of(tree, "srv", "1.0.0"))
    return tree


def command(
    tree: Path,
    folder: Path,
    permissions: Permissions | None = None,
    *,
    package: Package = SRV,
    args: tuple[str, ...] = (),
    path: str = "",
) -> Command:
    installer = NpmInstaller({"PATH": path})
    return installer.command(
        ENTRY, dependency(package, args), room(tree, folder), permissions or Permissions()
    )


@pytest.mark.parametrize(
    ("permissions", "flags"),
    [
        (Permissions(workspace=Access.NONE), ("read=T,S", "write=S")),
        (Permissions(workspace=Access.READ), ("read=T,S,W", "write=S")),
        (Permissions(workspace=Access.WRITE), ("read=T,S,W", "write=S,W")),
        (
            Permissions(workspace=Access.NONE, read=("/r",), write=("/w",)),
            ("read=T,S,/r,/w", "write=S,/w"),
        ),
        (Permissions(workspace=Access.NONE, net=True), ("read=T,S", "write=S", "net")),
        (
            Permissions(workspace=Access.NONE, net=("a.invalid", "b.invalid:80")),
            ("read=T,S", "write=S", "net=a.invalid,b.invalid:80"),
        ),
        (
            Permissions(workspace=Access.NONE, net=(), run=("git", "ls")),
            ("read=T,S", "write=S", "run=git,ls"),
        ),
    ],
)
def test_a_server_is_allowed_what_is_declared_and_nothing_else(
    permissions: Permissions, flags: tuple[str, ...], tmp_path: Path
) -> None:
    tree = make_tree(tmp_path)
    places = {"T": str(tree), "S": str(tmp_path / "state"), "W": str(tmp_path / "workspace")}

    def filled(flag: str) -> str:
        kind, sign, values = flag.partition("=")
        return f"--allow-{kind}{sign}" + ",".join(places.get(value, value) for value in values.split(","))

    deno = os.path.realpath(find_deno())
    assert command(tree, tmp_path, permissions) == Command(
        command=deno, args=(*BASE, *map(filled, flags), str(tree / ENTRY)), needs=(deno,)
    )


def test_the_arguments_follow_the_entry_with_places_filled_in(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    package = msgspec.structs.replace(SRV, args=("--first",))
    args = command(tree, tmp_path, package=package, args=("${workspace}/x", "in=${state}")).args
    entry = args.index(str(tree / ENTRY))
    assert args[entry + 1 :] == ("--first", f"{tmp_path}/workspace/x", f"in={tmp_path}/state")


@pytest.mark.parametrize(
    "permissions",
    [
        Permissions(read=("/a,/etc",)),
        Permissions(write=("/a,/etc",)),
        Permissions(net=("a.invalid,0.0.0.0",)),
        Permissions(run=("git,sh",)),
        Permissions(run=("",)),
    ],
)
def test_a_permission_that_deno_would_read_as_two_is_refused(
    permissions: Permissions, tmp_path: Path
) -> None:
    with pytest.raises(Invalid, match="cannot be told to allow it"):
        command(make_tree(tmp_path), tmp_path, permissions)


def test_the_named_program_of_several_is_started_and_none_is_guessed(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, bins={"a": "index.js", "b": "other.js"})
    named = msgspec.structs.replace(SRV, tool="b")
    assert str(tree / "node_modules/srv/other.js") in command(tree, tmp_path, package=named).args
    with pytest.raises(Invalid, match="has several programs: `a`, `b`"):
        command(tree, tmp_path)
    with pytest.raises(Invalid, match="has no program `c`: it has `a`, `b`"):
        command(tree, tmp_path, package=msgspec.structs.replace(SRV, tool="c"))


@pytest.mark.parametrize("target", ["../../../outside.js", "/etc/passwd", "missing.js"])
def test_a_program_that_is_not_among_the_files_of_its_package_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "outside.js").touch()
    with pytest.raises(Invalid, match="the program `srv` of `srv` is not among its files"):
        command(make_tree(tmp_path, bins={"srv": target}), tmp_path)


def test_a_package_without_a_program_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="`srv` has no program"):
        command(make_tree(tmp_path, bins=None), tmp_path)


def test_native_parts_run_under_node_where_there_is_one(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, native=True)
    with pytest.raises(Unavailable, match="has native parts, which need node"):
        command(tree, tmp_path)
    node = tmp_path / "bin/node"
    node.parent.mkdir()
    node.touch(mode=0o755)
    assert command(tree, tmp_path, args=("x",), path=str(node.parent)) == Command(
        command=str(node), args=(str(tree / ENTRY), "x"), needs=(str(node),)
    )


def test_a_tree_that_is_gone_is_said(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    (tree / "package.json").unlink()
    with pytest.raises(Unavailable, match="the files of server `srv` are not there"):
        command(tree, tmp_path)


async def speak(command: Command, folder: Path, line: bytes) -> bytes:
    """Start a server, say one line, and return its first."""
    process = await asyncio.create_subprocess_exec(
        command.command,
        *command.args,
        cwd=folder,
        env={
            "DENO_DIR": str(folder / "deno"),
            "HOME": str(folder),
            "MEMORY_FILE_PATH": str(folder / "state/m"),
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            process.stdin.write(line + b"\n")
            await process.stdin.drain()
            return await process.stdout.readline()
    finally:
        process.kill()
        await process.communicate()


async def test_an_installed_server_runs_by_its_command(bench: Bench, tmp_path: Path) -> None:
    publish_two(bench.registry)
    tree, entry = await bench.install(await bench.resolve())
    command = bench.installer().command(entry, dependency(), room(tree, tmp_path), Permissions())
    assert await speak(command, tmp_path, b'{"hello": 1}') == b'{"hello": 1}\n'


async def test_a_real_server_is_resolved_installed_and_answers(tmp_path: Path) -> None:
    installer = NpmInstaller(dict(os.environ))
    package = msgspec.structs.replace(SRV, name="@modelcontextprotocol/server-memory", version="2026.8.31")
    folders = {name: tmp_path / name for name in ("one", "two", "tree")}
    for folder in folders.values():
        folder.mkdir()
    try:
        lock = await installer.resolve(package, folders["one"], told=lambda _: None)
        entry = await installer.install(lock, folders["two"], folders["tree"], told=lambda _: None)
    except Unavailable as exc:
        pytest.skip(f"the npm registry cannot be reached: {exc.message}")
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    command = installer.command(entry, dependency(package), room(folders["tree"], tmp_path), Permissions())
    answer = json.loads(await speak(command, tmp_path, json.dumps(hello).encode()))
    assert answer["result"]["serverInfo"]["name"] == "memory-server"
    assert len(lock.packages) > 50
    assert lock.released_at is not None
