"""The modern era towards a server: what every request says of us, rounds of questions, and what it announces.

There is no session: a server that needs an answer first ends the request with its questions, and the request
is made again with the answers and the state that came with them. That is one call still.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from pml import __version__
from pml.core.errors import PmlError, ServerFailed, ServerRefused
from pml.core.ports.servers import Client
from pml.core.text import quote
from pml.core.values import JsonObject, loads_object
from pml.upstream.transport.peer import NotOffered

VERSION: Final = "2026-07-28"
PREFIX: Final = "io.modelcontextprotocol/"
_ROUNDS: Final = 16
_QUESTIONS: Final = 16  # of one round
_WAIT_S: Final = 0.05
_WAIT_MAX_S: Final = 1.0
_AGAIN_S: Final = 1.0  # before what a server announces is listened to again
_AGAIN_MAX_S: Final = 60.0
_ANNOUNCED: Final = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}

OnProgress = Callable[[JsonObject], None]


class Connection(Protocol):
    async def request(
        self, method: str, params: JsonObject, *, on_progress: OnProgress | None = None
    ) -> bytes: ...

    async def listen(self, method: str, params: JsonObject) -> bytes: ...


class Answers(Protocol):
    """Who answers what a server asks."""

    def answer(self, method: str, params: JsonObject) -> Coroutine[Any, Any, JsonObject]: ...


class _Question(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _Kind(msgspec.Struct):
    kind: str = msgspec.field(default="complete", name="resultType")
    questions: dict[str, _Question] = msgspec.field(
        default_factory=dict[str, _Question], name="inputRequests"
    )
    state: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="requestState")


def client_meta(client: Client) -> JsonObject:
    """Return what a request says of PML and of the client that it is made for."""
    capabilities: JsonObject = {
        **({"roots": {}} if client.has_roots else {}),
        **({"elicitation": {"form": {}}} if client.can_elicit else {}),
    }
    return {
        f"{PREFIX}protocolVersion": VERSION,
        f"{PREFIX}clientInfo": {"name": "pml", "version": __version__},
        f"{PREFIX}clientCapabilities": capabilities,
    }


async def ask_in_rounds(
    server: str,
    connection: Connection,
    answers: Answers,
    method: str,
    params: JsonObject,
    on_progress: OnProgress | None,
) -> bytes:
    """Return the result of a request, when the server has asked all that it wanted to know.

    Raises: ServerFailed, ServerRefused.
    """
    given, wait_s = params, _WAIT_S
    for _ in range(_ROUNDS):
        result = await connection.request(method, given, on_progress=on_progress)
        if b"resultType" not in result and b"\\u" not in result:
            return result
        try:
            kind = msgspec.json.decode(result, type=_Kind)
        except msgspec.MsgspecError as exc:
            raise ServerFailed(f"server `{server}` answered {method} with a result that is not one") from exc
        if kind.kind == "complete":
            return result
        if kind.kind != "input_required" or len(kind.questions) > _QUESTIONS:
            shown = quote(kind.kind, limit=40)
            raise ServerFailed(
                f"server `{server}` answered with a result of the kind {shown}, which PML does not know"
            )
        if kind.questions:
            replies = await _reply(server, answers, kind.questions)
            given = {**params, "inputResponses": replies}
        else:
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _WAIT_MAX_S)
            given = dict(params)
        if kind.state is not msgspec.UNSET:
            given = {**given, "requestState": kind.state}
    raise ServerFailed(f"server `{server}` asks more than {_ROUNDS} times for one call")


async def _reply(server: str, answers: Answers, questions: dict[str, _Question]) -> JsonObject:
    replies: dict[str, JsonObject] = {}
    for name, question in questions.items():
        try:
            replies[name] = await answers.answer(
                question.method, loads_object(bytes(question.params), what="a question")
            )
        except NotOffered as exc:
            what = quote(question.method, limit=60)
            raise ServerFailed(f"server `{server}` asks for {what} to go on: {exc.message}") from exc
    return replies


def announced(capabilities: JsonObject) -> JsonObject:
    """Return what a server says that it announces, as it is listened to; empty for nothing."""
    found: dict[str, bool] = {}
    for kind, name in _ANNOUNCED.items():
        declared = capabilities.get(kind)
        if isinstance(declared, dict) and declared.get("listChanged") is True:
            found[name] = True
    return found


async def listen(connection: Connection, notifications: JsonObject) -> None:
    """Hear what the server announces, until it refuses or the caller ends it."""
    wait_s = _AGAIN_S
    loop = asyncio.get_running_loop()
    while True:
        began_at = loop.time()
        try:
            await connection.listen("subscriptions/listen", {"notifications": notifications})
        except ServerRefused:
            return
        except PmlError:
            pass  # the next call tells what is wrong
        wait_s = _AGAIN_S if loop.time() - began_at > _AGAIN_MAX_S else min(wait_s * 2, _AGAIN_MAX_S)
        await asyncio.sleep(wait_s)


async def discover(connection: Connection) -> JsonObject:
    """Return what a modern server says of itself. Raises: ServerRefused, ServerFailed, Invalid."""
    return loads_object(await connection.request("server/discover", {}), what="its description")
