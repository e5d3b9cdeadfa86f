"""Output at a terminal of 80 columns: broken between words, and whatever is longer stays whole."""

import importlib
import json
import shlex
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pml.cli.main import COMMANDS
from pml.cli.options import HelpText, Parser
from pml.cli.terminal.output import say_command, wrapped
from tests.cli.terminals import Terminal, on_terminal
from tests.commands import Pml
from tests.promises import promise

COLUMNS = 80  # what is taken where a terminal does not tell
LOOSE = {
    "permissions": {
        "allow": [
            {
                "tool": "filesystem:write_file",
                "args": {"path": {"under": "./some/folder/that/has/a/long/name"}},
            },
        ],
    },
    "mcpServers": {
        "notes": {
            "command": "npx",
            "args": ["-y", "@example/notes-server@1.2.3", "--folder", "./notes", "--verbose"],
        }
    },
}


def too_long(screen: str) -> list[str]:
    """Return the lines that a terminal would break, but for those that are one word."""
    lines = [line.rstrip() for line in screen.split("\n")]
    return [line for line in lines if len(line) > COLUMNS and len(line.split()) > 1]


def end(terminal: Terminal) -> str:
    terminal.end()
    return terminal.screen


@promise("show:words-whole")
@pytest.mark.parametrize(
    "argv", [("init",), ("init", "--claude-code"), ("init", "--claude-code", "--user", "--print")]
)
def test_init_breaks_no_word(workspace: Path, pml_home: Path, argv: tuple[str, ...]) -> None:
    with on_terminal(*argv, typed="p\n", stdout_too=True) as terminal:
        assert too_long(end(terminal)) == []
    with on_terminal(*argv, stdout_too=True) as terminal:  # once more: nothing is to be done
        assert too_long(end(terminal)) == []


@promise("show:words-whole")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_trust_breaks_no_word(workspace: Path, pml_home: Path, answer: str) -> None:
    (workspace / ".pml.json").write_text(json.dumps(LOOSE))
    with on_terminal("trust", stdout_too=True) as terminal:
        terminal.until("[y/N]")
        terminal.type(f"{answer}\n")
        screen = end(terminal)
    assert too_long(screen) == []
    assert "@example/notes-server@1.2.3" in screen


@promise("show:words-whole")
def test_serve_breaks_no_word(workspace: Path, pml_home: Path) -> None:
    with on_terminal("serve", "--port", "0", stdout_too=True) as terminal:
        screen = terminal.until("what waits is kept\n")
    long = [line for line in too_long(screen) if "http" not in line]
    assert long == []


@promise("show:words-whole")
@pytest.mark.parametrize(
    "argv",
    [
        ("approvals", "ask", "deploy:start", '{"to": "staging"}'),
        ("rules", "allow", "deploy"),
        ("servers", "list"),
    ],
    ids=" ".join,
)
def test_a_sentence_breaks_no_word(workspace: Path, pml_home: Path, argv: tuple[str, ...]) -> None:
    with on_terminal(*argv, stdout_too=True) as terminal:
        screen = end(terminal)
    assert len(screen.splitlines()) > 1
    assert [line for line in too_long(screen) if str(workspace) not in line] == []


class Listed(Parser):
    """A parser that keeps a list of itself and of those of its verbs, which have its class."""

    made: ClassVar[list[Parser]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made.append(self)


@promise("show:words-whole")
@pytest.mark.parametrize("command", COMMANDS)
def test_help_breaks_no_word(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setattr(Listed, "made", [])
    importlib.import_module(f"pml.cli.commands.{command}").configure(
        Listed(prog=f"pml {command}", formatter_class=HelpText)
    )
    long = [line for each in Listed.made for line in too_long(each.format_help())]
    assert [line for line in long if "'" not in line] == []  # what is quoted cannot be broken


def help_of(epilog: str) -> str:
    parser = Parser(prog="pml", usage="pml", formatter_class=HelpText, add_help=False, epilog=epilog)
    return parser.format_help().removeprefix("usage: pml\n\n").removesuffix("\n")


def test_an_example_that_is_too_long_stays_one_that_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "42")  # argparse leaves two free
    epilog = (
        "One sentence that goes on\nand on.\n\nexamples:\n"
        "  pml do it --so-far 1 --and-much-further 22\n"
        "  pml do      words that explain it all\n"
        "  pml do something else    words that explain it"
    )
    assert help_of(epilog).split("\n") == [
        "One sentence that goes on",
        "and on.",
        "",
        "examples:",
        "  pml do it --so-far 1 \\",
        "      --and-much-further 22",
        "  pml do      words that explain it all",
        "  pml do something else",
        "      words that explain it",
    ]
    monkeypatch.setenv("COLUMNS", "32")
    assert help_of("One sentence that goes on quite\na bit.") == "One sentence that goes on\nquite a bit."


@promise("show:words-whole")
@pytest.mark.parametrize("argv", [("catalog", "list"), ("doctor", "--quick"), ("bogus",)])
def test_tables_and_lists_break_no_word(workspace: Path, pml_home: Path, argv: tuple[str, ...]) -> None:
    with on_terminal(*argv, stdout_too=True) as terminal:
        screen = end(terminal)
    assert [line for line in too_long(screen) if str(workspace) not in line] == []  # a path stays whole


@promise("show:words-whole")
@pytest.mark.parametrize("verb", ["list", "show"])
def test_a_card_breaks_no_word(workspace: Path, pml_home: Path, pml: Pml, verb: str) -> None:
    asked = pml.ask("files:write", json.dumps({"text": "some words " * 12, "path": "/long" * 30}))
    with on_terminal("approvals", verb, *([asked] if verb == "show" else []), stdout_too=True) as terminal:
        screen = end(terminal)
    whole = ("/long/long", str(workspace))
    assert [line for line in too_long(screen) if not any(path in line for path in whole)] == []
    assert verb == "list" or "/long" * 30 in screen


def test_a_text_is_broken_between_words_and_continues_beneath_them() -> None:
    assert wrapped("  one two three", 9) == ["  one two", "    three"]
    assert wrapped("see /a/long-path/that/stays whole", 10) == ["see", "  /a/long-path/that/stays", "  whole"]
    assert wrapped("a line stays a line where it is not read on a terminal", None) == [
        "a line stays a line where it is not read on a terminal"
    ]


def test_a_command_that_is_broken_can_be_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pml.cli.terminal.output.columns", lambda: 20)
    words = ["claude", "mcp", "add", "--scope", "user", "a name", "--", "/a/long/path/of/python"]
    say_command(words)

    out = capsys.readouterr().out
    assert max(len(line) for line in out.split("\n") if "python" not in line) <= 20
    assert shlex.split(out.replace("\\\n", " ")) == words
