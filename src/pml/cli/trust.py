"""`pml trust`: a person looks at what the workspace's file would loosen, and trusts that very content."""

import argparse
import re
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.output import complain, console, count, print_json, say
from pml.cli.prompts import confirm, is_interactive
from pml.cli.verbs import add_common
from pml.core.errors import Changed, Invalid, NotFound
from pml.core.telling import launch_lines, unlisted_note
from pml.core.text import quote, visible, visible_json
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.core.effective import Loosening
    from pml.service.desk import Desk
    from pml.service.policy import Policy

EXAMPLES = """Until you trust its exact content, a workspace's .pml.json can only make rules stricter.
Any change to it, other than by PML, ends the trust. The denies and asks of the content that was trusted last
are kept in force, also without the file, until you trust other content or say --forget.

examples:
  pml trust                            show what the file would allow and start, then ask
  pml trust --show                     only show it
  pml trust --yes --digest sha256:…    trust it without asking, if it is still what --show showed
  pml trust --remove                   trust it no longer; its denies and asks are kept
  pml trust --forget                   trust it no longer, and keep nothing of it either

exit codes: 0 trusted, or no trust needed; 3 answered no; 4 nobody there to answer"""

_DIGEST: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_common(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="only show what trusting would change")
    what.add_argument("--remove", action="store_true", help="forget the trust in this file")
    what.add_argument("--forget", action="store_true", help="forget the trust, and the rules that are kept")
    what.add_argument("--yes", action="store_true", help="trust it without asking")
    parser.add_argument("--digest", metavar="D", help="only if the file still has this digest")


async def run(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk
    from pml.service.policy import current_policy

    place = find_place(args.workspace)
    expected = None if args.digest is None else _hex(args.digest)
    async with open_desk(place) as desk:
        await guard(desk, args)
        if args.remove or args.forget:
            return await _remove(desk, str(place.workspace), forget=args.forget, as_json=args.json)
        policy = await current_policy(desk, str(place.workspace))
        digest = _sound_digest(policy, expected)
        if policy.trusted or args.show:
            _show(policy, as_json=args.json)
            return Exit.OK
        if not args.yes and policy.untrusted is not None:
            _show(policy, as_json=args.json)
            if args.json or not is_interactive():
                complain(f"pml: nobody is there to answer; to trust it: pml trust --yes --digest {digest}")
                return Exit.PENDING
            if not confirm("\nTrust this file as it is now?"):
                say("not trusted; nothing was changed (its deny and ask rules still apply)")
                return Exit.DENIED
        await _trust(desk, policy, digest, as_json=args.json)
    return Exit.OK


def _hex(digest: str) -> str:
    """Return the digits of a digest, which may have the prefix that is shown. Raises: Invalid."""
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise Invalid(f"{quote(digest)} is not a digest", hint="`pml trust --show` shows the file's")
    return found[1]


def _sound_digest(policy: "Policy", expected: str | None) -> str:
    """Return the digest of the file. Raises: ConfigInvalid, NotFound, Changed if it is not `expected`."""
    file = policy.loaded.workspace
    if file.error is not None:
        raise file.error
    if file.digest is None:
        forget = "; `pml trust --forget` ends what is kept of it" if policy.kept is not None else ""
        raise NotFound(f"{file.path} does not exist", hint=f"`pml init` creates it{forget}")
    if expected not in (None, _hex(file.digest)):
        raise Changed(f"{file.path} has changed since it was shown", hint="look at it again, then trust it")
    return file.digest


async def _trust(desk: "Desk", policy: "Policy", digest: str, *, as_json: bool) -> None:
    from pml.app import person
    from pml.service.trusting import answer_trust_questions, trust_workspace

    only_tightens = policy.untrusted is None
    policy = await trust_workspace(desk, policy.workspace, digest=digest, by=person())
    answered = await answer_trust_questions(desk, policy, by=person())
    if as_json:
        print_json(_shape(policy))
        return
    path = visible(policy.loaded.workspace.path)
    if only_tightens:
        say(f"{path} only tightens: it needs no trust, and its rules are kept from now on")
    else:
        say(f"trusted {path}")
    if answered:
        say(f"  answered {count(len(answered), 'question')} that waited for it")


async def _remove(desk: "Desk", workspace: str, *, forget: bool, as_json: bool) -> int:
    from pml.app import person
    from pml.service.policy import current_policy
    from pml.service.trusting import untrust_workspace

    path = desk.configs.of(workspace).read().workspace.path
    was_kept = await desk.store.trusts.kept(path) is not None
    count = await untrust_workspace(desk, workspace, by=person(), forget=forget)
    kept = (await current_policy(desk, workspace)).kept
    if as_json:
        print_json({"path": path, "trusted": False, "forgotten": count, "kept": kept is not None})
    elif forget and was_kept:
        say(f"{visible(path)} is not trusted, and nothing of what was trusted is kept")
    elif count:
        say(f"{visible(path)} is no longer trusted; its deny and ask rules still apply")
    else:
        say(f"{visible(path)} was not trusted")
    return Exit.OK


def _shape(policy: "Policy") -> JsonObject:
    from pml.service.policy import kept_notice
    from pml.service.trusting import trust_facts

    needed = policy.untrusted is not None
    return {**trust_facts(policy), "trusted": policy.trusted, "needed": needed, "kept": kept_notice(policy)}


def _show(policy: "Policy", *, as_json: bool) -> None:
    if as_json:
        print_json(_shape(policy))
        return
    path = visible(policy.loaded.workspace.path)
    if policy.trusted:
        say(f"{path} is trusted as it is now")
    elif policy.untrusted is None:
        say(f"{path} only tightens: it needs no trust")
    else:
        _print_loosening(policy, policy.untrusted)


def _unusable(policy: "Policy") -> list[str]:
    config = policy.loaded.workspace.config
    return [] if config is None else [visible(each.problem) for each in config.unusable.values()]


def _print_loosening(policy: "Policy", loose: "Loosening") -> None:
    """Print all that trusting would change; nothing of it is cut."""
    from rich.text import Text

    from pml.service.trusting import trust_facts

    out = console()
    file, facts = policy.loaded.workspace, trust_facts(policy)
    out.print(Text("Trusting ").append(visible(file.path), style="bold").append(" would"))
    for title, lines in (
        ("no longer keep these rules of the content that was trusted last", [*loose.drops]),
        ("allow these calls without asking", [*loose.allows]),
        ("start these commands", launch_lines(facts["launches"])),
        ("not start these servers, which cannot be used", _unusable(policy)),
        (
            "change these settings",
            [f"{name}: {visible_json(value, indent=None)}" for name, value in loose.settings.items()],
        ),
    ):
        if lines:
            out.print(Text(f"\n  {title}", style="bold"))
        for line in lines:
            out.print(Text(f"    {line}"))
    if loose.launches:
        out.print(Text(f"\n  unlisted: {unlisted_note(facts)}"))
    out.print(Text(f"\n  digest {file.digest}", style="dim"))
