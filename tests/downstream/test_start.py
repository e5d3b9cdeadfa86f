"""What `pml stdio` does, and does not do, up to its first answers: a real process each."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.promises import promise

HEAVY = (
    "mcp",
    "pydantic",
    "rich",
    "textual",
    "starlette",
    "jinja2",
    "argparse",
    "apsw",
    "pml.store",
    "pml.service",
)
PARAMS: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
SHAKE: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}
DISCOVER: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
PING: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}


def run_stdio(
    *messages: dict[str, Any], cwd: Path, importtime: bool = False
) -> "subprocess.CompletedProcess[bytes]":
    """Send the messages, close the client's end, and return what came of it."""
    options = ["-X", "importtime"] if importtime else []
    code = "import sys; sys.argv = ['pml', 'stdio']; from pml.cli.entry import entry; entry()"
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        input=b"".join(json.dumps(message).encode() + b"\n" for message in messages),
        capture_output=True,
        cwd=cwd,
        timeout=60,
        check=True,
    )


def imported(ran: "subprocess.CompletedProcess[bytes]") -> set[str]:
    lines = ran.stderr.decode().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


@pytest.mark.parametrize("first", [SHAKE, DISCOVER], ids=["initialize", "discover"])
def test_the_first_answer_imports_nothing_heavy(first: dict[str, Any], tmp_path: Path) -> None:
    ran = run_stdio(first, PING, cwd=tmp_path, importtime=True)

    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    modules = imported(ran)
    assert "pml.downstream.protocol.connection" in modules
    assert [name for name in modules if name.startswith(HEAVY)] == []


def test_the_whole_gateway_imports_none_of_what_the_design_keeps_out(tmp_path: Path) -> None:
    ran = run_stdio(SHAKE, LIST, cwd=tmp_path, importtime=True)

    modules = imported(ran)
    assert "pml.service.calls.pipeline" in modules
    assert [name for name in modules if name.partition(".")[0] in HEAVY[:6]] == []


@promise("gate:nothing-before-first-request")
@pytest.mark.parametrize("first", [SHAKE, DISCOVER], ids=["initialize", "discover"])
def test_a_handshake_touches_no_file(first: dict[str, Any], tmp_path: Path, home: Path) -> None:
    ran = run_stdio(first, PING, cwd=tmp_path)

    assert len(ran.stdout.splitlines()) == 2
    assert not Path(os.environ["PML_HOME"]).exists()
    assert list(tmp_path.iterdir()) == []
