"""A model on loopback whose every turn the test decides, while the client waits for it.

The turn is known by the results of tools in the request, of which each turn adds one: a request that is sent
again gets the same answer. How a vendor's API looks is for a `Wire`, one for each of them; what is not a turn
of the conversation (a title, a list of models) is answered with something harmless. It knows nothing of PML.
"""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any, Final, Protocol

from tests.e2e.messages_api import LAST_WORD, Said, Use

__all__ = ["ASIDE", "LAST_WORD", "Asked", "ModelApi", "Reply", "Said", "Use", "Wire", "reply_json", "serving"]

LOOK_EVERY_S: Final = 0.5  # whether the client still runs
ASIDE: Final = "aside"  # what the model says where it does not matter


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request of the client: the tools that its model is offered, and what it was shown of its calls."""

    tools: tuple[str, ...]
    results: tuple[str, ...]  # oldest first
    body: Mapping[str, Any]  # as the client sent it

    @property
    def turn(self) -> int:
        """How often the model has called a tool."""
        return len(self.results)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What is sent to the client."""

    kind: str  # of content
    body: bytes


class Wire(Protocol):
    """One vendor's API. `path` has no query; `body` is what was posted, or empty."""

    def read(self, path: str, body: Mapping[str, Any]) -> Asked | None:
        """Return what the model is asked, or None where this is not a turn of the conversation."""
        ...

    def turn(self, said: Said, asked: Asked) -> Reply:
        """Say so, in answer to that."""
        ...

    def aside(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Answer what is not a turn of the conversation."""
        ...


def reply_json(value: object) -> Reply:
    return Reply(kind="application/json", body=json.dumps(value).encode())


class ModelApi:
    """A running stand-in: where it is, what it was asked, and what it says."""

    def __init__(self, wire: Wire) -> None:
        self.url = ""  # without a slash at its end
        self._wire = wire
        self._changed = Condition()
        self._asked: dict[int, Asked] = {}
        self._said: dict[int, Said] = {}
        self._closed = False

    def wait(self, turn: int, *, for_s: float, alive: Callable[[], bool]) -> Asked:
        """Return the request in which the model has called `turn` tools, once the client sends it."""
        with self._changed:
            for _ in range(int(for_s / LOOK_EVERY_S)):
                if self._changed.wait_for(lambda: turn in self._asked, LOOK_EVERY_S):
                    return self._asked[turn]
                assert alive(), f"the client ended before its model was asked for turn {turn}"
        raise AssertionError(f"the model was not asked for turn {turn} in {for_s:.0f} s")

    def say(self, turn: int, said: Said) -> None:
        """Have the model say so in that turn."""
        with self._changed:
            assert turn not in self._said, f"turn {turn} was said already"
            self._said[turn] = said
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def answer(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Answer a request, which waits until the test has said what the model says."""
        asked = self._wire.read(path, body)
        if asked is None:
            return self._wire.aside(path, body)
        with self._changed:
            self._asked.setdefault(asked.turn, asked)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or asked.turn in self._said)
            said = self._said.get(asked.turn, LAST_WORD)
        return self._wire.turn(said, asked)


@contextmanager
def serving(wire: Wire) -> Generator[ModelApi]:
    """Serve a model on a free port of loopback."""
    api = ModelApi(wire)

    class Answering(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(json.loads(content or b"{}"))

        def _answer(self, body: Mapping[str, Any]) -> None:
            reply = api.answer(self.path.partition("?")[0], body)
            with suppress(ConnectionError):  # the client has ended, or was killed
                self._send(reply)

        def _send(self, reply: Reply) -> None:
            self.send_response(200)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        api.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, name="model-api")
        thread.start()
        try:
            yield api
        finally:
            api.close()
            server.shutdown()
            thread.join()
