"""An installed server loads no package from the folders above its own, which nobody proved."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pml.core.errors import ServerFailed
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.servers.spec import ServerSpec
from pml.upstream.board import list_servers
from pml.upstream.fleet import Fleet
from tests.builders import relaunched
from tests.promises import promise
from tests.upstream.boxes import box, installed
from tests.upstream.fleets import Harbour

BUBBLEWRAP, LANDLOCK, NONE = Containment

# Offers one tool, named after where a package was found that is not among its own.
JS_SERVER = """
let found = "nowhere";
try { found = require("stray"); } catch {}
const offered = { tools: [{ name: found, inputSchema: { type: "object" } }] };
const greeting = (asked) => ({
  protocolVersion: asked.params.protocolVersion,
  capabilities: { tools: {} },
  serverInfo: { name: "js", version: "1" },
});
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const asked = JSON.parse(line);
  if (asked.id === undefined) return;
  const result = asked.method === "initialize" ? greeting(asked) : offered;
  console.log(JSON.stringify({ jsonrpc: "2.0", id: asked.id, result }));
});
"""
DENO = (
    *("run", "--quiet", "--no-prompt", "--no-remote", "--cached-only", "--no-config", "--no-lock"),
    *("--no-code-cache", "--node-modules-dir=manual", "--allow-env"),
)


def of_packages(harbour: Harbour, permissions: Permissions | None = None) -> ServerSpec:
    """A server whose files are packages."""
    spec = installed(harbour, permissions=permissions)
    (harbour.home / "servers" / "odd" / "node_modules" / "own").mkdir(parents=True, exist_ok=True)
    return spec


def run_by(runtime: str, harbour: Harbour, permissions: Permissions | None = None) -> ServerSpec:
    program = Path(sys.prefix, "bin", "deno") if runtime == "deno" else Path(shutil.which("node") or "/none")
    if not program.exists():
        pytest.skip(f"{runtime} is not installed")
    spec = of_packages(harbour, permissions)
    assert spec.artefact is not None
    entry = Path(spec.artefact.path, "node_modules", "own", "main.cjs")
    entry.write_text(JS_SERVER, encoding="utf-8")
    folders = f"{spec.artefact.path},{spec.artefact.state}"
    args = (*DENO, f"--allow-read={folders}") if runtime == "deno" else ()
    command = str(program.resolve())
    return relaunched(
        spec,
        command=command,
        args=(*args, str(entry)),
        env={"DENO_DIR": f"{spec.artefact.state}/deno"},
        artefact=replace(spec.artefact, needs=(command,)),
    )


def plant(folder: Path) -> Path:
    """Put a package where node and Deno look for one."""
    package = folder / "node_modules" / "stray"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"name": "stray", "main": "index.js"}', encoding="utf-8")
    (package / "index.js").write_text("module.exports = 'planted'", encoding="utf-8")
    return package.parent


async def tools(fleet: Fleet, spec: ServerSpec) -> list[str]:
    return [name for name in (await fleet.manifest(spec)).definitions]


@promise("prove:nothing-from-above")
@pytest.mark.parametrize("runtime", ["deno", "node"])
@pytest.mark.parametrize("access", [Access.READ, Access.WRITE])
async def test_a_package_above_the_files_of_a_server_is_not_loaded(
    harbour: Harbour, home: Path, boxed: Containment, runtime: str, access: Access
) -> None:
    harbour.workspace = home
    spec = run_by(runtime, harbour, Permissions(workspace=access))
    for folder in (home, harbour.home, harbour.home / "servers"):
        plant(folder)
    assert await tools(harbour.fleet(containment=boxed), spec) == ["nowhere"]


@promise("prove:nothing-from-above")
async def test_no_package_above_the_files_of_a_server_is_seen_in_its_box(
    harbour: Harbour, home: Path, boxed: Containment
) -> None:
    planted = [plant(folder) for folder in (home, harbour.home, harbour.home / "servers", home.parent)]
    try:
        for permissions in (
            Permissions(),
            Permissions(read=(str(home),)),
            Permissions(write=(str(home),)),
            Permissions(read=("/",), write=(str(home.parent),)),
        ):
            server = box(harbour, boxed, of_packages(harbour, permissions))
            for folder in planted:
                assert not await server.reads(folder / "stray" / "index.js"), permissions
                assert not await server.writes(folder / "new"), permissions
    finally:
        shutil.rmtree(home.parent / "node_modules")


@promise("prove:nothing-from-above")
@pytest.mark.parametrize("containment", [LANDLOCK, NONE])
@pytest.mark.parametrize("above", [".", "..", "../..", "../../.."])
async def test_a_server_with_packages_above_its_files_is_not_started_out_of_a_box(
    harbour: Harbour, containment: Containment, above: str
) -> None:
    spec = of_packages(harbour)
    folder = (harbour.home / "servers" / above).resolve()
    planted = plant(folder)
    try:
        with pytest.raises(ServerFailed) as caught:
            await harbour.fleet(containment=containment).manifest(spec)
    finally:
        shutil.rmtree(planted)
    assert caught.value.message == (
        f"server `odd` cannot be started: code in `{planted}` could be loaded unproven"
    )
    assert caught.value.hint == "move that folder away"
    assert list_servers(harbour.home) == []


@promise("prove:nothing-from-above")
async def test_a_link_among_the_folders_above_does_not_hide_packages(
    harbour: Harbour, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    real = tmp_path_factory.mktemp("real")
    (real / "pml").mkdir()
    harbour.home.symlink_to(real / "pml")
    for folder in (real, home):
        planted = plant(folder)
        with pytest.raises(ServerFailed, match=f"code in `{planted}` could be loaded unproven"):
            await harbour.fleet(containment=NONE).manifest(of_packages(harbour))
        shutil.rmtree(planted)


@promise("prove:nothing-from-above")
async def test_packages_above_that_cannot_be_masked_refuse_the_start(
    harbour: Harbour, home: Path, boxed: Containment
) -> None:
    planted = plant(home / "elsewhere")
    (home / "node_modules").symlink_to(planted)
    harbour.workspace = home
    with pytest.raises(ServerFailed, match="could be loaded unproven"):
        await harbour.fleet(containment=boxed).manifest(of_packages(harbour))
    (home / "node_modules").unlink()
    for permissions in (Permissions(read=("~/node_modules/stray",)), Permissions(read=("~/node_modules",))):
        harbour.workspace = plant(home).parent / "elsewhere"
        with pytest.raises(ServerFailed, match="could be loaded unproven"):
            await harbour.fleet(containment=boxed).manifest(of_packages(harbour, permissions))
        harbour.workspace = home / "node_modules" / "stray"
        with pytest.raises(ServerFailed, match="could be loaded unproven"):
            await harbour.fleet(containment=boxed).manifest(of_packages(harbour))
        shutil.rmtree(home / "node_modules")


async def test_a_server_without_packages_does_not_mind_those_above(
    harbour: Harbour, home: Path, kind: Containment
) -> None:
    plant(home)
    for containment in (kind, NONE):
        fleet = harbour.fleet(containment=containment)
        assert "echo" in await tools(fleet, installed(harbour))
        await fleet.close()
