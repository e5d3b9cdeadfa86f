"""Capabilities of a registry, through real clients: asked about with all they call, and run without it later."""

import json
import shutil
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.claude import run_headless
from tests.e2e.clients import ACCEPT, PYTHON, PYTHON_LEGACY, Client, Kind, call, connected
from tests.e2e.code_registry import PREFIX, Registry, cloud_of
from tests.e2e.code_rig import LEDGER, Books, error_of, question, shown, value_of
from tests.e2e.installed import need_clients, network_settings
from tests.e2e.messages_api import Conversation, Use, scripted
from tests.e2e.workspaces import Workspace, install_time, take_time
from tests.promises import promise

every_kind = pytest.mark.parametrize("kind", ["deno", "python"])
HOUR = {"tool": "clock:hour", "arguments": {"zone": "UTC"}}
RULES = {"allow": ["ledger:open"], "deny": [], "ask": ["*"]}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_time(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def books(tmp_path: Path, home: Path, installed: Path) -> Books:
    """A workspace with the ledger, on a machine where `time` is installed."""
    need_clients()
    place = (tmp_path / "shop").resolve()
    place.mkdir()
    workspace = Workspace(path=place, home=home, notes=place / "ledger.txt", network=network_settings())
    take_time(workspace, installed)
    return Books(workspace=workspace)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(folder=tmp_path / "registry")


@pytest.mark.parametrize("source", ["folder", "cloud"])
@every_kind
async def test_a_capability_is_asked_about_with_all_it_calls_and_goes_on_without_its_registry(
    books: Books, registry: Registry, tmp_path: Path, kind: str, source: str
) -> None:
    registry.add_clock(kind)
    with ExitStack() as stack:
        where = str(registry.folder)
        if source == "cloud":
            where = stack.enter_context(cloud_of(registry.folder, tmp_path / "cloud")).url
        books.rule(RULES, registry=where, registry_prefix=PREFIX)
        first = await call_alone(books, HOUR)
        [form] = first.forms
        assert form["message"].startswith("Call clock:hour?\n")
        assert "time:get_current_time" in form["message"]
        assert "ledger:open (allowed)" in form["message"]
        assert value_of(shown(first)) == {"zone": "UTC"}
    registry.folder.rename(tmp_path / "elsewhere")
    second = await call_alone(books, HOUR)
    assert value_of(shown(second)) == {"zone": "UTC"}
    assert books.effects == ["open UTC", "open UTC"]


async def call_alone(books: Books, arguments: Mapping[str, object], *, kind: Kind = PYTHON) -> Any:
    """Call a tool in a connection of its own, and accept every form."""
    place = books.workspace
    async with connected(kind, place.gateway, home=place.home, forms=True) as client:
        return await call(client, "call", arguments, answer=ACCEPT)
