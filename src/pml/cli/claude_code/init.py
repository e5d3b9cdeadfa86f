"""`pml init --claude-code`: PML's hook and gateway in the settings of Claude Code, and what else to know.

Writes the hook into settings. The client keeps its servers in a file that it rewrites itself, so it is told
of the gateway by its own command: for a project that is run, for all projects of a user it is shown. Where
PML asks for every unlisted tool, the project's local settings leave the gateway's tools to it. Asks nothing,
and shows every line that it changes.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.agents.claude_code.form_hooks import config_folder
from pml.agents.claude_code.gateway_name import SERVER
from pml.agents.claude_code.settings import (
    hook_command,
    hook_entry,
    hook_settings,
    is_empty,
    read_settings,
    remove_settings,
    server_in,
    with_allowed,
    with_hook,
    with_server,
    without_allowed,
    without_hook,
    without_server,
    write_settings,
)
from pml.cli.claude_code.listed_gateways import doubles
from pml.cli.claude_code.registration import ClientGateway, client_file, gateway, known_gateway, own_gateway
from pml.cli.exits import Exit
from pml.cli.terminal.output import print_json, say, say_command, say_prose
from pml.core.text import visible, visible_json
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place

_READING: Final = ("Read", "Glob", "Grep", "TodoWrite")
_HEADLESS: Final = "pml launch --loopback -- claude -p '…'"
_LEFT_TO_CLIENT: Final = {"approval": {"unlisted": "if_client_cannot"}}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One file before and after, None where there is no file; the same where nothing has to change."""

    path: Path
    before: str | None
    after: str | None

    @property
    def is_one(self) -> bool:
        return self.before != self.after


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Claude Code")
    group.add_argument("--claude-code", action="store_true", help="set Claude Code up to ask PML")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for all projects of this user")
    where.add_argument("--project", action="store_true", help="for this workspace (default)")
    group.add_argument("--print", action="store_true", help="write nothing, show what would be written")
    group.add_argument("--remove", action="store_true", help="take out what it has put in")


def run(args: argparse.Namespace, place: "Place") -> int:
    """Raises: ConfigInvalid, Unavailable; then nothing has been written."""
    hook = hook_command(sys.executable, str(place.home))
    own = None if args.user else own_gateway(place)
    leaves = own is not None and not args.remove and asks_itself(place)
    changes = _changes(place, hook, own, for_user=args.user, remove=args.remove, leaves=leaves)
    told = None if own is None else own.command(remove=args.remove)
    if not args.print:
        if own is not None and told is not None:
            own.tell(told)
        for change in changes:
            write_change(change)
    if args.json:
        print_json(_shape(changes, hook, own, told, written=not args.print, leaves=leaves))
        return Exit.OK
    for change in changes:
        _show(change, written=not args.print, remove=args.remove)
    if told is not None:
        say_prose(f"{'told Claude Code' if not args.print else 'Claude Code would be told'}:")
        say_command(told)
    if not args.remove:
        is_new = told is not None or any(change.is_one for change in changes)
        _tell(place, own, for_user=args.user, changed=is_new, leaves=leaves)
        _tell_of_doubles(place, own)
    elif args.user:
        say(f"then: claude mcp remove --scope user {SERVER}")
    return Exit.OK


def asks_itself(place: "Place") -> bool:
    """Tell whether PML asks for every tool that no rule names: only then may the client leave them to it."""
    from pml.app import DiskConfigs, SystemClock
    from pml.core.config.file import Unlisted
    from pml.core.config.merged import unite

    user = DiskConfigs(place).of(str(place.workspace)).read().user
    if user.error is not None:
        return False
    approval = unite(user.config, None, trusted=False).approval
    return approval.unlisted is Unlisted.EVERY_CALL and approval.asking_enabled(SystemClock().now())


def _changes(
    place: "Place",
    hook: Sequence[str],
    own: ClientGateway | None,
    *,
    for_user: bool,
    remove: bool,
    leaves: bool,
) -> list[Change]:
    settings = _user_settings(place) if for_user else project_settings(place)
    text = read_settings(settings)
    if remove:
        after = None if text is None else _unless_empty(text, _cleared(text, settings, own), settings)
    else:
        after = with_hook(text, hook_entry(hook), settings)
        known = own if for_user else own or known_gateway(place)
        if known is not None:
            change = with_allowed if leaves else without_allowed
            after = change(after, known.allowed, settings)
    changes = [Change(path=settings, before=text, after=after)]
    if not for_user:
        path = place.workspace / ".mcp.json"
        text = read_settings(path)
        if own is None and not remove:
            after = with_server(text, SERVER, gateway(), path)
        elif text is not None and (remove or _is_own_server(text, path)):  # one gateway is enough
            after = _unless_empty(text, without_server(text, SERVER, path), path)
        else:
            after = text
        changes.append(Change(path=path, before=text, after=after))
    return changes


def removals(place: "Place", workspaces: Sequence[Path], kept: list[tuple[str, str]]) -> Iterator[Change]:
    """Yield what takes PML out of Claude Code's files, for this user and in each workspace.

    What somebody else wrote there goes into `kept`, with what to do. Raises: ConfigInvalid, Unavailable.
    """
    command = hook_command(sys.executable, str(place.home))
    yield from _changes(place, command, None, for_user=True, remove=True, leaves=False)
    for workspace in workspaces:
        here = replace(place, workspace=workspace)
        own = known_gateway(here)
        for change in _changes(here, command, own, for_user=False, remove=True, leaves=False):
            text = change.before
            is_settings = change.path.name != ".mcp.json"
            is_own = is_settings or (text is not None and _is_own_server(text, change.path))
            if is_own:
                yield change
            elif change.is_one:
                kept.append((str(change.path), f"its server `{SERVER}` was not written by PML"))


