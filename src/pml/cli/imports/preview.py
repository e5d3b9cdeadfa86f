"""Preview of an import: every command and URL whole, names of variables and headers, never a value."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pml.cli.terminal.output import count, say
from pml.core.imports.client_entries import hidden_values, texts_of
from pml.core.imports.client_files import ClientServer, value_at
from pml.core.imports.import_plan import ImportedServer, Outcome, command_words, describe, renamed
from pml.core.servers.expansion import Expander
from pml.core.servers.process_launch import steering
from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pathlib import Path

    from pml.cli.imports.found import FoundServers

ELSEWHERE: Final = "runs elsewhere: its code is not proven"
UNPROVEN: Final = "NOT PROVEN, NOT CONTAINED, as so far"
_TITLES: Final[Mapping[Outcome, str]] = {
    Outcome.SAME: "there already",
    Outcome.DIFFERENT: "not taken: another server has the name",
    Outcome.REFUSED: "cannot be taken",
    Outcome.OWN: "PML itself",
}


def show_preview(found: "FoundServers", installs: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Say what would become of each server; `installs` has the facts of what would be installed."""
    for error in found.broken:
        say(f"cannot be read, and stays as it is: {visible(error.message)}")
    if not found.files and not found.broken:
        say("no client's list of servers was found on this machine")
        return
    taken = found.taken
    servers, files = count(len(found.planned), "server"), count(len(found.files), "file")
    say(f"{servers} in {files}; {len(taken)} to take over")
    for each in taken:
        _show_taken(each, found.missing.get(each.name, ()), installs.get(each.name, ()))
    for outcome, title in _TITLES.items():
        rest = [each for each in found.planned if each.outcome is outcome]
        if rest:
            say(f"\n{title}:")
        for each in rest:
            name = visible(each.name or each.server.name)
            say(f"  {name}: {visible(each.why or '')} ({visible(describe(each))})")
            show_target(each.entry)


def _show_taken(each: ImportedServer, missing: Sequence[str], facts: Sequence[tuple[str, str]]) -> None:
    also = "".join(f", {visible(server.client)}" for server in each.also)
    say(f"\n{visible(each.name)} ({visible(describe(each))}{also})")
    if each.server.is_project:
        say("    of this workspace only; from your file it is there in every workspace")
    if old := renamed(each):
        say(f"    its client calls it {old}")
    show_target(each.entry, told={*missing, *(secret.name for secret in each.secrets)})
    if each.outcome is Outcome.PROVEN:
        say("    becomes an install that is proven before each start:")
    elif "url" in each.entry:
        say(f"    {ELSEWHERE}")
    else:
        say(f"    {UNPROVEN}{'' if each.why is None else f': {visible(each.why)}'}")
    for name, value in facts:
        first, *rest = value.split("\n")
        say(f"      {name:<10} {first}")
        for line in rest:
            say(f"      {'':<10} {line}")
    for secret in each.secrets:
        say(f"    {visible(secret.where)} looks like a secret: `${{{secret.name}}}` stands in its place")
    for name in missing:
        say(f"    needs {visible(name)}, which is not set: pml secrets set {visible(name)}")
    if each.server.reading.left_out:
        say(f"    does nothing here: {', '.join(map(visible, each.server.reading.left_out))}")


def show_target(entry: JsonObject, *, told: Collection[str] = ()) -> None:
    """Say what would be started or reached, nothing of it cut; of the variables in `told` more is said."""
    words = command_words(entry)
    if words:
        say(f"    starts {visible_json(words, indent=None)}")
    elif "url" in entry:
        say(f"    reaches {visible_json(entry['url'], indent=None)}")
    if entry.get("cwd") is not None:
        say(f"    in {visible_json(entry['cwd'], indent=None)}")
    names = ", ".join(visible(name) for name in _names(entry, "env"))
    if names:
        say(f"    with {names} set")
    for name, value in _steering(entry).items():
        say(f"    {visible(name)} = {visible_json(value, indent=None)}")
    headers = ", ".join(visible(name) for name in _names(entry, "headers"))
    if headers:
        say(f"    with the headers {headers}")
    if given := [name for name in _variables(entry) if name not in told]:
        say(f"    gets {', '.join(map(visible, given))} from your environment or `pml secrets`")


def show_removal(path: "Path", text: str, servers: Sequence[ClientServer]) -> None:
    """Say what a client's file would lose; values that may be secrets are left out."""
    say(f"\n{visible(str(path))} would lose:")
    for server in servers:
        say(f"  {'.'.join(map(visible, server.pointer))} (line {server.line})")
        shape = {server.pointer[-1]: hidden_values(value_at(text, server.pointer, path=str(path)))}
        for line in visible_json(shape).split("\n")[1:-1]:
            say(f"  - {line}")


def preview_json(
    found: "FoundServers",
    *,
    installs: Mapping[str, JsonObject],
    moved: Mapping[str, str] | None,
    written: bool,
) -> JsonObject:
    """Return the preview as one object; `moved` says of each secret where it went, None: not asked yet."""
    return {
        "servers": [_server_json(each, found, installs, moved) for each in found.planned],
        "files": [str(path) for path in found.files],
        "broken": [
            {"file": error.path, "line": error.line, "column": error.column, "problem": error.problem}
            for error in found.broken
        ],
        "file": found.file,
        "written": written,
    }


def _server_json(
    each: ImportedServer,
    found: "FoundServers",
    installs: Mapping[str, JsonObject],
    moved: Mapping[str, str] | None,
) -> JsonObject:
    install: Json = installs.get(each.name) if each.outcome is Outcome.PROVEN else None
    return {
        "name": each.name,
        "client": each.server.client,
        "client_name": each.server.name,
        "file": each.server.path,
        "line": each.server.line,
        "also": [{"client": it.client, "file": it.path, "line": it.line} for it in each.also],
        "project": each.server.is_project,
        "outcome": each.outcome.value,
        "why": each.why,
        **target_json(each.entry),
        "secrets": [
            {"name": it.name, "where": it.where, "stored_in": None if moved is None else moved.get(it.name)}
            for it in each.secrets
        ],
        "missing": list(found.missing.get(each.name, ())),
        "left_out": list(each.server.reading.left_out),
        "install": install,
    }


def target_json(entry: JsonObject) -> dict[str, Json]:
    """Return what an entry starts or reaches; of variables and headers only the names."""
    return {
        "command": command_words(entry),
        "url": entry.get("url"),
        "cwd": entry.get("cwd"),
        "env_names": _names(entry, "env"),
        "steering": _steering(entry),
        "header_names": _names(entry, "headers"),
        "variables": _variables(entry),
    }


def _names(entry: JsonObject, key: str) -> list[str]:
    found = entry.get(key)
    return [*found] if isinstance(found, Mapping) else []


def _variables(entry: JsonObject) -> list[str]:
    expander = Expander({})
    for text in texts_of(entry):
        expander(text)
    return [*expander.names]


def _steering(entry: JsonObject) -> dict[str, str]:
    """Return the variables that decide which code runs: whoever says yes must see them."""
    found = entry.get("env")
    texts = (
        {name: each for name, each in found.items() if isinstance(each, str)}
        if isinstance(found, Mapping)
        else {}
    )
    return steering(texts)
