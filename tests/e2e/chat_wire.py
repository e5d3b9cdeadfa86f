"""The chat completions that many vendors offer: a call of a function or a text, whole or as a stream.

A request that offers no tools is none of the conversation: the client wants a title for it, or a summary.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.e2e.model_api import ASIDE, Asked, Reply, Said, reply_json

PATH: Final = "/v1/chat/completions"
MODEL: Final = "scripted"
_USAGE: Final = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


class ChatWire:
    """`POST /v1/chat/completions`; whatever else is asked gets a list with the one model."""

    def read(self, path: str, body: Mapping[str, Any]) -> Asked | None:
        tools = tuple(tool["function"]["name"] for tool in body.get("tools") or ())
        if path != PATH or not tools:
            return None
        results = [message for message in body["messages"] if message["role"] == "tool"]
        return Asked(tools=tools, results=tuple(_text(each["content"]) for each in results), body=body)

    def turn(self, said: Said, asked: Asked) -> Reply:
        if isinstance(said, str):
            return _reply({"content": said}, asked.body, identity=f"chat_{asked.turn}")
        call = {
            "id": f"call_{asked.turn}",
            "type": "function",
            "function": {"name": said.tool, "arguments": json.dumps(dict(said.arguments))},
        }
        return _reply({"content": None, "tool_calls": [call]}, asked.body, identity=f"chat_{asked.turn}")

    def aside(self, path: str, body: Mapping[str, Any]) -> Reply:
        if path == PATH:
            return _reply({"content": ASIDE}, body, identity="chat_aside")
        model = {"id": MODEL, "object": "model", "owned_by": "nobody"}
        return reply_json({"object": "list", "data": [model]})


def _text(content: str | Sequence[Mapping[str, str]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", f"({part['type']})") for part in content)


def _reply(message: Mapping[str, Any], body: Mapping[str, Any], *, identity: str) -> Reply:
    """Answer as a stream, where the client wants one."""
    finish = "tool_calls" if "tool_calls" in message else "stop"
    if not body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        return reply_json({**_head("chat.completion", identity), "choices": [choice], "usage": _USAGE})
    lines = (f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(message, finish, identity))
    return Reply(kind="text/event-stream", body=("".join(lines) + "data: [DONE]\n\n").encode())


def _head(kind: str, identity: str) -> dict[str, Any]:
    return {"id": identity, "object": kind, "created": 1, "model": MODEL}


def _chunks(message: Mapping[str, Any], finish: str, identity: str) -> Iterator[dict[str, Any]]:
    delta: dict[str, Any] = {"role": "assistant", **message}
    if "tool_calls" in message:
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(message["tool_calls"])]
    head = _head("chat.completion.chunk", identity)
    yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    yield {**head, "choices": [], "usage": _USAGE}
