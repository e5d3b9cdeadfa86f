"""A scripted Messages API on loopback: what the model says is written down beforehand.

The turn is chosen by counting the assistant messages in the request, so that a repeated request gets the
same answer; agents that run at once are told apart by a word of their prompts. It keeps every conversation
it was sent: what the model was shown is there to look at. It knows nothing of PML.
"""

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final, cast

from pml.core.own_tools import SUPERVISING

LAST_WORD: Final = "That is all."  # what the model says when its script is over
# The client's words for a tool whose server has only just told of it, or to which it has yet to reconnect.
NOT_YET: Final = ("No such tool available", "is not connected")
THINKS_S: Final = 0.2  # before the model tries a tool again that was not there yet


@dataclass(frozen=True, kw_only=True)
class Use:
    """The model calls a tool."""

    tool: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One request of the client: what the model has said and what it was shown."""

    tools: tuple[str, ...]
    messages: Sequence[Mapping[str, Any]]

    @property
    def said(self) -> int:
        """How often the model has spoken."""
        return sum(message["role"] == "assistant" for message in self.messages)

    @property
    def turn(self) -> int:
        """Where the script stands: a call of a tool that is not there yet is made again."""
        return self.said - sum(_is_not_yet(result) for result in self.results)

    @property
    def opening(self) -> str:
        """What the user said first."""
        return text_of(self.messages[0]["content"])

    @property
    def results(self) -> list[str]:
        """The text of every tool result, oldest first."""
        return [text_of(block["content"]) for block in self._blocks() if block["type"] == "tool_result"]

    def _blocks(self) -> Iterator[Mapping[str, Any]]:
        for message in self.messages:
            if not isinstance(message["content"], str):
                yield from message["content"]


Said = str | Use
Turn = Said | Callable[[Conversation], Said]


def _is_not_yet(result: str) -> bool:
    return any(words in result for words in NOT_YET)


def text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = cast(Sequence[Mapping[str, str]], content or [])
    return "\n".join(block.get("text", f"({block['type']})") for block in blocks)


class MessagesApi:
    """What a running stand-in has been asked, and where it is."""

    def __init__(self, script: Sequence[Turn]) -> None:
        self.url = ""
        self._script = script
        self._more: dict[str, Sequence[Turn]] = {}
        self._lock = Lock()
        self._conversations: list[Conversation] = []
        self._again: dict[str, Said] = {}  # what was said last, by how the conversation was opened
        self._failed: Exception | None = None

    @property
    def conversations(self) -> list[Conversation]:
        with self._lock:
            return list(self._conversations)

    @property
    def results(self) -> list[str]:
        """The result of every tool that was there, as the model was shown it, oldest first."""
        return _results(self.conversations)

    def also(self, word: str, *script: Turn) -> None:
        """Say this in every conversation that the user opens with that word among others."""
        with self._lock:
            self._more[word] = script

    def results_of(self, word: str) -> list[str]:
        """As `results`, of the conversation that was opened with `word`."""
        return _results([each for each in self.conversations if word in each.opening.split()])

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the next assistant message."""
        tools = tuple(tool["name"] for tool in body.get("tools") or ())
        conversation = Conversation(tools=tools, messages=body["messages"])
        if not tools:  # a side request: a title, a summary
            return message_of("msg_aside", {"type": "text", "text": "aside"})
        with self._lock:
            self._conversations.append(conversation)
            own = [self._more[word] for word in conversation.opening.split() if word in self._more]
            script = own[0] if own else self._script
        turn = script[conversation.turn] if conversation.turn < len(script) else LAST_WORD
        if conversation.results and _is_not_yet(conversation.results[-1]):
            time.sleep(THINKS_S)
            said = self._again[conversation.opening]
        else:
            said = _reached(self._say(turn, conversation), tools)
            self._again[conversation.opening] = said
        # An identity of its own for each: the client takes messages of one identity for parts of one message.
        return message_of(f"msg_{conversation.said}", block_of(said, identity=f"toolu_{conversation.said}"))

    def check(self) -> None:
        """Raise what went wrong in a turn of the script."""
        if self._failed is not None:
            raise self._failed

    def _say(self, turn: Turn, conversation: Conversation) -> Said:
        """Return what the model says; a turn that fails ends the conversation, which would be tried again."""
        try:
            return turn(conversation) if callable(turn) else turn
        except Exception as exc:
            self._failed = self._failed or exc
            return LAST_WORD


def _reached(said: Said, tools: Sequence[str]) -> Said:
    """Return the use of a supervising tool that is not listed as a model makes it: through `call`."""
    server, _, name = ("", "", "") if isinstance(said, str) else said.tool.rpartition("__")
    call = f"{server}__call"
    if isinstance(said, str) or said.tool in tools or call not in tools or f"pml:{name}" not in SUPERVISING:
        return said
    return Use(tool=call, arguments={"tool": f"pml:{name}", "arguments": dict(said.arguments)})


def _results(conversations: Sequence[Conversation]) -> list[str]:
    shown = max([[], *(conversation.results for conversation in conversations)], key=len)
    return [result for result in shown if not _is_not_yet(result)]


def block_of(said: Said, *, identity: str) -> dict[str, Any]:
    if isinstance(said, str):
        return {"type": "text", "text": said}
    return {"type": "tool_use", "id": identity, "name": said.tool, "input": dict(said.arguments)}


def message_of(identity: str, block: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": identity,
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [block],
        "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def events_of(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    [block] = message["content"]
    if block["type"] == "text":
        start: dict[str, Any] = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": 0, "content_block": start}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


@contextmanager
def scripted(*script: Turn) -> Generator[MessagesApi]:
    """Serve `script` on a free port of loopback."""
    api = MessagesApi(script)

    class Answering(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def do_HEAD(self) -> None:
            self._reply("application/json", b"")

        def do_GET(self) -> None:
            self._reply("application/json", b"{}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            if path != "/v1/messages":
                self._reply("application/json", b'{"input_tokens": 1}')
                return
            message = api.answer(body)
            if not body.get("stream"):
                self._reply("application/json", json.dumps(message).encode())
                return
            lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events_of(message))
            self._reply("text/event-stream", "".join(lines).encode())

        def _reply(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        api.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, name="messages-api")
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()
            api.check()
