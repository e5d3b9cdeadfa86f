"""Making the server of a call ready, a step at a time: found, trusted, installed, started.

Whoever takes a step judges the call again: time has passed.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from pml.core.approvals.record import Role
from pml.core.approvals.states import role_of
from pml.core.errors import Changed, EnvMissing, NotApproved, NotFound, PmlError, ServerFailed, Unavailable
from pml.core.ports.loader import Found
from pml.core.ports.records import Grant
from pml.core.rules.ruleset import VerdictKind, runs_code
from pml.core.text import quote
from pml.service.approvals.inquiry import settle_trust
from pml.service.call import (
    ApprovedCall,
    Attempt,
    CapabilityTarget,
    CloudTarget,
    Gate,
    Loader,
    PendingCall,
    ServerTarget,
    find_server,
)
from pml.service.code.capabilities import is_code, is_remote, resolve_code, resolve_remote, tools_of
from pml.service.install.integrity import start_proven
from pml.service.install.load import check_name, coverage, find, in_use, load_server, loaded_server
from pml.service.policy.policy import Policy, remembered_digest


def current_server(call: PendingCall) -> ServerTarget | None:
    """Return how the server of the call is started: as configured, or as it was loaded."""
    attempt = call.attempt
    is_spelt_out = attempt.prefix is not None
    configured = None if is_spelt_out else find_server(call.gate, call.policy, attempt.tool.namespace)
    server = configured or loaded_server(call)
    return None if server is not None and _is_others(call.gate, attempt) else server


def _is_others(gate: Gate, attempt: Attempt) -> bool:
    """Tell whether a capability brings its server along on other terms than those it is installed on."""
    found = None if attempt.inner is None else attempt.inner.found
    dependency = None if found is None else found.metadata.dependency(attempt.tool.namespace or "")
    return dependency is not None and gate.loader is not None and in_use(gate.loader, dependency) is None


async def make_ready(call: PendingCall) -> CapabilityTarget | CloudTarget | None:
    """Bring the server of the call a step nearer: trusted, installed, or started.

    Returns what answers the call if that is not a server of this machine.
    """
    server, policy, namespace = call.target, call.policy, call.attempt.tool.namespace
    if isinstance(server, CapabilityTarget | CloudTarget):
        raise AssertionError("what is not a server is always ready")
    if server is None and is_untrusted(policy, namespace):
        refused = await settle_trust(call)
        if refused is not None:
            raise untrusted(call, outcome=refused.outcome)
        return None
    if server is None or server.spec.artefact is not None:
        loader = call.gate.loader
        if loader is None or policy.broken or namespace in policy.settings.unusable:
            raise no_server(call)
        try:
            found = await find(loader, policy, call.attempt)
            if found is None and _may_have_registry(policy) and await settle_trust(call) is None:
                return None
            if found is None:
                raise no_server(call)
            if elsewhere := await _no_server_of_ours(call, loader, found):
                return elsewhere
            _check_offered(found, loader, call.attempt)
            server = await load_server(call, loader, found)
        except ServerFailed:
            raise
        except Unavailable as exc:
            raise exc if isinstance(exc, EnvMissing) else _failed(exc) from exc
    if server is not None:
        await start_proven(call, server)
    return None


async def _no_server_of_ours(
    call: PendingCall, loader: Loader, found: Found
) -> CapabilityTarget | CloudTarget | None:
    """Return the capability or the cloud's tool that was found; None for a server."""
    attempt = call.attempt
    if attempt.inner is not None and found is attempt.inner.found:
        return None
    if is_remote(call.gate, found):
        return resolve_remote(call, found)
    if not is_code(found.metadata) and attempt.prefix is None:
        return None
    for dependency in found.metadata.mcp_deps:
        check_name(call, loader, dependency)
    if not is_code(found.metadata):
        return None
    return await resolve_code(call.gate, loader, found, attempt)


async def find_again(call: PendingCall) -> CapabilityTarget | CloudTarget:
    """Return what answers the call now, for time has passed since it was shown. Raises: as `make_ready`."""
    loader = call.gate.loader
    found = None if loader is None else await find(loader, call.policy, call.attempt)
    if loader is None or found is None:
        raise no_server(call)
    now = await _no_server_of_ours(call, loader, found)
    if now is None:
        raise Changed(f"`{call.attempt.tool}` is no longer what was asked about", hint="call it again")
    return now


def _failed(error: Unavailable) -> ServerFailed:
    return ServerFailed(error.message, hint=error.hint or "try again; `PML_LOG=debug` tells more")


