"""`pml`: finds the command, runs it, turns errors into exit codes. A command is imported when it is used."""

import argparse
import asyncio
import importlib
import sys
from collections.abc import Callable, Coroutine, Sequence
from difflib import get_close_matches
from typing import Any, Final, Protocol, cast

from pml import __version__
from pml.cli.exits import Exit, exit_of
from pml.cli.guards import take_token_file
from pml.cli.interrupts import until_done
from pml.cli.options import HelpText, Parser, parse
from pml.cli.terminal.output import complain, complain_prose, print_error
from pml.core.errors import ConfigInvalid, PmlError
from pml.core.text import quote, visible

COMMANDS: Final[dict[str, str]] = {
    "init": "create the workspace's .pml.json",
    "trust": "trust the workspace's .pml.json as it is now",
    "stdio": "serve an agent's MCP client on standard input and output",
    "serve": "serve the hub: MCP, approvals and events over HTTP",
    "launch": "run Claude Code with PML as its gateway, asking for its tools",
    "sessions": "list, look at and stop the agents that run",
    "call": "call one tool; asks here if needed",
    "servers": "list, look at and stop the MCP servers of the workspace",
    "deps": "list, install, verify and remove servers",
    "catalog": "show the servers that PML knows by itself",
    "add": "add any server by one line: a package, a URL, a name",
    "remove": "remove a server that was added",
    "import": "take over the servers that other clients have",
    "capability": "write, check and accept capabilities",
    "publish": "check capabilities, add hashes and locks, fill a registry's folder",
    "cloud": "serve a folder of capabilities as a registry, and run its tools for others",
    "approvals": "list, show, answer, and ask for approvals",
    "inbox": "answer what waits, on this terminal or in the browser",
    "rules": "list, add, remove and explain rules",
    "secrets": "store the values that servers need, and list their names",
    "login": "log in to a remote server",
    "logout": "log out of a remote server: revoke its tokens, and forget them",
    "token": "make, list and revoke the tokens of the hub",
    "hook": "answer Claude Code, which starts this before every tool",
    "audit": "read and verify the audit log",
    "doctor": "check the setup and say what to fix",
    "completion": "print a script that completes commands, ids, tools and servers",
    "uninstall": "show and remove all that PML put on this machine",
    "version": "print the version",
}


class Command(Protocol):
    """A module in `pml.cli` that serves one command."""

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int | Coroutine[Any, Any, int]: ...


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    words = [*argv]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    name = next((word for word in words if not word.startswith("-")), None)
    is_first = words[:1] == [name]
    parser = _parser(name, listing=not is_first)
    if name is not None and name not in COMMANDS and is_first:
        return _refuse_command(parser, name)
    try:
        args = parse(parser, words)
    except SystemExit as exc:  # argparse has printed the usage
        return exc.code if isinstance(exc.code, int) else Exit.USAGE
    if args.command is None:
        parser.print_help()
        return Exit.OK
    args.token_file = take_token_file()
    run = cast("Callable[[argparse.Namespace], int | Coroutine[Any, Any, int]]", args.run)
    try:
        outcome = run(args)
        return outcome if isinstance(outcome, int) else asyncio.run(until_done(outcome))
    except PmlError as exc:
        print_error(_with_hint(exc), as_json=getattr(args, "json", False))
        return exit_of(exc)
    except (KeyboardInterrupt, asyncio.CancelledError):
        complain(("\n" if sys.stderr.isatty() else "") + "pml: interrupted")  # the terminal has echoed ^C
        return Exit.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, so nothing can be reported
        return Exit.FAILED
    except OSError as exc:
        from pml.host.disk import unavailable

        where = f": {visible(exc.filename)}" if isinstance(exc.filename, str) else ""
        print_error(unavailable(f"cannot go on{where}", exc), as_json=getattr(args, "json", False))
        return Exit.FAILED
    except Exception as exc:  # a mistake of ours: logged whole, shown bare
        from pml.app import is_debugging

        if is_debugging():
            raise
        error = PmlError(f"internal error: {type(exc).__name__}", hint="`PML_LOG=debug` shows all of it")
        print_error(error, as_json=getattr(args, "json", False))
        return exit_of(error)


def _refuse_command(parser: argparse.ArgumentParser, name: str) -> int:
    near = get_close_matches(name, COMMANDS, n=1)
    parser.print_usage(sys.stderr)
    complain(f"pml: no command {quote(name)}" + (f"; did you mean `{near[0]}`?" if near else ""))
    complain_prose(f"  → there are {', '.join(COMMANDS)}")
    return Exit.USAGE


def _with_hint(error: PmlError) -> PmlError:
    """Return the error with a next step; what reads a configuration file does not know of one."""
    if not isinstance(error, ConfigInvalid) or error.hint is not None:
        return error
    hint = "fix it there; `pml doctor` checks both files"
    return ConfigInvalid(error.path, error.line, error.column, error.problem, hint=hint)


def _parser(name: str | None, *, listing: bool) -> Parser:
    """Return what reads the command `name`; `listing`: all commands may have to be listed."""
    parser = Parser(
        prog="pml",
        description="Permissioned MCP Loader: decide what the tools of your AI agents may do.",
        epilog="`pml help COMMAND` shows a command's options and examples.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pml {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command, summary in COMMANDS.items():
        if not listing and command != name:
            continue  # each takes as long as reading the whole command line
        sub = commands.add_parser(
            command,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=HelpText,
            allow_abbrev=False,
        )
        if command == name:
            module = cast(Command, importlib.import_module(f"pml.cli.commands.{command}"))
            module.configure(sub)
            sub.set_defaults(run=module.run)
    return parser
