"""A program in the workspace that changes after it was trusted is started only after a person's yes."""

import json
import sys
from pathlib import Path

import pytest

from tests.commands import Pml
from tests.promises import promise

OK, DENIED, PENDING = 0, 3, 4
ECHO = Path(__file__).parents[3] / "bench" / "echo_server.py"
HI = '{"text": "hi"}'
EVIL = "import pathlib; pathlib.Path('ran').touch()\n"


class Shop:
    """A workspace whose server is a script in it; `ran` tells whether what was put into it ran."""

    def __init__(self, path: Path, pml: Pml) -> None:
        self.path = path
        self.pml = pml
        self.script = path / "srv.py"
        self.write(evil=False)
        (path / "srv.sh").write_text(f'#!/bin/sh\nexec "{sys.executable}" srv.py\n')
        (path / "srv.sh").chmod(0o755)

    def write(self, *, evil: bool) -> None:
        self.script.write_text((EVIL if evil else "") + ECHO.read_text())

    def configure(self, *line: str) -> None:
        echo = {"command": line[0], "args": line[1:]}
        config = {"permissions": {"allow": ["echo:*"]}, "mcpServers": {"echo": echo}}
        (self.path / ".pml.json").write_text(json.dumps(config))
        assert self.pml("trust", "--yes").code == OK

    @property
    def ran(self) -> bool:
        return (self.path / "ran").exists()

    def call(self) -> int:
        return self.pml("call", "echo:echo", HI).code

    def answer(self, verb: str) -> None:
        (record,) = self.pml("approvals", "list", "--json").json["approvals"]
        assert record["subject"] == "integrity_changed"
        assert record["may_allow"] == ["person"]
        assert self.pml("approvals", verb, record["id"]).code == OK


@pytest.fixture
def shop(workspace: Path, pml: Pml) -> Shop:
    return Shop(workspace, pml)


LINES = pytest.mark.parametrize(
    "line", [(sys.executable, "srv.py"), (sys.executable, "-u", "./srv.py")], ids=str
)


@promise("server:programs-pinned")
@LINES
def test_a_changed_program_is_started_after_a_persons_yes_only(shop: Shop, line: tuple[str, ...]) -> None:
    shop.configure(*line)
    assert (shop.call(), shop.call()) == (OK, OK)
    shop.write(evil=True)
    assert (shop.call(), shop.ran) == (PENDING, False)
    assert (shop.call(), shop.ran) == (PENDING, False)
    shop.answer("allow")
    assert (shop.call(), shop.ran) == (OK, True)
    assert shop.call() == OK


@promise("server:programs-pinned")
def test_what_is_changed_between_trust_and_the_first_start_is_asked_about(shop: Shop) -> None:
    shop.configure(sys.executable, "srv.py")
    shop.write(evil=True)
    assert (shop.call(), shop.ran) == (PENDING, False)
    shop.answer("deny")
    assert (shop.call(), shop.ran) == (DENIED, False)


@promise("server:programs-pinned")
def test_a_program_that_was_not_there_when_its_file_was_trusted_is_asked_about(shop: Shop) -> None:
    shop.script.unlink()
    shop.configure(sys.executable, "srv.py")
    shop.write(evil=True)
    assert (shop.call(), shop.ran) == (PENDING, False)


@promise("server:programs-pinned")
def test_a_changed_command_is_asked_about(shop: Shop) -> None:
    shop.configure("./srv.sh")
    assert shop.call() == OK
    with (shop.path / "srv.sh").open("a") as script:
        script.write("# more\n")
    assert shop.call() == PENDING


@promise("server:programs-pinned")
def test_trusting_the_file_again_does_not_accept_a_changed_program(shop: Shop) -> None:
    shop.configure(sys.executable, "srv.py")
    shop.write(evil=True)
    assert shop.pml("trust", "--remove").code == OK
    assert shop.pml("trust", "--yes").code == OK
    assert (shop.call(), shop.ran) == (PENDING, False)


def test_a_list_of_tools_starts_no_changed_program(shop: Shop) -> None:
    shop.configure(sys.executable, "srv.py")
    shop.write(evil=True)
    shop.pml("servers", "status")
    shop.pml("call", "pml:discover", "{}")
    assert not shop.ran
