"""Plan of an import: what becomes of each server that a client has. Nothing here is read or written.

An entry is PML's own where it starts PML: a gateway behind a gateway would ask twice.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from pml.core.errors import Invalid
from pml.core.imports.client_files import ClientServer
from pml.core.imports.secret_values import SecretValue, take_secrets
from pml.core.packages.install_line import Request, parse_request
from pml.core.servers.spec import server_name_problem
from pml.core.text import quote
from pml.core.values import Json, JsonObject, is_same

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]+")
_ENDING: Final = re.compile(r"\.(?:cmd|exe|ps1|bat)$", re.IGNORECASE)
_OWN_PACKAGE: Final = "pml-gateway"


class Outcome(StrEnum):
    """What becomes of a server."""

    TAKEN = "taken"  # its entry, as it is
    PROVEN = "proven"  # an install whose files are proven, in place of a command that fetches them anew
    SAME = "same"  # it is there already
    DIFFERENT = "different"  # another one is there under its name, which is kept
    REFUSED = "refused"
    OWN = "own"  # it starts PML

    @property
    def is_taken(self) -> bool:
        return self in (Outcome.TAKEN, Outcome.PROVEN)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedServer:
    """One server and what becomes of it. `entry` has `${NAME}` in place of `secrets`.

    `why` says why it is not taken, or not proven. `request` is what would be installed in its place. `also`
    are other places that say the same.
    """

    server: ClientServer
    name: str
    outcome: Outcome
    entry: JsonObject = field(repr=False)
    secrets: tuple[SecretValue, ...] = ()
    why: str | None = None
    request: Request | None = None
    also: tuple[ClientServer, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Present:
    """Servers that PML has already: entries of the file that would be written, and the names of others."""

    entries: Mapping[str, Json]
    others: Mapping[str, str]  # name: where it is
    added: frozenset[str] = frozenset()  # installs, which only an install can be the same as


def plan_import(
    servers: Sequence[ClientServer],
    *,
    present: Present,
    problem_of: Callable[[str, JsonObject], str | None],
    value_of: Callable[[str], str | None],
    prove: bool,
) -> list[ImportedServer]:
    """Return what becomes of each of `servers`, the first of a name first.

    `problem_of` tells why PML could not use an entry, `value_of` which value a variable has
    already. `prove`: commands that fetch a package are to become installs.
    """
    planned: dict[str, ImportedServer] = {}
    rest: list[ImportedServer] = []
    values: dict[str, str] = {}

    def held(name: str) -> str | None:
        return values.get(name) or value_of(name)

    for server in servers:
        each = _planned(server, present, problem_of, held, prove=prove)
        values |= {secret.name: secret.value for secret in each.secrets}
        before = planned.get(each.name)
        if before is None:
            planned[each.name] = each
        elif _says_same(before, each):
            planned[each.name] = replace(before, also=(*before.also, server))
        else:
            why = f"is another server than that of {before.server.client}, which is taken first"
            outcome = Outcome.DIFFERENT if each.outcome is not Outcome.OWN else Outcome.OWN
            rest.append(replace(each, outcome=outcome, why=why, request=None))
    return [*planned.values(), *rest]


def unproven(planned: ImportedServer, why: str) -> ImportedServer:
    """Return the server taken as it is, since it cannot be installed."""
    return replace(planned, outcome=Outcome.TAKEN, request=None, why=why)


def settled(planned: ImportedServer, outcome: Outcome, why: str) -> ImportedServer:
    """Return the server with what was found out about it since: that it is not taken."""
    return replace(planned, outcome=outcome, request=None, why=why)


def import_name(name: str) -> str:
    """Return the name that a server gets: a client's may have blanks and dots."""
    return _UNFIT.sub("-", name).strip("-")[:64]


def command_words(entry: JsonObject) -> list[str]:
    """Return the command line of an entry; empty for a server that is reached by URL."""
    command, args = entry.get("command"), entry.get("args")
    words = [str(each) for each in args] if isinstance(args, list | tuple) else []
    return [command, *words] if isinstance(command, str) else []


def _says_same(one: ImportedServer, other: ImportedServer) -> bool:
    return is_same(one.server.reading.entry, other.server.reading.entry)


