"""A hub on a throw-away home for benchmarks, the peers beside it, and what each of them holds in memory."""

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import peers
from bench.caller import ANSWER_TIMEOUT_S, EXIT_TIMEOUT_S, Wrong
from bench.contexts import ME
from pml.core.approvals.record import SessionId
from pml.core.sessions.token import TokenRole
from pml.service.context import Context
from pml.service.sessions.tokens import create_agent_token, create_token

RULES = {"version": "0.1.0", "permissions": {"allow": ["Bash"], "deny": ["WebSearch"], "ask": ["*"]}}
ALLOWED, DENIED, ASKED = "Bash", "WebSearch", "Edit"


@dataclass(frozen=True, kw_only=True)
class Server:
    """One that runs; `home` is that of a hub."""

    name: str
    url: str
    process: "subprocess.Popen[bytes]"
    home: Path | None = None

    def rss_kb(self) -> int:
        """Return what the process holds in memory now."""
        shown = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True, check=True
        )
        return int(shown.stdout)


@contextlib.contextmanager
def hub(home: Path) -> Generator[Server]:
    """Start `pml serve`, in a workspace whose rules are trusted, and end it as Ctrl-C does."""
    workspace = home / "workspace"
    workspace.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PML_HOME": str(home / "pml")}
    peers.trust(workspace, env, RULES)
    command = [peers.PROGRAM, "serve", "--port", "0", "--json", "--workspace", str(workspace)]
    with _ending(subprocess.Popen(command, env=env, cwd=workspace, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        lines: list[bytes] = []
        while not lines or lines[-1] != b"}\n":
            lines.append(process.stdout.readline())
            if not lines[-1]:
                raise Wrong("the hub did not start")
        yield Server(name=peers.PML, url=json.loads(b"".join(lines))["url"], process=process, home=home)


@contextlib.contextmanager
def peer(name: str, home: Path) -> Generator[Server]:
    """Start the permission tool of a peer; ready when it listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = peers.sdk_permits(port) if name == peers.SDK else peers.fastmcp_permits(port)
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    with _ending(subprocess.Popen(command, env=env, cwd=home)) as process:
        _await_port(port, command)
        yield Server(name=name, url=f"http://127.0.0.1:{port}", process=process)


@contextlib.contextmanager
def _ending(process: "subprocess.Popen[bytes]") -> Generator["subprocess.Popen[bytes]"]:
    with process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _await_port(port: int, command: Sequence[str]) -> None:
    until = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError as exc:
            if time.monotonic() > until:
                raise Wrong(f"{command[0]} did not listen") from exc
            time.sleep(0.05)


async def session_tokens(context: Context, home: Path, count: int) -> list[str]:
    """Return the tokens of so many new sessions."""
    made: list[str] = []
    for _ in range(count):
        name = context.ids.new()
        _, text = await create_agent_token(
            context,
            role=TokenRole.CHILD,
            name=name,
            session_id=SessionId(name),
            parent_id=None,
            workspace=str(home / "workspace"),
            ttl_s=None,
            by=ME,
        )
        made.append(text)
    return made


async def person_token(context: Context) -> str:
    return (await create_token(context, role=TokenRole.PERSON, name="bench", by=ME))[1]
