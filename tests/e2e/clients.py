"""Real MCP clients, all driven the same way: list tools, call a tool, answer a form.

A client is a process of its own that starts the server under test, as a user's client does. The Inspector
starts one for every request, and so sees what survives the end of a connection.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tests.e2e.installed import INSTALLED, NODE, PACKAGES, SCRIPTS, Server, bare_environment

ANSWER_S: Final = 60.0  # only ever reached by a client or a server that hangs
READS_S: Final = 1.0  # an answer that is quicker than a person can read decides nothing
LINE_BYTES: Final = 16 * 1024 * 1024  # a result of a real server fits

Answer = Mapping[str, object] | None

ACCEPT: Final[Answer] = {"action": "accept", "content": {"remember": "once"}}
ACCEPT_NOTHING: Final[Answer] = {"action": "accept", "content": {}}
ALWAYS: Final[Answer] = {"action": "accept", "content": {"remember": "always"}}
DECLINE: Final[Answer] = {"action": "decline"}
CANCEL: Final[Answer] = {"action": "cancel"}
LEAVE_OPEN: Final[Answer] = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the client made of one request: a result or an error, and the forms it showed on the way."""

    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    forms: Sequence[Mapping[str, Any]] = ()
    notifications: Sequence[Mapping[str, Any]] = ()

    @property
    def text(self) -> str:
        """The text of the result; fails where there is none."""
        assert self.result is not None, self.error
        return "\n".join(block["text"] for block in self.result["content"])


class Client(Protocol):
    """One connection, or what looks like one."""

    protocol: str

    async def ask(self, request: Mapping[str, object]) -> Outcome: ...


async def tools_of(client: Client) -> dict[str, dict[str, Any]]:
    """Return the tools that the client was offered, by name."""
    listed = await client.ask({"do": "tools"})
    assert listed.result is not None, listed.error
    return {tool["name"]: tool for tool in listed.result["tools"]}


async def call(
    client: Client,
    name: str,
    arguments: Mapping[str, object],
    *,
    answer: Answer = CANCEL,
    reads_s: float | None = None,
) -> Outcome:
    """Call a tool, giving `answer` to every form that the client is shown, after looking at it.

    A form is read before it is accepted, unless told otherwise; other answers come at once.
    """
    if reads_s is None:
        reads_s = READS_S if answer and answer["action"] == "accept" else 0.0
    asked = {"name": name, "arguments": dict(arguments), "answer": answer, "reads_s": reads_s}
    return await client.ask({"do": "call", **asked})


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A client program in one of its modes; `mode` is that program's own word for it."""

    name: str
    argv: tuple[str, ...]
    mode: str
    one_request_only: bool = False


def _python(mode: str) -> Kind:
    script = Path(__file__).with_name("python_client.py")
    return Kind(name=f"python-{mode}", argv=(sys.executable, str(script)), mode=mode)


def _typescript(script: str, mode: str) -> Kind:
    return Kind(name=f"{script}-{mode}", argv=(NODE, str(SCRIPTS / f"{script}.mjs")), mode=mode)


PYTHON: Final = _python("auto")
PYTHON_LEGACY: Final = _python("legacy")
TYPESCRIPT: Final = _typescript("typescript", "auto")
TYPESCRIPT_1: Final = _typescript("typescript1", "legacy")
INSPECTOR: Final = Kind(
    name="inspector",
    argv=(NODE, str(PACKAGES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli"),
    mode="legacy",
    one_request_only=True,
)


@asynccontextmanager
async def connected(kind: Kind, server: Server, *, home: Path, forms: bool = False) -> AsyncGenerator[Client]:
    """Run a client that has started `server`; `forms` says whether it declares that it can show them."""
    if kind.one_request_only:
        yield _Inspector(kind, server, home)
        return
    environment = {**bare_environment(home), "MCP_CLIENTS": str(INSTALLED)}
    process = await asyncio.create_subprocess_exec(
        *kind.argv, stdin=PIPE, stdout=PIPE, env=environment, limit=LINE_BYTES
    )
    try:
        start = {**server.as_config(), "env": {**bare_environment(home), **server.env}}
        hello = await _exchange(process, {"server": start, "mode": kind.mode, "forms": forms})
        yield _Lines(process, hello["protocol"])
        await _close(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _exchange(process: Process, value: object) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(value).encode() + b"\n")
    async with asyncio.timeout(ANSWER_S):
        line = await process.stdout.readline()
    assert line, "the client ended without an answer"
    return json.loads(line)


async def _close(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    async with asyncio.timeout(ANSWER_S):
        code = await process.wait()
    assert code == 0, f"the client ended with {code}"


class _Lines:
    """A client that answers one line with one line."""

    def __init__(self, process: Process, protocol: str) -> None:
        self.protocol = protocol
        self._process = process

    async def ask(self, request: Mapping[str, object]) -> Outcome:
        return Outcome(**await _exchange(self._process, request))


class _Inspector:
    """The Inspector's command line: a process, and a connection, for every request. It shows no forms."""

    def __init__(self, kind: Kind, server: Server, home: Path) -> None:
        self.protocol = kind.mode
        self._kind = kind
        self._server = server
        self._home = home

    async def ask(self, request: Mapping[str, object]) -> Outcome:
        process = await asyncio.create_subprocess_exec(
            *self._argv(request), stdout=PIPE, stderr=PIPE, env=bare_environment(self._home)
        )
        try:
            async with asyncio.timeout(ANSWER_S):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if out.strip():
            return Outcome(result=json.loads(out)["result"])
        return Outcome(error=json.loads(err)["error"])

    def _argv(self, request: Mapping[str, object]) -> list[str]:
        argv = [*self._kind.argv, "--protocol-era", self._kind.mode, "--format", "json", "--quiet"]
        if self._server.cwd is not None:
            argv += ["--cwd", str(self._server.cwd)]
        for name, value in {**bare_environment(self._home), **self._server.env}.items():
            argv += ["-e", f"{name}={value}"]
        if request["do"] == "tools":
            argv += ["--method", "tools/list"]
        else:
            argv += ["--method", "tools/call", "--tool-name", str(request["name"])]
            argv += ["--tool-args-json", json.dumps(request["arguments"])]
        return [*argv, "--", self._server.command, *self._server.args]
