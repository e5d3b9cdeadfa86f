"""A proof that Claude Code asks PML: the client is to run one command that a rule denies, and one it allows.

What the model says is scripted, on loopback; the client has a home of its own, a made-up key and an empty
environment, so nothing leaves the machine and nothing of the user's is touched. How the client is made to
ask, and whom, comes in as options.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final, cast

from pml.core.errors import Unavailable
from pml.core.text import visible
from pml.core.values import Json, JsonObject
from pml.host.processes import SystemProcesses
from pml.host.watched import watched

RUN_S: Final = 60.0  # a client takes a second or two; on a busy machine ten
_PROMPT: Final = "go on"
PRINTING: Final = ("-p", "--output-format", "stream-json", "--verbose")
_KEY: Final = "made-up-key"
_MAX_BODY: Final = 32 * 1024 * 1024
_TAIL: Final = 300  # of what the client complained of


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Two commands that each leave a mark, and the rules that deny the one and allow the other."""

    folder: Path
    word: str

    @property
    def denied(self) -> str:
        return f"touch {self._mark('denied')}"

    @property
    def allowed(self) -> str:
        return f"touch {self._mark('allowed')}"

    @property
    def rules(self) -> JsonObject:
        """The user's configuration file of the PML that is asked."""
        return {
            "version": "0.1.0",
            "permissions": {
                "deny": [{"tool": "Bash", "args": {"command": self.denied}}],
                "allow": [{"tool": "Bash", "args": {"command": self.allowed}}],
            },
        }

    def ran(self, which: str) -> bool:
        return (self.folder / self._mark(which)).exists()

    def _mark(self, which: str) -> str:
        return f"{which}-{self.word}"


def new_trial(folder: Path) -> Trial:
    """Return a trial whose commands run in `folder`."""
    return Trial(folder=folder, word=uuid.uuid4().hex)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What came of a trial. `told` is what the model saw of both commands, in their order."""

    told: tuple[str, ...]
    denied_ran: bool
    allowed_ran: bool

    @property
    def problem(self) -> str | None:
        """What is wrong, None where PML was asked and obeyed."""
        if self.denied_ran:
            return "a command that a rule denies ran: the client did not ask PML"
        if not self.told or "denied by user config" not in self.told[0]:
            return f"the client did not ask PML: {self._said(0)}"
        if not self.allowed_ran:
            return f"a command that a rule allows did not run: {self._said(1)}"
        return None

    def _said(self, index: int) -> str:
        return visible(self.told[index][:_TAIL]) if index < len(self.told) else "the model was told nothing"


def prove(claude: str, trial: Trial, *, home: Path, path: str, options: Sequence[str]) -> Proof:
    """Run the client once, without a screen, and return what came of it.

    `home` is to be the client's alone, `path` where programs are found. Raises: Unavailable.
    """
    with _scripted((trial.denied, trial.allowed)) as model:
        _run([claude, *options], cwd=trial.folder, env=_environment(home, path, model.url))
    return Proof(told=tuple(model.told), denied_ran=trial.ran("denied"), allowed_ran=trial.ran("allowed"))


def version_of(claude: str, *, home: Path, path: str) -> tuple[int, ...] | None:
    """Return the version of the client, None if it does not tell one. Raises: Unavailable."""
    said = _run([claude, "--version"], cwd=home, env=_environment(home, path, "http://127.0.0.1:9"))
    words = said.split()
    numbers = words[0].split(".") if words else []
    return tuple(map(int, numbers)) if numbers and all(part.isdecimal() for part in numbers) else None


def _environment(home: Path, path: str, url: str) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": path,
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": _KEY,
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false",
    }


def _run(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> str:
    """Run a program to its end, and whatever it leaves behind, and return what it printed."""
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as exc:
        raise Unavailable(f"`{visible(argv[0])}` cannot be started: {exc.strerror}") from exc
    with process, watched(SystemProcesses().find(process.pid)):
        try:
            out, err = process.communicate(_PROMPT, timeout=RUN_S)
        except subprocess.TimeoutExpired as exc:
            raise Unavailable(f"Claude Code did not end within {RUN_S:g} s") from exc
        finally:
            _end_group(process)
    if process.returncode != 0:
        said = visible(" ".join((err or out).split())[-_TAIL:])
        raise Unavailable(f"Claude Code ended with exit code {process.returncode}: {said}")
    return out


def _end_group(process: subprocess.Popen[str]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Model:
    """Says one command after the other; which is next is told by how often it has spoken."""

    def __init__(self, commands: Sequence[str]) -> None:
        self.url = ""
        self.told: list[str] = []
        self._commands = commands

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = cast("list[dict[str, Any]]", body["messages"])
        said = sum(message["role"] == "assistant" for message in messages)
        if not body.get("tools") or said >= len(self._commands):
            block: dict[str, Any] = {"type": "text", "text": "done"}
        else:
            input = {"command": self._commands[said], "description": "try"}
            block = {"type": "tool_use", "id": f"toolu_{said}", "name": "Bash", "input": input}
        self.told = max(self.told, list(_results(messages)), key=len)
        return {
            "id": f"msg_{said}",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": [block],
            "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }


def _results(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the text of every tool result."""
    for message in messages:
        blocks: list[dict[str, Any]] = [] if isinstance(message["content"], str) else message["content"]
        for block in blocks:
            if block.get("type") == "tool_result":
                content: Any = block.get("content")
                yield content if isinstance(content, str) else json.dumps(content)


def _events(message: Mapping[str, Any]) -> Iterator[Mapping[str, Json]]:
    """Yield the message as the client is streamed it."""
    block: dict[str, Any] = message["content"][0]
    is_text = block["type"] == "text"
    empty: dict[str, Any] = {**block, "text": ""} if is_text else {**block, "input": {}}
    delta = (
        {"type": "text_delta", "text": block["text"]}
        if is_text
        else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    )
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": empty}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


@contextmanager
def _scripted(commands: Sequence[str]) -> Generator[_Model]:
    """Serve a model on a free port of loopback that says `commands`."""
    model = _Model(commands)

    class Answering(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def do_HEAD(self) -> None:
            self._reply("application/json", b"")

        def do_GET(self) -> None:
            self._reply("application/json", b"{}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), _MAX_BODY)))
            if self.path.partition("?")[0] != "/v1/messages":
                self._reply("application/json", b'{"input_tokens": 1}')
                return
            message = model.answer(body)
            if not body.get("stream"):
                self._reply("application/json", json.dumps(message).encode())
                return
            lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(message))
            self._reply("text/event-stream", "".join(lines).encode())

        def _reply(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        model.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, name="scripted-model")
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
