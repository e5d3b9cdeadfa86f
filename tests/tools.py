"""The programs outside Python that some tests need."""

import shutil

import pytest


def need(tool: str) -> str:
    """Return the path of the program `tool`, or skip the test; where `CI` is set, a skip is a failure."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"needs `{tool}`, which is not installed")
    return path
