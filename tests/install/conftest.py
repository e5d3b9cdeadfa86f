"""An installer beneath a home of its own, a package index on loopback, and the folders of one install."""

from collections.abc import Generator
from pathlib import Path

import pytest

from pml.install.installer import DiskInstaller
from tests.install.makers import FakeEcosystem, make_installer
from tests.install.python_index import PythonIndex, serve_index


@pytest.fixture
def pml_home(tmp_path: Path) -> Path:
    return tmp_path / "pml"


@pytest.fixture
def ecosystem() -> FakeEcosystem:
    return FakeEcosystem()


@pytest.fixture
def installer(pml_home: Path, ecosystem: FakeEcosystem) -> DiskInstaller:
    return make_installer(pml_home, ecosystem)


@pytest.fixture
def index() -> Generator[PythonIndex]:
    with serve_index() as served:
        yield served


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    scratch, tree = tmp_path / "scratch", tmp_path / "tree"
    scratch.mkdir()
    tree.mkdir()
    return scratch, tree
