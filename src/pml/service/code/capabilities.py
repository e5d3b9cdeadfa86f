"""Capabilities: what a registry's entry is, which tools its code needs, and how it is run.

What it needs is told from its code before anything runs. Running it gives it nothing but its calls, each of
which goes through the pipeline; the pipeline itself arrives as `make`.
"""

import asyncio
import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from pml.core.approvals.reasons import CapabilityNeeds, Reason, RuleReason
from pml.core.approvals.record import Approval
from pml.core.code.journal import CodeRun
from pml.core.code.sandbox import Language
from pml.core.code.static_calls import StaticCalls, static_calls
from pml.core.code.tool_values import is_asking
from pml.core.digest import digest
from pml.core.errors import Changed, Invalid, NotFound, ServerFailed, ToolDenied, ToolFailed, Unavailable
from pml.core.names import ToolName, fqdn_of, tool_of
from pml.core.packages.capability import (
    CapabilityMetadata,
    CapabilityType,
    Routing,
    metadata_json,
    parse_metadata,
)
from pml.core.ports.cloud import KEY
from pml.core.ports.loader import Found
from pml.core.rules.arguments import is_running, names_code
from pml.core.rules.ruleset import Call, VerdictKind
from pml.core.servers.manifest import Manifest
from pml.core.values import JsonObject, canonical
from pml.service.call import (
    Attempt,
    CapabilityTarget,
    CloudTarget,
    CodeOrigin,
    Gate,
    Loader,
    PendingCall,
    find_server,
)
from pml.service.code.lifetime import RunContext
from pml.service.code.run import BrokenOff, Outcome, run_code
from pml.service.policy.policy import Judgement, Policy, current_policy, judge, matched_rule, refuse_denied

MAX_INDENTED: Final = 128 * 1024  # what is longer nobody reads line by line
ASKED_ABOUT: Final = "ask "  # before a covered tool that a rule asked about when the run was allowed
MAX_DEPTH: Final = 8  # capabilities that call capabilities; more is a mistake
_LANGUAGES: Final = {CapabilityType.DENO: Language.TYPESCRIPT, CapabilityType.PYTHON: Language.PYTHON}


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The tools that a capability's code calls: those that would ask, and whether it may call others."""

    tools: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    each_time: frozenset[str] = frozenset()  # of those that ask: commands and code, shown when called
    dynamic: bool = False
    named: frozenset[str] = frozenset()  # of those that ask: an `ask` rule names them


def is_code(metadata: CapabilityMetadata) -> bool:
    return metadata.type is not CapabilityType.SERVER


def is_remote(gate: Gate, found: Found) -> bool:
    """Tell whether the entry runs in the cloud; what reaches the cloud itself runs there."""
    return found.metadata.routing is Routing.SERVER and not gate.is_cloud


async def resolve_code(gate: Gate, loader: Loader, found: Found, attempt: Attempt) -> CapabilityTarget:
    """Return the capability with its code. Raises: IntegrityFailed, Changed, NotFound, Unavailable."""
    _check_chain(attempt)
    manifest = _manifest(found, attempt.tool)
    if gate.workshop is None:
        raise Unavailable(f"`{found.metadata.fqdn}` is a capability with code, which cannot be run here")
    body = await loader.sources.code(found)
    try:
        code = body.decode()
    except UnicodeDecodeError as exc:
        raise Unavailable(f"the code of `{found.metadata.fqdn}` is not text") from exc
    said = {"metadata": metadata_json(found.metadata), "code": hashlib.sha256(body).hexdigest()}
    return CapabilityTarget(found=found, code=code, digest=digest(said), manifest=manifest)


def resolve_remote(call: PendingCall, found: Found) -> CloudTarget:
    """Return the tool as the cloud has it. Raises: Unavailable."""
    url = call.policy.settings.cloud
    if url is None or call.gate.cloud is None:
        raise Unavailable(
            f"`{found.metadata.fqdn}` runs in the cloud, and none is configured",
            hint='name it with "cloud" in .pml.json or in the user\'s config.json',
        )
    manifest = _manifest(found, call.attempt.tool)
    said = {"metadata": metadata_json(found.metadata), "cloud": url}
    return CloudTarget(found=found, url=url, digest=digest(said), manifest=manifest)


