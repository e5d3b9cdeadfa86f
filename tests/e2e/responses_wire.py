"""OpenAI's Responses API as far as an agent needs it: a call of a function or a text, as a stream of events.

A tool may lie in a namespace, as the tools of an MCP server do: its name is then the two joined.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.e2e.model_api import ASIDE, Asked, Reply, Said, reply_json

PATH: Final = "/v1/responses"


class ResponsesWire:
    """`POST /v1/responses`; whatever else is asked gets an empty list of models."""

    def read(self, path: str, body: Mapping[str, Any]) -> Asked | None:
        tools = _tools(body)
        if path != PATH or not tools:
            return None
        outputs = [item for item in body["input"] if item["type"] == "function_call_output"]
        results = tuple(_text(item["output"]) for item in outputs)
        return Asked(tools=tuple(tools), results=results, body=body)

    def turn(self, said: Said, asked: Asked) -> Reply:
        if isinstance(said, str):
            return _stream(_message(said, asked.turn), asked.turn)
        call = {
            "type": "function_call",
            "id": f"fc_{asked.turn}",
            "call_id": f"call_{asked.turn}",
            "arguments": json.dumps(said.arguments),
            **_tools(asked.body).get(said.tool, {"name": said.tool}),
        }
        return _stream(call, asked.turn)

    def aside(self, path: str, body: Mapping[str, Any]) -> Reply:
        if path == PATH:
            return _stream(_message(ASIDE, 0), 0)
        return reply_json({"models": [], "object": "list", "data": []})


def _tools(body: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The tools that are offered, each with how a call names it."""
    return dict(_named(body.get("tools") or ()))


def _named(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, str]]]:
    for tool in tools:
        if tool["type"] == "namespace":
            for inner in tool["tools"]:
                named = {"namespace": tool["name"], "name": inner["name"]}
                yield f"{tool['name']}__{inner['name']}", named
        elif "name" in tool:
            yield tool["name"], {"name": tool["name"]}


def _text(output: str | Sequence[Mapping[str, str]]) -> str:
    if isinstance(output, str):
        return output
    return "\n".join(block.get("text", f"({block['type']})") for block in output)


def _message(text: str, turn: int) -> dict[str, Any]:
    content: list[object] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{turn}", "role": "assistant", "content": content}


def _stream(item: Mapping[str, Any], turn: int) -> Reply:
    response: dict[str, Any] = {"id": f"resp_{turn}", "object": "response", "output": []}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    events = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "output": [item], "usage": usage}},
    ]
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Reply(kind="text/event-stream", body="".join(lines).encode())
