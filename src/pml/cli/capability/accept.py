"""`pml capability accept`: a person looks at code that has changed, and accepts exactly that code."""

import argparse
import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, local_time, print_json, say
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.core.approvals.record import instant
from pml.core.errors import Changed, Conflict, Invalid, NotFound, Unavailable
from pml.core.names import parse_fqdn
from pml.core.text import quote, visible

if TYPE_CHECKING:
    from pml.registry.client.code_pins import CodePins, Offered, Pin
    from pml.service.context import Context

_SHA256: Final = re.compile(r"(?:sha256[:-])?([0-9a-f]{64})")
_MAX_DIFF_LINES: Final = 60
_MAX_COMPARED: Final = 256 * 1024  # bytes of each: beyond, a comparison takes minutes


async def accept_code(args: argparse.Namespace) -> int:
    """Raises: Invalid, NotFound, Conflict, Changed, MayNotDecide, Unavailable."""
    from pml.app import find_place
    from pml.registry.client.code_pins import CodePins

    home, wanted = find_place(args.workspace).home, _hash(args.sha256)
    pins = CodePins(home)
    async with opened(args) as context:
        await guard(context, args)
        pin = _chosen(pins.of(str(parse_fqdn(args.name))), args.name, args.registry)
        offered = await _offered(home, pin, wanted)
        sha256 = _bound(pin, offered, wanted)
        if not args.json:
            _show(pin, offered, sha256)
        if sha256 != pin.sha256:
            if wanted is None and not args.yes and (ended := _ask(pin, sha256, as_json=args.json)):
                return ended
            await _accept(context, pins, pin, sha256)
        _tell(pin, sha256, accepted=True, as_json=args.json)
    return Exit.OK


def _bound(pin: "Pin", offered: "Offered | None", wanted: str | None) -> str:
    """Return the hash that is to be accepted. Raises: Changed if the code has another than was asked for."""
    sha256 = wanted or "" if offered is None else offered.sha256
    if wanted not in (None, sha256):
        raise Changed(
            f"the code of {pin.fqdn} is sha256 {sha256} now, not {wanted}",
            hint=f"look at it again: `pml capability accept {pin.fqdn}`",
        )
    return sha256


def _ask(pin: "Pin", sha256: str, *, as_json: bool) -> Exit:
    """Return how the command ends, which is OK only if a person said yes."""
    if as_json or not is_interactive():
        if as_json:
            _tell(pin, sha256, accepted=False, as_json=True)
        complain(
            "pml: nobody is there to answer; to accept exactly this code: "
            f"pml capability accept {visible(pin.fqdn)} --sha256 {sha256}"
        )
        return Exit.PENDING
    if not confirm("\nTake this for the code of the capability?"):
        say("not accepted; nothing was changed")
        return Exit.DENIED
    return Exit.OK


def _hash(text: str | None) -> str | None:
    """Return the digits of a hash, which may have a prefix. Raises: Invalid."""
    found = None if text is None else _SHA256.fullmatch(text)
    if text is not None and found is None:
        raise Invalid(f"{quote(text)} is not a sha256", hint="it has 64 digits, as the refusal names them")
    return None if found is None else found[1]


async def _offered(home: Path, pin: "Pin", wanted: str | None) -> "Offered | None":
    """Return the code as it is now; None if it cannot be had, and its hash was given.

    Raises: Unavailable, NotFound, Conflict, Invalid.
    """
    from pml.registry.client.code_pins import look_again

    try:
        return await look_again(home, pin)
    except Unavailable as exc:
        if wanted is None:
            hint = "try again, or give the hash that the refusal named: `--sha256 HASH`"
            raise Unavailable(exc.message, hint=hint) from exc
        complain(f"warning: {visible(exc.message)}: the code was not looked at")
        return None


async def _accept(context: "Context", pins: "CodePins", pin: "Pin", sha256: str) -> None:
    from pml.app import person
    from pml.core.audit.entries import dependency_accepted

    now = context.clock.now()
    await context.store.audit.record(dependency_accepted(pin.fqdn, f"sha256:{sha256}", at=now, by=person()))
    pins.replace(pin, sha256=sha256, pinned_at=now)


def _show(pin: "Pin", offered: "Offered | None", sha256: str) -> None:
    say(f"{visible(pin.fqdn)} from {visible(pin.registry)}")
    say(f"  was  sha256 {visible(pin.sha256)}, pinned {local_time(pin.pinned_at)}")
    say(f"  is   sha256 {sha256}")
    if offered is None or sha256 == pin.sha256:
        return
    if offered.before is None:
        say("  the code as it was is no longer kept: there is nothing to compare it with")
        return
    if max(len(offered.before), len(offered.code)) > _MAX_COMPARED:
        say("  it is too long to be compared here")
        return
    for line in _difference(offered.before, offered.code):
        say(f"  {visible(line)}")


def _difference(before: bytes, after: bytes) -> list[str]:
    old, new = (code.decode(errors="replace").splitlines() for code in (before, after))
    lines = [*difflib.unified_diff(old, new, "was", "is", lineterm="")]
    more = len(lines) - _MAX_DIFF_LINES
    return lines if more <= 0 else [*lines[:_MAX_DIFF_LINES], f"… and {more} more lines"]


def _tell(pin: "Pin", sha256: str, *, accepted: bool, as_json: bool) -> None:
    if as_json:
        shape = {"fqdn": pin.fqdn, "registry": pin.registry, "was": pin.sha256, "sha256": sha256}
        print_json({**shape, "pinned_at": instant(pin.pinned_at), "accepted": accepted})
    elif sha256 == pin.sha256:
        say("it is the code that is pinned: there is nothing to accept")
    else:
        say(f"accepted: exactly this code is run for {visible(pin.fqdn)}")


def _chosen(found: "list[Pin]", name: str, registry: str | None) -> "Pin":
    """Raises: NotFound, Conflict."""
    spelt = {registry, None if registry is None else registry.rstrip("/")}
    if registry is not None and "://" not in registry:
        spelt.add(str(Path(registry).resolve()))
    chosen = [pin for pin in found if registry is None or pin.registry in spelt]
    if not chosen:
        where = "" if registry is None else f" from {quote(registry)}"
        raise NotFound(
            f"no code of {quote(name)}{where} is pinned",
            hint="code with `code_integrity` is known by that, and other code by its first use",
        )
    if len(chosen) > 1:
        places = ", ".join(quote(pin.registry) for pin in chosen)
        raise Conflict(
            f"{quote(name)} is pinned of several registries: {places}", hint="choose with `--registry`"
        )
    return chosen[0]
