"""The gateways that are compared, each in front of the same echo server, and how a call looks in each.

Peers come from PyPI, at one version, into virtual environments of their own that are kept for the next run.
"""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.echo_server import BIG_BYTES

FASTMCP = "FastMCP 4.1.2"
LAZY_MCP = "lazy-mcp 2.7.2"
MCP_PROXY = "mcp-proxy 0.13.0"
DIRECT = "no gateway"
BARE = "bare asyncio"
PML = "PML"
SDK = "mcp 2.3"

_HERE = Path(__file__).parent
PROGRAM = str(Path(sysconfig.get_path("scripts")) / "pml")
ECHO_SERVER = (sys.executable, str(_HERE / "echo_server.py"))
TEXT = "hello from the bench"
BIG_TEXT = "x" * BIG_BYTES

# A fresh session for each request is its default; one that is kept calls faster, but starts later.
_FASTMCP_START = """
import sys
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
server = StdioTransport(sys.argv[1], sys.argv[2:])
create_proxy(server).run(show_banner=False, log_level="ERROR")
"""
_FASTMCP_CALLS = """
import asyncio, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
async def main():
    async with Client(StdioTransport(sys.argv[1], sys.argv[2:])) as client:
        await create_proxy(client).run_async(show_banner=False, log_level="ERROR")
asyncio.run(main())
"""


_FASTMCP_OF_URL = """
import asyncio, sys
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.server import create_proxy
async def main():
    async with Client(StreamableHttpTransport(sys.argv[1])) as client:
        await create_proxy(client).run_async(show_banner=False, log_level="ERROR")
asyncio.run(main())
"""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The `params` of a call, and the text that answers it."""

    params: bytes
    expected: str


@dataclass(frozen=True, kw_only=True)
class Gateway:
    name: str
    command: tuple[str, ...]
    echo: Call
    big: Call
    start_command: tuple[str, ...] | None = None  # where another form of it starts faster


def direct() -> Gateway:
    return Gateway(name=DIRECT, command=ECHO_SERVER, echo=_call("echo", TEXT), big=_call("big", BIG_TEXT))


def bare_command() -> tuple[str, ...]:
    return (sys.executable, str(_HERE / "bare_server.py"))


def pml(workspace: Path, env: Mapping[str, str]) -> Gateway:
    """Make the workspace trusted, so that it allows the echo server's tools; audit is on, as it always is."""
    command, *args = ECHO_SERVER
    config = {
        "version": "0.1.0",
        "permissions": {"allow": ["echo:*"], "deny": [], "ask": ["*"]},
        "mcpServers": {"echo": {"command": command, "args": args}},
    }
    trust(workspace, env, config)
    return Gateway(
        name=PML,
        command=(PROGRAM, "stdio"),
        echo=_call("echo__echo", TEXT),
        big=_call("echo__big", BIG_TEXT),
    )


def trust(workspace: Path, env: Mapping[str, str], config: Mapping[str, object]) -> None:
    """Write the workspace's file and trust it, as a person does."""
    (workspace / ".pml.json").write_text(json.dumps(config))
    command = (PROGRAM, "trust", "--workspace", str(workspace))
    shown = subprocess.run([*command, "--show", "--json"], env=dict(env), check=True, stdout=subprocess.PIPE)
    digest = json.loads(shown.stdout)["digest"]
    subprocess.run([*command, "--yes", "--digest", digest], env=dict(env), check=True, stdout=subprocess.PIPE)


def sdk_permits(port: int) -> tuple[str, ...]:
    """Return the command of the permission tool written with the SDK, which the tests bring."""
    return (sys.executable, str(_HERE / "permit_server.py"), "sdk", str(port))


def fastmcp_permits(port: int) -> tuple[str, ...]:
    return (
        str(_installed("fastmcp", "4.1.2") / "python"),
        str(_HERE / "permit_server.py"),
        "fastmcp",
        str(port),
    )


def fastmcp() -> Gateway:
    python = str(_installed("fastmcp", "4.1.2") / "python")
    return Gateway(
        name=FASTMCP,
        command=(python, "-c", _FASTMCP_CALLS, *ECHO_SERVER),
        start_command=(python, "-c", _FASTMCP_START, *ECHO_SERVER),
        echo=_call("echo", TEXT),
        big=_call("big", BIG_TEXT),
    )


def fastmcp_of_url(url: str) -> tuple[str, ...]:
    """Return the command of a proxy for a remote server."""
    return (str(_installed("fastmcp", "4.1.2") / "python"), "-c", _FASTMCP_OF_URL, url)


def mcp_proxy_of_url(url: str) -> tuple[str, ...]:
    """Return the command of a proxy for a remote server."""
    program = _installed("mcp-proxy", MCP_PROXY.split()[1]) / "mcp-proxy"
    return (str(program), "--transport", "streamablehttp", url)


def lazy_mcp(home: Path) -> Gateway:
    """It offers meta-tools only: the call goes through `invoke_command`, which returns the result as text."""
    program = str(_installed("lazy-mcp", "2.7.2") / "lazy-mcp")
    config = home / "lazy-mcp.json"
    server = {"name": "echo", "description": "echo", "command": ECHO_SERVER}
    config.write_text(json.dumps({"servers": [server]}))

    def invoke(tool: str, text: str) -> Call:
        arguments = {"server": "echo", "command_name": tool, "parameters": {"text": TEXT}}
        params = msgspec.json.encode({"name": "invoke_command", "arguments": arguments})
        return Call(
            params=params, expected=json.dumps({"content": [{"type": "text", "text": text}]}, indent=2)
        )

    return Gateway(
        name=LAZY_MCP,
        command=(program, "--config", str(config)),
        echo=invoke("echo", TEXT),
        big=invoke("big", BIG_TEXT),
    )


def _call(tool: str, expected: str) -> Call:
    return Call(params=msgspec.json.encode({"name": tool, "arguments": {"text": TEXT}}), expected=expected)


def _installed(package: str, version: str) -> Path:
    """Return the folder of the package's programs, installed into its own environment on first use."""
    place = Path(sys.prefix) / "peers" / f"{package}-{version}"
    programs = place / "bin"
    ready = place / ".ready"  # last, so that an interrupted installation is done again
    if not ready.exists():
        print(f"installing {package} {version} to compare with", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(programs / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, f"{package}=={version}"], check=True)
        ready.touch()
    return programs
