"""`pml completion`: a script for the shell, which asks this very command what fits the words typed so far.

It only looks, and never makes what is not there: without a database there are no ids to offer.
"""

import argparse
import importlib
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from pml.cli.exits import Exit
from pml.cli.terminal.output import say
from pml.core.errors import PmlError
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.app import Place
    from pml.service.context import Context

Words: TypeAlias = Mapping[str, str]  # what can be typed, and what it is
EXAMPLES = """The script completes commands, options, approvals' ids, sessions, tools and servers.

examples:
  pml completion bash > ~/.local/share/bash-completion/completions/pml
  eval "$(pml completion zsh)"                     in ~/.zshrc, after compinit
  pml completion fish > ~/.config/fish/completions/pml.fish"""
_BASH: Final = r"""# pml completion bash
_pml_complete() {
  local line="${COMP_LINE:0:COMP_POINT}" word colon=""
  local current="${line##* }"
  case "$COMP_WORDBREAKS" in *:*) colon="${current%"${current##*:}"}" ;; esac  # bash completes after a colon
  COMPREPLY=()
  while IFS= read -r word; do COMPREPLY+=("${word#"$colon"}"); done \
    < <(command pml completion --line "$line" 2>/dev/null)
}
complete -o default -F _pml_complete pml
"""
_ZSH: Final = r"""#compdef pml
_pml() {
  local -a found
  found=("${(@f)$(command pml completion --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -- "${found[@]}"; else _files; fi
}
if [[ "$funcstack[1]" == _pml ]]; then _pml "$@"; else compdef _pml pml; fi
"""
_FISH: Final = r"""# pml completion fish
function __pml_complete
    command pml completion --described --line (commandline -cp) 2>/dev/null
end
complete -c pml -n 'test -n "$(__pml_complete)"' -f -a '(__pml_complete)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_PLAIN: Final = re.compile(r"[\w.@:/+-]+", re.ASCII)  # what needs no quoting, in whatever shell
_MANY: Final = 500


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=[*SCRIPTS], nargs="?", help="print the script for this shell")
    parser.add_argument("--line", metavar="TEXT", help="print what fits at the end of this command line")
    parser.add_argument("--described", action="store_true", help="with --line: and what it is, after a tab")


async def run(args: argparse.Namespace) -> int:
    if args.line is None:
        if args.shell is None:
            say(EXAMPLES)
            return Exit.USAGE
        print(SCRIPTS[args.shell], end="")
        return Exit.OK
    for word, what in (await _fitting(args.line)).items():
        about = " ".join(visible(what).split())
        print(f"{word}\t{about}" if args.described and about else word)
    return Exit.OK


async def _fitting(line: str) -> Words:
    """Return what can stand in the place of the last word of `line`; nothing where that is not known."""
    try:
        words = shlex.split(line)
    except ValueError:  # in the middle of a quoted text
        return {}
    if not line or line[-1].isspace():
        words.append("")
    *before, current = words[1:] or [""]
    try:
        found = await _candidates(before, current)
    except PmlError:  # a broken file, a database that cannot be read: the command itself will tell
        return {}
    return {
        word: found[word] for word in sorted(found) if word.startswith(current) and _PLAIN.fullmatch(word)
    }


async def _candidates(before: Sequence[str], current: str) -> Words:
    from pml.cli.main import COMMANDS

    if not before:
        return {**COMMANDS, "help": "show a command's options and examples"}
    name, *given = before
    if name == "help":
        return COMMANDS
    if name not in COMMANDS:
        return {}
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(f"pml.cli.commands.{name}").configure(parser)
    return await _in_command(parser, name, given, current)


async def _in_command(
    parser: argparse.ArgumentParser, name: str, given: Sequence[str], current: str
) -> Words:
    actions = parser._actions  # pyright: ignore[reportPrivateUsage]
    verbs = next((each for each in actions if each.dest == "verb"), None)
    if verbs is not None:
        subparsers = cast("dict[str, argparse.ArgumentParser]", verbs.choices)
        if not given:
            about = {each.dest: each.help or "" for each in cast("Any", verbs)._choices_actions}
            return {verb: about.get(verb, "") for verb in subparsers}
        verb, *rest = given
        known = verb in subparsers
        return await _in_command(subparsers[verb], f"{name} {verb}", rest, current) if known else {}
    if "--" in given:
        return {}
    if current.startswith("-"):
        return {
            option: each.help or ""
            for each in actions
            if each.help != argparse.SUPPRESS
            for option in each.option_strings
            if option.startswith("--")
        }
    action = _action_for(actions, given)
    if action is None:
        return {}
    if action.choices is not None:
        return dict.fromkeys(map(str, action.choices), "")
    return await _values(name, action)


def _action_for(actions: Sequence[argparse.Action], given: Sequence[str]) -> argparse.Action | None:
    """Return what the next word is for: the option before it, or the next argument."""
    taking = {option: each for each in actions for option in each.option_strings if each.nargs != 0}
    if given and given[-1] in taking:
        return taking[given[-1]]
    pairs = zip(["", *given], given, strict=False)
    filled = sum(not word.startswith("-") and before not in taking for before, word in pairs)
    positional = [each for each in actions if not each.option_strings]
    if filled < len(positional):
        return positional[filled]
    return positional[-1] if positional and positional[-1].nargs in ("+", "*") else None


async def _values(name: str, action: argparse.Action) -> Words:
    """Return the names and ids that an argument may have, as far as they are known."""
    from pml.app import find_place, open_context

    look = _look_for(name, action)
    place = find_place(None)
    if look is None or not (place.home / "pml.db").exists():
        return {}
    async with open_context(place) as context:
        return await look(context, place)


_Look: TypeAlias = "Callable[[Context, Place], Awaitable[Words]]"


def _look_for(name: str, action: argparse.Action) -> "_Look | None":
    command = name.partition(" ")[0]
    option = action.option_strings[0] if action.option_strings else None
    if option in ("--session", "--parent"):
        return _sessions
    if option in ("--release", "--after"):
        return _approvals
    if option is not None:
        return None
    match command, action.metavar:
        case "approvals", "ID":
            return _all_approvals if name == "approvals show" else _approvals
        case "sessions", "ID":
            return _sessions
        case "token", "ID":
            return _tokens
        case "secrets", "NAME":
            return _secrets
        case "servers", "NAME":
            return _servers
        case "remove", "NAME":
            return _removable
        case "deps" | "catalog", "NAME":
            return _offered if name in ("deps install", "catalog show") else _installed
        case _, "TOOL" | "ENTRY":
            return _tools
        case _:
            return None


async def _approvals(context: "Context", place: "Place", *, every: bool = False) -> Words:
    from pml.cli.terminal.cards import short
    from pml.core.approvals.record import State
    from pml.core.approvals.subjects import title
    from pml.core.ports.queries import ApprovalQuery

    states = None if every else frozenset({State.PENDING})
    query = ApprovalQuery(states=states, newest=True, limit=_MANY)
    return {short(record.id): title(record) for record in await context.store.approvals.page(query)}


async def _all_approvals(context: "Context", place: "Place") -> Words:
    return await _approvals(context, place, every=True)


async def _sessions(context: "Context", place: "Place") -> Words:
    return {session.name: session.workspace for session in await context.store.sessions.live()}


async def _tokens(context: "Context", place: "Place") -> Words:
    tokens = await context.store.tokens.all()
    return {token.id: token.name for token in tokens if token.is_live(context.clock.now())}


async def _secrets(context: "Context", place: "Place") -> Words:
    from pml.app import open_variables

    return {name: where.value for name, where in open_variables(place).secrets.names().items()}


async def _removable(context: "Context", place: "Place") -> Words:
    """Return what `pml remove` takes: the user's entries, and what was added."""
    from pml.core.config.file import FileKind
    from pml.registry.added_servers import AddedServers

    added = [it for each in AddedServers(place.home).all() for it in each.metadata.mcp_deps]
    entries = context.configs.of(str(place.workspace)).servers(FileKind.USER)
    return {**dict.fromkeys(entries, "configured"), **{each.name: each.title for each in added}}


