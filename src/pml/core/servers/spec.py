"""`mcpServers` of a configuration file: what answers under the name of each MCP server.

That is its target: a process that PML starts, or an address that it reaches. It knows for itself what it is
made of, what of it may be shown, and when it is another one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from pml.core.config.section import Section
from pml.core.errors import ConfigInvalid
from pml.core.rules.ruleset import Source
from pml.core.servers.conditions import ServerTraits
from pml.core.servers.process_launch import Artefact, ProcessLaunch, parse_launch
from pml.core.servers.remote_target import RemoteTarget, is_remote, parse_remote
from pml.core.text import quote

# The names of PML's own tools, of the hub on the wire, and of folders that runtimes load code from.
RESERVED: Final = frozenset({"pml", "plexus", "node_modules"})

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

Target: TypeAlias = ProcessLaunch | RemoteTarget


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSpec:
    """One MCP server: its name, what answers under it, and the place that says so.

    `is_believed`: the user's file says that what it says of its tools is so.
    """

    name: str
    target: Target
    source: Source
    is_believed: bool = False

    @property
    def traits(self) -> ServerTraits:
        """What rules may know of it."""
        return ServerTraits(is_remote=isinstance(self.target, RemoteTarget), is_believed=self.is_believed)

    @property
    def target_digest(self) -> str:
        """The digest of the target: under another one, the name means another server."""
        return self.target.digest()

    @property
    def artefact(self) -> Artefact | None:
        """What PML installed for it; None for a server that a file configures."""
        return self.target.artefact


@dataclass(frozen=True, kw_only=True, slots=True)
class Unusable:
    """An entry that starts nothing: it is switched off, or says what PML cannot do. Nothing takes its name.

    `why` follows the name: "is disabled in …".
    """

    name: str
    why: str
    hint: str | None = None
    source: Source
    is_switched_off: bool = False

    @property
    def problem(self) -> str:
        return f"server {quote(self.name)} {self.why}"


class Servers(NamedTuple):
    """What `mcpServers` of one file says."""

    usable: Mapping[str, ServerSpec]
    unusable: Mapping[str, Unusable]


def server_name_problem(name: str) -> str | None:
    """Return why `name` cannot be the name of a server, or None."""
    if not _NAME.fullmatch(name):
        return "is not a name for a server: 1 to 64 of `A-Z a-z 0-9 _ -`"
    return "is not a name for a server: PML uses it for itself" if name.lower() in RESERVED else None


def parse_servers(
    top: Section, *, base_dir: str, home: str, environ: Mapping[str, str], is_users: bool
) -> Servers:
    """Return the servers of the file; an entry that cannot be used makes none of the others unusable.

    `environ` has the values of variables in the entries. `is_users`: the file is the user's own.

    Raises: ConfigInvalid if there is no object to read.
    """
    servers = top.section("mcpServers")
    if servers is None:
        return Servers({}, {})
    usable: dict[str, ServerSpec] = {}
    unusable: dict[str, Unusable] = {}
    for name, node in servers.node.members.items():
        source = Source(file=servers.path, line=node.line)
        try:
            if problem := server_name_problem(name):
                servers.refuse(name, servers.node.keys[name], problem)
            entry = servers.within(name, node)
            if entry.boolean("disabled"):
                why = f"is disabled in {servers.path}:{node.line}"
                unusable[name] = Unusable(name=name, why=why, source=source, is_switched_off=True)
            else:
                is_believed = _is_believed(entry, is_users=is_users)
                target = _target(entry, base_dir=base_dir, home=home, environ=environ)
                usable[name] = ServerSpec(name=name, target=target, source=source, is_believed=is_believed)
        except ConfigInvalid as exc:
            why = f"is not used: {exc.problem} ({exc.path}:{exc.line})"
            unusable[name] = Unusable(name=name, why=why, hint=exc.hint, source=source)
            hint = f"; {exc.hint}" if exc.hint else ""
            servers.note(
                exc.line, f"server {quote(name)} at line {exc.line} is not used: {exc.problem}{hint}"
            )
    return Servers(usable, unusable)


def _target(entry: Section, *, base_dir: str, home: str, environ: Mapping[str, str]) -> Target:
    if is_remote(entry):
        return parse_remote(entry, environ=environ)
    return parse_launch(entry, base_dir=base_dir, home=home, environ=environ)


class _Annotations(StrEnum):
    BELIEVED = "believed"


def _is_believed(entry: Section, *, is_users: bool) -> bool:
    """Tell whether the entry has rules believe what the server says of its tools."""
    said = entry.choice("annotations", _Annotations)
    if said is not None and not is_users:
        line = entry.node.members["annotations"].line
        text = f"`{entry.named('annotations')}` at line {line} applies only in the user's file and is ignored"
        entry.note(line, text)
    return said is not None and is_users