def _is_own_server(text: str, path: Path) -> bool:
    """Tell whether the server in the file is one that `pml init` writes. Raises: ConfigInvalid."""
    server = server_in(text, SERVER, path)
    words = None if server is None else server.get("args")
    return isinstance(words, list | tuple) and [*words[-3:]] == ["-m", "pml", "stdio"]


def _cleared(text: str, path: Path, own: ClientGateway | None) -> str:
    left = without_hook(text, path)
    return left if own is None else without_allowed(left, own.allowed, path)


def _unless_empty(before: str, after: str, path: Path) -> str | None:
    """Return the text, or None where taking PML's out has left nothing: then PML made the file."""
    return None if after != before and is_empty(after, path) and not path.is_symlink() else after


def write_change(change: Change) -> None:
    """Raises: Unavailable."""
    if change.after is not None and change.is_one:
        write_settings(change.path, change.after, was=change.before)
    elif change.after is None and change.before is not None:
        remove_settings(change.path, was=change.before)


def _server_command() -> list[str]:
    server = gateway()
    words = server["args"]
    assert isinstance(words, list)
    argv = [str(server["command"]), *(str(word) for word in words)]
    return ["claude", "mcp", "add", "--scope", "user", SERVER, "--", *argv]


def mcp_files(place: "Place") -> list[Path]:
    """Return where the client finds its MCP servers in this workspace."""
    return [client_file(place), place.workspace / ".mcp.json"]


def _user_settings(place: "Place") -> Path:
    return config_folder(os.environ, place.user_home) / "settings.json"


def project_settings(place: "Place") -> Path:
    """Return the settings that `pml init` writes for one project."""
    return place.workspace / ".claude" / "settings.local.json"  # names programs of this machine: not shared


def _shape(
    changes: Sequence[Change],
    hook: Sequence[str],
    own: ClientGateway | None,
    told: Sequence[str] | None,
    *,
    written: bool,
    leaves: bool,
) -> JsonObject:
    return {
        "files": [
            {"path": str(each.path), "changed": each.is_one, "written": written and each.is_one}
            for each in changes
        ],
        "settings": hook_settings(hook),
        "server": gateway(),
        "server_name": SERVER if own is None else own.name,
        "server_command": _server_command() if told is None else list(told),
        "headless": _HEADLESS,
        "not_twice": {"permissions_allow": [own.allowed] if own is not None and leaves else []},
    }


def show_change(change: Change) -> None:
    """Show what would be taken out of a file, line by line."""
    _show(change, written=False, remove=True)


def _show(change: Change, *, written: bool, remove: bool) -> None:
    path = visible(str(change.path))
    if not change.is_one:
        if remove:
            say_prose(f"nothing of PML's in {path}")
        elif change.before is not None:
            say_prose(f"{path} stays as it is")
        return
    verb = "created" if change.before is None else "removed" if change.after is None else "changed"
    say_prose(f"{verb} {path}" if written else f"{path} would be {verb}")
    before, after = (change.before or "").splitlines(), (change.after or "").splitlines()
    for line in difflib.unified_diff(before, after, lineterm="", n=1):
        if not line.startswith(("---", "+++", "@@")):
            say_prose(f"  {visible(line)}")


def _tell(place: "Place", own: ClientGateway | None, *, for_user: bool, changed: bool, leaves: bool) -> None:
    if for_user:
        say("\nthe gateway, with Claude Code's own command:")
        say_command(_server_command())
    if not changed:
        return
    say("")
    say_prose(
        "from its next start Claude Code asks PML before every tool that no rule names: `pml approvals list`"
    )
    say("  what only reads, if you like:")
    say(f"    for tool in {' '.join(_READING)}; do pml rules allow $tool; done")
    say("  `claude -p` asks too, but shows nothing while it waits;")
    say_prose(f"    `{_HEADLESS}` also shuts out the project's own settings")
    _tell_of_prompts(place, own, leaves=leaves)
    say_prose("Claude Code's own rules go deny → ask → allow, PML's deny → allow → ask")
    say("`pml doctor` checks that Claude Code asks PML")


def _tell_of_doubles(place: "Place", own: ClientGateway | None) -> None:
    """Say how to take out a gateway that the client was given before by another way."""
    for path, command in () if own is None else doubles(place):
        where = visible(str(path))
        say_prose(f"Claude Code also starts PML as `{SERVER}` ({where}), so every tool is there twice:")
        say(f"  {command}")


def _tell_of_prompts(place: "Place", own: ClientGateway | None, *, leaves: bool) -> None:
    """Say who asks for the tools behind PML: PML, the client or both, but at least one."""
    config = visible(str(place.home / "config.json"))
    if leaves and own is not None:
        say_prose(
            f"tools behind PML are asked about once, by PML: Claude Code knows it as `{own.name}` and leaves "
            "them to it. If you let PML leave unlisted tools to the client, run this again"
        )
        return
    if own is not None:
        setting = visible_json(_LEFT_TO_CLIENT, indent=None)
        say_prose(
            f"tools behind PML are asked about by Claude Code: {config} leaves them to it, or turns asking "
            f"off. Without {setting}, run this again to be asked by PML"
        )
        return
    say_prose(
        "tools behind PML are asked about twice, by Claude Code and by PML: with Claude Code on the PATH "
        "this command sets it to leave them to PML, for one project"
    )
