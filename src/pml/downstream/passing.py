"""Resources, prompts and completions: found in what the servers offer, and passed on.

Each is judged like a call, under the name of its method: a rule on `memory:resources/read` or on `memory:*`
counts. The lists name what is kept of every server that may be started.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pml.core.errors import PmlError, ServerRefused
from pml.core.manifests import Manifest
from pml.core.names import ToolName
from pml.core.text import quote
from pml.core.values import Json, JsonObject
from pml.core.wire import headline
from pml.downstream.asking import Asker, FormNeeded
from pml.downstream.catalog import Catalog
from pml.downstream.connection import SERVER_ERROR, Exchange, RpcError
from pml.downstream.eras import INVALID_PARAMS, Era
from pml.downstream.relay import server_error
from pml.downstream.results import refusal_result
from pml.service.calls import call_tool
from pml.service.gate import Attempt, Gate, Paused

_NOT_FOUND: Final = -32002  # until 2025-11-25; then it is a parameter like another
_PLACEHOLDER: Final = re.compile(r"\{[^}]*\}")


async def list_resources(catalog: Catalog) -> JsonObject:
    """Return the resources of all servers; where two share an address, the first server's counts."""
    found: dict[str, Json] = {}
    for manifest in await catalog.manifests():
        for resource in manifest.resources:
            found.setdefault(str(resource.get("uri")), resource)
    return {"resources": [found[uri] for uri in sorted(found)]}


async def list_templates(catalog: Catalog) -> JsonObject:
    """Return the resource templates of all servers."""
    templates = [template for manifest in await catalog.manifests() for template in manifest.templates]
    return {"resourceTemplates": templates}


async def list_prompts(catalog: Catalog) -> JsonObject:
    """Return the prompts of all servers, each under its server's name."""
    return {
        "prompts": [
            {**prompt, "name": _prompt_name(manifest.server, prompt)}
            for manifest in await catalog.manifests()
            for prompt in manifest.prompts
        ]
    }


async def read_resource(gate: Gate, catalog: Catalog, exchange: Exchange, asker: Asker) -> bytes:
    """Serve `resources/read`. Raises: RpcError."""
    uri = exchange.request.params.get("uri")
    server = _server_of_uri(uri, await catalog.manifests(), asker.era)
    return await _pass(gate, server, "resources/read", {"uri": uri}, exchange, asker)


async def get_prompt(gate: Gate, catalog: Catalog, exchange: Exchange, asker: Asker) -> bytes:
    """Serve `prompts/get`. Raises: RpcError."""
    params = exchange.request.params
    server, name = _server_of_prompt(params.get("name"), await catalog.manifests())
    given = params.get("arguments")
    arguments: JsonObject = {"name": name} if given is None else {"name": name, "arguments": given}
    return await _pass(gate, server, "prompts/get", arguments, exchange, asker)


async def complete(gate: Gate, catalog: Catalog, exchange: Exchange, asker: Asker) -> bytes:
    """Serve `completion/complete` for a prompt or a resource template. Raises: RpcError."""
    params = {key: value for key, value in exchange.request.params.items() if key != "_meta"}
    ref = params.get("ref")
    if not isinstance(ref, Mapping):
        raise RpcError(INVALID_PARAMS, "`completion/complete` needs `ref`")
    manifests = await catalog.manifests()
    if ref.get("type") == "ref/prompt":
        server, name = _server_of_prompt(ref.get("name"), manifests)
        params["ref"] = {**ref, "name": name}
    else:
        server = _server_of_uri(ref.get("uri"), manifests, asker.era)
    return await _pass(gate, server, "completion/complete", params, exchange, asker)


async def _pass(
    gate: Gate, server: str, method: str, params: JsonObject, exchange: Exchange, asker: Asker
) -> bytes:
    tool = ToolName(namespace=server, action=method)
    attempt = Attempt(tool=tool, arguments=params, offered=True, method=method)
    try:
        return await call_tool(gate, attempt, asker, on_progress=exchange.listener)
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
    code = INVALID_PARAMS if era.is_modern else _NOT_FOUND
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
