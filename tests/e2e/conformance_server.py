"""A stdio server that offers what the scenarios of the MCP conformance suite ask for, under their names.

What the suite only reads is data; what it watches happen (log messages, progress, forms, sampling) is a
function each. One thread, and no SDK. It speaks the handshake's protocol, as servers do, sends no hints for
caches, and knows nothing of PML.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

PAUSE_S: Final = 0.05  # between two notifications, as the scenarios prescribe
LINGER_S: Final = 1.0  # so that the answer is not yet there when the client has lost its stream
PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

Fields = Mapping[str, Any]
Content = list[dict[str, Any]]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def resource(uri: str, kind: str, value: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": value}}


IMAGE: Final = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO: Final = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}

PLAIN: Final[Mapping[str, Content]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [AUDIO],
    "test_embedded_resource": [
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "json_schema_2020_12_tool": [text("JSON Schema 2020-12 tool called.")],
}

NO_ARGUMENTS: Final[Fields] = {"type": "object", "properties": {}}
SCHEMAS: Final[Mapping[str, Fields]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {
        "type": "object",
        "properties": {"message": {"type": "string"}},
        "required": ["message"],
    },
    "test_custom_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
        "if": {"properties": {"name": {"const": "x"}}, "required": ["name"]},
        "then": {"required": ["address"]},
        "else": {},
        "additionalProperties": False,
    },
}

USER: Final[Fields] = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
DEFAULTS: Final[Fields] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
OPTIONS: Final = ["option1", "option2", "option3"]
TITLED: Final = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
ENUMS: Final[Fields] = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}

STATIC_TEXT, STATIC_BINARY, WATCHED = "test://static-text", "test://static-binary", "test://watched-resource"
TEMPLATE_START, TEMPLATE_END = "test://template/", "/data"
CONTENTS: Final[Mapping[str, Fields]] = {
    STATIC_TEXT: {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    STATIC_BINARY: {"mimeType": "image/png", "blob": PNG},
    WATCHED: {"mimeType": "text/plain", "text": "Watched resource content"},
}
PROMPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


class Refused(Exception):
    """The client answered a request with an error."""


class Lacking(Exception):
    """The client cannot do what a tool needs."""


class Client:
    """The other end of stdin and stdout, on behalf of one request."""

    _numbers = count(1)

    def __init__(self, progress_token: Any = None) -> None:
        self._progress_token = progress_token

    def notify(self, method: str, params: Fields) -> None:
        send({"method": method, "params": params})

    def log(self, data: str) -> None:
        self.notify("notifications/message", {"level": "info", "data": data})

    def progress(self, progress: int, total: int) -> None:
        if self._progress_token is not None:
            counted = {"progressToken": self._progress_token, "progress": progress, "total": total}
            self.notify("notifications/progress", counted)

    def ask(self, method: str, params: Fields) -> Any:
        """Return the client's result, serving what it asks meanwhile. Raises: Refused."""
        number = f"fixture-{next(self._numbers)}"
        send({"id": number, "method": method, "params": params})
        for line in sys.stdin:
            message = json.loads(line)
            if "method" in message:
                serve(message)
            elif message["id"] == number:
                if "error" in message:
                    raise Refused(message["error"]["message"])
                return message["result"]
        raise SystemExit


def send(message: Fields) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def log(client: Client, arguments: Fields) -> Content:
    for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        client.log(step)
        time.sleep(PAUSE_S)
    return [text("Tool with logging executed successfully")]


def progress(client: Client, arguments: Fields) -> Content:
    for step in (0, 50, 100):
        client.progress(step, 100)
        time.sleep(PAUSE_S)
    return [text("Tool with progress executed successfully")]


def linger(client: Client, arguments: Fields) -> Content:
    time.sleep(LINGER_S)
    return [text("Reconnection test completed successfully")]


def fail(client: Client, arguments: Fields) -> Content:
    raise Refused("This tool intentionally returns an error for testing")


def lack(client: Client, arguments: Fields) -> Content:
    raise Lacking


def change(kind: str) -> Callable[[Client, Fields], Content]:
    """Return the work of a tool that changes a list and says so."""

    def announce(client: Client, arguments: Fields) -> Content:
        offered: list[dict[str, Any]] = {"tools": TOOLS, "prompts": LISTED_PROMPTS}[kind]
        more = {"name": f"more_{len(offered)}", "description": "One more", "inputSchema": NO_ARGUMENTS}
        offered.append(more if kind == "tools" else {"name": more["name"], "description": "One more"})
        client.notify(f"notifications/{kind}/list_changed", {})
        return [text("changed")]

    return announce


def see_roots(client: Client, arguments: Fields) -> Content:
    return [text(json.dumps(client.ask("roots/list", {})))]


def several(client: Client, arguments: Fields) -> Content:
    return [*form(USER)(client, arguments), *see_roots(client, arguments), *sample(client, {"prompt": "Hi"})]


def twice(client: Client, arguments: Fields) -> Content:
    return [*form(USER)(client, arguments), *form(DEFAULTS)(client, arguments)]


def sample(client: Client, arguments: Fields) -> Content:
    message = {"role": "user", "content": text(arguments["prompt"])}
    said = client.ask("sampling/createMessage", {"messages": [message], "maxTokens": 100})
    return [text(f"LLM response: {said['content']['text']}")]


