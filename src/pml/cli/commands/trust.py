"""`pml trust`: a person looks at what the workspace's file would loosen, and trusts that very content."""

import argparse
import re
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.shell_session import script_session
from pml.cli.terminal.output import columns, complain, console, count, print_json, say, say_prose, wrapped
from pml.cli.terminal.prompts import answer, is_interactive
from pml.cli.verbs.verbs import add_common
from pml.core.config.trust_facts import launch_lines, unlisted_note
from pml.core.errors import Changed, Invalid, NotFound
from pml.core.text import quote, visible, visible_json
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.config.merged import Loosening
    from pml.service.context import Context
    from pml.service.policy.policy import Policy

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
    from pml.app import find_place, open_context
    from pml.service.policy.policy import current_policy

    place = find_place(args.workspace)
    expected = None if args.digest is None else _hex(args.digest)
    async with open_context(place) as context:
        await guard(context, args)
        if args.remove or args.forget:
            return await _remove(context, str(place.workspace), forget=args.forget, as_json=args.json)
        policy = await current_policy(context, str(place.workspace))
        digest = _sound_digest(policy, expected)
        if policy.trusted or args.show:
            _show(policy, as_json=args.json)
            return Exit.OK
        if not args.yes and policy.untrusted is not None:
            _show(policy, as_json=args.json)
            if args.json or not is_interactive():
                complain("pml: nobody is there to answer; to trust it:")
                complain(f"  pml trust --yes --digest {digest}")
                return Exit.PENDING
            said = answer("\nTrust this file as it is now?")
            if not said:
                return await _decline(context, place, policy, is_remembered=said is not None)
        await _trust(context, policy, digest, as_json=args.json)
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


async def _trust(context: "Context", policy: "Policy", digest: str, *, as_json: bool) -> None:
    from pml.app import person
    from pml.service.approvals.trust import answer_trust_questions, trust_workspace

    only_tightens = policy.untrusted is None
    policy = await trust_workspace(context, policy.workspace, digest=digest, by=person())
    answered = await answer_trust_questions(context, policy, by=person())
    if as_json:
        print_json(_shape(policy))
        return
    path = visible(policy.loaded.workspace.path)
    if only_tightens:
        say_prose(f"{path} only tightens: it needs no trust, and its rules are kept from now on")
    else:
        say_prose(f"trusted {path}")
    if answered:
        say_prose(f"  answered {count(len(answered), 'question')} that waited for it")


async def _decline(context: "Context", place: "Place", policy: "Policy", *, is_remembered: bool) -> int:
    """Leave the file untrusted; a no, unlike the end of the input, is remembered for this content."""
    from pml.app import person
    from pml.service.approvals.trust import decline_workspace

    say_prose("not trusted; nothing was changed (its deny and ask rules still apply)")
    if is_remembered:
        session = await script_session(context, place, None)
        answered = await decline_workspace(context, policy, session, by=person())
        say_prose("agents are not asked about this content again; `pml trust` asks you any time")
        if answered:
            say(f"  denied {count(answered, 'question')} that waited for it")
    return Exit.DENIED


async def _remove(context: "Context", workspace: str, *, forget: bool, as_json: bool) -> int:
    from pml.app import person
    from pml.service.approvals.trust import untrust_workspace
    from pml.service.policy.policy import current_policy

    path = context.configs.of(workspace).read().workspace.path
    was_kept = await context.store.trusts.kept(path) is not None
    count = await untrust_workspace(context, workspace, by=person(), forget=forget)
    kept = (await current_policy(context, workspace)).kept
    if as_json:
        print_json({"path": path, "trusted": False, "forgotten": count, "kept": kept is not None})
    elif forget and was_kept:
        say_prose(f"{visible(path)} is not trusted, and nothing of what was trusted is kept")
    elif count:
        say_prose(f"{visible(path)} is no longer trusted; its deny and ask rules still apply")
    else:
        say_prose(f"{visible(path)} was not trusted")
    return Exit.OK


def _shape(policy: "Policy") -> JsonObject:
    from pml.service.approvals.trust import trust_facts
    from pml.service.policy.policy import kept_notice

    needed = policy.untrusted is not None
    return {**trust_facts(policy), "trusted": policy.trusted, "needed": needed, "kept": kept_notice(policy)}


def _show(policy: "Policy", *, as_json: bool) -> None:
    if as_json:
        print_json(_shape(policy))
        return
    path = visible(policy.loaded.workspace.path)
    if policy.trusted:
        say_prose(f"{path} is trusted as it is now")
    elif policy.untrusted is None:
        say_prose(f"{path} only tightens: it needs no trust")
    else:
        _print_loosening(policy, policy.untrusted)


def _unusable(policy: "Policy") -> list[str]:
    config = policy.loaded.workspace.config
    return [] if config is None else [visible(each.problem) for each in config.unusable.values()]


def _print_loosening(policy: "Policy", loose: "Loosening") -> None:
    """Print all that trusting would change; nothing of it is cut."""
    from rich.text import Text

    from pml.service.approvals.trust import trust_facts

    out = console()
    file, facts = policy.loaded.workspace, trust_facts(policy)
    path = visible(file.path)
    opening = Text("\n".join(wrapped(f"Trusting {path} would", columns())))
    opening.highlight_words([path], "bold")
    out.print(opening)
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
            out.print(Text("\n".join(wrapped(f"    {line}", columns()))))
    if loose.launches:
        out.print(Text(f"\n  unlisted: {unlisted_note(facts)}"))
    out.print(Text(f"\n  digest {file.digest}", style="dim"))
