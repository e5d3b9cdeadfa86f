"""`pml stdio --no-forms`: a client that declares forms is sent none, and people decide."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.promises import promise
from tests.upstream import odd_server

ME = {"name": "agent", "version": "1"}
LEGACY, MODERN = "2025-11-25", "2026-07-28"
FORMS: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}
PREFIX = "io.modelcontextprotocol/"


def talk(process: "subprocess.Popen[str]", version: str, method: str, params: Mapping[str, Any]) -> Any:
    """Return the first thing that the gateway says that is no notification."""
    assert process.stdin is not None
    assert process.stdout is not None
    meta = {"protocolVersion": MODERN, "clientInfo": ME, "clientCapabilities": FORMS}
    envelope = {"_meta": {PREFIX + key: value for key, value in meta.items()}} if version == MODERN else {}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **envelope}}
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    return next(said for line in process.stdout if "id" in (said := json.loads(line)))


@promise("forms:off-means-people")
@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_without_forms_nothing_is_shown_and_the_model_confirms_nothing(
    version: str, workspace: Path, pml_home: Path
) -> None:
    server = {"command": sys.executable, "args": [str(odd_server.__file__)]}
    pml_home.mkdir(exist_ok=True)
    (pml_home / "config.json").write_text(json.dumps({"mcpServers": {"odd": server}}))
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "pml", "stdio", "--no-forms"]
    with subprocess.Popen(command, cwd=workspace, stdin=pipe, stdout=pipe, text=True) as process:
        if version == LEGACY:
            hello = {"protocolVersion": version, "capabilities": FORMS, "clientInfo": ME}
            talk(process, version, "initialize", hello)
        call = {"name": "odd__echo", "arguments": {"text": "hello"}}
        asked = talk(process, version, "tools/call", call)["result"]
        assert asked["approval_required"] is True, asked
        assert "You cannot approve it." in asked["content"][0]["text"]
        assert "forms are switched off" in asked["content"][0]["text"]
        said = {"workflow_id": asked["approval_context"]["workflow_id"], "approved": True}
        go_on = {"name": "call", "arguments": {"continue_workflow": said}}
        again = talk(process, version, "tools/call", go_on)
        assert again["result"]["approval_required"] is True
        assert process.stdin is not None
        process.stdin.close()
