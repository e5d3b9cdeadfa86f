"""Benches on which Claude Code is launched."""

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agents.launching import Bench
from tests.agents.stand_in_hub import Asked, allow, hub_answering
from tests.e2e.messages_api import Turn, scripted

MakeBench = Callable[..., Bench]


@pytest.fixture
def bench(tmp_path: Path, home: Path) -> Generator[MakeBench]:
    """Return what makes a bench: with what the model says, and how the hub answers."""
    with ExitStack() as stack:

        def make(*script: Turn, answer: Callable[[Asked], dict[str, Any]] = allow) -> Bench:
            workspace = tmp_path / "shop"
            workspace.mkdir()
            (home / ".pml").mkdir(mode=0o700)
            return Bench(
                api=stack.enter_context(scripted(*script)),
                hub=stack.enter_context(hub_answering(answer)),
                home=home,
                workspace=workspace,
                configs=tmp_path / "configs",
            )

        yield make
