"""Guards: who may run which command. One table; every command that allows or makes something is in it.

An option that makes a command another one has a row of its own, such as `trust --show`.
"""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pml.core.errors import MayNotDecide

if TYPE_CHECKING:
    import argparse

    from pml.service.context import Context


class Guard(StrEnum):
    """Who may run a command: each is stricter than the one before."""

    ANYBODY = "anybody"  # it looks, asks, or tightens
    NO_AGENT = "no agent"  # not beneath a registered agent; services, cron and CI may
    PERSON = "person"  # nor beneath any other agent, nor detached, unless with a person's token


GUARDS: Final[Mapping[str, Guard]] = {
    "add": Guard.PERSON,
    "add --dry-run": Guard.ANYBODY,
    "approvals list": Guard.ANYBODY,
    "approvals show": Guard.ANYBODY,
    "approvals ask": Guard.ANYBODY,
    "approvals watch": Guard.ANYBODY,
    "approvals allow": Guard.PERSON,
    "approvals deny": Guard.NO_AGENT,
    "audit list": Guard.ANYBODY,
    "audit verify": Guard.ANYBODY,
    "call": Guard.PERSON,  # its prompt; the call itself is judged like any other
    "capability new": Guard.ANYBODY,
    "capability types": Guard.ANYBODY,
    "capability check": Guard.ANYBODY,
    "capability accept": Guard.PERSON,
    "catalog list": Guard.ANYBODY,
    "catalog show": Guard.ANYBODY,
    "catalog search": Guard.ANYBODY,
    "cloud": Guard.ANYBODY,
    "completion": Guard.ANYBODY,
    "deps list": Guard.ANYBODY,
    "deps install": Guard.PERSON,
    "deps verify": Guard.ANYBODY,
    "deps remove": Guard.NO_AGENT,
    "deps gc": Guard.NO_AGENT,
    "doctor": Guard.ANYBODY,
    "hook": Guard.ANYBODY,
    "import": Guard.PERSON,
    "import --dry-run": Guard.ANYBODY,
    "inbox": Guard.PERSON,
    "init": Guard.ANYBODY,
    "init --model-may-approve": Guard.PERSON,
    "init --remove": Guard.PERSON,  # from then on Claude Code does not ask PML
    "launch": Guard.NO_AGENT,
    "launch --may-launch": Guard.PERSON,
    "login": Guard.PERSON,
    "logout": Guard.NO_AGENT,
    "publish": Guard.ANYBODY,
    "remove": Guard.NO_AGENT,
    "remove --dry-run": Guard.ANYBODY,
    "rules list": Guard.ANYBODY,
    "rules explain": Guard.ANYBODY,
    "rules allow": Guard.PERSON,
    "rules deny": Guard.ANYBODY,
    "rules ask": Guard.ANYBODY,
    "rules disable": Guard.PERSON,
    "rules enable": Guard.PERSON,
    "rules remove": Guard.PERSON,
    "secrets set": Guard.PERSON,
    "secrets list": Guard.ANYBODY,
    "secrets remove": Guard.NO_AGENT,
    "secrets check": Guard.ANYBODY,
    "serve": Guard.NO_AGENT,  # without a person it prints no link that logs in
    "servers list": Guard.ANYBODY,
    "servers status": Guard.ANYBODY,
    "servers stop": Guard.ANYBODY,
    "servers logs": Guard.ANYBODY,
    "sessions list": Guard.ANYBODY,
    "sessions show": Guard.ANYBODY,
    "sessions messages": Guard.ANYBODY,
    "sessions stop": Guard.NO_AGENT,
    "stdio": Guard.ANYBODY,
    "token create": Guard.PERSON,
    "token list": Guard.NO_AGENT,
    "token revoke": Guard.NO_AGENT,
    "trust": Guard.PERSON,
    "trust --show": Guard.ANYBODY,
    "trust --remove": Guard.NO_AGENT,
    "uninstall": Guard.PERSON,
    "uninstall --dry-run": Guard.ANYBODY,
    "version": Guard.ANYBODY,
}


def take_token_file() -> str | None:
    """Return the file with a person's token, and let nothing that this process starts know of it."""
    return os.environ.pop("PML_TOKEN_FILE", None)


def guard_of(args: "argparse.Namespace") -> Guard:
    """Return who may run the command line."""
    words = [args.command, *([args.verb] if getattr(args, "verb", None) else [])]
    command = " ".join(words)
    options = [row for row in GUARDS if row.startswith(f"{command} --") and _is_given(args, row)]
    return GUARDS[options[0] if options else command]


def _is_given(args: "argparse.Namespace", row: str) -> bool:
    option = row.partition("--")[2].replace("-", "_")
    return bool(getattr(args, option, False))


async def guard(context: "Context", args: "argparse.Namespace") -> None:
    """Raise MayNotDecide if the one who started this command may not run it."""
    match guard_of(args):
        case Guard.ANYBODY:
            return
        case Guard.NO_AGENT:
            from pml.service.session_tree import guard_person

            await guard_person(context)
        case Guard.PERSON:
            await guard_as_person(context, args)


async def guard_as_person(context: "Context", args: "argparse.Namespace") -> None:
    """Raise MayNotDecide unless a person started this command, whatever its row says."""
    from pml.app import surroundings
    from pml.service.sessions.persons import guard_loosening

    await guard_loosening(context, surroundings(args.token_file))


async def is_person(context: "Context", args: "argparse.Namespace") -> bool:
    """Tell whether a person started this command, so that it may ask them, or call them one."""
    try:
        await guard_as_person(context, args)
    except MayNotDecide:
        return False
    return True
