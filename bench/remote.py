"""What a gateway adds to a call of a remote server, and what a list of tools of a hundred costs."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.caller import INITIALIZE
from bench.peers import FASTMCP, MCP_PROXY, PROGRAM, TEXT, fastmcp_of_url, mcp_proxy_of_url, trust
from bench.table import Row, ms, percentile, print_table

SERVERS = 100
_WARM = 50


@contextmanager
def _server() -> Generator[int]:
    command = [sys.executable, "-m", "bench.http_echo_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def _direct(port: int, count: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times: list[float] = []
    for number in range(count + _WARM):
        params = {"name": "echo", "arguments": {"text": TEXT}}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        begun = time.perf_counter()
        connection.request("POST", "/mcp", body, {"content-type": "application/json"})
        connection.getresponse().read()
        times.append(time.perf_counter() - begun)
    return percentile(times[_WARM:], 0.5)


def _through(command: Sequence[str], tool: str, count: int, *, cwd: Path, env: dict[str, str]) -> float:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=cwd, env=env
    ) as gateway:
        _ask(gateway, json.loads(INITIALIZE))
        assert gateway.stdin is not None
        gateway.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        times: list[float] = []
        for number in range(count + _WARM):
            params = {"name": tool, "arguments": {"text": TEXT}}
            message = {"jsonrpc": "2.0", "id": number + 1000, "method": "tools/call", "params": params}
            begun = time.perf_counter()
            told = _ask(gateway, message)
            times.append(time.perf_counter() - begun)
            assert told["result"]["content"][0]["text"] == TEXT, told
        gateway.stdin.close()
        gateway.terminate()
    return percentile(times[_WARM:], 0.5)


def _ask(gateway: "subprocess.Popen[bytes]", message: dict[str, Any]) -> dict[str, Any]:
    assert gateway.stdin is not None
    assert gateway.stdout is not None
    gateway.stdin.write(json.dumps(message).encode() + b"\n")
    gateway.stdin.flush()
    for line in gateway.stdout:
        told = json.loads(line)
        if told.get("id") == message["id"]:
            return told
    raise AssertionError("it ended")


def rows(*, quick: bool = False) -> list[Row]:
    """Measure, and return the rows."""
    count = 100 if quick else 1000
    with tempfile.TemporaryDirectory() as directory, _server() as port:
        workspace = Path(directory) / "workspace"
        workspace.mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": directory, "PML_HOME": str(Path(directory) / "pml")}
        url = f"http://127.0.0.1:{port}/mcp"
        server = {"type": "http", "url": url}
        allow = {"permissions": {"allow": ["*:echo"]}}
        trust(workspace, env, {"version": "0.1.0", "mcpServers": {"echo": server}, **allow})
        direct = _direct(port, count)
        stdio = [PROGRAM, "stdio"]
        ours = _through(stdio, "echo__echo", count, cwd=workspace, env=env) - direct
        found: list[Row] = []
        for name, command in ((FASTMCP, fastmcp_of_url(url)), (MCP_PROXY, mcp_proxy_of_url(url))):
            theirs = _through(command, "echo", count, cwd=workspace, env=env) - direct
            compared = f"{name} {ms(theirs)}"
            found.append(("remote call, added p50", ms(ours), compared, f"{ours / theirs:.2f}", "≤ 1/3"))
        many = {f"echo{number}": server for number in range(SERVERS)}
        trust(workspace, env, {"version": "0.1.0", "mcpServers": many, **allow})
        _list(workspace, env)  # each is asked once, and known from then on
        begun = time.perf_counter()
        tools = _list(workspace, env)
        took = time.perf_counter() - begun
        shown = f"{tools} tools, spawn included"
        return [*found, (f"`tools/list`, {SERVERS} remote servers, warm", ms(took), shown, "", "≤ 1 s")]


def _list(workspace: Path, env: dict[str, str]) -> int:
    """Return how many tools of the servers are listed, asking until all that will be known are."""
    pipe = subprocess.PIPE
    with subprocess.Popen([PROGRAM, "stdio"], stdin=pipe, stdout=pipe, cwd=workspace, env=env) as gateway:
        _ask(gateway, json.loads(INITIALIZE))
        listed = 0
        for number in range(200):
            told = _ask(gateway, {"jsonrpc": "2.0", "id": 2000 + number, "method": "tools/list"})
            listed = sum("__" in tool["name"] for tool in told["result"]["tools"])
            if listed >= SERVERS:
                break
            time.sleep(0.1)
        assert gateway.stdin is not None
        gateway.stdin.close()
    return listed


if __name__ == "__main__":
    print_table(rows(quick="--quick" in sys.argv[1:]))
