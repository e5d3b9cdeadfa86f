"""Running `pml`: in this process, where it is quick, or as a process of its own."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import pytest

from pml.cli.main import main

TIMEOUT_S: Final = 60.0  # only ever reached by a process that hangs


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Pml:
    """Runs command lines in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *argv: str) -> Ran:
        self._capsys.readouterr()
        code = main(argv)
        out, err = self._capsys.readouterr()
        return Ran(code=code, out=out, err=err)

    def ask(self, tool: str, arguments: str = "{}", *, session: str = "robot") -> str:
        """Ask, do not wait, and return the id of the approval."""
        ran = self("approvals", "ask", tool, arguments, "--session", session, "--json")
        return ran.json["approval"]["id"]

    def status(self, approval_id: str) -> str:
        return self("approvals", "show", approval_id, "--json").json["status"]


def spawn(argv: Sequence[str], *, stdout: int | IO[Any] = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start `pml` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "pml", *argv],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def run_process(*argv: str) -> Ran:
    """Run `pml` as a process of its own."""
    with spawn(argv) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
    return Ran(code=process.returncode, out=out, err=err)
