"""`pml secrets`: secret values that servers need: none is shown, or taken as an argument."""

import argparse
import asyncio
import getpass
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Final, cast

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.interrupts import until_done
from pml.cli.terminal.output import complain, print_json, print_table, say, say_prose
from pml.cli.verbs.verbs import Verbs, run_verb
from pml.core.errors import Invalid
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.audit.entries import Entry

EXAMPLES = """A value goes to the keyring of the system or, where none serves, to a file only you can read.
A server gets the variables that it declares, each from the first of: the environment of the gateway, the
.env of a trusted workspace, these secrets, the .env in PML_HOME.

examples:
  pml secrets set GITHUB_TOKEN                 asks for the value; nothing of it is shown
  pass show github | pml secrets set GITHUB_TOKEN
  pml secrets list                             names, and where each is
  pml secrets check GITHUB_TOKEN               where a server's value would come from
  pml secrets remove GITHUB_TOKEN

exit codes: 0 ok, 1 failed, 2 usage, 5 not stored, or not set"""
_SET: Final = """The value is typed without being shown, or is the one line on standard input. It is never an
argument: other programs see those in the list of processes, and the shell keeps them in its history.

examples:
  pml secrets set GITHUB_TOKEN
  pass show github | pml secrets set GITHUB_TOKEN"""
_LIST: Final = """examples:
  pml secrets list
  pml secrets list --json | jq -r '.secrets[].name'"""
_REMOVE: Final = """examples:
  pml secrets remove GITHUB_TOKEN"""
_CHECK: Final = """The .env of the workspace applies only while its .pml.json is trusted.

examples:
  pml secrets check GITHUB_TOKEN SLACK_TOKEN

exit codes: 0 all are set, 5 one is not"""

_NAME_HELP: Final = "the variable, such as GITHUB_TOKEN"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    storing = verbs.add("set", "store a value", set_secret, epilog=_SET)
    storing.add_argument("name", metavar="NAME", help=_NAME_HELP)
    # both are taken only to be refused unseen
    storing.add_argument("value", nargs="*", default=[], help=argparse.SUPPRESS)
    storing.add_argument("--value", dest="option", nargs="*", help=argparse.SUPPRESS)
    storing.set_defaults(late="value", is_hushed=True)
    verbs.add("list", "list what is stored, without values", list_secrets, epilog=_LIST)
    remove = verbs.add("remove", "forget a value", remove_secret, epilog=_REMOVE)
    remove.add_argument("name", metavar="NAME", help=_NAME_HELP)
    check = verbs.add("check", "say where values would come from", check_names, epilog=_CHECK)
    check.add_argument("names", metavar="NAME", nargs="+", help=_NAME_HELP)


run = run_verb


def set_secret(args: argparse.Namespace) -> int:
    """Raises: Invalid, MayNotDecide, Unavailable. Not a coroutine: Ctrl-C must end the prompt at once."""
    from pml.app import SystemClock, open_variables, person
    from pml.core.audit.entries import secret_changed
    from pml.settings.secrets import check_name

    if args.value or args.option is not None or "=" in args.name:
        raise Invalid(
            "a value is never given as an argument: lists of processes and shell histories show those",
            hint="give only the name; the value is asked for, or read from standard input",
        )
    check_name(args.name)
    place = _guarded_place(args)
    secrets = open_variables(place).secrets
    stored = secrets.store(args.name, _read_value(args.name))
    _note(place, secret_changed(args.name, "stored", at=SystemClock().now(), by=person()))
    if args.json:
        print_json({"name": args.name, "stored_in": stored.where, "problem": stored.problem})
        return Exit.OK
    if stored.problem is None:
        say(f"stored {args.name} in the keyring")
    else:
        say_prose(f"stored {args.name} in {visible(str(secrets.path))}, which only you can read")
        complain(f"  not in a keyring: {visible(stored.problem)}")
    return Exit.OK


def list_secrets(args: argparse.Namespace) -> int:
    """Raises: Invalid."""
    from pml.app import find_place, open_variables

    names = open_variables(find_place(args.workspace)).secrets.names()
    if args.json:
        print_json({"secrets": [{"name": name, "stored_in": where} for name, where in names.items()]})
    elif names:
        print_table(("NAME", "STORED IN"), [(name, where) for name, where in names.items()])
    else:
        say("no secret is stored; `pml secrets set NAME` stores one")
    return Exit.OK


def remove_secret(args: argparse.Namespace) -> int:
    """Raises: NotFound, MayNotDecide, Unavailable."""
    from pml.app import SystemClock, open_variables, person
    from pml.core.audit.entries import secret_changed

    place = _guarded_place(args)
    problem = open_variables(place).secrets.remove(args.name)
    _note(place, secret_changed(args.name, "removed", at=SystemClock().now(), by=person()))
    if args.json:
        print_json({"removed": args.name, "problem": problem})
    else:
        say(f"removed {args.name}: PML no longer uses it")
        if problem is not None:
            complain(f"  its value may still be in the keyring: {visible(problem)}")
    return Exit.OK if problem is None else Exit.FAILED


async def check_names(args: argparse.Namespace) -> int:
    """Raises: Invalid."""
    from pml.app import find_place, open_context, open_variables
    from pml.service.policy.policy import current_policy
    from pml.settings.secrets import check_name

    for name in args.names:
        check_name(name)
    place = find_place(args.workspace)
    async with open_context(place) as context:
        is_trusted = (await current_policy(context, str(place.workspace))).trusted
    workspace = str(place.workspace) if is_trusted else None
    variables = open_variables(place)
    found = await asyncio.to_thread(
        lambda: {name: variables.where(name, workspace=workspace) for name in args.names}
    )
    if args.json:
        print_json({"variables": [{"name": name, "source": where} for name, where in found.items()]})
    else:
        print_table(("NAME", "FROM"), [(name, where or "not set") for name, where in found.items()])
    for problem in variables.problems(workspace=workspace):
        complain(f"warning: {visible(problem)}")
    return Exit.OK if all(found.values()) else Exit.GONE


def _guarded_place(args: argparse.Namespace) -> "Place":
    """Return where PML runs. Raises: MayNotDecide beneath an agent, which must not plant values."""
    from pml.app import find_place, open_context

    place = find_place(args.workspace)

    async def guarded() -> int:
        async with open_context(place) as context:
            await guard(context, args)
        return Exit.OK

    asyncio.run(until_done(guarded()))
    return place


def _note(place: "Place", entry: "Entry") -> None:
    from pml.app import open_context

    async def record() -> int:
        async with open_context(place) as context:
            await context.store.audit.record(entry)
        return Exit.OK

    asyncio.run(until_done(record()))


def _read_value(name: str) -> str:
    """Return the value, typed unseen or from standard input. Raises: Invalid."""
    from pml.settings.secrets import MAX_VALUE_BYTES

    if cast("object", sys.stdin) is None:
        raise Invalid("the value is to be read from standard input, which is closed")
    if sys.stdin.isatty():
        return _typed_value(name)
    given = sys.stdin.buffer.read(MAX_VALUE_BYTES + 3)  # with the end of the line, and one byte too many
    line = given.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode()
    except UnicodeDecodeError:
        pass  # the error would carry the value
    raise Invalid("the value must be one line of text; nothing was stored")


def _typed_value(name: str) -> str:
    """Return what a person types. Raises: Invalid where it would be shown."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the terminal would stay without echo
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(f"value of {name} (not shown): ")
        except EOFError:
            print(file=sys.stderr)
            return ""
        except getpass.GetPassWarning:
            pass
    raise Invalid("this terminal cannot hide what is typed", hint="give the value on standard input")
