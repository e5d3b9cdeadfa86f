"""Real servers behind the gateway answer as they do without it."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients import TYPESCRIPT_1, Client, call, connected, tools_of
from tests.e2e.installed import Server, bare_environment, gateway, need_clients, npm_server, python_server
from tests.e2e.workspaces import ASKED, Workspace
from tests.tools import need

Calls = list[tuple[str, Mapping[str, object]]]


def make_repository(path: Path, home: Path) -> Path:
    """Make a git repository with one commit."""
    path.mkdir()
    (path / "README").write_text("hello\n")
    git = [need("git"), "-C", str(path), "-c", "user.name=Ada", "-c", "user.email=ada@example.invalid"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], env=bare_environment(home), check=True, timeout=30)
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "shop"
    place.mkdir()
    return place


@pytest.fixture
def servers(shop: Path, tmp_path: Path, home: Path) -> dict[str, tuple[Server, Calls]]:
    """The servers, each with calls whose results say something about content, structure or errors."""
    need_clients()
    docs = str(shop / "docs")  # in the workspace: PML tells servers that this is where they are at work
    (shop / "docs").mkdir()
    (shop / "docs" / "a.txt").write_text("grüße\n")
    repository = str(make_repository(tmp_path / "repository", home))
    noon = {"source_timezone": "Europe/Zurich", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return {
        "everything": (
            npm_server("everything"),
            [
                ("echo", {"message": "a\u2028b 🙂"}),
                ("get-sum", {"a": 1e15, "b": 0.25}),
                ("get-sum", {"a": "one", "b": 2}),
                ("get-tiny-image", {}),
                ("get-structured-content", {"location": "Chicago"}),
                ("get-resource-links", {"count": 3}),
                ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ],
        ),
        "memory": (
            npm_server("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "notes.jsonl")}),
            [("create_entities", ASKED), ("read_graph", {}), ("search_nodes", {"query": "Ada"})],
        ),
        "filesystem": (
            npm_server("filesystem", docs),
            [
                ("list_directory", {"path": docs}),
                ("read_text_file", {"path": f"{docs}/a.txt"}),
                ("read_text_file", {"path": f"{docs}/missing.txt"}),
            ],
        ),
        "time": (
            python_server("time"),
            [("convert_time", noon), ("convert_time", {**noon, "time": "25:00"})],
        ),
        "git": (
            python_server("git", "--repository", repository),
            [("git_status", {"repo_path": repository}), ("git_log", {"repo_path": repository})],
        ),
    }


async def answers_of(client: Client, calls: Calls, *, prefix: str = "") -> list[Any]:
    outcomes = [await call(client, prefix + tool, arguments) for tool, arguments in calls]
    return [outcome.result or outcome.error for outcome in outcomes]


async def test_five_real_servers_answer_through_the_gateway_as_they_do_directly(
    servers: dict[str, tuple[Server, Calls]], shop: Path, tmp_path: Path, home: Path
) -> None:
    settings = {
        "permissions": {"allow": ["*:*"]},
        "mcpServers": {name: server.as_config() for name, (server, _) in servers.items()},
    }
    (shop / ".pml.json").write_text(json.dumps(settings))
    workspace = Workspace(path=shop, home=home, notes=tmp_path / "notes.jsonl")
    workspace.trust()

    async with connected(TYPESCRIPT_1, gateway(shop), home=home) as through:
        for name, (server, calls) in servers.items():
            workspace.notes.unlink(missing_ok=True)
            async with connected(TYPESCRIPT_1, server, home=home) as direct:
                expected = await answers_of(direct, calls)
                tools = await tools_of(direct)
            workspace.notes.unlink(missing_ok=True)
            assert await answers_of(through, calls, prefix=f"{name}__") == expected
            offered = await tools_of(through)  # a server that was late at first is there by now
            for tool, definition in tools.items():
                shown = offered[f"{name}__{tool}"]
                assert shown["inputSchema"] == definition["inputSchema"]
                assert shown["description"] == definition["description"]
