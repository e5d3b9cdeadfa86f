"""Commands that have verbs of their own (`pml approvals list`), and the options that all of them share."""

import argparse
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from pml.cli.exits import Exit

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
        self, name: str, summary: str, serve: Serve, *, epilog: str | None = None
    ) -> argparse.ArgumentParser:
        """Add a verb and return its parser, which has the common options already."""
        parser: argparse.ArgumentParser = self._verbs.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_common(parser)
        parser.set_defaults(serve=serve)
        return parser


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add what every command that prints takes."""
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run_verb(args: argparse.Namespace) -> Outcome:
    """Run the verb that was given; without one, show the command's help."""
    return args.serve(args)