def capability_manifest(found: Found) -> Manifest | None:
    """Return what the entry offers; None for a server, which tells that itself when it runs here."""
    metadata = found.metadata
    if not is_code(metadata) and metadata.routing is not Routing.SERVER:
        return None
    own = tool_of(metadata.fqdn)
    brief: JsonObject = {"name": own.action}
    described = brief if metadata.description is None else {**brief, "description": metadata.description}
    return Manifest(
        server=str(own.namespace), target_digest="", capabilities={}, tools=metadata.tools or (described,)
    )


def tools_of(found: Found) -> list[ToolName]:
    """Return the tools that the entry offers."""
    manifest = capability_manifest(found)
    names = () if manifest is None else manifest.definitions
    return [ToolName(namespace=found.metadata.fqdn.namespace, action=name) for name in names]


def _manifest(found: Found, tool: ToolName) -> Manifest:
    """Return what the entry offers. Raises: NotFound if the tool is not among it."""
    manifest = capability_manifest(found)
    if manifest is not None and not found.metadata.tools:
        return msgspec.structs.replace(manifest, tools=({"name": tool.action},))  # its code knows
    if manifest is None or tool.action not in manifest.definitions:
        names = ", ".join(() if manifest is None else manifest.definitions)
        raise NotFound(f"no tool `{tool}`", hint=f"`{found.metadata.fqdn}` offers {names}")
    return manifest


def _check_chain(attempt: Attempt) -> None:
    """Raise Invalid for a capability that calls itself, or for a chain that is too long."""
    inner = attempt.inner
    if inner is None:
        return
    chain = (*inner.chain, str(attempt.tool))
    shown = " → ".join(chain)
    if str(attempt.tool) in inner.chain:
        raise Invalid(f"capabilities call each other in a circle: {shown}")
    if len(chain) > MAX_DEPTH:
        raise Invalid(f"capabilities call each other too deeply: {shown}")


async def needs_of(pending: PendingCall, coded: CapabilityTarget) -> Needs:
    """Return what the code needs. Raises: ToolDenied for what rules deny whatever it is called with."""
    gate, policy = pending.gate, pending.policy
    calls = _calls_in(coded.code, _LANGUAGES[coded.found.metadata.type])
    asks: list[str] = []
    named: set[str] = set()
    for tool in calls.tools:
        call = Call(tool=str(tool), arguments={}, cwd=gate.session.workspace)
        judged = await judge(gate.context, policy, call, session=gate.session)
        if judged.kind is VerdictKind.DENY:
            _refuse(judged, call.tool, coded)
        if judged.kind is VerdictKind.ALLOW or await _is_remembered(gate, call.tool):
            continue
        asks.append(call.tool)
        if judged.is_named:
            named.add(call.tool)
    each_time = frozenset(str(tool) for tool in calls.tools if _takes_code(gate, policy, tool))
    tools = tuple(map(str, calls.tools))
    return Needs(
        tools=tools, asks=tuple(asks), each_time=each_time, dynamic=calls.dynamic, named=frozenset(named)
    )


def _takes_code(gate: Gate, policy: Policy, tool: ToolName) -> bool:
    """Tell whether the tool, as far as it is known, takes commands or code: each call is then shown."""
    launch = find_server(gate, policy, tool.namespace)
    live = None if launch is None else gate.servers.live(launch.spec)
    known = [] if live is None else [live.tool(tool.action)]
    for bundled in () if gate.loader is None else gate.loader.sources.bundled():
        if bundled.metadata.dependency(tool.namespace or "") is not None:
            known += [it for it in bundled.metadata.tools if it.get("name") == tool.action]
    schemas = (None if it is None else it.get("inputSchema") for it in known)
    properties = (it.get("properties") for it in schemas if isinstance(it, Mapping))
    takes = any(names_code(name) for it in properties if isinstance(it, Mapping) for name in it)
    return takes or is_running(tool.action, {})


