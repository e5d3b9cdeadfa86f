"""An agent that is a program with a command line, run once without a person, whose model the test drives.

What differs between them is a `Client`: the files it wants in its home, its command line, its vendor's API,
and what it puts before the name of a tool. It runs in an empty environment, with the home of the test and a
key that opens nothing.
"""

import json
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.agent_rig import Shop
from tests.e2e.installed import PACKAGES, Server, bare_environment, need_clients
from tests.e2e.model_api import LAST_WORD, Asked, ModelApi, Use, Wire, serving

KEY: Final = "fake-key"
PROMPT: Final = "go on"
TURN_S: Final = 120.0  # only ever reached by a client that hangs
# Whatever a client wants of the network besides its model, it does not get: nothing listens there.
_OFFLINE: Final = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where one client runs: its model, its MCP server `pml`, its home and its working directory."""

    url: str  # of the model, without a slash at its end
    server: Server
    home: Path
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How it is started there, with `environment` besides what every program gets."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Client:
    """A program: `package` is npm's, `prefix` what it puts before the name of a tool of the server `pml`."""

    name: str
    package: str
    prefix: str
    wire: Callable[[], Wire]
    prepare: Callable[[Setting], Launch]  # writes what it wants in its home

    def version(self) -> str:
        return json.loads((PACKAGES / self.package / "package.json").read_text())["version"]


class CommandAgent:
    """A client that runs, and waits for what its model says next."""

    def __init__(
        self, client: Client, api: ModelApi, process: "subprocess.Popen[bytes]", output: Path
    ) -> None:
        self._client = client
        self._api = api
        self._process = process
        self._output = output
        self._asked = self._wait(0)

    @property
    def tools(self) -> list[str]:
        prefix = self._client.prefix
        return [name.removeprefix(prefix) for name in self._asked.tools if name.startswith(prefix)]

    def begin(self, tool: str, /, **arguments: object) -> None:
        """Have the model call a tool of the gateway's."""
        self._api.say(self._asked.turn, Use(tool=f"{self._client.prefix}{tool}", arguments=arguments))

    def finish(self) -> str:
        """Return what the model is shown of the call that was begun."""
        self._asked = self._wait(self._asked.turn + 1)
        return self._asked.results[-1]

    def call(self, tool: str, /, **arguments: object) -> str:
        self.begin(tool, **arguments)
        return self.finish()

    def end(self) -> None:
        """Have the model say its last word, and see that the client passes it on and ends well."""
        self._api.say(self._asked.turn, LAST_WORD)
        code = self._process.wait(TURN_S)
        output = self._output.read_text(errors="replace")
        assert code == 0, output
        assert LAST_WORD in output

    def _wait(self, turn: int) -> Asked:
        try:
            return self._api.wait(turn, for_s=TURN_S, alive=lambda: self._process.poll() is None)
        except AssertionError as exc:
            output = self._output.read_text(errors="replace")
            raise AssertionError(f"{exc}; {self._client.name} printed:\n{output}") from exc


@contextmanager
def running(client: Client, shop: Shop) -> Generator[CommandAgent]:
    """Run the client in that workspace; it is killed if it has not ended by itself."""
    need_clients()
    if not (PACKAGES / client.package).exists():
        pytest.skip(f"needs {client.package}, which npm did not install for this system")
    workspace = shop.workspace
    output = workspace.home / "output"
    with serving(client.wire()) as api:
        setting = Setting(url=api.url, server=workspace.gateway, home=workspace.home, folder=workspace.path)
        launch = client.prepare(setting)
        with (
            output.open("wb") as file,
            subprocess.Popen(
                launch.argv,
                cwd=workspace.path,
                env={**bare_environment(workspace.home), **_OFFLINE, **launch.environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                yield CommandAgent(client, api, process, output)
            finally:
                process.kill()
