"""The Messages API, turn by turn: a use of a tool or a text, whole or as a stream.

Claude Code offers tools of servers in the conversation, a name a line, and keeps their schemas until the
model looks for them. A request that offers no tools is not a turn: the client wants a title, or a summary.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.e2e.messages_api import block_of, events_of, message_of, text_of
from tests.e2e.model_api import ASIDE, Asked, Reply, Said, reply_json

PATH: Final = "/v1/messages"
_OFFERED: Final = re.compile(r"^mcp__[\w-]+$", re.MULTILINE)


class MessagesWire:
    """`POST /v1/messages`; what else is asked (how many tokens that is) gets a number."""

    def read(self, path: str, body: Mapping[str, Any]) -> Asked | None:
        tools = [tool["name"] for tool in body.get("tools") or ()]
        if path != PATH or not tools:
            return None
        results = [text_of(block["content"]) for block in _blocks(body) if block["type"] == "tool_result"]
        texts = (block["text"] for block in _blocks(body) if block["type"] == "text")
        names = (name for text in texts for name in _OFFERED.findall(text))
        return Asked(tools=tuple(dict.fromkeys([*tools, *names])), results=tuple(results), body=body)

    def turn(self, said: Said, asked: Asked) -> Reply:
        block = block_of(said, identity=f"toolu_{asked.turn}")
        return _reply(message_of(f"msg_{asked.turn}", block), asked.body)

    def aside(self, path: str, body: Mapping[str, Any]) -> Reply:
        if path == PATH:
            return _reply(message_of("msg_aside", block_of(ASIDE, identity="")), body)
        return reply_json({"input_tokens": 1})


def _blocks(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All that the messages hold, oldest first."""
    for message in body["messages"]:
        content = message["content"]
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _reply(message: dict[str, Any], body: Mapping[str, Any]) -> Reply:
    """Answer as a stream, where the client wants one."""
    if not body.get("stream"):
        return reply_json(message)
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events_of(message))
    return Reply(kind="text/event-stream", body="".join(lines).encode())
