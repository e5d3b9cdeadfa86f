"""Claude Code's settings as files: PML's hook and server put in, and taken out, with all else left as it is.

A file that cannot be parsed is never written. The hook's command says where PML's home is and shuts out
Python's variables: a project's settings can set variables for every hook. Which files there are, and what is
printed, is not known here.
"""

import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pml.core.config.jsonedit import append_item, remove_item
from pml.core.config.jsontext import Node, parse
from pml.core.errors import ConfigInvalid, Unavailable
from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject
from pml.host.disk import unavailable
from pml.host.replace import replace_file

EVENT: Final = "PreToolUse"
TIMEOUT_S: Final = 3600  # as long as a question of the hook may wait
SINCE: Final = (2, 1, 295)  # the first version that knows `onFailure`
_NEW: Final = "{}\n"
_HOOKS: Final = ("hooks", EVENT)
_ALLOWED: Final = ("permissions", "allow")


def hook_command(python: str, home: str, *, timeout_s: int = TIMEOUT_S) -> list[str]:
    """Return the command line of the hook, with the time that the client gives it."""
    return [python, "-I", "-m", "pml", "hook", "--home", home, "--timeout", str(timeout_s)]


def hook_entry(command: Sequence[str], *, timeout_s: int = TIMEOUT_S) -> JsonObject:
    """Return the hook on every tool, as it stands in a list of the settings."""
    hook: JsonObject = {
        "type": "command",
        "command": shlex.join(command),
        "timeout": timeout_s,
        "onFailure": "block",  # otherwise a crash, a timeout or a missing program lets the tool run
        "statusMessage": "Waiting for approval (pml approvals list)",
    }
    return {"matcher": "*", "hooks": [hook]}


def hook_settings(command: Sequence[str], *, timeout_s: int = TIMEOUT_S) -> JsonObject:
    """Return settings that hold nothing but the hook."""
    return {"hooks": {EVENT: [hook_entry(command, timeout_s=timeout_s)]}}


def read_settings(path: Path) -> str | None:
    """Return the text of a settings file, None if there is none. Raises: ConfigInvalid, Unavailable."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise ConfigInvalid(str(path), 1, 1, "not UTF-8") from exc
    except OSError as exc:
        raise _unavailable(path, exc) from exc


def write_settings(path: Path, text: str, *, was: str | None) -> None:
    """Give the file the text; `was` is the text it had. Raises: Unavailable, also if it has changed since."""

    def unchanged() -> None:
        if read_settings(path) != was:
            raise _changed(path)

    try:
        target = path.resolve()  # a link stays one
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(os.stat(target).st_mode) if target.exists() else _usual_mode()
        replace_file(target, text.encode(), mode=mode, last_check=unchanged)
    except OSError as exc:
        raise _unavailable(path, exc) from exc


def _usual_mode() -> int:
    """Return what the umask leaves a new file: no secret is in these, and some are shared."""
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    return 0o666 & ~mask


def remove_settings(path: Path, *, was: str) -> None:
    """Remove the file. Raises: Unavailable, also if it no longer has the text `was`."""
    if read_settings(path) != was:
        raise _changed(path)
    try:
        path.unlink()
    except OSError as exc:
        raise _unavailable(path, exc) from exc


def is_empty(text: str, path: Path) -> bool:
    """Tell whether nothing is set. Raises: ConfigInvalid."""
    return not _object(text, path).value


def _changed(path: Path) -> Unavailable:
    return Unavailable(f"{visible(str(path))} has just been changed", hint="try again")


def _unavailable(path: Path, error: OSError) -> Unavailable:
    return unavailable(visible(str(path)), error, hint="`pml init --claude-code --print` shows all")


def with_hook(text: str | None, entry: JsonObject, path: Path) -> str:
    """Return the settings with the hook in them, once; an older one of PML's is replaced.

    Raises: ConfigInvalid.
    """
    if text is not None and _entries(text, path) == [entry]:
        return text
    return append_item(_without_entries(text or _NEW, path), _HOOKS, entry, path=str(path))


def without_hook(text: str, path: Path) -> str:
    """Return the settings without any hook of PML's, nor a list that held no other. Raises: ConfigInvalid."""
    left = _without_entries(text, path)
    return text if left == text else _without_empty(left, _HOOKS, path)


def _without_entries(text: str, path: Path) -> str:
    listed = _listed(text, path)
    for index in reversed(range(len(listed))):
        if _is_ours(listed[index]):
            text = remove_item(text, _HOOKS, index, path=str(path))
    return text


def hook_commands(text: str, path: Path) -> list[list[str]]:
    """Return the command lines of PML's hooks in the settings. Raises: ConfigInvalid."""
    return [words for entry in _entries(text, path) if (words := _command(entry))]


def _entries(text: str, path: Path) -> list[Json]:
    return [entry for entry in _listed(text, path) if _is_ours(entry)]


def _listed(text: str, path: Path) -> list[Json]:
    """Return all hooks before tools."""
    return _items(text, _HOOKS, path)


