"""Commands that have verbs of their own (`pml approvals list`), and the options that all of them share."""

import argparse
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from pml.cli.exits import Exit
from pml.cli.options import HelpText

WORKSPACE: Final = "the workspace (default: the working directory)"
MAX_PAGE: Final = 10_000
MAX_PLACE: Final = 2**63 - 1  # the largest number that the database counts to

Outcome: TypeAlias = int | Coroutine[Any, Any, int]
Serve: TypeAlias = Callable[[argparse.Namespace], Outcome]


class Verbs:
    """The verbs of one command; each is served by its own function."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._verbs: Any = parser.add_subparsers(dest="verb", metavar="VERB")

        def show_help(_: argparse.Namespace) -> int:
            parser.print_help()
            return Exit.OK

        parser.set_defaults(serve=show_help)  # a verb puts its own in this place

    def add(
        self,
        name: str,
        summary: str,
        serve: Serve,
        *,
        epilog: str | None = None,
        workspace: str = WORKSPACE,
    ) -> argparse.ArgumentParser:
        """Add a verb and return its parser, which has the common options already.

        `workspace` is the help of `--workspace`, where that means more than usual.
        """
        parser: argparse.ArgumentParser = self._verbs.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=epilog,
            formatter_class=HelpText,
            allow_abbrev=False,
        )
        add_common(parser, workspace=workspace)
        parser.set_defaults(serve=serve)
        return parser


def add_common(parser: argparse.ArgumentParser, *, workspace: str = WORKSPACE) -> None:
    """Add what every command that prints takes."""
    parser.add_argument("--workspace", metavar="DIR", help=workspace)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run_verb(args: argparse.Namespace) -> Outcome:
    """Run the verb that was given; without one, show the command's help."""
    return args.serve(args)


def page_size(text: str) -> int:
    """Return how many to list at the most, for argparse."""
    return _number(text, low=1, high=MAX_PAGE)


def place(text: str) -> int:
    """Return a place in the audit log, for argparse."""
    return _number(text, low=0, high=MAX_PLACE)


def _number(text: str, *, low: int, high: int) -> int:
    number = int(text)
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"must be from {low} to {high}")
    return number
