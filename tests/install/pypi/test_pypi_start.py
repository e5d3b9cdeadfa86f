"""Python servers as installed: which program is the server, and how it is started."""

import json
import os
import sys
from pathlib import Path

import pytest

from pml.core.errors import Invalid, Unavailable
from pml.core.ports.loader import Progress
from pml.install.ecosystems import Entry
from pml.install.pypi.installer import PypiInstaller, runtime
from tests.install.pypi_bench import (
    hello_dependency,
    install_lock,
    listing,
    lock_of,
    offer_hello,
    pypi_installer,
    pypi_package,
    quiet,
    room_of,
    run_command,
)
from tests.install.python_index import PythonIndex, make_wheel


async def test_an_installed_server_is_complete_starts_bare_and_is_the_same_each_time(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    scratch, tree = folders
    offer_hello(index)
    heard: list[Progress] = []
    installer = pypi_installer(index)
    lock = await installer.resolve(pypi_package("hello-server"), scratch, told=quiet)
    entry = await install_lock(installer, lock, scratch, tree, told=heard.append)
    assert entry == Entry(path="start/hello-server.py", runtime=runtime())
    assert [one.done for one in heard] == sorted(one.done for one in heard)
    assert (heard[0].done, heard[-1].done, heard[-1].total) == (0, 4, 4)
    names = set(listing(tree))
    version = f"cpython-{sys.version_info[0]}{sys.version_info[1]}"
    assert {"site/hello.py", "site/greetings.py", f"site/__pycache__/hello.{version}.pyc"} <= names
    assert not [
        name for name in names if "elsewhere" in name or name.startswith("site/bin/") or ".lock" in name
    ]
    wanted = hello_dependency(pypi_package("hello-server"), "${workspace}", "${state}/x")
    command = installer.command(entry, wanted, room_of(tree))
    ran = run_command(command)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "hello ['/the/workspace', '/its/state/x']\n", "")

    again = tmp_path / "another" / "deeper"
    other_scratch = tmp_path / "other-scratch"
    again.mkdir(parents=True)
    other_scratch.mkdir()
    before = listing(tree)  # also after it ran: a start leaves nothing behind
    await install_lock(installer, lock, other_scratch, again, told=quiet)
    assert listing(again) == before
    assert not [
        name for name, file in ((n, again / n) for n in before) if str(tmp_path).encode() in file.read_bytes()
    ]


async def test_the_program_is_the_named_one_else_the_one_called_like_the_package(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    scratch, tree = folders
    wheel = make_wheel("two-tools", "1.0", scripts={"first": "t:a", "second": "t:b.c"}, files={"t.py": ""})
    index.add("two-tools", "1.0", wheel)
    installer = pypi_installer(index)
    entry = await install_lock(
        installer, lock_of("two-tools", wheel), scratch, tree, told=quiet, tool="second"
    )
    assert entry == Entry(path="start/second.py", runtime=runtime())
    for tool, told in ((None, "called like the package"), ("third", "`third`")):
        place = tmp_path / str(tool)
        place.mkdir()
        with pytest.raises(Invalid, match=f"has no program {told}; it has `first`, `second`"):
            await install_lock(installer, lock_of("two-tools", wheel), scratch, place, told=quiet, tool=tool)


@pytest.mark.parametrize("scripts", [{}, {"bad": "module"}, {"bad": "os:system('x')"}])
async def test_a_package_without_a_function_to_start_is_no_server(
    index: PythonIndex, folders: tuple[Path, Path], scripts: dict[str, str]
) -> None:
    wheel = make_wheel("library", "1.0", scripts=scripts)
    index.add("library", "1.0", wheel)
    with pytest.raises(Invalid):
        await install_lock(pypi_installer(index), lock_of("library", wheel), *folders, told=quiet)


def test_a_server_needs_its_interpreter_and_nothing_of_a_virtual_environment(index: PythonIndex) -> None:
    entry = Entry(path="start/hello.py", runtime=runtime())
    nowhere = Path("/nowhere")  # a start reads nothing of the tree, which is not proven yet
    command = pypi_installer(index).command(entry, hello_dependency(pypi_package("hello")), room_of(nowhere))
    assert command.args == ("-I", "-S", "-B", "/nowhere/start/hello.py")
    assert not os.path.islink(command.command)
    assert any(Path(command.command).is_relative_to(place) for place in command.needs)
    assert os.path.realpath(sys.base_prefix) in command.needs
    if sys.prefix != sys.base_prefix:
        assert not any(Path(sys.prefix).is_relative_to(place) for place in command.needs)
    if os.path.realpath(sys.base_prefix) == "/usr":
        assert command.needs == ("/usr",)


def test_what_was_installed_for_another_python_is_not_started_and_says_what_to_do(index: PythonIndex) -> None:
    entry = Entry(path="start/hello.py", runtime="python3.2")
    installer = pypi_installer(index)
    assert installer.is_outdated(entry)
    with pytest.raises(
        Unavailable, match=f"installed for python3.2, and PML runs on {runtime()} now"
    ) as caught:
        installer.command(entry, hello_dependency(pypi_package("hello")), room_of(Path("/nowhere")))
    assert caught.value.hint == f"`pml deps install hello` installs it for {runtime()}"


async def test_a_real_server_is_resolved_installed_and_answers_initialize(folders: tuple[Path, Path]) -> None:
    scratch, tree = folders
    package = pypi_package("mcp-server-time", "2026.10.19")
    installer = PypiInstaller(dict(os.environ))
    try:
        lock = await installer.resolve(package, scratch, told=quiet)
        entry = await install_lock(installer, lock, scratch, tree, told=quiet)
    except Unavailable as exc:
        pytest.skip(f"needs a Python package index, which cannot be reached: {exc}")
    command = installer.command(entry, hello_dependency(package), room_of(tree))
    asked = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    before = listing(tree)
    ran = run_command(command, said=json.dumps(asked) + "\n")
    assert json.loads(ran.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "mcp-time"
    assert listing(tree) == before