def _items(text: str, pointer: Sequence[str], path: Path) -> list[Json]:
    node: Node | None = _object(text, path)
    for key in pointer:
        node = None if node is None else node.members.get(key)
    return [] if node is None else [item.value for item in node.items]


def _is_ours(entry: Json) -> bool:
    return _command(entry) is not None


def _command(entry: Json) -> list[str] | None:
    """Return the command line of an entry that holds PML's hook and no other."""
    hooks = entry.get("hooks") if isinstance(entry, Mapping) else None
    if not isinstance(hooks, list | tuple) or len(hooks) != 1 or not isinstance(hooks[0], Mapping):
        return None
    command = hooks[0].get("command")
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return None
    is_pml = words[:1] and Path(words[0]).name in ("pml", "pml.exe") and words[1:2] == ["hook"]
    is_module = any(words[at : at + 3] == ["-m", "pml", "hook"] for at in range(len(words)))
    return words if is_pml or is_module else None


def with_allowed(text: str | None, entry: str, path: Path) -> str:
    """Return the settings with the entry among what the client lets run unasked. Raises: ConfigInvalid."""
    text = text or _NEW
    return text if entry in allowed_in(text, path) else append_item(text, _ALLOWED, entry, path=str(path))


def without_allowed(text: str, entry: str, path: Path) -> str:
    """Return the settings without the entry, nor a list that held no other. Raises: ConfigInvalid."""
    allowed = allowed_in(text, path)
    if entry not in allowed:
        return text
    left = remove_item(text, _ALLOWED, allowed.index(entry), path=str(path))
    return _without_empty(left, _ALLOWED, path)


def allowed_in(text: str, path: Path) -> list[Json]:
    """Return what the client lets run unasked by these settings. Raises: ConfigInvalid."""
    return _items(text, _ALLOWED, path)


def with_server(text: str | None, name: str, server: JsonObject, path: Path) -> str:
    """Return the MCP configuration with the server in it, in place of one of that name.

    Raises: ConfigInvalid.
    """
    text = text or _NEW
    if _servers(text, path).get(name) == server:
        return text
    text = _without_entry(text, name, path)
    root = _object(text, path)
    node = root.members.get("mcpServers")
    if node is None:
        return _put_first(text, root, "mcpServers", {name: server}, indent="  ")
    return _put_first(text, node, name, server, indent="    ")


def without_server(text: str, name: str, path: Path) -> str:
    """Return the MCP configuration without the server of that name, nor an empty list of servers.

    Raises: ConfigInvalid.
    """
    left = _without_entry(text, name, path)
    return text if left == text else _without_empty(left, ("mcpServers",), path)


def without_member(text: str, pointer: Sequence[str], path: Path) -> str:
    """Return the text without the member that the keys lead to; all else stays. Raises: ConfigInvalid."""
    node: Node | None = _object(text, path)
    for key in pointer[:-1]:
        node = None if node is None else node.members.get(key)
    if node is None or pointer[-1] not in node.members:
        return text
    return _without_member(text, node, pointer[-1])


def _without_entry(text: str, name: str, path: Path) -> str:
    node = _object(text, path).members.get("mcpServers")
    return text if node is None or name not in node.members else _without_member(text, node, name)


def _without_empty(text: str, pointer: Sequence[str], path: Path) -> str:
    """Return the text without the container at `pointer`, and those around it, as far as they are empty."""
    for depth in range(len(pointer) - 1, -1, -1):
        parent = _object(text, path)
        for key in pointer[:depth]:
            parent = parent.members[key]
        if parent.members[pointer[depth]].value:
            break
        text = _without_member(text, parent, pointer[depth])
    return text


def _without_member(text: str, node: Node, name: str) -> str:
    names = list(node.members)
    at = names.index(name)
    start, end = node.keys[name].start, node.members[name].end
    if at + 1 < len(names):
        end = node.keys[names[at + 1]].start
    elif at > 0:
        start = node.members[names[at - 1]].end
    else:
        start, end = node.start + 1, node.end - 1
    return text[:start] + text[end:]


def server_in(text: str, name: str, path: Path) -> JsonObject | None:
    """Return the server of that name in an MCP configuration. Raises: ConfigInvalid."""
    found = _servers(text, path).get(name)
    return found if isinstance(found, Mapping) else None


def _servers(text: str, path: Path) -> JsonObject:
    node = _object(text, path).members.get("mcpServers")
    if node is None:
        return {}
    if not isinstance(node.value, Mapping):
        raise ConfigInvalid(str(path), node.line, node.column, "`mcpServers` must be an object")
    return node.value


def _put_first(text: str, node: Node, name: str, value: Json, *, indent: str) -> str:
    shown = visible_json(value, indent=2).replace("\n", f"\n{indent}")
    member = f"\n{indent}{visible_json(name, indent=None)}: {shown}"
    after = "," if node.members else f"\n{indent[2:]}"
    return text[: node.start + 1] + member + after + text[node.start + 1 :]


def _object(text: str, path: Path) -> Node:
    root = parse(text, path=str(path))
    if not isinstance(root.value, Mapping):
        raise ConfigInvalid(str(path), root.line, root.column, "expected an object")
    return root
