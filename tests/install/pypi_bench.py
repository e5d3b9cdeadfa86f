"""A user whose only package index is one on loopback, and the servers that it offers."""

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from pml.core.packages.capability import McpDependency
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.lock import Lock, Locked
from pml.core.packages.package import Ecosystem, Package
from pml.core.packages.permissions import NO_REACH
from pml.core.ports.loader import Progress
from pml.install.ecosystems import Command, Entry, Room
from pml.install.pypi.installer import Limits, PypiInstaller
from tests.install.python_index import PythonIndex, make_wheel

HELLO = "import sys, greetings\n\ndef main():\n    print(greetings.TEXT, sys.argv[1:])\n"
ENDS_S = 60  # for a server that answers once and ends with its input


def quiet(_: Progress) -> None:
    """Nobody listens."""


def pypi_installer(index: PythonIndex, *, limits: Limits | None = None, **more: str) -> PypiInstaller:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "UV_DEFAULT_INDEX": f"{index.url}/simple",
    }
    return PypiInstaller({**environ, **more}, limits=limits)


async def install_lock(
    installer: PypiInstaller,
    lock: Lock,
    scratch: Path,
    tree: Path,
    *,
    told: Callable[[Progress], None],
    tool: str | None = None,
) -> Entry:
    return await installer.install(
        lock, pypi_package(lock.name, lock.version, tool=tool), scratch, tree, told=told
    )


def pypi_package(name: str, version: str = "1.0", *, tool: str | None = None) -> Package:
    return Package(ecosystem=Ecosystem.PYPI, name=name, version=version, tool=tool)


def sha256(data: bytes) -> str:
    return str(integrity_of(data, Algorithm.SHA256))


def lock_of(name: str, *wheels: bytes, version: str = "1.0") -> Lock:
    key = f"{name}=={version}"
    hashes = tuple(sha256(wheel) for wheel in wheels)
    locked = Locked(key=key, name=name, version=version, integrity=hashes)
    return Lock(ecosystem=Ecosystem.PYPI, name=name, version=version, root=key, packages=(locked,))


def offer_hello(index: PythonIndex) -> tuple[bytes, bytes]:
    """Offer a server `hello-server` that needs `greetings`, on every system but one."""
    hello = make_wheel(
        "hello-server",
        "1.0",
        files={"hello.py": HELLO},
        requires=("greetings>=1", "only-elsewhere ; sys_platform == 'elsewhere'"),
        scripts={"hello-server": "hello:main", "other": "hello:other"},
    )
    greetings = make_wheel("greetings", "1.5", files={"greetings.py": "TEXT = 'hello'\n"})
    index.add("hello-server", "1.0", hello)
    index.add("greetings", "1.5", greetings)
    index.add("only-elsewhere", "3.0", make_wheel("only-elsewhere", "3.0", files={"elsewhere.py": ""}))
    return hello, greetings


def listing(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tell_uv(text: str) -> None:
    """Write the settings of the user for uv."""
    settings = Path(os.environ["HOME"], ".config", "uv", "uv.toml")
    settings.parent.mkdir(parents=True)
    settings.write_text(text)


def hello_dependency(package: Package, *args: str) -> McpDependency:
    return McpDependency(
        name="hello", install=f"uvx {package.spec}", package=package, args=args, permissions=NO_REACH
    )


def room_of(tree: Path) -> Room:
    return Room(tree=str(tree), state="/its/state", workspace="/the/workspace")


def run_command(command: Command, *, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [command.command, *command.args],
        input=said,
        env={"PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere", "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
