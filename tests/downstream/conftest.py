"""A client for each test, with one server behind the gateway."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.downstream.forms import elicitation
from pml.downstream.forms import form as forms
from tests.downstream.parties import Party, tool


@pytest.fixture
async def party(tmp_path: Path) -> AsyncGenerator[Party]:
    """A client that has said nothing yet. The server `files` offers `read`, `write` and `stat`."""
    party = Party(tmp_path)
    party.serve(
        "files",
        tool("read", required=["path"]),
        tool("write", required=["path", "text"]),
        tool("stat", outputSchema={"type": "object", "properties": {"size": {"type": "integer"}}}),
    )
    yield party
    await party.close()


@pytest.fixture(autouse=True)
def unhurried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers a form has read it, unless the test is about somebody `hurried`."""
    monkeypatch.setattr(forms, "INSTANT_S", 3600.0 if "hurried" in request.fixturenames else 0.0)


@pytest.fixture(autouse=True)
def told_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever continues a call too early is told so at once, unless the test is about somebody `patient`."""
    if "patient" not in request.fixturenames:
        monkeypatch.setattr(elicitation, "CONTINUE_S", 0.0)
        monkeypatch.setattr(elicitation, "CONTINUE_SILENT_S", 0.0)


@pytest.fixture
def patient() -> None:
    """Whoever continues a call waits for the decision."""


@pytest.fixture
def hurried() -> None:
    """Whoever answers a form cannot have read it."""
