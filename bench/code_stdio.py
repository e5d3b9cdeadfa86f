"""`execute` over stdio, beside FastMCP's CodeMode on the same Python task, and the memory that code takes.

Both have the same interpreter (pydantic-monty 1.4.0) and the same echo server behind them; one client calls
both in turns. CodeMode judges nothing and keeps nothing; it starts an interpreter for each call.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench import peers
from bench.caller import Caller, Wrong, running
from bench.peers import PROGRAM, TEXT, Call

CODE_MODE = "FastMCP 4.1.2 CodeMode"
SETTLE_S = 10.0  # until the processes are there that are kept ready
LOOK_S = 0.1
READY = 2  # runners of the pool; one more process makes JavaScript
DENO, MONTY, BOX = "deno", "monty", "bwrap"
_MONTY_VERSION = "1.4.0"
_CODE_MODE = """
import asyncio, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server import create_proxy
async def main():
    async with Client(StdioTransport(sys.argv[1], sys.argv[2:])) as client:
        proxy = create_proxy(client)
        proxy.add_transform(CodeMode())
        await proxy.run_async(show_banner=False, log_level="ERROR")
asyncio.run(main())
"""
_TASK = """
total = 0
for word in ("one", "two", "three"):
    said = await CALL
    total += len(said)
return total
"""
_EXPECTED = "11"


@dataclass(frozen=True, kw_only=True)
class Peer:
    name: str
    command: tuple[str, ...]
    task: Call


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Resident MB: of the gateway before any code and after, of one process of each kind, and of all."""

    before: float
    after: float
    runner: float
    worker: float
    all: float


def pml() -> Peer:
    return Peer(
        name="PML", command=(PROGRAM, "stdio"), task=_execute("mcp.echo.echo(text=word)", python=True)
    )


def code_mode() -> Peer:
    """Raises: CalledProcessError where it cannot be installed."""
    python = peers.fastmcp().command[0]
    found = subprocess.run([python, "-c", "import pydantic_monty"], stderr=subprocess.DEVNULL, check=False)
    if found.returncode:
        print(f"installing pydantic-monty {_MONTY_VERSION} for {CODE_MODE}", file=sys.stderr)
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, f"pydantic-monty=={_MONTY_VERSION}"], check=True)
    task = _execute('call_tool("echo", {"text": word})', python=False)
    return Peer(name=CODE_MODE, command=(python, "-c", _CODE_MODE, *peers.ECHO_SERVER), task=task)


def call_times(
    compared: Sequence[Peer], env: Mapping[str, str], cwd: Path, *, rounds: int, calls: int
) -> dict[str, list[float]]:
    """Return the seconds that each takes for the whole task, in turns."""
    found: dict[str, list[float]] = {peer.name: [] for peer in compared}
    with ExitStack() as stack:
        callers = [(peer, stack.enter_context(running(peer.command, env, cwd))) for peer in compared]
        for peer, caller in callers:
            caller.initialize()
            caller.initialized()
            caller.call(peer.task.params, expected=peer.task.expected)
        for _ in range(rounds):
            for peer, caller in callers:
                times = [caller.call(peer.task.params, expected=peer.task.expected) for _ in range(calls)]
                found[peer.name] += times
    return found


def memory(env: Mapping[str, str], cwd: Path) -> Memory:
    """Measure a gateway that has run code in both languages, once what it keeps ready is there."""
    with running((PROGRAM, "stdio"), env, cwd) as caller:
        caller.initialize()
        caller.initialized()
        plain = {"name": "echo__echo", "arguments": {"text": TEXT}}
        caller.call(msgspec.json.encode(plain), expected=TEXT)
        before = caller.rss_mb()
        for language in ("typescript", "python"):
            arguments = {"language": language, "code": "return 1 + 1"}
            params = msgspec.json.encode({"name": "execute", "arguments": arguments})
            caller.call(params, expected="2")
        found = _settled(caller)
        return Memory(
            before=before,
            after=caller.rss_mb(),
            runner=max(mb for name, mb in found if name == DENO),
            worker=max(mb for name, mb in found if name == MONTY),
            all=sum(mb for name, mb in found if name in (DENO, MONTY, BOX)),
        )


def _settled(caller: Caller) -> list[tuple[str, float]]:
    """Return the processes of the sandboxes, once all are there that are kept ready. Raises: Wrong."""
    until = time.perf_counter() + SETTLE_S
    last: list[tuple[str, float]] = []
    while time.perf_counter() < until:
        time.sleep(LOOK_S)
        found = _beneath(caller.process.pid)
        names = [name for name, _ in found]
        if names.count(DENO) == READY + 1 and names.count(MONTY) == 1 and found == last:
            return found
        last = found
    raise Wrong(f"the processes are not those that are kept ready: {last}")


def _beneath(pid: int) -> list[tuple[str, float]]:
    """Return the name and the resident MB of each process that `pid` started, and that these did."""
    shown = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,rss=,comm="], capture_output=True, text=True, check=True
    )
    started: dict[str, list[tuple[str, str, float]]] = {}
    for line in shown.stdout.splitlines():
        own, parent, rss, name = line.split(None, 3)
        started.setdefault(parent, []).append((own, name, int(rss) / 1024))
    found: list[tuple[str, float]] = []
    parents = [str(pid)]
    while parents:
        for own, name, mb in started.get(parents.pop(), ()):
            parents.append(own)
            found.append((name, mb))
    return found


def _execute(call: str, *, python: bool) -> Call:
    arguments = {"code": _TASK.replace("CALL", call), **({"language": "python"} if python else {})}
    params = msgspec.json.encode({"name": "execute", "arguments": arguments})
    return Call(params=params, expected=_EXPECTED)
