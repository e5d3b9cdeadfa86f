"""A workspace and the two configuration files that count in it, neither of which exists yet."""

from pathlib import Path

import pytest

from pml.settings.config_files import WorkspaceFiles
from tests.settings.places import Now, files_in


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "w"
    place.mkdir()
    return place


@pytest.fixture
def files(home: Path, workspace: Path, now: Now) -> WorkspaceFiles:
    return files_in(home, workspace, now=now)
