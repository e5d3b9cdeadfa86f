"""PML's gateways in Claude Code's own list of servers: which there are, and how each is taken out.

The client is told by its own command; where it cannot be, its file is edited, unless it cannot be parsed.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pml.agents.claude_code.gateway_name import SERVER, gateway_names
from pml.agents.claude_code.settings import read_settings, server_in, without_member, write_settings
from pml.cli.claude_code.registration import client_file, find_claude, run_client, starts_pml
from pml.core.errors import PmlError, Unavailable
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pml.app import Place


@dataclass(frozen=True, kw_only=True)
class ListedGateway:
    """A gateway by its name in the list; `project` is None for one of all the user's projects."""

    name: str
    project: str | None

    @property
    def command(self) -> list[str]:
        """What tells the client to forget it, in the project's folder."""
        scope = "user" if self.project is None else "local"
        return ["claude", "mcp", "remove", "--scope", scope, self.name]

    @property
    def keys(self) -> tuple[str, ...]:
        """Where it stands in the client's file."""
        top = () if self.project is None else ("projects", self.project)
        return (*top, "mcpServers", self.name)


def listed_gateways(place: "Place") -> list[ListedGateway]:
    """Return the gateways in the client's list by names of PML's. Raises: Unavailable, ConfigInvalid."""
    path = client_file(place)
    text = read_settings(path)
    if text is None:
        return []
    without_member(text, ("mcpServers",), path)  # raises for what is not an object
    top = _object(json.loads(text))
    found = [ListedGateway(name=SERVER, project=None)] if _is_gateway(top, SERVER) else []
    for project, kept in _object(top.get("projects")).items():
        names = gateway_names(place.home, project)
        found += [ListedGateway(name=name, project=project) for name in names if _is_gateway(kept, name)]
    return found


def _is_gateway(kept: Json, name: str) -> bool:
    server = _object(_object(kept).get("mcpServers")).get(name)
    return isinstance(server, dict) and starts_pml(server)


def take_out(place: "Place", listed: ListedGateway) -> None:
    """Have the client forget the gateway, or edit its file where it does not.

    Raises: ConfigInvalid, Unavailable.
    """
    path, claude = client_file(place), find_claude()
    if claude is not None:
        with contextlib.suppress(Unavailable):  # then the file tells that it is still there
            run_client(claude, listed.command, cwd=Path(listed.project or place.workspace))
    text = read_settings(path)
    left = None if text is None else without_member(text, listed.keys, path)
    if text is not None and left is not None and left != text:
        write_settings(path, left, was=text)


def doubles(place: "Place") -> Iterator[tuple[Path, str]]:
    """Yield where Claude Code has PML as `pml` here too, with the command that takes it out."""
    path = client_file(place)
    with contextlib.suppress(PmlError):
        for listed in listed_gateways(place):
            if listed.name == SERVER and listed.project in (None, str(place.workspace)):
                yield path, " ".join(listed.command)
    path = place.workspace / ".mcp.json"
    with contextlib.suppress(PmlError):
        server = server_in(read_settings(path) or "{}", SERVER, path)
        if server is not None and starts_pml(server):
            yield path, "pml init --claude-code"


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
