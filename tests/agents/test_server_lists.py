"""Where clients keep their servers, on each system."""

from pathlib import Path

import pytest

from pml.agents.known import KNOWN, SERVER_FILES
from pml.agents.server_lists import Machine, path_of
from tests.promises import promise

PLACES = {
    "linux": {
        "/home/me/.claude.json",
        "/home/me/.config/Claude/claude_desktop_config.json",
        "/home/me/.config/Code/User/mcp.json",
        "/home/me/.cursor/mcp.json",
        "/home/me/.codex/config.toml",
        "/shop/.mcp.json",
        "/shop/.vscode/mcp.json",
    },
    "darwin": {
        "/home/me/.claude.json",
        "/home/me/Library/Application Support/Claude/claude_desktop_config.json",
        "/home/me/Library/Application Support/Code/User/mcp.json",
        "/home/me/.cursor/mcp.json",
    },
    "win32": {
        "/home/me/.claude.json",
        "/roaming/Claude/claude_desktop_config.json",
        "/roaming/Code/User/mcp.json",
    },
}


def places(system: str, environ: dict[str, str]) -> set[str]:
    machine = Machine(environ=environ, home=Path("/home/me"), workspace=Path("/shop"), system=system)
    return {str(path) for file in SERVER_FILES if (path := path_of(file, machine))}


@pytest.mark.parametrize("system", sorted(PLACES))
def test_each_system_has_its_places(system: str) -> None:
    assert places(system, {"APPDATA": "/roaming"}) >= PLACES[system]


def test_what_variables_move_is_looked_for_there() -> None:
    moved = {"CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/cc", "XDG_CONFIG_HOME": "/x"}
    found = places("linux", moved)
    assert {"/c/config.toml", "/cc/.claude.json", "/x/Code/User/mcp.json"} <= found
    assert "/home/me/.claude.json" not in found


def test_on_another_system_nothing_is_guessed() -> None:
    assert places("plan9", {}) == set()


@promise("reserved:imported-files")
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_every_file_that_servers_are_imported_from_is_a_settings_file(system: str) -> None:
    """An agent that may write one unasked would have a person import what it wrote."""
    of_none = {
        path for path in places(system, {"APPDATA": "/roaming"}) if KNOWN.settings_files.file(path) is None
    }
    assert of_none == set()