@functools.lru_cache(maxsize=128)  # some milliseconds for long code
def _calls_in(code: str, language: Language) -> StaticCalls:
    return static_calls(code, language)


def _refuse(judged: Judgement, tool: str, coded: CapabilityTarget) -> None:
    try:
        refuse_denied(judged, tool)
    except ToolDenied as exc:
        exc.hint = f"`{coded.found.metadata.fqdn}` calls it, so nothing of it was run"
        raise


async def _is_remembered(gate: Gate, tool: str) -> bool:
    return any(grant.digest is None for grant in await gate.context.store.grants.of(gate.session.id, tool))


def why_needs(judged: Judgement, needs: Needs, coded: CapabilityTarget) -> Reason | None:
    """Return why PML asks about a capability, with what it is and what it calls."""
    rule = matched_rule(judged)
    if judged.broken or judged.reserved:
        return rule
    metadata = coded.found.metadata
    calls = [
        f"{tool} (allowed)" if tool not in needs.asks else _asked_line(tool, needs) for tool in needs.tools
    ]
    covers = [tool for tool in needs.asks if tool not in needs.each_time]
    is_rule = isinstance(rule, RuleReason)
    return CapabilityNeeds(
        capability=str(metadata.fqdn),
        description=metadata.description,
        source=coded.found.source,
        calls=(*calls, *(["others, each of which is asked about"] if needs.dynamic else [])),
        covers=tuple(covers),
        named=tuple(tool for tool in covers if tool in needs.named),
        file=rule.file if is_rule else None,
        line=rule.line if is_rule else None,
    )


def covered_by(record: Approval, needs: Needs) -> frozenset[str]:
    """Return what the yes covers, as a run keeps it: what its question listed, and the code still asks for.

    A tool that no rule asked about then is covered as one that no rule asks about.
    """
    if not isinstance(record.rule, CapabilityNeeds):
        return frozenset()
    listed, named = {*record.rule.covers}, record.rule.named
    return frozenset(f"{ASKED_ABOUT}{tool}" if tool in named else tool for tool in listed & {*needs.asks})


def _asked_line(tool: str, needs: Needs) -> str:
    return f"{tool} (shown each time it is called)" if tool in needs.each_time else tool


async def is_under_way(call: PendingCall, coded: CapabilityTarget) -> CodeRun | None:
    """Return the run of a capability that another one called before the pause: it was admitted then.

    Raises: Changed if it has other code now.
    """
    attempt, inner = call.attempt, call.attempt.inner
    if inner is None or not inner.resumed:
        return None
    run = await call.gate.context.store.journals.get(_nested_id(attempt))
    if run is not None and run.artefact != coded.digest:
        raise Changed(f"`{attempt.tool}` was changed while its code waited", hint="run it again")
    return run


async def run_capability(
    call: PendingCall,
    coded: CapabilityTarget,
    *,
    covered: frozenset[str],
    on_line: Callable[[str], None],
) -> Outcome:
    """Run the capability's code; `on_line` hears of each call that it has made. Raises: as `run_code`."""
    gate, attempt = call.gate, call.attempt
    inner, metadata = attempt.inner, coded.found.metadata
    run_id = gate.context.ids.new() if inner is None else _nested_id(attempt)
    run = CodeRun(
        id=run_id,
        root=run_id if inner is None else inner.root,
        principal=gate.session.principal,
        session_id=gate.session.id,
        tool=str(attempt.tool),
        arguments=attempt.arguments,
        offered=attempt.offered,
        language=_LANGUAGES[metadata.type],
        code=coded.code,
        export=attempt.tool.action,
        args=attempt.arguments,
        artefact=coded.digest,
        covered=covered,
        metadata=canonical(metadata_json(metadata)),
        source=coded.found.source,
        seed=new_seed(gate),
        started_at=gate.context.clock.now(),
    )
    resumed = inner is not None and inner.resumed
    return await run_code(scene_of(call, run, on_line=on_line, resumed=resumed, inner=inner), run)


