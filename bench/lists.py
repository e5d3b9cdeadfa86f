"""What a client's list of tools costs: its bytes beside what the server itself says of the same tools."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.caller import INITIALIZE
from bench.echo_server import TOOLS, usual_tools
from bench.peers import ECHO_SERVER, PROGRAM, trust
from bench.table import Row, print_table

COUNT = 100
_LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


def rows(*, quick: bool = False) -> list[Row]:
    """Count and return the row: bytes are the same however often they are counted."""
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory) / "workspace"
        workspace.mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": directory, "PML_HOME": str(Path(directory) / "pml")}
        command, *args = ECHO_SERVER
        server = {"command": command, "args": [*args, str(COUNT)]}
        trust(workspace, env, {"version": "0.1.0", "mcpServers": {"many": server}})
        listed = _listed(workspace, env)
        while len(listed) < COUNT:  # the first list may go out before the server is known
            listed = _listed(workspace, env)
    ours, alone = len(_compact(listed)), len(_compact([*TOOLS, *usual_tools(COUNT)]))
    compared = f"the server alone {alone / 1000:.1f} kB"
    return [
        (f"`tools/list`, {COUNT} tools", f"{ours / 1000:.1f} kB", compared, f"{ours / alone:.2f}", "≤ 1.13")
    ]


def _listed(workspace: Path, env: dict[str, str]) -> list[Any]:
    command = [PROGRAM, "stdio"]
    with subprocess.Popen(
        command, env=env, cwd=workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as gateway:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        gateway.stdin.write(b"\n".join([INITIALIZE, _LIST, b""]))
        gateway.stdin.flush()
        answers = (json.loads(line) for line in gateway.stdout)
        found = next(answer for answer in answers if answer.get("id") == 1)
        gateway.stdin.close()
    return found["result"]["tools"]


def _compact(tools: list[Any]) -> bytes:
    return json.dumps(tools, separators=(",", ":"), ensure_ascii=False).encode()


if __name__ == "__main__":
    print_table(rows())
