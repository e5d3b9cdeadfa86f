"""MCP bundles: read, unpacked and started, contained; and what no bundle may bring."""

import asyncio
import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pml.core.approvals.record import OwnerId
from pml.core.errors import IntegrityFailed, Invalid, NotFound
from pml.core.packages.bundle import NO_WORKSPACE, bundle_dependency
from pml.core.packages.capability import McpDependency, dependency_json, parse_dependency
from pml.core.packages.install_facts import install_facts, tell_install
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.lock import Lock
from pml.core.packages.offer import Missing
from pml.core.packages.package import Ecosystem
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.ports.loader import Plan
from pml.core.servers.manifest import Manifest
from pml.install.installer import DiskInstaller
from pml.install.mcpb.archive import Bounds
from pml.install.mcpb.installer import Bundle, McpbInstaller
from pml.service.calls.absent_client import Nobody
from pml.testing.store import MemoryStore
from pml.upstream.containment.box import available
from pml.upstream.fleet import Fleet
from tests.fakes import FakeClock
from tests.install.makers import ignore
from tests.install.mcpb_files import files, manifest, packed, put
from tests.promises import promise

BOUND_S = 120.0
NOTHING = Permissions(workspace=Access.NONE)


class Bench:
    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.bundles = McpbInstaller({"PATH": "/usr/bin:/bin", "HOME": str(home)})
        self.installer = DiskInstaller(home / ".pml", {Ecosystem.MCPB: self.bundles}, FakeClock())

    async def read(self, data: bytes, **more: Any) -> Bundle:
        return await self.bundles.read(put(self.folder, data), **more)

    async def dependency(self, data: bytes, **more: Any) -> McpDependency:
        read = await self.read(data)
        given: dict[str, Any] = {"name": "greeter", "permissions": NOTHING, **more}
        return bundle_dependency(
            read.manifest, origin=read.origin, integrity=read.integrity, size=read.size, **given
        )

    async def install(self, dependency: McpDependency, held: Containment | None = None) -> Any:
        assert isinstance(dependency.lock, Lock)
        plan = Plan(dependency=dependency, lock=dependency.lock, containment=held or available())
        return await self.installer.install(plan, told=ignore)

    async def started(self, dependency: McpDependency) -> Manifest:
        """Install it, prove it, start it in its box, and return what it offers."""
        installed = await self.install(dependency)
        workspace = self.folder / "workspace"
        workspace.mkdir(exist_ok=True)
        spec = self.installer.launch(installed, workspace=str(workspace))
        fleet = Fleet(
            workspace=str(workspace),
            client=Nobody(str(workspace)),
            manifests=MemoryStore().manifests,
            idle_s=lambda: BOUND_S,
            home=self.home / ".pml",
            owner=OwnerId("test"),
            environ=os.environ,
            prove=self.installer.prove,
        )
        try:
            async with asyncio.timeout(BOUND_S):
                return await fleet.manifest(spec)
        finally:
            await fleet.close()


@pytest.fixture
def bench(home: Path, tmp_path: Path) -> Bench:
    return Bench(home, tmp_path)


def told(plan: Plan) -> dict[str, str]:
    return dict(tell_install(install_facts(plan, source="file", accepted=None)))


async def test_a_bundle_of_javascript_is_started_by_deno(bench: Bench) -> None:
    dependency = await bench.dependency(packed(manifest(), files()))
    found = await bench.started(dependency)
    assert [tool["name"] for tool in found.tools] == ["hello"]
    assert bench.installer.all_installed()["greeter"].runtime == "deno"


async def test_a_bundle_of_python_has_its_own_packages_and_none_of_the_machines(bench: Bench) -> None:
    shape = manifest("python")
    shape["server"]["mcp_config"]["env"] = {"PYTHONPATH": "${__dirname}/server/lib", "MODE": "fast"}
    found = await bench.started(await bench.dependency(packed(shape, files("python"))))
    assert [tool["name"] for tool in found.tools] == ["hello_own"]
    assert json.loads(str(found.tools[0]["description"])) == [[], "fast"]


