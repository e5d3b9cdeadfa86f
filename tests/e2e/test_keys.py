"""A key that a server needs, given on the page that a real client opens: the server has it, nobody else.

The server's package comes from the registry that this machine is set up for. Where that cannot be reached the
tests are skipped.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.types import ElicitRequestParams, ElicitResult
from pydantic import BaseModel

from tests.e2e.code_registry import CATALOG, PREFIX
from tests.e2e.hubs import Hub
from tests.e2e.installed import bare_environment, network_settings
from tests.e2e.messages_api import scripted
from tests.e2e.workspaces import Workspace
from tests.promises import promise

INSTALL_S: Final = 300.0  # only ever reached by a network that hangs
KEY: Final = "KEYED_API_KEY"
SECRET: Final = "sk-given-on-a-page"
CALL: Final[dict[str, Any]] = {"tool": "keyed:get-env", "arguments": {}}


def keyed() -> dict[str, Any]:
    """The catalog's server `everything` under another name, and with a key that it requires."""
    entry = json.loads((CATALOG / "everything.json").read_text())
    [dependency] = entry["mcp_deps"]
    lock = json.loads((CATALOG / "locks" / "everything.json").read_text())
    needy = {**dependency, "name": "keyed", "lock": lock, "env_required": [KEY]}
    return {**entry, "fqdn": f"{PREFIX}.keyed", "mcp_deps": [needy]}


def settle(pml_home: Path, registry: Path) -> None:
    settings = {
        "registry": str(registry),
        "registry_prefix": PREFIX,
        "permissions": {"allow": ["keyed:*", "pml:call"]},
    }
    pml_home.mkdir(mode=0o700)
    (pml_home / "config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of PML in which the server `keyed` is installed, which a rule allowed; its key is missing."""
    place = tmp_path_factory.mktemp("keyed")
    registry = place / "registry"
    registry.mkdir()
    (registry / f"{PREFIX}.keyed.json").write_text(json.dumps(keyed()))
    settle(place / ".pml", registry)
    ran = subprocess.run(
        [sys.executable, "-m", "pml", "call", "keyed:get-env", "{}", "--json"],
        cwd=place,
        env={**bare_environment(place), **network_settings(), "PML_HOME": str(place / ".pml")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )
    if "check the network" in ran.stderr + ran.stdout:
        pytest.skip(f"needs an npm registry, which cannot be reached: {ran.stderr}")
    assert KEY in ran.stdout + ran.stderr, ran
    return place


@pytest.fixture
def workspace(tmp_path: Path, home: Path, installed: Path) -> Workspace:
    """A workspace on whose machine `keyed` is installed, without its key."""
    place = tmp_path / "shop"
    place.mkdir()
    pml_home, theirs = home / ".pml", installed / ".pml"
    settle(pml_home, installed / "registry")
    shutil.copytree(theirs / "servers", pml_home / "servers", symlinks=True)
    (pml_home / "deps.json").write_text(
        (theirs / "deps.json").read_text().replace(str(theirs), str(pml_home))
    )
    return Workspace(path=place.resolve(), home=home, notes=tmp_path / "none", network=network_settings())


@contextmanager
def hub_of(workspace: Workspace) -> Generator[Hub]:
    environment = {**bare_environment(workspace.home), "PML_HOME": str(workspace.home / ".pml")}
    with scripted() as api:
        hub = Hub(place=workspace.path, api=api, environment=environment)
        hub.start()
        try:
            yield hub
        finally:
            hub.stop()


class Person:
    """Opens the page that the client shows, and gives the key there; keeps all that the client was told."""

    def __init__(self, hub: Hub) -> None:
        self.asked: list[dict[str, Any]] = []
        self.told: list[str] = []
        self._hub = hub
        hub.ask("/api/secrets")  # logs in: beneath the process of a client that is connected nobody can
        self._giving: asyncio.Task[None] | None = None

    async def open(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        self._giving = asyncio.create_task(asyncio.to_thread(self._give, self.asked[-1]["url"]))
        return ElicitResult(action="accept")

    async def note(self, message: IncomingMessage) -> None:
        if isinstance(message, BaseModel):
            self.told.append(message.model_dump_json(by_alias=True, exclude_none=True))

    async def has_given(self) -> None:
        assert self._giving is not None
        await self._giving

    def _give(self, url: str) -> None:
        """Do what the page does."""
        approval_id = url.removeprefix(f"{self._hub.url}/#/secrets/")
        shown = self._hub.ask(f"/api/approvals/{approval_id}")
        self._hub.ask("/api/secrets", {"name": KEY, "value": SECRET})
        body = {"allow": True, "digest": shown["digest"]}
        self._hub.ask(f"/api/approvals/{approval_id}/decision", body)


@promise("secret:url-mode")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_key_given_on_the_page_reaches_the_server_and_nobody_else(
    workspace: Workspace, mode: Literal["auto", "legacy"]
) -> None:
    with hub_of(workspace) as hub:
        person = Person(hub)
        server = StdioServerParameters.model_validate(workspace.gateway.as_config())
        async with Client(
            server, mode=mode, elicitation_callback=person.open, message_handler=person.note
        ) as client:
            ran = await client.call_tool("call", CALL, read_timeout_seconds=INSTALL_S)
            await person.has_given()
        assert ran.is_error is not True, ran
        [block] = ran.content
        assert block.type == "text"
        assert json.loads(block.text)[KEY] == SECRET  # what the server says of its own environment
        [asked] = person.asked
        assert (asked["mode"], asked["url"].startswith(f"{hub.url}/#/secrets/")) == ("url", True)
        assert asked["message"].startswith(f"keyed requires {KEY}. ")
        assert ("elicitationId" in asked) == (mode == "legacy")
        assert any("elicitation/complete" in line for line in person.told) == (mode == "legacy")
        assert SECRET not in json.dumps(person.asked) + "".join(person.told)
        audit = hub.pml("audit", "list", "--json")
    assert audit.code == 0
    assert f'"name": "{KEY}"' in audit.out
    assert SECRET not in audit.out
