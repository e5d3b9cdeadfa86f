"""An installer whose packages are made here, beneath a home of its own."""

from pathlib import Path

import pytest

from pml.install.installer import DiskInstaller
from tests.install.makers import FakeEcosystem, make_installer


@pytest.fixture
def pml_home(tmp_path: Path) -> Path:
    return tmp_path / "pml"


@pytest.fixture
def ecosystem() -> FakeEcosystem:
    return FakeEcosystem()


@pytest.fixture
def installer(pml_home: Path, ecosystem: FakeEcosystem) -> DiskInstaller:
    return make_installer(pml_home, ecosystem)
