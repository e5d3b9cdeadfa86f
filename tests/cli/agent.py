"""An agent for tests: it speaks MCP to `pml stdio`, and then tries what it should not get away with.

usage: agent.py TASK [LAUNCHER…]: the launcher stands before `pml stdio`. Prints one JSON object.
"""

import json
import subprocess
import sys
import time
from typing import Any

PML = [sys.executable, "-m", "pml"]
READ_S = 1.0  # more than `INSTANT_S`: an answer before that is nobody's
TOOL, ARGUMENTS = "odd__echo", {"n": 1}


class Client:
    """A legacy client; with `forms` it accepts every form that it is shown, as late as a person would."""

    def __init__(self, launcher: list[str], *, forms: bool, read_s: float = READ_S) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([*launcher, *PML, "stdio"], stdin=pipe, stdout=pipe, text=True)
        self.forms = 0
        self._read_s = read_s
        capabilities: dict[str, Any] = {"elicitation": {}} if forms else {}
        info = {"name": "agent", "version": "1"}
        self.ask(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info},
        )

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._send({"id": 1, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("method") == "elicitation/create":
                self.forms += 1
                time.sleep(self._read_s)
                answer = {"action": "accept", "content": {"remember": "once"}}
                self._send({"id": message["id"], "result": answer})
            elif message.get("id") == 1:
                return message
        raise EOFError

    def call(self, **more: Any) -> dict[str, Any]:
        return self.ask("tools/call", {"name": TOOL, "arguments": {**ARGUMENTS, **more}})["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=20)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


def decide(launcher: list[str]) -> dict[str, Any]:
    """Ask for a call, and try to allow it with the command that is for people."""
    client = Client(launcher, forms=False)
    approval = client.call()["approval_context"]["approval_id"]
    tried = subprocess.run(
        [*PML, "approvals", "allow", approval], capture_output=True, text=True, check=False
    )
    client.close()
    return {"code": tried.returncode, "said": tried.stderr}


def nest(launcher: list[str]) -> dict[str, Any]:
    """Stay connected, and let a client of our own ask and answer."""
    outer = Client(launcher, forms=True)
    outer.ask("tools/list", {})
    inner = subprocess.run([sys.executable, __file__, "answer"], capture_output=True, text=True, check=True)
    outer.close()
    return json.loads(inner.stdout)


def pipe(launcher: list[str]) -> dict[str, Any]:
    """Stay connected, and talk to another gateway through a shell, as a client with forms would."""
    outer = Client(launcher, forms=True)
    outer.ask("tools/list", {})
    found = answer(["sh", "-c", 'cat | "$@"; true', "sh"])
    outer.close()
    return found


def leave(launcher: list[str]) -> dict[str, Any]:
    """Talk, by two named pipes, to a gateway that is beneath nobody any more."""
    start = (
        'd=$(mktemp -d); mkfifo "$d/in" "$d/out"; (setsid "$@" <"$d/in" >"$d/out" &); '
        'cat <"$d/out" & cat >"$d/in"'
    )
    return answer(["sh", "-c", start, "sh", *launcher])


def hurry(launcher: list[str]) -> dict[str, Any]:
    """Accept a form as soon as it comes."""
    client = Client(launcher, forms=True, read_s=0)
    result = client.call()
    client.close()
    return {"forms": client.forms, "waits": "approval_context" in result}


def answer(launcher: list[str]) -> dict[str, Any]:
    """Ask for a call, accept its form, and continue its workflow."""
    found: dict[str, Any] = {}
    for forms in (True, False):
        client = Client(launcher, forms=forms)
        result = client.call()
        if "approval_context" in result:
            said = {
                "workflow_id": result["approval_context"]["workflow_id"],
                "approved": True,
                "always": True,
            }
            result = client.call(continue_workflow=said)
        found["with" if forms else "without"] = {
            "forms": client.forms,
            "waits": "approval_context" in result,
        }
        client.close()
    return found


if __name__ == "__main__":
    tasks = {each.__name__: each for each in (decide, nest, pipe, leave, hurry, answer)}
    print(json.dumps(tasks[sys.argv[1]](sys.argv[2:])))
