"""How installed npm servers are started: with the flags of their permissions, and so that they answer."""

import asyncio
import json
import os
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from pml.core.errors import Invalid, Unavailable
from pml.core.packages.capability import McpDependency
from pml.core.packages.package import Package
from pml.core.packages.permissions import Access, Permissions
from pml.install.ecosystems import Command, Entry, Room
from pml.install.npm.installer import NpmInstaller
from pml.install.npm.start import choose_program, programs_of, runtime_of
from pml.install.package_managers import find_deno
from tests.install.npm_bench import SRV, WAIT_S, Bench, publish_two
from tests.install.npm_registry import npm_registry

INDEX = "node_modules/srv/index.js"
ENTRY = Entry(path=INDEX, runtime="deno")
BASE = (
    *("run", "--quiet", "--no-prompt", "--no-remote", "--cached-only", "--no-config", "--no-lock"),
    *("--no-code-cache", "--node-modules-dir=manual", "--allow-env", "--allow-sys"),
)


@pytest.fixture
def bench(home: Path, tmp_path: Path) -> Generator[Bench]:
    with npm_registry() as registry:
        yield Bench(home, registry, tmp_path)


def dependency(
    package: Package = SRV, args: tuple[str, ...] = (), permissions: Permissions | None = None
) -> McpDependency:
    return McpDependency(
        name="srv",
        install=f"npx {package.spec}",
        package=package,
        args=args,
        permissions=permissions or Permissions(),
    )


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
    return folder / "tree"


def chosen(tree: Path, *, tool: str | None = None) -> str:
    return choose_program(programs_of(tree, "srv"), msgspec.structs.replace(SRV, tool=tool))


def command(
    folder: Path,
    permissions: Permissions | None = None,
    *,
    entry: Entry = ENTRY,
    package: Package = SRV,
    args: tuple[str, ...] = (),
    path: str = "",
    workspace: str | None = None,
) -> Command:
    """Return the command for a tree in `folder`, which is not there: a start reads nothing of it."""
    given = room(folder / "tree", folder)
    if workspace is not None:
        given = msgspec.structs.replace(given, workspace=workspace)
    installer = NpmInstaller({"PATH": path, "HOME": "/home/me"})
    return installer.command(entry, dependency(package, args, permissions), given)


@pytest.mark.parametrize(
    ("permissions", "flags"),
    [
        (Permissions(workspace=Access.NONE), ("read=T,S", "write=S")),
        (Permissions(workspace=Access.READ), ("read=T,S,W", "write=S")),
        (Permissions(workspace=Access.WRITE), ("read=T,S,W", "write=S,W")),
        (
            Permissions(workspace=Access.NONE, read=("/r",), write=("/w", "~/notes")),
            ("read=T,S,/r,/w,/home/me/notes", "write=S,/w,/home/me/notes"),
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
    tree = tmp_path / "tree"
    places = {"T": str(tree), "S": str(tmp_path / "state"), "W": str(tmp_path / "workspace")}

    def filled(flag: str) -> str:
        kind, sign, values = flag.partition("=")
        return f"--allow-{kind}{sign}" + ",".join(places.get(value, value) for value in values.split(","))

    deno = os.path.realpath(find_deno())
    assert command(tmp_path, permissions) == Command(
        command=deno, args=(*BASE, *map(filled, flags), str(tree / INDEX)), needs=(deno,)
    )


def test_the_arguments_follow_the_entry_with_places_filled_in(tmp_path: Path) -> None:
    package = msgspec.structs.replace(SRV, args=("--first",))
    args = command(tmp_path, package=package, args=("${workspace}/x", "in=${state}")).args
    entry = args.index(str(tmp_path / "tree" / INDEX))
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
        command(tmp_path, permissions)


def test_a_workspace_that_deno_would_read_as_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="`/a,/etc` has a comma"):
        command(tmp_path, workspace="/a,/etc")
    assert command(tmp_path, Permissions(workspace=Access.NONE), workspace="/a,/etc")


def test_the_named_program_of_several_is_chosen_and_none_is_guessed(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, bins={"a": "index.js", "b": "other.js"})
    assert chosen(tree, tool="b") == "node_modules/srv/other.js"
    with pytest.raises(Invalid, match="has several programs: `a`, `b`"):
        chosen(tree)
    with pytest.raises(Invalid, match="has no program `c`: it has `a`, `b`"):
        chosen(tree, tool="c")


@pytest.mark.parametrize(
    "bins", ["index.js", {"x": "index.js", "y": "./index.js"}, {"srv": "index.js", "b": "other.js"}]
)
def test_the_only_program_or_the_one_called_like_the_package_is_meant(tmp_path: Path, bins: object) -> None:
    assert chosen(make_tree(tmp_path, bins=bins)) == INDEX


@pytest.mark.parametrize("target", ["../../../outside.js", "/etc/passwd", "missing.js"])
def test_a_program_that_is_not_among_the_files_of_its_package_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "outside.js").touch()
    with pytest.raises(Invalid, match="the program `srv` of `srv` is not among its files"):
        chosen(make_tree(tmp_path, bins={"srv": target}))


def test_a_package_without_a_program_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="`srv` has no program"):
        chosen(make_tree(tmp_path, bins=None))