def _planned(
    server: ClientServer,
    present: Present,
    problem_of: Callable[[str, JsonObject], str | None],
    held: Callable[[str], str | None],
    *,
    prove: bool,
) -> ImportedServer:
    name = import_name(server.name)
    entry, secrets = take_secrets(name, server.reading.entry)
    if not is_same(present.entries.get(name), entry):  # else it is there, whatever its secrets are by now
        entry, secrets = take_secrets(name, server.reading.entry, held=held)

    def outcome(kind: Outcome, why: str | None = None, request: Request | None = None) -> ImportedServer:
        return ImportedServer(
            server=server, name=name, outcome=kind, entry=entry, secrets=secrets, why=why, request=request
        )

    if is_own(server.reading.entry):
        return outcome(Outcome.OWN, "starts PML itself")
    if problem := server.reading.refused or server_name_problem(name):
        return outcome(Outcome.REFUSED, problem)
    if name in present.entries:
        if is_same(present.entries[name], entry):
            return outcome(Outcome.SAME, "is in PML's file already")
        return outcome(Outcome.DIFFERENT, "is in PML's file already, with another entry, which is kept")
    if name in present.others:
        return outcome(Outcome.DIFFERENT, f"is there already: {present.others[name]}")
    if problem := problem_of(name, entry):
        return outcome(Outcome.REFUSED, problem)
    is_plain = bool(entry.get("disabled")) or "url" in entry or not prove
    planned = outcome(Outcome.TAKEN) if is_plain else _with_request(outcome(Outcome.TAKEN))
    if name in present.added and planned.outcome is Outcome.TAKEN:
        return outcome(Outcome.DIFFERENT, "is there already, added by `pml add`, and is kept")
    return planned


def _with_request(planned: ImportedServer) -> ImportedServer:
    """Return the server as an install, where its command fetches one package and starts it."""
    words = plain_words(command_words(planned.entry))
    if not words or not _fetches(words):
        return planned
    if any(secret.is_argument for secret in planned.secrets):
        return replace(planned, why="has a secret among its arguments, which no install keeps")
    if planned.entry.get("cwd") is not None:
        return replace(planned, why="is started in a folder of its own (`cwd`)")
    if other := _renamed_variable(planned.entry):
        return replace(planned, why=f"gets its variable {other} under another name")
    if any("${" in word for word in words):
        return replace(planned, why="has variables in its command line")
    try:
        request = parse_request(shlex.join(words))
    except Invalid as exc:
        return replace(planned, why=exc.message)
    return replace(planned, outcome=Outcome.PROVEN, request=request)


def install_variables(entry: JsonObject) -> tuple[dict[str, str], list[str]]:
    """Return the variables of an entry with their values, and the names of those that come from outside."""
    env = entry.get("env")
    texts = {name: str(value) for name, value in env.items()} if isinstance(env, Mapping) else {}
    required = [name for name, value in texts.items() if "${" in value]
    return {name: value for name, value in texts.items() if name not in required}, required


def _renamed_variable(entry: JsonObject) -> str | None:
    """Return a variable that comes from one with another name, or is only part of a value."""
    env = entry.get("env")
    given = env.items() if isinstance(env, Mapping) else ()
    return next((name for name, value in given if "${" in str(value) and value != f"${{{name}}}"), None)


def plain_words(words: Sequence[str]) -> list[str]:
    """Return a command line without what one system needs around it: `cmd /c`, a path, `.cmd`."""
    if len(words) > 2 and _program(words[0]).lower() == "cmd" and words[1].lower() == "/c":
        words = words[2:]
    return [_program(words[0]), *words[1:]] if words else []


def _program(word: str) -> str:
    return _ENDING.sub("", re.split(r"[\\/]", word)[-1])


def _fetches(words: Sequence[str]) -> bool:
    """Tell whether the command brings a package each time it is run."""
    runners = (("npx",), ("bunx",), ("uvx",), ("pnpm", "dlx"), ("npm", "exec"), ("npm", "x"))
    runners = (*runners, ("uv", "tool", "run"), ("pipx", "run"))
    return any(tuple(words[: len(runner)]) == runner for runner in runners)


def is_own(entry: JsonObject) -> bool:
    """Tell whether an entry starts PML, or leads to its hub."""
    words = plain_words(command_words(entry))
    if not words:
        url = str(entry.get("url", ""))
        return bool(re.match(r"http://(?:127\.0\.0\.1|localhost|\[::1\]):4445(?:/|$)", url))
    if words[0] in ("pml", _OWN_PACKAGE):
        return True
    packages = (re.split(r"==|@", word)[0] for word in words[1:])
    return ("-m", "pml") in pairwise(words) or _OWN_PACKAGE in packages


def describe(planned: ImportedServer) -> str:
    """Return where a server comes from, in a few words that have not passed `visible`."""
    return f"{planned.server.client}, {planned.server.path}:{planned.server.line}"


def renamed(planned: ImportedServer) -> str | None:
    """Return what its client calls it, where that cannot be its name here."""
    return None if planned.name == planned.server.name else quote(planned.server.name)
