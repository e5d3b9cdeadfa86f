"""A workspace with two real servers, which PML stands before: one tool allowed, one asked for, one denied.

And the inbox: a hub with a browser before it for each module, a tab in which a person is for each test.
"""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.e2e.agent_rig import Shop, open_shop
from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Caller, Inbox, inbox_running
from tests.e2e.inbox_tab import Tab, opened
from tests.e2e.installed import need_clients, npm_server
from tests.e2e.workspaces import Workspace


@pytest.fixture
def untrusted(tmp_path: Path, home: Path) -> Workspace:
    """A fresh clone, so to speak: its file is there, and nobody has looked at it yet."""
    need_clients()
    place = tmp_path / "shop"
    place.mkdir()
    notes = tmp_path / "notes.jsonl"
    servers = {
        "everything": npm_server("everything"),
        "memory": npm_server("memory", env={"MEMORY_FILE_PATH": str(notes)}),
    }
    settings = {
        "permissions": {
            "allow": ["everything:echo", "memory:read_graph"],
            "deny": ["everything:get-env"],
            "ask": ["memory:create_entities"],
        },
        "mcpServers": {name: server.as_config() for name, server in servers.items()},
    }
    (place / ".pml.json").write_text(json.dumps(settings, indent=2) + "\n")
    return Workspace(path=place.resolve(), home=home, notes=notes)


@pytest.fixture
def workspace(untrusted: Workspace) -> Workspace:
    """A workspace whose file a person has trusted."""
    untrusted.trust()
    return untrusted


@pytest.fixture
def shop(tmp_path: Path, home: Path) -> Shop:
    """A workspace for an agent that a test drives, with a server that is slow to start."""
    return open_shop(tmp_path, home)


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Generator[Inbox]:
    with inbox_running(tmp_path_factory.mktemp("inbox")) as running:
        yield running


@pytest.fixture
def room(inbox: Inbox) -> Room:
    """A workspace of that hub that nobody has used."""
    return inbox.room()


@pytest.fixture
def agent(inbox: Inbox, room: Room) -> Caller:
    """An agent in that room."""
    return inbox.caller(room)


@pytest.fixture
def tab(inbox: Inbox) -> Generator[Tab]:
    """A tab with the inbox in it; whatever waits still at the end is denied."""
    with opened(inbox) as tab:
        tab.log_in()
        yield tab
    inbox.clear()
