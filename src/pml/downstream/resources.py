"""Resources, prompts and completions: found in what the servers offer, and passed on.

Each is judged like a call, under the name of its method: a rule on `memory:resources/read` or on `memory:*`
counts. The lists name what is kept of every server that may be started.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pml.core.approvals.subjects import headline
from pml.core.errors import PmlError, ServerRefused
from pml.core.names import ToolName
from pml.core.servers.manifest import Manifest
from pml.core.text import quote
from pml.core.values import Json, JsonObject
from pml.downstream.forms.elicitation import Asker, FormNeeded
from pml.downstream.forms.relay import server_error
from pml.downstream.forms.rounds import Rounds, read_round
from pml.downstream.protocol.connection import Exchange
from pml.downstream.protocol.eras import Era, stamp, uncached
from pml.downstream.results import refusal_result
from pml.downstream.tools.tool_table import ToolTable
from pml.jsonrpc.codes import INVALID_PARAMS, SERVER_ERROR, UNKNOWN_RESOURCE
from pml.jsonrpc.messages import RpcError
from pml.service.call import Attempt, Gate, Paused, PendingCall
from pml.service.calls.pipeline import call_tool

_ASKABLE: Final = frozenset({"resources/read", "prompts/get"})  # may be answered with a question
_PLACEHOLDER: Final = re.compile(r"\{[^}]*\}")


def list_resources(manifests: Sequence[Manifest]) -> Sequence[JsonObject]:
    """Return the resources of all servers; where two share an address, the first server's counts."""
    found: dict[str, JsonObject] = {}
    for manifest in manifests:
        for resource in manifest.resources:
            found.setdefault(str(resource.get("uri")), resource)
    return [found[uri] for uri in sorted(found)]


def list_templates(manifests: Sequence[Manifest]) -> Sequence[JsonObject]:
    """Return the resource templates of all servers."""
    return [template for manifest in manifests for template in manifest.templates]


def list_prompts(manifests: Sequence[Manifest]) -> Sequence[JsonObject]:
    """Return the prompts of all servers, each under its server's name."""
    return [
        {**prompt, "name": _prompt_name(manifest.server, prompt)}
        for manifest in manifests
        for prompt in manifest.prompts
    ]


PASSED_LISTS: Final[Mapping[str, Callable[[Sequence[Manifest]], Sequence[JsonObject]]]] = {
    "prompts": list_prompts,
    "resources": list_resources,
    "resourceTemplates": list_templates,
}


class Passing:
    """One request for something that is not a tool; what its user is asked, a modern client brings back."""

    def __init__(
        self, gate: Gate, table: ToolTable, rounds: Rounds, exchange: Exchange, asker: Asker
    ) -> None:
        self._gate = gate
        self._table = table
        self._rounds = rounds
        self._exchange = exchange
        self._asker = asker

    async def read_resource(self) -> bytes:
        """Serve `resources/read`. Raises: RpcError."""
        uri = self._exchange.request.params.get("uri")
        server = _server_of_uri(uri, await self._table.manifests(), self._asker.era)
        return await self._pass(server, "resources/read", {"uri": uri})

    async def get_prompt(self) -> bytes:
        """Serve `prompts/get`. Raises: RpcError."""
        params = self._exchange.request.params
        server, name = _server_of_prompt(params.get("name"), await self._table.manifests())
        given = params.get("arguments")
        arguments: JsonObject = {"name": name} if given is None else {"name": name, "arguments": given}
        return await self._pass(server, "prompts/get", arguments)

    async def complete(self) -> bytes:
        """Serve `completion/complete` for a prompt or a resource template. Raises: RpcError."""
        params = {key: value for key, value in self._exchange.request.params.items() if key != "_meta"}
        ref = params.get("ref")
        if not isinstance(ref, Mapping):
            raise RpcError(INVALID_PARAMS, "`completion/complete` needs `ref`")
        manifests = await self._table.manifests()
        if ref.get("type") == "ref/prompt":
            server, name = _server_of_prompt(ref.get("name"), manifests)
            params["ref"] = {**ref, "name": name}
        else:
            server = _server_of_uri(ref.get("uri"), manifests, self._asker.era)
        return await self._pass(server, "completion/complete", params)

    async def _pass(self, server: str, method: str, params: JsonObject) -> bytes:
        try:
            return await self._answer(server, method, params)
        except (Paused, FormNeeded) as exc:
            short = exc.record.id[:8]
            raise RpcError(
                SERVER_ERROR,
                f"{headline(exc.record)}: `pml approvals allow {short}` in a terminal, then ask for it again",
            ) from exc
        except ServerRefused as exc:
            raise server_error(exc) from exc
        except PmlError as exc:
            refused = refusal_result(exc)
            if refused is None:
                raise
            raise RpcError(SERVER_ERROR, exc.message, data=refused["structuredContent"]) from exc

    async def _answer(self, server: str, method: str, params: JsonObject) -> bytes:
        """Return the server's answer, or what the client is to ask its user first."""
        tool = ToolName(namespace=server, action=method)
        attempt = Attempt(tool=tool, arguments=params, offered=True, method=method)
        if method not in _ASKABLE:
            result = await call_tool(
                PendingCall(self._gate, attempt, self._asker, on_progress=self._exchange.listener)
            )
            return stamp(result, self._asker.era)
        round = read_round(self._exchange.request.params, request={"method": str(tool), "params": params})
        returned = await self._rounds.returned(round, self._exchange, self._asker)
        if isinstance(returned, bytes):
            return returned
        settled = None if returned is None else returned.approval

        async def run(heard: Callable[[JsonObject], None] | None) -> bytes:
            call = PendingCall(self._gate, attempt, self._asker, settled=settled, on_progress=heard)
            result = await call_tool(call)
            return uncached(result, self._asker.era) if method == "resources/read" else result

        return await self._rounds.work(attempt, server, round, self._exchange, self._asker, run)


def _prompt_name(server: str, prompt: JsonObject) -> str:
    return f"{server}__{prompt.get('name')}"


def _server_of_prompt(name: Json, manifests: Sequence[Manifest]) -> tuple[str, str]:
    for manifest in manifests:
        for prompt in manifest.prompts:
            if _prompt_name(manifest.server, prompt) == name:
                return manifest.server, str(prompt["name"])
    raise RpcError(INVALID_PARAMS, f"no prompt {quote(str(name))}")


def _server_of_uri(uri: Json, manifests: Sequence[Manifest], era: Era) -> str:
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "a resource is named by `uri`, a text")
    for manifest in manifests:
        if any(resource.get("uri") == uri for resource in manifest.resources):
            return manifest.server
    for manifest in manifests:
        if any(_fits(template.get("uriTemplate"), uri) for template in manifest.templates):
            return manifest.server
    code = INVALID_PARAMS if era.is_modern else UNKNOWN_RESOURCE
    raise RpcError(code, f"no resource {quote(uri)}", data={"uri": uri})


def _fits(template: Json, uri: str) -> bool:
    """Tell whether `uri` can come from `template`, or is the template itself; one look, without turning back.

    Each placeholder stands for at least one character; the leftmost place leaves the most room for the rest.
    """
    if not isinstance(template, str):
        return False
    head, *rest = _PLACEHOLDER.split(template)
    if template == uri or not rest:
        return template == uri
    *middle, tail = rest
    at, end = len(head), len(uri) - len(tail)
    for piece in middle:
        found = uri.find(piece, at + 1, end)
        if found < 0:
            return False
        at = found + len(piece)
    return uri.startswith(head) and uri.endswith(tail) and at < end
