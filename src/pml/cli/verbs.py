"""Commands that have verbs of their own (`pml approvals list`), and the options that all of them share."""

import argparse
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

Serve: TypeAlias = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]


class Verbs:
    """The verbs of one command; each is served by its own function."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._verbs: Any = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

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
        )
        add_common(parser)
        parser.set_defaults(serve=serve)
        return parser


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add what every command that prints takes."""
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run_verb(args: argparse.Namespace) -> Coroutine[Any, Any, int]:
    """Run the verb that was given."""
    return args.serve(args)
