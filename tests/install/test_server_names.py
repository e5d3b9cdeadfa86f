"""A package of a registry's list must say itself that it is that server, or nothing of it stays."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pml.core.errors import Invalid
from pml.core.packages.capability import McpDependency
from pml.core.packages.install_facts import install_facts, tell_install
from pml.core.packages.package import Ecosystem, Package
from pml.core.packages.permissions import NO_REACH, Containment
from pml.core.ports.loader import Installed, Plan
from pml.install.installer import DiskInstaller
from tests.fakes import FakeClock
from tests.install.makers import ignore
from tests.install.npm_bench import BIN, SRV, Bench
from tests.install.npm_registry import npm_registry
from tests.install.pypi_bench import HELLO, pypi_installer, pypi_package
from tests.install.python_index import make_wheel, serve_index
from tests.promises import promise

NAME = "io.github.acme/srv"
METADATA = "hello_server-1.0.dist-info/METADATA"


class Names:
    """Packages whose names can be chosen, in real registries on loopback."""

    def __init__(self, home: Path, bench: Bench, installer: DiskInstaller) -> None:
        self.home = home
        self.bench = bench
        self.installer = installer

    async def install(self, package: Package, *, mcp_name: str | None = NAME) -> Installed:
        dependency = McpDependency(
            name="srv", install="npx", package=package, permissions=NO_REACH, mcp_name=mcp_name
        )
        lock = await self.installer.resolve(dependency, told=ignore)
        plan = Plan(dependency=dependency, lock=lock, containment=Containment.BUBBLEWRAP)
        return await self.installer.install(plan, told=ignore)


@pytest.fixture
async def names(home: Path, tmp_path: Path) -> AsyncGenerator[Names]:
    with npm_registry() as registry, serve_index() as index:
        bench = Bench(home, registry, tmp_path)
        ecosystems = {Ecosystem.NPM: bench.installer(), Ecosystem.PYPI: pypi_installer(index)}
        it = Names(home, bench, DiskInstaller(home / ".pml", ecosystems, FakeClock()))
        for readme, version in ((f"mcp-name: {NAME}", "1.0"), ("mcp-name: io.github.evil/srv", "2.0")):
            head = f"Metadata-Version: 2.1\nName: hello-server\nVersion: {version}\n"
            told = f"{head}\n# Hello\n<!-- {readme} -->\n"
            wheel = make_wheel(
                "hello-server",
                version,
                files={
                    "hello.py": HELLO.replace("import sys, greetings", "import sys"),
                    f"hello_server-{version}.dist-info/METADATA": told,
                },
                scripts={"hello-server": "hello:main"},
            )
            index.add("hello-server", version, wheel)
        yield it


@promise("registry:named-by-the-package")
async def test_a_package_of_npm_that_says_it_is_the_server_is_installed(names: Names) -> None:
    names.bench.registry.publish("srv", bin=BIN, mcpName=NAME)
    assert (await names.install(SRV)).dependency.mcp_name == NAME


@promise("registry:named-by-the-package")
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"mcpName": "io.github.evil/srv"}, "says that it is `io.github.evil/srv`"),
        ({}, "names no server"),
        ({"mcpName": [NAME]}, "names no server"),
    ],
)
async def test_a_package_of_npm_that_is_another_server_or_none_does_not_stay(
    names: Names, said: dict[str, Any], told: str
) -> None:
    names.bench.registry.publish("srv", bin=BIN, **said)
    with pytest.raises(Invalid, match=told.replace(".", r"\.")):
        await names.install(SRV)
    assert names.installer.all_installed() == {}


@promise("registry:named-by-the-package")
async def test_files_that_are_there_already_must_name_the_server_too(names: Names) -> None:
    names.bench.registry.publish("srv", bin=BIN)
    before = await names.install(SRV, mcp_name=None)
    with pytest.raises(Invalid, match="names no server"):
        await names.install(SRV)
    assert names.installer.installed("srv") == before


@promise("registry:named-by-the-package")
async def test_a_package_of_pypi_names_its_server_in_its_readme(names: Names) -> None:
    await names.install(pypi_package("hello-server", "1.0"))
    with pytest.raises(Invalid, match=r"says that it is `io\.github\.evil/srv`"):
        await names.install(pypi_package("hello-server", "2.0"))
    assert names.installer.all_installed()["srv"].dependency.version == "1.0"


@promise("registry:named-by-the-package")
async def test_the_card_says_under_which_name_it_is_listed(names: Names) -> None:
    names.bench.registry.publish("srv", bin=BIN, mcpName=NAME)
    dependency = (await names.install(SRV)).dependency
    lock = await names.installer.resolve(replace(dependency, lock=None), told=ignore)
    plan = Plan(dependency=dependency, lock=lock, containment=Containment.BUBBLEWRAP)
    told = dict(tell_install(install_facts(plan, source="a registry", accepted=None)))
    assert told["listed as"].startswith(NAME)
