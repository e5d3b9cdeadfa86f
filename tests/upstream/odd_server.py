"""An MCP server that misbehaves on request: its tools are its faults, its arguments how it starts.

It says `got NAME` as a log message before it does what a tool is for, so that a test knows where it is.
"""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

OPTIONS: dict[str, str] = {key: value for key, _, value in (item.partition("=") for item in sys.argv[1:])}
TOOLS = [
    *("echo", "silent", "twice", "wrong_id", "die", "die_by_signal", "fork", "huge", "flood", "ask", "env"),
    *("progress", "change", "bad_utf8", "refuse", "odd_error", "neither", "close_output", "close_input"),
    *("stop_reading", "bark", "wait_cancel", "ask_and_cancel", "batch", "sh", "part"),
]
extra: dict[str, list[str]] = {"tools": [], "resources": []}
early: deque[dict[str, Any]] = deque()
lines = iter(sys.stdin.buffer.readline, b"")


CLIENT: dict[str, Any] = {}  # the capabilities that it declared


def send(message: object) -> None:
    print(json.dumps(message), flush=True)


def answer(request: dict[str, Any], result: object) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def say(request: dict[str, Any], value: object) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    answer(request, {"content": [{"type": "text", "text": text}], "unknown": {"kept": [1.0, "é"]}})


def notify(method: str, **params: object) -> None:
    send({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})


def read() -> dict[str, Any] | None:
    line = next(lines, b"")
    return json.loads(line) if line else None


def wait_for(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while (message := read()) is not None:
        if wanted(message):
            return message
        early.append(message)
    sys.exit(0)


def tool(name: str, **more: object) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object"}
    if "declares" in OPTIONS:  # the arguments of every tool
        schema["properties"] = {argument: {"type": "string"} for argument in OPTIONS["declares"].split(",")}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **more}


def list_tools(request: dict[str, Any]) -> None:
    if "bad-tools" in OPTIONS:
        raw = json.dumps(
            [
                *(tool("echo", description="first"), tool("echo", description="second"), tool("a*b")),
                *({"name": 7}, {"name": "bare"}, "text", tool("b c"), tool("last")),
            ]
        )
        twice = '{"name": "dup", "name": "dup", "inputSchema": {}}'
        result = f'{{"tools": {raw[:-1]}, {twice}]}}'
        print(f'{{"jsonrpc": "2.0", "id": {request["id"]}, "result": {result}}}', flush=True)
        return
    names = [*TOOLS, *extra["tools"]]
    if "pages" in OPTIONS:
        at = int(request["params"].get("cursor", 0))
        more = {"nextCursor": str(at + 1)} if at + 1 < len(names) else {}
        answer(request, {"tools": [tool(names[at])], **more})
    elif "endless-pages" in OPTIONS:
        answer(request, {"tools": [], "nextCursor": "again"})
    else:
        answer(request, {"tools": [tool(name) for name in names]})