async def test_what_a_person_is_asked_for_fills_arguments_and_variables(bench: Bench) -> None:
    shape = manifest(
        user_config={
            "folders": {"type": "directory", "multiple": True, "required": True, "title": "Folders"},
            "key": {"type": "string", "sensitive": True, "required": True},
            "limit": {"type": "number", "default": 5},
            "unused": {"type": "string"},
        }
    )
    config = shape["server"]["mcp_config"]
    config["args"] += ["${user_config.folders}", "--limit=${user_config.limit}", "${user_config.unused}"]
    config["env"] = {"API_KEY": "${user_config.key}", "PLACE": "${__dirname}/data"}
    read = await bench.read(packed(shape, files()))
    asked = {each.key: (each.is_required, each.is_secret) for each in read.manifest.inputs}
    assert asked == {
        "folders": (True, False),
        "key": (True, True),
        "limit": (False, False),
        "unused": (False, False),
    }
    with pytest.raises(Missing) as caught:
        await bench.dependency(packed(shape, files()))
    assert [each.key for each in caught.value.inputs] == ["folders"]
    dependency = await bench.dependency(packed(shape, files()), answers={"folders": "/srv/a\n/srv/b"})
    assert dependency.args == ("/srv/a", "/srv/b", "--limit=5")
    assert (dependency.env_required, dict(dependency.env)) == (("API_KEY",), {"PLACE": "${tree}/data"})
    assert dependency.permissions.write == ("/srv/a", "/srv/b")


async def test_a_secret_is_never_an_argument(bench: Bench) -> None:
    shape = manifest(user_config={"key": {"type": "string", "sensitive": True, "required": True}})
    shape["server"]["mcp_config"]["args"].append("--key=${user_config.key}")
    with pytest.raises(Invalid, match="secret as an argument"):
        await bench.dependency(packed(shape, files()))


async def test_the_answers_of_a_person_are_no_templates(bench: Bench) -> None:
    shape = manifest(user_config={"word": {"type": "string", "required": True}})
    shape["server"]["mcp_config"]["args"].append("${user_config.word}")
    with pytest.raises(Invalid, match="must be plain text"):
        await bench.dependency(packed(shape, files()), answers={"word": "${state}"})


@promise("bundle:hash")
async def test_a_bundle_of_other_bytes_is_not_read_and_not_installed(bench: Bench) -> None:
    data = packed(manifest(), files())
    other = integrity_of(b"another", Algorithm.SHA256)
    with pytest.raises(IntegrityFailed):
        await bench.read(data, expected=other)
    dependency = await bench.dependency(data)
    put(bench.folder, packed(manifest(description="changed since"), files()))
    with pytest.raises(IntegrityFailed):
        await bench.install(dependency)
    assert bench.installer.all_installed() == {}


@promise("bundle:only-contained")
async def test_a_program_runs_only_where_it_is_contained_and_the_card_says_what_it_is(bench: Bench) -> None:
    dependency = await bench.dependency(packed(manifest("binary"), files("binary")))
    assert isinstance(dependency.lock, Lock)
    with pytest.raises(Invalid, match="nothing on this machine holds it"):
        await bench.install(dependency, Containment.NONE)
    assert bench.installer.all_installed() == {}
    plan = Plan(dependency=dependency, lock=dependency.lock, containment=Containment.BUBBLEWRAP)
    assert "A PROGRAM whose source nobody here can read" in told(plan)["bundle"]
    assert "signatures in it are not verified" in told(plan)["bundle"]
    installed = await bench.install(dependency, Containment.BUBBLEWRAP)
    assert installed.runtime == "binary"


