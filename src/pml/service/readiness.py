"""Making the server of a call ready, a step at a time: found, trusted, installed, started.

Whoever takes a step judges the call again: time has passed.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from pml.core.approvals import Approval, Role, role_of
from pml.core.errors import Changed, EnvMissing, NotApproved, NotFound, PmlError, ServerFailed, Unavailable
from pml.core.loading import Found, Told
from pml.core.manifests import Manifest
from pml.core.ports import Grant
from pml.core.rules import VerdictKind, runs_code
from pml.core.text import quote
from pml.service.capabilities import is_code, is_remote, resolve_code, resolve_remote, tools_of
from pml.service.gate import Asking, Attempt, Coded, Gate, Launch, Loader, Remote, Target, find_launch
from pml.service.loading import check_name, coverage, find, in_use, load_server, loaded_launch
from pml.service.policy import Judged, Policy, remembered_digest
from pml.service.proving import start_proven
from pml.service.settling import settle_trust


def current_launch(gate: Gate, policy: Policy, attempt: Attempt) -> Launch | None:
    """Return how the server of the call is started: as configured, or as it was loaded."""
    namespace = attempt.tool.namespace
    configured = None if attempt.prefix is not None else find_launch(gate, policy, namespace)
    launch = configured or loaded_launch(gate, policy, attempt)
    return None if launch is not None and _is_others(gate, attempt) else launch


def _is_others(gate: Gate, attempt: Attempt) -> bool:
    """Tell whether a capability brings its server along on other terms than those it is installed on."""
    found = None if attempt.inner is None else attempt.inner.found
    dependency = None if found is None else found.metadata.dependency(attempt.tool.namespace or "")
    return dependency is not None and gate.loader is not None and in_use(gate.loader, dependency) is None


async def make_ready(
    gate: Gate,
    policy: Policy,
    judged: Judged,
    launch: Target | None,
    *,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
    told: Told,
) -> Coded | Remote | None:
    """Bring the server of the call a step nearer: trusted, installed, or started.

    Returns what answers the call if that is no server of this machine.
    """
    if isinstance(launch, Coded | Remote):
        raise AssertionError("what is not a server is always ready")
    if launch is None and is_untrusted(policy, attempt.tool.namespace):
        refused = await settle_trust(gate, policy, judged, attempt=attempt, asking=asking, settled=settled)
        if refused is not None:
            raise untrusted(policy, attempt, outcome=refused.outcome)
        return None
    if launch is None or launch.spec.artefact is not None:
        if gate.loader is None or policy.broken or attempt.tool.namespace in policy.settings.unusable:
            raise no_server(gate, policy, attempt)
        try:
            found = await find(gate.loader, policy, attempt)
            if found is None and _may_have_registry(policy):
                refused = await settle_trust(
                    gate, policy, judged, attempt=attempt, asking=asking, settled=settled
                )
                if refused is None:
                    return None
            if found is None:
                raise no_server(gate, policy, attempt)
            if elsewhere := await _no_server_of_ours(gate, gate.loader, policy, found, attempt):
                return elsewhere
            _check_offered(found, gate.loader, attempt)
            launch = await load_server(
                gate,
                gate.loader,
                found,
                policy=policy,
                judged=judged,
                attempt=attempt,
                asking=asking,
                settled=settled,
                told=told,
            )
        except ServerFailed:
            raise
        except Unavailable as exc:
            raise exc if isinstance(exc, EnvMissing) else _failed(exc) from exc
    if launch is not None:
        await start_proven(gate, launch, attempt=attempt, asking=asking, settled=settled)
    return None


async def _no_server_of_ours(
    gate: Gate, loader: Loader, policy: Policy, found: Found, attempt: Attempt
) -> Coded | Remote | None:
    """Return the capability or the cloud's tool that was found; None for a server."""
    if attempt.inner is not None and found is attempt.inner.found:
        return None
    if is_remote(gate, found):
        return resolve_remote(gate, policy, found, attempt.tool)
    if not is_code(found.metadata) and attempt.prefix is None:
        return None
    for dependency in found.metadata.mcp_deps:
        check_name(gate, loader, policy, dependency, tool=str(attempt.tool))
    if not is_code(found.metadata):
        return None
    return await resolve_code(gate, loader, found, attempt)


async def find_again(gate: Gate, policy: Policy, shown: Coded | Remote, attempt: Attempt) -> Coded | Remote:
    """Return what answers the call now, for time has passed since it was shown. Raises: as `make_ready`."""
    found = None if gate.loader is None else await find(gate.loader, policy, attempt)
    if gate.loader is None or found is None:
        raise no_server(gate, policy, attempt)
    now = await _no_server_of_ours(gate, gate.loader, policy, found, attempt)
    if now is None:
        raise Changed(f"`{attempt.tool}` is no longer what was asked about", hint="call it again")
    return now


def _failed(error: Unavailable) -> ServerFailed:
    return ServerFailed(error.message, hint=error.hint or "try again; `PML_LOG=debug` tells more")


async def is_covered(
    gate: Gate,
    judged: Judged,
    attempt: Attempt,
    launch: Target,
    manifest: Manifest,
    deciders: frozenset[Role],
) -> bool:
    """Tell whether one of the call's `deciders` approved its install; the tool is then remembered."""
    if judged.kind is not VerdictKind.UNLISTED or not gate.covered or not isinstance(launch, Launch):
        return False
    tool, artefact = str(attempt.tool), launch.spec.artefact
    key = coverage(tool, attempt.arguments)
    record = gate.covered.get(key)
    if record is None or record.decided_by is None or role_of(record.decided_by) not in deciders:
        return False
    if artefact is None or artefact.terms != record.artefact:
        return False  # another server has come to stand in its place
    exact = runs_code(tool, attempt.arguments)
    grant = Grant(
        id=gate.desk.ids.new(),
        session_id=gate.session.id,
        tool=tool,
        digest=remembered_digest(tool, attempt.arguments) if exact else None,
        definition=manifest.definitions.get(attempt.tool.action),
        artefact=launch.digest,
        approval_id=record.id,
        by=record.decided_by,
        created_at=gate.desk.clock.now(),
    )
    await gate.desk.store.grants.add(grant)
    gate.covered.pop(key, None)  # not before: another call of the same may look now
    return True


def is_untrusted(policy: Policy, namespace: str | None) -> bool:
    """Tell whether only the workspace's file, which nobody trusts yet, defines the server."""
    config = policy.loaded.workspace.config
    return not policy.trusted and config is not None and namespace in config.servers


def untrusted(policy: Policy, attempt: Attempt, *, outcome: str) -> NotApproved:
    file, namespace = policy.loaded.workspace.path, attempt.tool.namespace
    return NotApproved(
        f"Server `{namespace}` is defined in {file}, which is not trusted",
        outcome=outcome,
        hint="a person can trust it with `pml trust`",
    )


def no_server(gate: Gate, policy: Policy, attempt: Attempt) -> PmlError:
    """Return why the call's server cannot be had."""
    if policy.broken:
        return policy.broken[0]
    unusable = policy.settings.unusable.get(attempt.tool.namespace or "")
    if unusable is not None:
        return NotFound(unusable.problem, hint=unusable.hint or "`pml doctor` says what to fix")
    bundled = () if gate.loader is None else gate.loader.sources.bundled()
    known = () if gate.loader is None else gate.loader.sources.known(policy.settings.registry)
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
        "" if policy.settings.registry is None else ", nor in the registry"
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
    return not policy.trusted and config is not None and config.registry is not None