def fork(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Leave a grandchild that ignores polite signals and holds every pipe."""
    code = "import os; from signal import *; signal(SIGTERM, SIG_IGN); os.write({}, b'up'); pause()"
    ready, tell = os.pipe()
    os.set_inheritable(tell, True)
    child = subprocess.Popen(
        [sys.executable, "-c", code.format(tell)], pass_fds=[tell], start_new_session="escape" in arguments
    )
    os.read(ready, 2)
    if arguments.get("then") == "die":
        print(f"child {child.pid}", file=sys.stderr, flush=True)
        os._exit(5)
    say(request, child.pid)


def ask(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    send({"jsonrpc": "2.0", "id": "q1", "method": arguments["method"], "params": arguments.get("params", {})})
    reply = wait_for(lambda message: message.get("id") == "q1" and "method" not in message)
    say(request, {key: reply[key] for key in ("result", "error") if key in reply})


def ask_and_cancel(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    send({"jsonrpc": "2.0", "id": "q2", "method": "elicitation/create", "params": {"message": "?"}})
    wait_for(lambda message: message.get("method") == "tools/call")
    early.pop() if early else None
    notify("cancelled", requestId="q2")
    say(request, "cancelled")


def progress(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    token = request["params"].get("_meta", {}).get("progressToken")
    for step in range(arguments["steps"]):
        notify("progress", progressToken=token, progress=step, total=arguments["steps"])
    say(request, {"token": token, "meta": request["params"].get("_meta")})


def change(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    kind = arguments.get("kind", "tools")
    extra[kind].append(arguments["name"])
    for _ in range(arguments.get("times", 1)):
        notify(f"{kind}/list_changed")
    say(request, "changed")
    if arguments.get("then") == "be busy":
        wait_for(lambda message: message.get("method") == "notifications/cancelled")


def flood(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    for n in range(arguments["times"]):
        notify("message", level="info", data=f"flood {n}")
        notify("tools/list_changed")
        notify("nobody/knows/this", n=n)
        print("noise", flush=False)
    say(request, "flooded")


def die_by_signal(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    print(arguments.get("last_words", "the disk is on fire"), file=sys.stderr, flush=True)
    os._exit(arguments.get("code", 3))


def sh(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Run a command, and tell what it said and whether it could do it."""
    ran = subprocess.run(
        arguments["argv"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    say(request, {"code": ran.returncode, "said": ran.stdout})


def part(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Deaf to the end of the input, write a letter of farewell when asked to end."""

    def write(*_: object) -> None:
        with open(arguments["letter"], "w", encoding="utf-8") as file:
            file.write("farewell")
        os._exit(0)

    signal.signal(signal.SIGTERM, write)
    say(request, "ready")
    while True:
        signal.pause()


def stop_reading(request: dict[str, Any], arguments: dict[str, Any]) -> None:
    say(request, "deaf")
    signal.pause()


def call(request: dict[str, Any]) -> None:
    name, arguments = request["params"]["name"], request["params"].get("arguments", {})
    if "tally" in OPTIONS:
        with open(OPTIONS["tally"], "a", encoding="utf-8") as file:
            file.write(f"{name}\n")
    if name != "flood":
        notify("message", level="info", data=f"got {name}")
    match name:
        case "silent":
            pass
        case "twice":
            say(request, "once")
            say(request, "again")
        case "wrong_id":
            send({"jsonrpc": "2.0", "id": 999_999, "result": {}})
            send({"jsonrpc": "2.0", "id": str(request["id"]), "result": {}})
            send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}})
            say(request, "right")
        case "huge":
            say(request, "x" * arguments["bytes"])
        case "capabilities":
            say(request, CLIENT)
        case "env":
            say(request, dict(os.environ))
        case "bad_utf8":
            sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":"\xff"}\n' % request["id"])
            sys.stdout.buffer.flush()
        case "refuse":
            error = {"code": -32050, "message": OPTIONS.get("said", "not today"), "data": {"kept": 1.0}}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        case "odd_error":
            send({"jsonrpc": "2.0", "id": request["id"], "error": "no"})
        case "neither":
            send({"jsonrpc": "2.0", "id": request["id"]})
        case "close_output":
            os.close(1)
            signal.pause()
        case "close_input":
            os.close(0)
            say(request, "closed")
            signal.pause()
        case "bark":
            print("\x1b[31mbark\x07", file=sys.stderr, flush=True)
            say(request, "barked")
        case "wait_cancel":
            seen = wait_for(lambda message: message.get("method") == "notifications/cancelled")
            notify("message", level="info", data=f"cancelled {seen['params']['requestId'] == request['id']}")
            say(request, "too late")
        case "batch":
            text = {"content": [{"type": "text", "text": "batched"}]}
            send([{"jsonrpc": "2.0", "id": request["id"], "result": text}])
        case "fork" | "ask" | "ask_and_cancel" | "progress" | "change" | "flood" | "die" | "die_by_signal":
            globals()[name](request, arguments)
        case "stop_reading" | "sh" | "part":
            globals()[name](request, arguments)
        case _:
            say(request, arguments)


def initialize(request: dict[str, Any]) -> None:
    CLIENT.update(request["params"]["capabilities"])
    capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
    if "rich" in OPTIONS:
        capabilities |= {"prompts": {}, "resources": {}}
    version = OPTIONS.get("version", request["params"]["protocolVersion"])
    result = {"protocolVersion": version, "capabilities": capabilities, "instructions": "be careful"}
    answer(request, {**result, "serverInfo": {"name": "odd", "version": "1"}})


def handle(request: dict[str, Any]) -> None:
    if OPTIONS.get("refuse") == request["method"]:
        error = {"code": -32051, "message": f"bad key {OPTIONS['said']}"}
        send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        return
    if OPTIONS.get("key") == request["method"]:
        twice = json.dumps(OPTIONS["said"])
        print(
            f'{{"jsonrpc": "2.0", "id": {request["id"]}, "result": {{{twice}: 1, {twice}: 2}}}}', flush=True
        )
        return
    match request["method"]:
        case "initialize":
            initialize(request)
        case "tools/list":
            list_tools(request)
            if "chatty" in OPTIONS:
                notify("tools/list_changed")
        case "tools/call":
            call(request)
        case "prompts/list":
            answer(request, {"prompts": [{"name": "greet", "title": "Greet"}]})
        case "resources/list":
            names = ["1", *extra["resources"]]
            answer(request, {"resources": [{"uri": f"memo://{name}", "name": "memo"} for name in names]})
        case "ping":
            answer(request, {})
        case method:
            send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": method}})


def main() -> None:
    if "exit" in OPTIONS:
        print(f"cannot start: {OPTIONS.get('why', '')}", file=sys.stderr, flush=True)
        sys.exit(int(OPTIONS["exit"]))
    if "stubborn" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "mute" in OPTIONS:
        print("still thinking", file=sys.stderr, flush=True)
        signal.pause()
    if "noise" in OPTIONS:
        print("Welcome!\n\n{not json\n[1, 2]\n" + "[" * 50_000 + '\n"text"\n{"id": {}}', flush=True)
    while (message := early.popleft() if early else read()) is not None:
        if "method" in message and "id" in message:
            handle(message)
    while "stubborn" in OPTIONS:
        signal.pause()


if __name__ == "__main__":
    main()