def entry(name: str, *, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@promise("bundle:unpacked-within")
@pytest.mark.parametrize(
    ("info", "said"),
    [
        (entry("../outside.js"), "leads out of it"),
        (entry("server/../../outside.js"), "leads out of it"),
        (entry("/outside.js"), "leads out of it"),
        (entry("server\\..\\outside.js"), "leads out of it"),
        (entry("C:/outside.js"), "leads out of it"),
        (entry("./outside.js"), "leads out of it"),
        (entry("server/link", mode=stat.S_IFLNK | 0o777), "neither file nor folder"),
        (entry("server/pipe", mode=stat.S_IFIFO | 0o644), "neither file nor folder"),
        (entry("server/index.js"), "twice"),
        (entry("server"), "in one place"),
        (entry("Server/INDEX.js"), "on some systems they are one file"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
async def test_what_a_bundle_may_not_bring_is_refused_and_nothing_stays(
    bench: Bench, info: zipfile.ZipInfo, said: str
) -> None:
    dependency = await bench.dependency(packed(manifest(), files(), extra=((info, b"../../outside"),)))
    with pytest.raises(Invalid, match=said):
        await bench.install(dependency)
    assert bench.installer.all_installed() == {}
    assert not list(bench.home.rglob("outside.js"))
    assert not list(bench.folder.rglob("outside.js"))


@promise("bundle:bounded")
async def test_a_bomb_is_stopped_by_what_comes_out_not_by_what_it_says(bench: Bench) -> None:
    data = bytearray(packed(manifest(), {**files(), "server/big": "0" * 5_000_000}))
    sizes = data.rindex(b"PK\x01\x02")  # the last entry of the directory: the big file
    data[sizes + 24 : sizes + 28] = (1000).to_bytes(4, "little")
    bench.bundles = McpbInstaller({}, bounds=Bounds(unpacked_bytes=1_000_000))
    bench.installer = DiskInstaller(bench.home / ".pml", {Ecosystem.MCPB: bench.bundles}, FakeClock())
    with pytest.raises(Invalid, match=r"unpacks to more than|cannot be unpacked"):
        await bench.install(await bench.dependency(bytes(data)))
    honest = packed(manifest(), {**files(), "server/big": "0" * 5_000_000})
    with pytest.raises(Invalid, match="unpacks to more than"):
        await bench.install(await bench.dependency(honest))
    assert bench.installer.all_installed() == {}


async def test_too_many_files_and_too_long_a_file_are_refused(bench: Bench) -> None:
    bench.bundles = McpbInstaller({}, bounds=Bounds(entries=2, packed_bytes=10_000))
    bench.installer = DiskInstaller(bench.home / ".pml", {Ecosystem.MCPB: bench.bundles}, FakeClock())
    with pytest.raises(Invalid, match="has 3 files, more than 2"):
        await bench.install(await bench.dependency(packed(manifest(), files())))
    with pytest.raises(Invalid, match="more than 10,000 bytes"):
        await bench.read(b"x" * 20_000)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"not a zip", "is not a zip file"),
        (packed(None, files()), "has no `manifest.json`"),
        (packed({"name": "x", "version": "1.0.0"}, {}), "`server` is missing"),
        (packed(manifest(version="latest"), {}), "`version` must be one exact version"),
        (packed(manifest(compatibility={"platforms": ["win32"]}), {}), "is for `win32`, not for `linux`"),
        (
            packed({**manifest(), "server": {"type": "uv", "entry_point": "a.py", "mcp_config": {}}}, {}),
            "brings no packages along",
        ),
        (
            packed(
                {**manifest(), "server": {"type": "node", "entry_point": "../a.js", "mcp_config": {}}}, {}
            ),
            "`server.entry_point` must be a path within the bundle",
        ),
    ],
)
async def test_what_is_not_a_bundle_that_pml_starts_is_told(bench: Bench, data: bytes, said: str) -> None:
    bench.bundles = McpbInstaller({}, platform="linux")
    with pytest.raises(Invalid, match=said.replace(".", r"\.")):
        await bench.read(data)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"command": "npx", "args": ["-y", "other"]}, "must be `node`, not `npx`"),
        ({"command": "node", "args": ["--eval", "x"]}, "must be an array that begins with"),
        ({"command": "node", "args": ["${__dirname}/server/index.js", "${HOME}"]}, "does not fill in"),
    ],
)
async def test_a_manifest_that_would_start_something_else_is_refused(
    bench: Bench, config: dict[str, Any], said: str
) -> None:
    shape = manifest()
    shape["server"]["mcp_config"] = config
    with pytest.raises(Invalid, match=said):
        await bench.read(packed(shape, files()))


async def test_the_entry_must_be_among_its_files_and_a_missing_file_is_told(bench: Bench) -> None:
    with pytest.raises(Invalid, match=r"has no file `server/index\.js`"):
        await bench.install(await bench.dependency(packed(manifest(), {"README.md": "x"})))
    with pytest.raises(NotFound):
        await bench.bundles.read(str(bench.folder / "none.mcpb"))


async def test_a_bundle_is_kept_in_a_registry_as_every_other_server(bench: Bench) -> None:
    dependency = await bench.dependency(packed(manifest(), files()), permissions=NO_WORKSPACE)
    assert parse_dependency(dependency_json(dependency), what="it") == dependency
    assert dependency.package.origin == str(bench.folder / "greeter.mcpb")
