"""A stand-in for the hub: an MCP server over HTTP whose permission tool and hook answer as the test says.

It speaks as much of Streamable HTTP as Claude Code needs, keeps what it was asked, and judges nothing.
"""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any, Final

ASKED_S: Final = 60.0  # only ever reached by a client that hangs
_METHOD_NOT_FOUND: Final = -32601

Asked = Mapping[str, Any]


def allow(asked: Asked) -> dict[str, Any]:
    """Answer a permission question with yes."""
    return {"behavior": "allow", "updatedInput": asked["input"]}


def deny(asked: Asked) -> dict[str, Any]:
    """Answer a permission question with no."""
    return {"behavior": "deny", "message": "not on my watch"}


class StandInHub:
    """What a running stand-in was asked, by whom, and where it is."""

    def __init__(self, answer: Callable[[Asked], dict[str, Any]]) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.authorizations: set[str | None] = set()
        self._answer = answer
        self._changed = Condition()

    def wait_asked(self, count: int = 1) -> list[Asked]:
        """Return what was asked once that is `count` questions."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= count, timeout=ASKED_S), self.asked
            return list(self.asked)

    def serve(self, request: Mapping[str, Any], authorization: str | None) -> dict[str, Any] | None:
        """Return the response to one JSON-RPC message, None to a notification."""
        self.authorizations.add(authorization)
        if "id" not in request:
            return None
        about = {"jsonrpc": "2.0", "id": request["id"]}
        match request["method"]:
            case "initialize":
                return {**about, "result": _initialized(request["params"]["protocolVersion"])}
            case "tools/list":
                return {**about, "result": {"tools": [_PERMIT]}}
            case "tools/call":
                return {**about, "result": self._permit(request["params"]["arguments"])}
            case "ping":
                return {**about, "result": {}}
            case method:
                return {**about, "error": {"code": _METHOD_NOT_FOUND, "message": f"no {method}"}}

    def hook(self, asked: Asked, authorization: str | None) -> dict[str, Any]:
        """Return the answer to a hook that wants to know whether a tool may be used."""
        self.authorizations.add(authorization)
        answer = self._asked({**asked, "input": asked["tool_input"]})
        decision = {
            "hookEventName": asked["hook_event_name"],
            "permissionDecision": answer["behavior"],
            "permissionDecisionReason": answer.get("message", "allowed"),
        }
        return {"hookSpecificOutput": decision}

    def _permit(self, asked: Asked) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": json.dumps(self._asked(asked))}]}

    def _asked(self, asked: Asked) -> dict[str, Any]:
        with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()
        return self._answer(asked)


_PERMIT: Final = {
    "name": "loopback_permit",
    "description": "asks whether a tool may be used",
    "inputSchema": {
        "type": "object",
        "properties": {
            "tool_name": {"type": "string"},
            "input": {"type": "object"},
            "tool_use_id": {"type": "string"},
        },
    },
}


def _initialized(version: str) -> dict[str, Any]:
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "plexus", "version": "0"},
    }


@contextmanager
def hub_answering(answer: Callable[[Asked], dict[str, Any]]) -> Generator[StandInHub]:
    """Serve a stand-in on a free port of loopback; `answer` may take its time."""
    hub = StandInHub(answer)

    class Answering(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def do_GET(self) -> None:
            self._reply(405, b"")

        def do_DELETE(self) -> None:
            self._reply(200, b"")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            serve = hub.hook if self.path == "/api/hook" else hub.serve
            response = serve(request, self.headers.get("Authorization"))
            self._reply(202 if response is None else 200, json.dumps(response or {}).encode())

        def _reply(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:  # the client was ended while it waited
                self.close_connection = True

    class Serving(ThreadingHTTPServer):
        daemon_threads = True

    with Serving(("127.0.0.1", 0), Answering) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, name="stand-in-hub")
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
