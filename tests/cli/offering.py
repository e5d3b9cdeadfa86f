"""A registry's folder that offers one small server, and the index on loopback that has its wheel."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.lock import Lock, Locked
from pml.core.packages.package import Ecosystem
from tests.commands import TIMEOUT_S
from tests.install.python_index import PythonIndex, make_wheel

SERVER: Final = """
import json, sys

GREET = {"name": "greet", "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}

def answer(method, params):
    if method == "initialize":
        info = {"name": "greeter", "version": "1.0"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [GREET, {**GREET, "name": "hold"}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "hello " + params["arguments"]["name"]}]}
    return {}

def main():
    print("greeter is up", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and message.get("params", {}).get("name") != "hold":
            result = answer(message["method"], message.get("params"))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


class Registry:
    """A folder that offers the server `greeter`, and the index on loopback that has its one wheel."""

    def __init__(self, folder: Path, index: PythonIndex, home: Path) -> None:
        self.index = index
        self.home = home
        scripts = {"greeter-server": "greeter:main"}
        self.wheel = make_wheel("greeter-server", "1.0", files={"greeter.py": SERVER}, scripts=scripts)
        self.file = index.add("greeter-server", "1.0", self.wheel)
        self.integrity = str(integrity_of(self.wheel, Algorithm.SHA256))
        self._entry = folder / "acme.tools.greeter.json"
        self.offer()
        home.mkdir(mode=0o700)
        (home / "config.json").write_text(json.dumps({"registry": str(folder)}))

    def offer(self, *, tools: Sequence[str] = ("greet",), **more: object) -> None:
        """Write the entry; `more` are further fields of the dependency."""
        greeter = {
            "name": "greeter",
            "type": "stdio",
            "install": "uvx greeter-server==1.0",
            "integrity": self.integrity,
            "permissions": {"workspace": "none"},
            **more,
        }
        entry = {"fqdn": "acme.tools.greeter", "type": "server", "tools": list(tools), "mcp_deps": [greeter]}
        self._entry.write_text(json.dumps(entry))

    def locked(self) -> Any:
        """Return the lock of the one package, so that nothing need be looked up."""
        key = "greeter-server==1.0"
        package = Locked(key=key, name="greeter-server", version="1.0", integrity=(self.integrity,))
        lock = Lock(
            ecosystem=Ecosystem.PYPI, name="greeter-server", version="1.0", root=key, packages=(package,)
        )
        return msgspec.to_builtins(lock)

    @property
    def was_downloaded(self) -> bool:
        return f"/files/{self.file}" in self.index.asked

    @property
    def leftovers(self) -> list[str]:
        """What stands in the folder of installed servers: servers, and installs under way."""
        servers = self.home / "servers"
        if not servers.exists():
            return []
        staged = os.listdir(servers / ".staging") if (servers / ".staging").exists() else []
        return sorted({*os.listdir(servers), *staged} - {".staging"})

    def wait_for_download(self) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not self.was_downloaded:
            assert time.monotonic() < end, "nothing was downloaded"
