"""PML's gateway as Claude Code keeps it for one project: told to the client by its own command.

Its file goes before a project's `.mcp.json`, and only the client writes it. What is told here is shown first.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.agents.claude_code.gateway_name import SERVER, gateway_names, own_name
from pml.core.errors import PmlError, Unavailable
from pml.core.text import visible
from pml.core.values import Json, JsonObject
from pml.host.folders import absolute_only

if TYPE_CHECKING:
    from pml.app import Place

_TOLD_S: Final = 60.0  # its own commands take a second


def find_claude() -> str | None:
    """Return where Claude Code is; never a program of the workspace."""
    return shutil.which("claude", path=absolute_only(os.environ.get("PATH", os.defpath)))


def gateway() -> JsonObject:
    """Return the gateway as this PML, wherever the client's PATH leads."""
    return {"command": sys.executable, "args": ["-I", "-m", "pml", "stdio"]}


def client_file(place: "Place") -> Path:
    """Return where the client keeps the servers that it was told of."""
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(given) if given else place.user_home) / ".claude.json"


@dataclass(frozen=True, kw_only=True)
class ClientGateway:
    """The gateway of one workspace under its own name, and the client that keeps it."""

    claude: str
    name: str
    place: "Place"

    @property
    def allowed(self) -> str:
        """The entry that leaves the gateway's tools to PML in the client's settings."""
        return f"mcp__{self.name}"

    @property
    def is_kept(self) -> bool:
        """Whether the client has it already, as it is now."""
        kept = self.kept()
        return kept is not None and {key: kept.get(key) for key in gateway()} == gateway()

    def command(self, *, remove: bool) -> list[str] | None:
        """Return what the client is to be told, None if nothing."""
        if remove:
            return None if self.kept() is None else [*_MCP, "remove", "--scope", "local", self.name]
        stdio = json.dumps({"type": "stdio", **gateway()})
        return None if self.is_kept else [*_MCP, "add-json", "--scope", "local", self.name, stdio]

    def tell(self, command: list[str]) -> None:
        """Have the client carry it out. Raises: Unavailable."""
        is_removal = "remove" in command
        if not is_removal and self.kept() is not None:  # it adds none that it has
            self._run([*_MCP, "remove", "--scope", "local", self.name])
        self._run(command)
        if not is_removal and not self.is_kept:  # no name is left behind that starts nothing of ours
            raise Unavailable("Claude Code did not keep PML's gateway", hint="nothing was written")

    def problem(self) -> str | None:
        """Ask the client what it starts by the name, and return what is wrong with that; it starts it.

        Raises: Unavailable.
        """
        said = [line.strip() for line in self._run([*_MCP, "get", self.name]).splitlines()]
        words = gateway()["args"]
        assert isinstance(words, list)
        expected = ("Scope: Local config", f"Command: {sys.executable}", f"Args: {' '.join(map(str, words))}")
        missing = [line for line in expected if not any(each.startswith(line) for each in said)]
        return f"Claude Code does not say `{missing[0]}` of `{self.name}`" if missing else None

    def _run(self, command: list[str]) -> str:
        return run_client(self.claude, command, cwd=self.place.workspace)

    def kept(self) -> JsonObject | None:
        """Return what the client has under the name."""
        return local_server(client_file(self.place), str(self.place.workspace), self.name)


def run_client(claude: str, command: Sequence[str], *, cwd: Path) -> str:
    """Have the client carry out one of its own commands; return what it said. Raises: Unavailable."""
    argv = [claude, *command[1:]]
    try:
        ran = subprocess.run(
            argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOLD_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"`claude mcp` could not be run: {visible(str(exc))}") from exc
    if ran.returncode != 0:
        said = visible((ran.stderr or ran.stdout).decode(errors="replace").strip())
        raise Unavailable(f"`claude mcp` failed: {said}", hint="nothing was written")
    return ran.stdout.decode(errors="replace")


def own_gateway(place: "Place") -> ClientGateway | None:
    """Return the gateway under its own name, None where there is no client to keep it."""
    claude = find_claude()
    if claude is None:
        return None
    try:
        name = own_name(place.home, str(place.workspace))
    except (OSError, ValueError) as exc:
        raise Unavailable(f"no key in {visible(str(place.home))}: {visible(str(exc))}") from exc
    return ClientGateway(claude=claude, name=name, place=place)


def known_gateway(place: "Place") -> ClientGateway | None:
    """Return the gateway under the name that was made for this workspace before, None if none was."""
    names = [name for name in gateway_names(place.home, str(place.workspace)) if name != SERVER]
    return ClientGateway(claude=find_claude() or "claude", name=names[0], place=place) if names else None


def own_server(place: "Place") -> JsonObject | None:
    """Return what the client keeps for this folder under the name that PML made for it."""
    known = known_gateway(place)
    return None if known is None else known.kept()


def starts_pml(server: JsonObject) -> bool:
    """Tell whether a server starts a gateway of PML, whichever one is installed there."""
    command, given = server.get("command"), server.get("args")
    words = [*given] if isinstance(given, list | tuple) else []
    is_script = isinstance(command, str) and Path(command).stem == "pml" and words[:1] == ["stdio"]
    return is_script or any(words[at : at + 3] == ["-m", "pml", "stdio"] for at in range(len(words)))


def is_this_pml(server: JsonObject) -> bool:
    """Tell whether what a server starts is this Python with PML as its module, or the script of it."""
    command, given = server.get("command"), server.get("args")
    found = shutil.which(command) if isinstance(command, str) else None
    if found is None:
        return False
    words = given if isinstance(given, list | tuple) else ()
    python, started = Path(sys.executable), Path(found)
    if "-m" in words:
        at = words.index("-m")
        beside = os.path.isdir(python.parent) and os.path.samefile(started.parent, python.parent)
        return beside and started.name.startswith("python") and words[at + 1 : at + 2] == ["pml"]
    scripts = (shutil.which("pml", path=str(python.parent)), shutil.which(sys.argv[0]))
    return started.stem == "pml" and any(each and os.path.samefile(started, each) for each in scripts)


def local_server(path: Path, workspace: str, name: str) -> JsonObject | None:
    """Return the server that the client keeps for this one folder; a broken file has none."""
    from pml.agents.claude_code.settings import read_settings

    try:
        text = read_settings(path)
        projects = _object(_object(json.loads(text or "{}")).get("projects"))
    except (PmlError, ValueError, RecursionError):
        return None
    servers = _object(_object(projects.get(workspace)).get("mcpServers"))
    return _object(servers[name]) if name in servers else None


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


_MCP: Final = ("claude", "mcp")