async def is_covered(call: PendingCall, shown: ApprovedCall, deciders: frozenset[Role]) -> bool:
    """Tell whether one of the call's `deciders` approved its install; the tool is then remembered."""
    gate, attempt, server = call.gate, call.attempt, shown.target
    is_unlisted = call.judgement.kind is VerdictKind.UNLISTED
    if not is_unlisted or not gate.covered or not isinstance(server, ServerTarget):
        return False
    tool, artefact = str(attempt.tool), server.spec.artefact
    key = coverage(tool, attempt.arguments)
    record = gate.covered.get(key)
    if record is None or record.decided_by is None or role_of(record.decided_by) not in deciders:
        return False
    if artefact is None or artefact.terms != record.artefact:
        return False  # another server has come to stand in its place
    exact = runs_code(tool, attempt.arguments)
    grant = Grant(
        id=gate.context.ids.new(),
        session_id=gate.session.id,
        tool=tool,
        digest=remembered_digest(tool, attempt.arguments) if exact else None,
        definition=shown.manifest.definitions.get(attempt.tool.action),
        artefact=server.digest,
        approval_id=record.id,
        by=record.decided_by,
        created_at=gate.context.clock.now(),
    )
    await gate.context.store.grants.add(grant)
    gate.covered.pop(key, None)  # not before: another call of the same may look now
    return True


def is_untrusted(policy: Policy, namespace: str | None) -> bool:
    """Tell whether only the workspace's file, which nobody trusts yet, defines the server."""
    config = policy.loaded.workspace.config
    return not policy.trusted and config is not None and namespace in config.servers


def untrusted(call: PendingCall, *, outcome: str) -> NotApproved:
    file, namespace = call.policy.loaded.workspace.path, call.attempt.tool.namespace
    return NotApproved(
        f"Server `{namespace}` is defined in {file}, which is not trusted",
        outcome=outcome,
        hint="a person can trust it with `pml trust`",
    )


def no_server(call: PendingCall) -> PmlError:
    """Return why the call's server cannot be had."""
    gate, policy, attempt = call.gate, call.policy, call.attempt
    if policy.broken:
        return policy.broken[0]
    unusable = policy.settings.unusable.get(attempt.tool.namespace or "")
    if unusable is not None:
        return NotFound(unusable.problem, hint=unusable.hint or "`pml doctor` says what to fix")
    bundled = () if gate.loader is None else gate.loader.sources.bundled()
    known = () if gate.loader is None else gate.loader.sources.known(policy.settings.registries)
    offered = [str(tool) for found in known for tool in tools_of(found)]
    if str(attempt.tool) in offered:
        return _without_prefix(attempt, known)
    if any(name.startswith(f"{attempt.tool.namespace}:") for name in offered):
        return unknown_tool(str(attempt.tool), offered)
    names = [dependency.name for found in bundled for dependency in found.metadata.mcp_deps]
    names += [found.metadata.fqdn.namespace for found in known]
    near = get_close_matches(attempt.tool.namespace or "", [*policy.settings.servers, *names], n=1)
    elsewhere = "`pml catalog list` and `mcpServers` in .pml.json name servers"
    hint = f"did you mean server `{near[0]}`?" if near else elsewhere
    where = "configured or in the catalog" + (
        "" if not policy.settings.registries else ", nor in the registry"
    )
    return NotFound(f"no tool {quote(str(attempt.tool))}: no such server is {where}", hint=hint)


def _without_prefix(attempt: Attempt, known: Iterable[Found]) -> NotFound:
    """Return the error for a short name that no `registry_prefix` makes whole."""
    found = next(found for found in known if attempt.tool in tools_of(found))
    fqdn = found.metadata.fqdn
    return NotFound(
        f"no tool `{attempt.tool}`, but there is `{fqdn}`",
        hint=f'call it by that name, or set `"registry_prefix": "{fqdn.org}.{fqdn.project}"`',
    )


def unknown_tool(tool: str, known: Iterable[str]) -> NotFound:
    """Return the error for a tool that nobody offers, with those that are near."""
    near = get_close_matches(tool, list(known), n=3, cutoff=0.5)
    hint = (
        f"did you mean {', '.join(f'`{name}`' for name in near)}?"
        if near
        else "`discover`, or `pml servers status` in a terminal, lists what there is"
    )
    return NotFound(f"no tool {quote(tool)}", hint=hint)


def _check_offered(found: Found, loader: Loader, attempt: Attempt) -> None:
    """Raise NotFound for a tool that the server is said not to have, before it is installed for it."""
    namespace = attempt.tool.namespace or ""
    dependency = found.metadata.dependency(namespace)
    is_own = attempt.inner is not None and attempt.inner.found is found  # whose tools are others
    if not attempt.is_tool or is_own or dependency is None or in_use(loader, dependency) is not None:
        return
    names = [str(tool.get("name")) for tool in found.metadata.tools]
    if names and attempt.tool.action not in names:
        raise unknown_tool(str(attempt.tool), (f"{namespace}:{name}" for name in names))


def _may_have_registry(policy: Policy) -> bool:
    """Tell whether the workspace's file, which nobody trusts yet, names a registry that could know more."""
    config = policy.loaded.workspace.config
    return not policy.trusted and config is not None and bool(config.registries)
