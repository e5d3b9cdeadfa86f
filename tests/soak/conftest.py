from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect these tests only where they are named: they take minutes."""
    return None if any("soak" in argument for argument in config.args) else True
