"""Google's Gemini API as far as an agent needs it: a call of a function or a text, as one event."""

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.e2e.model_api import ASIDE, Asked, Reply, Said, reply_json

STREAM: Final = ":streamGenerateContent"


class GeminiWire:
    """`POST …/models/NAME:streamGenerateContent`; counts of tokens and the like get a number and a text."""

    def read(self, path: str, body: Mapping[str, Any]) -> Asked | None:
        tools = tuple(
            function["name"] for tool in body.get("tools") or () for function in tool["functionDeclarations"]
        )
        if not path.endswith(STREAM) or not tools:
            return None
        parts = [part for content in body["contents"] for part in content["parts"]]
        results = tuple(_text(part["functionResponse"]) for part in parts if "functionResponse" in part)
        return Asked(tools=tools, results=results, body=body)

    def turn(self, said: Said, asked: Asked) -> Reply:
        if isinstance(said, str):
            return _stream({"text": said})
        call = {"id": f"call_{asked.turn}", "name": said.tool, "args": dict(said.arguments)}
        return _stream({"functionCall": call})

    def aside(self, path: str, body: Mapping[str, Any]) -> Reply:
        if path.endswith(STREAM):
            return _stream({"text": ASIDE})
        return reply_json({**_answer({"text": ASIDE}), "totalTokens": 1})


def _text(answer: Mapping[str, Any]) -> str:
    """What the model is shown: the text alone, or whatever else the client made of it."""
    response = answer["response"]
    return response["output"] if set(response) == {"output"} else json.dumps(response)


def _answer(part: Mapping[str, Any]) -> dict[str, Any]:
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
    }


def _stream(part: Mapping[str, Any]) -> Reply:
    return Reply(kind="text/event-stream", body=f"data: {json.dumps(_answer(part))}\n\n".encode())
