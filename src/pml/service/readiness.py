"""Making the server of a call ready, a step at a time: found, trusted, installed, started.

Whoever takes a step judges the call again: time has passed.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from pml.core.approvals import Approval
from pml.core.errors import EnvMissing, NotApproved, NotFound, PmlError, ServerFailed, Unavailable
from pml.core.loading import Found, Told
from pml.core.manifests import Manifest
from pml.core.ports import Grant
from pml.core.rules import VerdictKind, runs_code
from pml.core.text import quote
from pml.service.gate import Asking, Attempt, Gate, Launch, Loader, find_launch
from pml.service.loading import coverage, find, in_use, load_server, loaded_launch
from pml.service.policy import Judged, Policy, remembered_digest
from pml.service.proving import start_proven
from pml.service.settling import settle_trust


def current_launch(gate: Gate, policy: Policy, attempt: Attempt) -> Launch | None:
    """Return how the server of the call is started: as configured, or as it was loaded."""
    namespace = attempt.tool.namespace
    return find_launch(gate, policy, namespace) or loaded_launch(gate, policy, namespace)


async def make_ready(
    gate: Gate,
    policy: Policy,
    judged: Judged,
    launch: Launch | None,
    *,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
    told: Told,
) -> None:
    """Bring the server of the call a step nearer: trusted, installed, or started."""
    if launch is None and is_untrusted(policy, attempt.tool.namespace):
        refused = await settle_trust(gate, policy, judged, attempt=attempt, asking=asking, settled=settled)
        if refused is not None:
            raise untrusted(policy, attempt, outcome=refused.outcome)
        return
    if launch is None or launch.spec.artefact is not None:
        if gate.loader is None or policy.broken or _defined_twice(policy, attempt):
            raise no_server(gate, policy, attempt)
        try:
            found = await find(gate.loader, policy, attempt.tool)
            if found is None and _may_have_registry(policy):
                refused = await settle_trust(
                    gate, policy, judged, attempt=attempt, asking=asking, settled=settled
                )
                if refused is None:
                    return
            if found is None:
                raise no_server(gate, policy, attempt)
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
        await start_proven(gate, launch, policy=policy, attempt=attempt, asking=asking, settled=settled)


def _failed(error: Unavailable) -> ServerFailed:
    return ServerFailed(error.message, hint=error.hint or "try again; `PML_LOG=debug` tells more")


async def is_covered(
    gate: Gate, judged: Judged, attempt: Attempt, launch: Launch, manifest: Manifest
) -> bool:
    """Tell whether somebody approved the install that this call needed; the tool is then remembered."""
    if judged.kind is not VerdictKind.UNLISTED or not gate.covered:
        return False
    tool, artefact = str(attempt.tool), launch.spec.artefact
    key = coverage(tool, attempt.arguments)
    record = gate.covered.get(key)
    if record is None or record.decided_by is None:
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
    if twice := _defined_twice(policy, attempt):
        return NotFound(twice[0], hint="rename one of the two")
    bundled = () if gate.loader is None else gate.loader.sources.bundled()
    names = [dependency.name for found in bundled for dependency in found.metadata.mcp_deps]
    near = get_close_matches(attempt.tool.namespace or "", [*policy.settings.servers, *names], n=1)
    elsewhere = "`pml catalog list` and `mcpServers` in .pml.json name servers"
    hint = f"did you mean server `{near[0]}`?" if near else elsewhere
    where = "configured or in the catalog" + (
        "" if policy.settings.registry is None else ", nor in the registry"
    )
    return NotFound(f"no tool {quote(str(attempt.tool))}: no such server is {where}", hint=hint)


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
    if not attempt.is_tool or dependency is None or in_use(loader, dependency) is not None:
        return
    names = [str(tool.get("name")) for tool in found.metadata.tools]
    if names and attempt.tool.action not in names:
        raise unknown_tool(str(attempt.tool), (f"{namespace}:{name}" for name in names))


def _may_have_registry(policy: Policy) -> bool:
    """Tell whether the workspace's file, which nobody trusts yet, names a registry that could know more."""
    config = policy.loaded.workspace.config
    return not policy.trusted and config is not None and config.registry is not None


def _defined_twice(policy: Policy, attempt: Attempt) -> list[str]:
    """Return the problem if two files define the server: then nothing else of that name is taken either."""
    return [
        problem for problem in policy.settings.problems if f"server `{attempt.tool.namespace}`" in problem
    ]