def form(properties: Fields) -> Callable[[Client, Fields], Content]:
    """Return the work of a tool that shows a form with these fields."""
    schema = {"type": "object", "properties": properties}

    def elicit(client: Client, arguments: Fields) -> Content:
        message = arguments.get("message", "Please fill in")
        answer = client.ask("elicitation/create", {"message": message, "requestedSchema": schema})
        return [text(f"action={answer['action']}, content={json.dumps(answer.get('content'))}")]

    return elicit


WORK: Final[Mapping[str, Callable[[Client, Fields], Content]]] = {
    "test_tool_with_logging": log,
    "test_tool_with_progress": progress,
    "test_reconnection": linger,
    "test_error_handling": fail,
    "test_sampling": sample,
    "test_elicitation": form(USER),
    "test_elicitation_sep1034_defaults": form(DEFAULTS),
    "test_elicitation_sep1330_enums": form(ENUMS),
    "test_input_required_result_elicitation": form({"name": {"type": "string"}}),
    "test_input_required_result_request_state": form({"ok": {"type": "boolean"}}),
    "test_input_required_result_tampered_state": form({"ok": {"type": "boolean"}}),
    "test_input_required_result_multi_round": twice,
    "test_input_required_result_list_roots": see_roots,
    "test_input_required_result_sampling": lambda client, _: sample(client, {"prompt": "Hi"}),
    "test_input_required_result_multiple_inputs": several,
    "test_input_required_result_capabilities": lambda client, _: sample(client, {"prompt": "Hi"}),
    "test_streaming_elicitation": form(USER),
    "test_missing_capability": lack,
    "test_logging_tool": log,
    "test_trigger_tool_change": change("tools"),
    "test_trigger_prompt_change": change("prompts"),
    "test_custom_header": lambda client, arguments: [text(str(arguments.get("region")))],
}


def call_tool(params: Fields) -> Fields:
    if params["name"] in PLAIN:
        return {"content": PLAIN[params["name"]]}
    client = Client(params.get("_meta", {}).get("progressToken"))
    try:
        return {"content": WORK[params["name"]](client, params.get("arguments", {}))}
    except Refused as exc:
        return {"content": [text(str(exc))], "isError": True}


def read_resource(params: Fields) -> Fields:
    uri = params["uri"]
    number = uri.removeprefix(TEMPLATE_START).removesuffix(TEMPLATE_END)
    content = CONTENTS.get(uri, {"mimeType": "application/json", "text": json.dumps({"id": number})})
    return {"contents": [{"uri": uri, **content}]}


def get_prompt(params: Fields) -> Fields:
    given = params.get("arguments", {})
    match params["name"]:
        case "test_prompt_with_arguments":
            content = [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            embedded = resource(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            content = [embedded, text("Please process the embedded resource above.")]
        case "test_input_required_result_prompt":
            content = form({"context": {"type": "string"}})(Client(), {})
        case "test_prompt_with_image":
            content = [IMAGE, text("Please analyze the image above.")]
        case _:
            content = [text("This is a simple prompt for testing.")]
    return {"messages": [{"role": "user", "content": block} for block in content]}


def initialize(params: Fields) -> Fields:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {
            **{"tools": {"listChanged": True}, "prompts": {"listChanged": True}},
            **{"completions": {}, "logging": {}},
            "resources": {"subscribe": True},
        },
        "serverInfo": {"name": "conformance-fixture", "version": "1.0.0"},
    }


TOOLS: Final[list[dict[str, Any]]] = [
    {"name": name, "description": f"Serves {name}", "inputSchema": SCHEMAS.get(name, NO_ARGUMENTS)}
    for name in (*PLAIN, *WORK)
]
RESOURCES: Final = [
    {"uri": uri, "name": uri.removeprefix("test://"), "description": "A resource for testing"}
    for uri in CONTENTS
]
TEMPLATES: Final = [{"uriTemplate": f"{TEMPLATE_START}{{id}}{TEMPLATE_END}", "name": "template"}]
LISTED_PROMPTS: Final[list[dict[str, Any]]] = [
    {
        "name": name,
        "description": "A prompt for testing",
        "arguments": [{"name": argument, "required": True} for argument in arguments],
    }
    for name, arguments in PROMPTS.items()
]

ANSWERS: Final[Mapping[str, Callable[[Fields], Fields]]] = {
    "initialize": initialize,
    "ping": lambda params: {},
    "logging/setLevel": lambda params: {},
    "tools/list": lambda params: {"tools": TOOLS},
    "tools/call": call_tool,
    "resources/list": lambda params: {"resources": RESOURCES},
    "resources/templates/list": lambda params: {"resourceTemplates": TEMPLATES},
    "resources/read": read_resource,
    "resources/subscribe": lambda params: {},
    "resources/unsubscribe": lambda params: {},
    "prompts/list": lambda params: {"prompts": LISTED_PROMPTS},
    "prompts/get": get_prompt,
    "completion/complete": lambda params: {"completion": {"values": [f"{params['argument']['value']}ing"]}},
}


def serve(message: Any) -> None:
    """Answer a request; a notification says nothing that matters here."""
    if "id" not in message:
        return
    answer = ANSWERS.get(message["method"])
    if answer is None:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
        return
    try:
        send({"id": message["id"], "result": answer(message.get("params", {}))})
    except Lacking:
        needed: Fields = {"requiredCapabilities": {"sampling": {}}}
        send({"id": message["id"], "error": {"code": -32021, "message": "needs sampling", "data": needed}})


if __name__ == "__main__":
    for line in sys.stdin:
        serve(json.loads(line))