async def _servers(context: "Context", place: "Place") -> Words:
    from pml.service.policy.policy import current_policy

    settings = (await current_policy(context, str(place.workspace))).settings
    return {**dict.fromkeys(settings.servers, "configured"), **await _installed(context, place)}


async def _installed(context: "Context", place: "Place") -> Words:
    from pml.app import open_installer

    return {name: each.dependency.title for name, each in open_installer(place).all_installed().items()}


async def _offered(context: "Context", place: "Place") -> Words:
    return {
        dependency.name: dependency.title for each in _bundled(context, place) for dependency in each.mcp_deps
    }


async def _tools(context: "Context", place: "Place") -> Words:
    from pml.service.policy.policy import current_policy

    policy = await current_policy(context, str(place.workspace))
    found: dict[str, str] = {}
    for each in _bundled(context, place):
        for dependency in each.mcp_deps:
            found |= _named(dependency.name, each.tools)
    for name, spec in policy.settings.servers.items():
        manifest = await context.store.manifests.get(name, spec.target_digest)
        found |= {} if manifest is None else _named(name, manifest.tools)
    return {
        name: what for name, what in found.items() if name.partition(":")[0] not in policy.settings.unusable
    }


def _named(server: str, tools: "Iterable[Mapping[str, Any]]") -> dict[str, str]:
    return {f"{server}:{tool.get('name')}": str(tool.get("description") or "") for tool in tools}


def _bundled(context: "Context", place: "Place") -> Iterator[Any]:
    from pml.app import open_sources

    sources = open_sources(place, context.clock, warn=lambda _: None)
    return (each.metadata for each in sources.bundled())
