"""`pml version`."""

import argparse
import platform

from pml import __version__
from pml.cli.exits import Exit
from pml.cli.terminal.output import print_json, say


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "examples:\n  pml version\n  pml version --json"
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if args.json:
        print_json({"version": __version__, "python": platform.python_version()})
    else:
        say(f"pml {__version__}")
    return Exit.OK