def test_native_parts_run_under_node_where_there_is_one(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, native=True)
    entry = Entry(path=INDEX, runtime=runtime_of(tree))
    with pytest.raises(Unavailable, match="has native parts, which need node"):
        command(tmp_path, entry=entry)
    node = tmp_path / "bin/node"
    node.parent.mkdir()
    node.touch(mode=0o755)
    assert command(tmp_path, entry=entry, args=("x",), path=str(node.parent)) == Command(
        command=str(node), args=(str(tree / INDEX), "x"), needs=(str(node),)
    )


def test_a_node_in_the_folder_that_pml_was_started_in_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for folder in (tmp_path, tmp_path / "bin"):
        (folder / "node").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    for path in ("bin", ".", "", "./bin", os.pathsep.join([".", "bin"])):
        with pytest.raises(Unavailable, match="need node"):
            command(tmp_path, entry=Entry(path=INDEX, runtime="node"), path=path)


def test_a_runtime_that_is_not_known_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be started by `sh`"):
        command(tmp_path, entry=Entry(path=INDEX, runtime="sh"))


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
    command = bench.installer().command(entry, dependency(), room(tree, tmp_path))
    assert await speak(command, tmp_path, b'{"hello": 1}') == b'{"hello": 1}\n'


async def test_a_program_that_is_not_there_or_not_named_fails_the_install(bench: Bench) -> None:
    bench.registry.publish("srv", bin={"a": "index.js", "b": "./index.js", "c": "package.json"})
    lock = await bench.resolve()
    with pytest.raises(Invalid, match="has several programs: `a`, `b`, `c`"):
        await bench.install(lock)
    with pytest.raises(Invalid, match="has no program `d`: it has `a`, `b`, `c`"):
        await bench.install(lock, package=msgspec.structs.replace(SRV, tool="d"))
    _, entry = await bench.install(lock, package=msgspec.structs.replace(SRV, tool="b"))
    assert entry == Entry(path="node_modules/.deno/srv@1.0.0/node_modules/srv/index.js", runtime="deno")


async def test_a_real_server_is_resolved_installed_and_answers(tmp_path: Path) -> None:
    installer = NpmInstaller(dict(os.environ))
    package = msgspec.structs.replace(SRV, name="@modelcontextprotocol/server-memory", version="2026.8.31")
    folders = {name: tmp_path / name for name in ("one", "two", "tree")}
    for folder in folders.values():
        folder.mkdir()
    try:
        lock = await installer.resolve(package, folders["one"], told=lambda _: None)
        entry = await installer.install(lock, package, folders["two"], folders["tree"], told=lambda _: None)
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
    command = installer.command(entry, dependency(package), room(folders["tree"], tmp_path))
    answer = json.loads(await speak(command, tmp_path, json.dumps(hello).encode()))
    assert answer["result"]["serverInfo"]["name"] == "memory-server"
    assert len(lock.packages) > 50
    assert lock.released_at is not None
