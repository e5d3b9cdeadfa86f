"""`pml init --claude-code`: PML's hook and gateway in the settings of Claude Code, and what else to know.

Writes the hook and, for a project, the server; the client keeps a user's servers in a file that it rewrites
itself, so for those its own command is shown. Asks nothing, and shows every line that it changes.
"""

import argparse
import difflib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.agents.form_hooks import config_folder
from pml.agents.hooks import SERVER
from pml.agents.settings import (
    hook_command,
    hook_entry,
    hook_settings,
    is_empty,
    read_settings,
    remove_settings,
    server_in,
    with_hook,
    with_server,
    without_hook,
    without_server,
    write_settings,
)
from pml.cli.exits import Exit
from pml.cli.output import print_json, say
from pml.core.text import visible, visible_json
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place

ALLOWED: Final = f"mcp__{SERVER}"
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
    command = hook_command(sys.executable, str(place.home))
    changes = _changes(place, command, for_user=args.user, remove=args.remove)
    if not args.print:
        for change in changes:
            write_change(change)
    if args.json:
        print_json(_shape(changes, command, written=not args.print))
        return Exit.OK
    for change in changes:
        _show(change, written=not args.print, remove=args.remove)
    if not args.remove:
        _tell(place, for_user=args.user, changed=any(change.is_one for change in changes))
    elif args.user:
        say(f"then: claude mcp remove --scope user {SERVER}")
    return Exit.OK


def _changes(place: "Place", command: Sequence[str], *, for_user: bool, remove: bool) -> list[Change]:
    settings = _user_settings(place) if for_user else _project_settings(place)
    text = read_settings(settings)
    if remove:
        after = None if text is None else _unless_empty(text, without_hook(text, settings), settings)
    else:
        after = with_hook(text, hook_entry(command), settings)
    changes = [Change(path=settings, before=text, after=after)]
    if not for_user:
        path = place.workspace / ".mcp.json"
        text = read_settings(path)
        if remove:
            after = None if text is None else _unless_empty(text, without_server(text, SERVER, path), path)
        else:
            after = with_server(text, SERVER, _server(), path)
        changes.append(Change(path=path, before=text, after=after))
    return changes


def removals(place: "Place", workspaces: Sequence[Path], kept: list[tuple[str, str]]) -> Iterator[Change]:
    """Yield what takes PML out of Claude Code's files, for this user and in each workspace.

    What somebody else wrote there goes into `kept`, with what to do. Raises: ConfigInvalid, Unavailable.
    """
    command = hook_command(sys.executable, str(place.home))
    yield from _changes(place, command, for_user=True, remove=True)
    for workspace in workspaces:
        here = replace(place, workspace=workspace)
        for change in _changes(here, command, for_user=False, remove=True):
            is_own = change.path.name != ".mcp.json" or _is_own_server(change)
            if is_own:
                yield change
            elif change.is_one:
                kept.append((str(change.path), f"its server `{SERVER}` was not written by PML"))
    for path in mcp_files(place):
        text = read_settings(path) if path.name == ".claude.json" else None
        if text is not None and server_in(text, SERVER, path) is not None:
            kept.append((str(path), f"Claude Code's own: `claude mcp remove --scope user {SERVER}`"))


def _is_own_server(change: Change) -> bool:
    """Tell whether the server in the file is one that `pml init` writes."""
    server = None if change.before is None else server_in(change.before, SERVER, change.path)
    words = None if server is None else server.get("args")
    return isinstance(words, list | tuple) and [*words[-3:]] == ["-m", "pml", "stdio"]


def _unless_empty(before: str, after: str, path: Path) -> str | None:
    """Return the text, or None where taking PML's out has left nothing: then PML made the file."""
    return None if after != before and is_empty(after, path) and not path.is_symlink() else after


def write_change(change: Change) -> None:
    """Raises: Unavailable."""
    if change.after is not None and change.is_one:
        write_settings(change.path, change.after, was=change.before)
    elif change.after is None and change.before is not None:
        remove_settings(change.path, was=change.before)


def _server() -> JsonObject:
    """Return the gateway as this PML, wherever the client's PATH leads."""
    return {"command": sys.executable, "args": ["-I", "-m", "pml", "stdio"]}


def _server_command() -> list[str]:
    server = _server()
    words = [str(server["command"]), *(str(word) for word in _words(server))]
    return ["claude", "mcp", "add", "--scope", "user", SERVER, "--", *words]


def _words(server: JsonObject) -> Sequence[object]:
    words = server["args"]
    assert isinstance(words, list)
    return words


def mcp_files(place: "Place") -> list[Path]:
    """Return where the client finds its MCP servers in this workspace."""
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    return [(Path(given) if given else place.user_home) / ".claude.json", place.workspace / ".mcp.json"]


def _user_settings(place: "Place") -> Path:
    return config_folder(os.environ, place.user_home) / "settings.json"


def _project_settings(place: "Place") -> Path:
    return place.workspace / ".claude" / "settings.local.json"  # names programs of this machine: not shared


def _shape(changes: Sequence[Change], command: Sequence[str], *, written: bool) -> JsonObject:
    return {
        "files": [
            {"path": str(each.path), "changed": each.is_one, "written": written and each.is_one}
            for each in changes
        ],
        "settings": hook_settings(command),
        "server": _server(),
        "server_command": _server_command(),
        "headless": _HEADLESS,
        "not_twice": {"permissions_allow": [ALLOWED]},
    }


def show_change(change: Change) -> None:
    """Show what would be taken out of a file, line by line."""
    _show(change, written=False, remove=True)


def _show(change: Change, *, written: bool, remove: bool) -> None:
    path = visible(str(change.path))
    if not change.is_one:
        say(f"nothing of PML's in {path}" if remove else f"{path} stays as it is")
        return
    verb = "created" if change.before is None else "removed" if change.after is None else "changed"
    say(f"{verb} {path}" if written else f"{path} would be {verb}")
    before, after = (change.before or "").splitlines(), (change.after or "").splitlines()
    for line in difflib.unified_diff(before, after, lineterm="", n=1):
        if not line.startswith(("---", "+++", "@@")):
            say(f"  {visible(line)}")


def _tell(place: "Place", *, for_user: bool, changed: bool) -> None:
    if for_user:
        say("\nthe gateway, with Claude Code's own command:")
        say(f"  {shlex.join(_server_command())}")
    if not changed:
        return
    rules, config = " ".join(_READING), visible(str(place.home / "config.json"))
    say("")
    say("from its next start Claude Code asks PML before every tool that no rule names: `pml approvals list`")
    say("  what only reads, if you like:")
    say(f"    for tool in {rules}; do pml rules allow $tool; done")
    say("  `claude -p` asks too, but shows nothing while it waits;")
    say(f"    `{_HEADLESS}` also shuts out the project's own settings")
    say("so as not to be asked twice for the tools behind PML, by Claude Code and by PML:")
    say(f'    "permissions": {{"allow": ["{ALLOWED}"]}} in the settings of Claude Code: PML asks by itself')
    say(f"    not with {visible_json(_LEFT_TO_CLIENT, indent=None)} in {config}: then nobody would ask")
    say("Claude Code's own rules go deny → ask → allow, PML's deny → allow → ask")
    say("`pml doctor` proves that PML is asked")
