"""A link that is exchanged all the time while a real file server reads by an allow: nothing leaks."""

import contextlib
import json
import os
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.clients import PYTHON, TYPESCRIPT_1, Kind, call, connected
from tests.e2e.installed import need_clients, npm_server
from tests.e2e.workspaces import Workspace
from tests.promises import promise

SECRET: Final = "the-person-said-no"
CALLS: Final = 40  # without the guard, 7 to 18 of them leaked
ALLOW_HERE: Final[Mapping[str, object]] = {
    "allow": [{"tool": "files:read_text_file", "args": {"path": {"under": "."}}}]
}


@contextlib.contextmanager
def exchanged(link: Path, *targets: Path) -> Generator[None]:
    """Let the link lead to one of the targets after the other, all the time."""
    over = threading.Event()

    def exchange() -> None:
        while not over.is_set():
            for target in targets:
                os.symlink(target, f"{link}.new")
                os.replace(f"{link}.new", link)

    thread = threading.Thread(target=exchange)
    link.symlink_to(targets[0])
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def workspace(tmp_path: Path, home: Path) -> Workspace:
    need_clients()
    place = tmp_path.resolve() / "shop"
    private = tmp_path.resolve() / "private"
    for folder in (place, private):
        folder.mkdir()
    (place / "notes.txt").write_text("only notes")
    (private / "key").write_text(SECRET)
    return Workspace(path=place, home=home, notes=tmp_path / "none")


@promise("rules:no-allow-through-links")
@pytest.mark.parametrize("client", [TYPESCRIPT_1, PYTHON], ids=lambda kind: kind.name)
@pytest.mark.parametrize("is_denied_by_path", [False, True])
async def test_a_link_that_is_exchanged_all_the_time_shows_nothing_else(
    workspace: Workspace, client: Kind, is_denied_by_path: bool
) -> None:
    private = workspace.path.parent / "private"
    deny = {"allow": ["files:*"], "deny": [{"tool": "files:*", "args": {"*": {"under": str(private)}}}]}
    server = npm_server("filesystem", str(workspace.path.parent)).as_config()  # it may read both itself
    approval = {"unlisted": "every_call", "model_may_approve": "never"}
    rules = deny if is_denied_by_path else ALLOW_HERE
    workspace.configure({"mcpServers": {"files": server}, "permissions": rules, "approval": approval})

    link, seen = workspace.path / "link.txt", list[str]()
    async with connected(client, workspace.gateway, home=workspace.home) as agent:
        read = "files__read_text_file"
        plain = await call(agent, read, {"path": str(workspace.path / "notes.txt")})
        assert plain.text == "only notes"
        with exchanged(link, workspace.path / "notes.txt", private / "key"):
            for _ in range(CALLS):
                outcome = await call(agent, read, {"path": str(link)})
                seen.append(json.dumps(outcome.result or outcome.error))
    assert not [text for text in seen if SECRET in text]
    assert not [text for text in seen if "only notes" in text]  # not even where the link led to the right one