def is_beneath(run: CodeRun, prefix: str | None) -> bool:
    """Tell whether the run may be of a capability beneath the prefix; any is, where none is given."""
    found = _found_of(run)
    if found is None or prefix is None:
        return True
    return prefix == f"{found.metadata.fqdn.org}.{found.metadata.fqdn.project}"


def _found_of(run: CodeRun) -> Found | None:
    if run.metadata is None:
        return None
    return Found(metadata=parse_metadata(run.metadata, what="the kept metadata"), source=run.source)


def scene_of(
    call: PendingCall,
    run: CodeRun,
    *,
    on_line: Callable[[str], None],
    resumed: bool,
    inner: CodeOrigin | None = None,
) -> RunContext:
    """Return what the calls of a run are made with. Raises: Unavailable where code cannot be run."""
    gate, make = call.gate, call.make
    if gate.workshop is None:
        raise Unavailable("code cannot be run here")
    if make is None:
        raise AssertionError("a call that runs code has what makes the calls of code")
    found = _found_of(run)
    chain = () if inner is None else inner.chain
    return RunContext(
        gate=gate,
        workshop=gate.workshop,
        make=make,
        chain=chain if found is None else (*chain, run.tool),
        found=found,
        call=None if inner is None else inner.call,
        resumed=resumed,
        on_line=on_line,
    )


def _spelt(value: bytes) -> str:
    """Return the JSON text with line breaks, unless it is long or so deep that these would be most of it."""
    if len(value) > MAX_INDENTED:
        return value.decode()
    spelt = msgspec.json.format(value, indent=2)
    return (spelt if len(spelt) <= 1024 + 8 * len(value) else value).decode()


async def call_cloud(gate: Gate, remote: CloudTarget, attempt: Attempt, arguments: JsonObject) -> bytes:
    """Have the cloud make the call. Raises: as `Cloud.call`."""
    if gate.cloud is None or gate.loader is None:
        raise AssertionError("what is remote was found with a cloud")
    key = await _key_for(gate, gate.loader, remote.url)
    name = _cloud_name(remote.found.metadata, attempt.tool)
    try:
        result = await gate.cloud.call(remote.url, name, arguments, key=key)
    except ServerFailed:
        raise
    except Unavailable as exc:
        raise ServerFailed(exc.message, hint=exc.hint) from exc
    if b'"approval_required"' not in result or not is_asking(result):
        return result
    asks = ToolFailed(
        f"the cloud asks a person there before it continues `{attempt.tool}`",
        refusal="cloud_asks",
        hint="call it again with the same arguments when they have decided: it continues where it waits",
    )
    raise asks if attempt.inner is None else BrokenOff(asks)  # a pause is nothing that code can catch


async def _key_for(gate: Gate, loader: Loader, url: str) -> str | None:
    """Return the user's key for the cloud that the user's own file names; any other gets none."""
    policy = await current_policy(gate.context, gate.session.workspace)
    user = policy.loaded.user.config
    if user is None or user.cloud != url:
        return None
    return (await asyncio.to_thread(loader.variables.values, [KEY], workspace=None)).get(KEY)


def _cloud_name(metadata: CapabilityMetadata, tool: ToolName) -> str:
    if tool == tool_of(metadata.fqdn):
        return str(metadata.fqdn)
    try:
        return str(fqdn_of(tool, f"{metadata.fqdn.org}.{metadata.fqdn.project}"))
    except Invalid:
        return str(tool)


def result_of(outcome: Outcome) -> bytes:
    """Return the value as an MCP result."""
    content = [{"type": "text", "text": _spelt(outcome.value)}]
    structured = {"result": msgspec.Raw(outcome.value), "logs": outcome.logs}
    return msgspec.json.encode({"content": content, "structuredContent": structured, "isError": False})


def new_seed(gate: Gate) -> bytes:
    """Return what all chance of a run comes from."""
    return hashlib.sha256(f"{gate.context.ids.new()}{gate.context.ids.new()}".encode()).digest()


def _nested_id(attempt: Attempt) -> str:
    if attempt.inner is None:
        raise AssertionError("only a call that code makes has an outer run")
    return f"{attempt.inner.run_id}.{attempt.inner.number}"
