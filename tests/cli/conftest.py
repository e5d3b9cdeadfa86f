"""`pml` as a person or a script runs it, with a home and a workspace of its own."""

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from pml.app import find_place, open_context
from pml.core.approvals.record import SessionId
from pml.service.session_tree import start_session
from tests.cli.offering import Registry
from tests.commands import Pml
from tests.install.python_index import serve_index


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace, which is the working directory."""
    place = tmp_path / "shop"
    place.mkdir()
    monkeypatch.chdir(place)
    return place.resolve()


@pytest.fixture
def pml_home(home: Path) -> Path:
    return home / ".pml"


@pytest.fixture
def pml(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Pml:
    return Pml(capsys)


@pytest.fixture
def local(pml: Pml, workspace: Path) -> Path:
    """The workspace's file, new and trusted."""
    assert pml("init").code == 0
    return workspace / ".pml.json"


@pytest.fixture
def user(pml_home: Path) -> Path:
    """The user's file; it does not exist yet."""
    return pml_home / "config.json"


@pytest.fixture
def agent(workspace: Path) -> None:
    """Register this very process as an agent: every command it starts runs beneath an agent."""

    async def register() -> None:
        place = find_place()
        async with open_context(place) as context:
            await start_session(
                context,
                session_id=SessionId("the-agent"),
                name="the-agent",
                principal="robot",
                workspace=str(place.workspace),
                process=context.processes.ancestors()[0],
                is_agent=True,
            )

    asyncio.run(register())


@pytest.fixture
def registry(
    tmp_path: Path, workspace: Path, pml_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[Registry]:
    """A registry's folder that the user's file names, and that offers the server `greeter`."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "registry"
    folder.mkdir()
    with serve_index() as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
        yield Registry(folder, index, pml_home)
