"""The argument of `pml add`: which kind of server it names."""

import argparse
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from pml.cli.additions.proposal import Wish, reach
from pml.core.errors import Invalid
from pml.core.imports.import_plan import import_name, plain_words
from pml.core.imports.secret_values import take_secrets
from pml.core.packages.install_line import Request, parse_request
from pml.core.servers.process_launch import variable_problem
from pml.core.text import has_hidden, quote
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pml.app import Place

_FOR_SHELL: Final = re.compile(r"\$(?!\{)|`|^(?:[|;<>]|&&?|\|\|)$")
_RUNNERS: Final = frozenset({"npx", "bunx", "uvx", "pnpm", "npm", "uv", "pipx", "pip", "pip3", "deno"})


@dataclass(frozen=True, kw_only=True)
class PackageLine:
    """A command that fetches a package."""

    request: Request


@dataclass(frozen=True, kw_only=True)
class EntryLine:
    """A URL, or a program of the user's: an entry of `mcpServers` with a name that suggests itself."""

    name: str
    entry: JsonObject


@dataclass(frozen=True, kw_only=True)
class BundleLine:
    """A file of an MCP bundle."""

    path: str


@dataclass(frozen=True, kw_only=True)
class RegistryName:
    """A full name in a registry with the official API: `io.github.user/server`, perhaps with a version."""

    name: str
    version: str | None


@dataclass(frozen=True, kw_only=True)
class ShortName:
    """A name of the catalog, or of a registry of PML's own form."""

    name: str


Line: TypeAlias = PackageLine | EntryLine | BundleLine | RegistryName | ShortName


def read_line(args: argparse.Namespace) -> Line:
    """Return what the argument names. Raises: Invalid."""
    what = str(args.what).strip()
    if not what or has_hidden(what):
        raise Invalid("what is to be added is empty, or has hidden characters")
    if what.lower().startswith(("https://", "http://")):
        return _url(what, args)
    if args.header or args.sse:
        raise Invalid("`--header` and `--sse` are for a URL")
    words = _words(what)
    if len(words) == 1 and words[0].lower().endswith(".mcpb"):
        return BundleLine(path=words[0])
    if len(words) == 1 and "/" not in what:
        return ShortName(name=what)
    if len(words) == 1 and "." in what.partition("/")[0].strip(".") and what.count("/") == 1:
        name, at, version = what.partition("@")
        return RegistryName(name=name, version=version if at else None)
    plain = plain_words(words)
    if plain[0] in _RUNNERS:  # as it was typed, so that what only a shell could do is seen and refused
        return PackageLine(request=parse_request(what if plain == words else shlex.join(plain)))
    return _program(words, args)


def wish_of(args: argparse.Namespace) -> Wish:
    """Return what the options say of a package. Raises: Invalid."""
    env, required = variables(args)
    try:
        before = None if args.before is None else date.fromisoformat(args.before)
    except ValueError as exc:
        given = quote(str(args.before))
        raise Invalid(f"`--before` must be a day like `2026-01-31`, not {given}") from exc
    permissions = reach(
        net=args.net, workspace=args.access, read=args.read, write=args.write, run=args.programs
    )
    return Wish(env=env, env_required=tuple(required), permissions=permissions, before=before)


def variables(args: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """Return the variables with values, and the names of those that are secrets. Raises: Invalid."""
    env: dict[str, str] = {}
    required: list[str] = []
    for given in args.env:
        name, equals, value = str(given).partition("=")
        if problem := variable_problem(name):
            raise Invalid(f"`--env {name}` {problem}")
        if equals:
            env[name] = value
        else:
            required.append(name)
    _refuse_secrets({"env": env})
    return env, required


def answers_of(args: argparse.Namespace) -> dict[str, str]:
    """Raises: Invalid."""
    pairs = [str(given).partition("=") for given in args.answers]
    if any(not equals for _, equals, _ in pairs):
        raise Invalid("`--set` takes KEY=VALUE")
    return {key: value for key, _, value in pairs}


def refuse_package_options(args: argparse.Namespace, place: "Place") -> None:
    """Refuse options that hold a package to something, where nothing would. Raises: Invalid."""
    given = {"--net": args.net, "--access": args.access, "--read": args.read, "--write": args.write}
    given |= {"--run": args.programs, "--before": args.before}
    for option, value in given.items():
        if value:
            raise Invalid(f"`{option}` is for a package; what is not installed by PML is not held to it")


def _words(what: str) -> list[str]:
    try:
        return shlex.split(what)
    except ValueError as exc:
        raise Invalid(f"{quote(what)} is not a command line: {exc}") from exc


def _url(url: str, args: argparse.Namespace) -> EntryLine:
    headers: dict[str, Json] = {}
    for given in args.header:
        name, colon, value = str(given).partition(":")
        if not colon or not name.strip() or not value.strip():
            raise Invalid("`--header` takes `NAME: VALUE`")
        headers[name.strip()] = value.strip()
    if args.env:
        raise Invalid("`--env` is for a program: a URL takes `--header`")
    entry: dict[str, Json] = {"type": "sse" if args.sse else "http", "url": url}
    if headers:
        entry["headers"] = headers
    _refuse_secrets(entry)
    return EntryLine(name=_host_name(url), entry=entry)


def _host_name(url: str) -> str:
    """Return what a server is called after its host: `mcp.linear.app` is `linear`."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    labels = [label for label in host.split(".")[:-1] if label not in ("www", "mcp", "api")]
    return import_name(labels[-1] if labels else host) or "server"


def _program(words: list[str], args: argparse.Namespace) -> EntryLine:
    if odd := next((word for word in words if _FOR_SHELL.search(word)), None):
        raise Invalid(f"{quote(odd)} is for a shell, and none runs it", hint="`${NAME}` names a variable")
    env, required = variables(args)
    given = {**env, **{name: f"${{{name}}}" for name in required}}
    entry: dict[str, Json] = {"command": words[0], "args": words[1:]}
    if given:
        entry["env"] = given
    _refuse_secrets(entry)
    script = next((word for word in words[1:] if not word.startswith("-")), words[0])
    stem = script.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return EntryLine(name=import_name(stem) or "server", entry=entry)


def _refuse_secrets(entry: Mapping[str, Json]) -> None:
    """Raise Invalid for a secret on the command line, which lists of processes and histories show."""
    _, found = take_secrets("server", entry)
    if found:
        raise Invalid(
            f"what looks like a secret stands in {found[0].where}: a value is never given as an argument",
            hint="write `${NAME}` in its place (`--env NAME` for a variable), and store it with "
            "`pml secrets set NAME`",
        )
