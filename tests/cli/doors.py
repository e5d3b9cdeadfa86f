"""An agent at each door of PML, without forms: `pml stdio` in both eras, and `/mcp` of `pml serve`."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from pml.app import find_place, open_context
from pml.core.approvals.record import ApprovalId
from pml.service.approvals.lifecycle import Decision, decide
from tests.builders import PERSON
from tests.commands import TIMEOUT_S, run_process, spawn

PML: Final = (sys.executable, "-m", "pml")
PREFIX: Final = "io.modelcontextprotocol/"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
ME: Final = {"name": "agent", "version": "1"}
DOORS: Final = ("stdio, modern", "stdio, legacy", "http")


class Door(Protocol):
    def call(self, tool: str, arguments: Mapping[str, object]) -> Any:
        """Return the result of PML's own tool `call`, with the arguments of `tool`."""
        ...

    def go_on(self, workflow_id: str) -> Any:
        """Return what comes of continuing a workflow, with the model's word that it is approved."""
        ...

    def ask(self, method: str, params: Mapping[str, object]) -> Any:
        """Return the answer to any request."""
        ...


class _Door:
    def call(self, tool: str, arguments: Mapping[str, object]) -> Any:
        return self._called({"tool": tool, "arguments": arguments})

    def go_on(self, workflow_id: str) -> Any:
        return self._called({"continue_workflow": {"workflow_id": workflow_id, "approved": True}})

    def _called(self, arguments: Mapping[str, object]) -> Any:
        answer = self.ask("tools/call", {"name": "call", "arguments": arguments})
        assert "result" in answer, answer
        return answer["result"]

    def ask(self, method: str, params: Mapping[str, object]) -> Any:
        raise NotImplementedError


class _Stdio(_Door):
    def __init__(self, process: "subprocess.Popen[str]", version: str) -> None:
        self._process = process
        self._envelope = _envelope() if version == MODERN else {}
        if version != MODERN:
            self.ask("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": ME})

    def ask(self, method: str, params: Mapping[str, object]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **self._envelope}}
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if (answer := json.loads(line)).get("id") == 1:
                return answer
        raise EOFError


class _Http(_Door):
    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    def ask(self, method: str, params: Mapping[str, object]) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **_envelope()}}
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
            "Mcp-Name": str(params.get("name")),
        }
        request = urllib.request.Request(self._url, data=json.dumps(message).encode(), headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            body = answer.read().decode()
        lines = [line.removeprefix("data:") for line in body.splitlines() if line.startswith("data:")]
        found = [json.loads(line) for line in lines if line.strip()] or [json.loads(body)]
        return next(each for each in found if each.get("id") == 1)


def allow(approval_id: str) -> None:
    """Allow it as a person does, whom no agent started: this process is the one that started the agent."""

    async def decided() -> None:
        async with open_context(find_place()) as context:
            record = await context.store.approvals.get(ApprovalId(approval_id))
            assert record is not None
            await decide(context, record.id, Decision(by=PERSON, digest=record.digest, allow=True))

    asyncio.run(decided())


def _envelope() -> dict[str, Any]:
    said = {"protocolVersion": MODERN, "clientInfo": ME, "clientCapabilities": {}}
    return {"_meta": {f"{PREFIX}{key}": value for key, value in said.items()}}


@contextmanager
def entering(door: str) -> Generator[Door]:
    """Yield the door, one of `DOORS`, to the workspace that is the working directory."""
    with _hub() if door == "http" else _gateway(door) as entered:
        yield entered


@contextmanager
def _gateway(door: str) -> Generator[Door]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*PML, "stdio"], stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield _Stdio(process, MODERN if door.endswith("modern") else LEGACY)
        finally:
            process.kill()


@contextmanager
def _hub() -> Generator[Door]:
    with spawn(["serve", "--port", "0", "--json"]) as process:
        try:
            assert process.stdout is not None
            told = ""
            while not told.endswith("}\n"):
                told += process.stdout.readline()
            made = run_process("token", "create", "--role", "session", "--json")
            assert made.code == 0, made.err
            yield _Http(json.loads(told)["mcp"], made.json["token"])
        finally:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)
