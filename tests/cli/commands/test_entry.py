"""The `pml` script itself: Ctrl-C while it still imports ends it quietly."""

import subprocess
import sys

import pytest

from tests.commands import TIMEOUT_S
from tests.promises import promise

INTERRUPTED_AT = """
import sys

module = sys.argv.pop(1)

class CtrlC:
    def find_spec(self, name, *_):
        if name == module:
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
from pml.cli.entry import entry

entry()
"""


def interrupt(module: str, *words: str) -> tuple[int, str, str]:
    """Run a command line with a Ctrl-C while it imports `module`; return its code and what it printed."""
    command = [sys.executable, "-c", INTERRUPTED_AT, module, *words]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("pml.cli.main", ("launch", "--", "claude")),
        ("pml.cli.commands.launch", ("launch", "--", "claude")),
        ("pml.cli.commands.stdio", ("stdio",)),
    ],
)
def test_an_interrupt_during_the_start_is_told_without_a_traceback(
    module: str, words: tuple[str, ...]
) -> None:
    assert interrupt(module, *words) == (130, "", "pml: interrupted\n")


@promise("hook:fails-closed")
def test_a_hook_that_is_interrupted_during_its_start_blocks_the_tool() -> None:
    assert interrupt("pml.cli.commands.hook", "hook", "--timeout", "60") == (2, "", "pml: interrupted\n")
