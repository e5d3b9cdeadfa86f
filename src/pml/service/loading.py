"""Servers that no file configures: found, consented to, installed, and ready to be proven and started.

Consent is to exactly one lock and one set of variables. A rule that allows the tool covers an install whose
bytes are named in advance, and never another lock than the one first accepted.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, Final

from msgspec.structs import replace

from pml.core.approvals import Approval, State, Subject, call_facts
from pml.core.audit import dependency_accepted, dependency_installed
from pml.core.capability import CapabilityType, McpDependency
from pml.core.dependency import install_facts
from pml.core.digest import digest
from pml.core.errors import (
    AlreadyClaimed,
    ArtefactChanged,
    Changed,
    ConfigInvalid,
    Conflict,
    EnvMissing,
    IntegrityFailed,
    Invalid,
    NotApproved,
    NotFound,
    PmlError,
    Unavailable,
)
from pml.core.loading import Found, Installed, Plan, Told
from pml.core.manifests import launch_digest
from pml.core.names import ToolName
from pml.core.rules import VerdictKind, runs_code
from pml.core.values import JsonObject
from pml.service.approvals import Question, all_pending, cancel, claim, finish, wait
from pml.service.gate import Asking, Attempt, Gate, Launch, Loaded, Loader, deciders
from pml.service.policy import Judged, Policy, current_policy, matched_rule, why
from pml.service.settling import CARRIED_OUT, SETTLED, settle, settle_trust

INSTALL_S: Final = 900.0  # for another call, or process, that carries the same install out


async def load_server(
    gate: Gate,
    loader: Loader,
    found: Found,
    *,
    policy: Policy,
    judged: Judged,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
    told: Told,
) -> Launch | None:
    """Return how the server that was `found` is started; None after anything that took time: judge again.

    Raises: IntegrityFailed, EnvMissing, NotApproved, Paused, Unavailable.
    """
    step = _Step(
        gate=gate,
        loader=loader,
        policy=policy,
        judged=judged,
        attempt=attempt,
        asking=asking,
        settled=settled,
        told=told,
    )
    for dependency in found.metadata.mcp_deps:
        installed = in_use(loader, dependency)
        if installed is None or loader.containment.is_weaker_than(installed.containment):
            await step.install(found, dependency)
            return None
        if await step.ask_for_variables(installed):
            return None
    return _remember(gate, loader, policy, attempt.tool)


async def find(loader: Loader, policy: Policy, tool: ToolName) -> Found | None:
    """Return what offers the server of `tool`: the catalog, or the registry. Raises: Unavailable."""
    settings = policy.settings
    with _unsound_is_unavailable():
        found = await loader.sources.find(tool, registry=settings.registry, prefix=settings.registry_prefix)
    if found is None:
        return None
    if found.metadata.type is not CapabilityType.SERVER:
        raise Unavailable(
            f"`{found.metadata.fqdn}` is a capability with code, which cannot be run yet",
            hint="only capabilities of type `server` can be called",
        )
    return found if found.metadata.dependency(tool.namespace or "") is not None else None


def in_use(loader: Loader, dependency: McpDependency) -> Installed | None:
    """Return the server as installed, if it is what `dependency` says it should be."""
    installed = loader.installer.installed(dependency.name)
    if installed is None or replace(installed.dependency, lock=None) != replace(dependency, lock=None):
        return None
    given = dependency.lock if isinstance(dependency.lock, str | None) else dependency.lock.digest
    return installed if given in (None, installed.lock) else None


def loaded_launch(gate: Gate, policy: Policy, namespace: str | None) -> Launch | None:
    """Return how a server that was loaded before is started, while nothing has changed since."""
    loaded = None if namespace is None else gate.loaded.get(namespace)
    if loaded is None or gate.loader is None or loaded.settings is not policy.settings:
        return None
    installed = gate.loader.installer.installed(loaded.launch.spec.name)
    return loaded.launch if installed is loaded.installed or installed == loaded.installed else None


def _remember(gate: Gate, loader: Loader, policy: Policy, tool: ToolName) -> Launch | None:
    installed = loader.installer.installed(tool.namespace or "")
    if installed is None:
        return None
    spec = loader.installer.launch(installed, workspace=gate.session.workspace)
    launch = Launch(spec=spec, digest=launch_digest(spec))
    gate.loaded[spec.name] = Loaded(launch=launch, installed=installed, settings=policy.settings)
    return launch


async def start_proven(
    gate: Gate, launch: Launch, *, attempt: Attempt, asking: Asking, settled: Approval | None, policy: Policy
) -> None:
    """Start the server; files that are not as they were are asked about, and only a person can accept them.

    Raises: NotApproved, Paused, ServerFailed.
    """
    try:
        await gate.servers.manifest(launch.spec)
        return
    except ArtefactChanged as exc:
        changed, loader = exc, gate.loader
    if loader is None or launch.spec.artefact is None:
        raise changed
    name, tool = launch.spec.name, str(attempt.tool)
    question = Question(
        session=gate.session,
        tool=tool,
        arguments={
            "server": f"{name}@{launch.spec.artefact.version}",
            "files": changed.files,
            "was": launch.spec.artefact.tree,
            "now": changed.tree,
            **call_facts(tool, attempt.arguments),
        },
        subject=Subject.INTEGRITY_CHANGED,
        artefact=changed.tree,
        deciders=deciders(gate, policy.settings, Subject.INTEGRITY_CHANGED, tool, asking),
    )
    try:
        record = await settle(gate, question, None, attempt=attempt, asking=asking, settled=settled)
    except NotApproved as exc:
        installed = loader.installer.installed(name)
        if exc.outcome == State.CANCELLED and installed is not None and installed.tree == changed.tree:
            return  # a person accepted it meanwhile, for another call
        raise
    with contextlib.suppress(AlreadyClaimed):
        await _in_background(loader, _accept(gate, loader, name, changed.tree, record))
    await wait(gate.desk, record.id, timeout_s=INSTALL_S, during=CARRIED_OUT)


async def _accept(gate: Gate, loader: Loader, name: str, tree: str, record: Approval) -> None:
    """Take the changed files for those of the server, as was allowed. Raises: AlreadyClaimed, Changed."""
    claimed = await claim(gate.desk, record.id, artefact=tree)
    async with _finishing(gate, claimed):
        await loader.installer.accept(name, tree=tree)
        entry = dependency_accepted(name, tree, at=gate.desk.clock.now(), by=claimed.decided_by)
        await gate.desk.store.audit.record(entry)
    await _withdraw_same(gate, record.subject, tree)


def coverage(tool: str, arguments: JsonObject) -> tuple[str, str]:
    """Return which calls the approval of an install covers: of this tool, or exactly this if it runs code."""
    return tool, digest(arguments) if runs_code(tool, arguments) else ""


async def stop_installs(loader: Loader) -> None:
    """Give up what is being installed; nothing of it stays."""
    for task in loader.installing:
        task.cancel()
    await asyncio.gather(*loader.installing, return_exceptions=True)


class _Step:
    """One look at what a call's server needs, with all that asking about it takes."""

    def __init__(
        self,
        *,
        gate: Gate,
        loader: Loader,
        policy: Policy,
        judged: Judged,
        attempt: Attempt,
        asking: Asking,
        settled: Approval | None,
        told: Told,
    ) -> None:
        self._gate = gate
        self._loader = loader
        self._policy = policy
        self._judged = judged
        self._attempt = attempt
        self._asking = asking
        self._settled = settled
        self._told = told
        self._tool = str(attempt.tool)

    async def install(self, found: Found, dependency: McpDependency) -> None:
        """Install the server if a rule covers it or somebody consents."""
        loader = self._loader
        if dependency.integrity is None and not self._policy.settings.allow_unverified:
            raise IntegrityFailed(
                dependency.title,
                expected="the integrity of its artefact",
                got="none",
                hint="`install.allow_unverified` in the user's config.json lets a person decide",
            )
        with _unsound_is_unavailable():
            lock = await loader.installer.resolve(dependency, told=self._told)
        plan = Plan(dependency=dependency, lock=lock, containment=loader.containment)
        if await current_policy(self._gate.desk, self._gate.session.workspace) is not self._policy:
            return  # resolving took time, and the rules are others now
        if self._is_covered(plan):
            await _in_background(loader, self._carry_out(plan, None))
            return
        if self._judged.needs_trust and await self._is_trusted_now():
            return
        await self._ask(found, plan)

    def _is_covered(self, plan: Plan) -> bool:
        """Tell whether a rule that allows the tool covers this install."""
        name = plan.dependency.name
        before = self._loader.installer.installed(name)
        if before is not None and plan.containment.is_weaker_than(before.containment):
            return False
        return (
            self._judged.kind is VerdictKind.ALLOW
            and plan.dependency.integrity is not None
            and self._loader.installer.accepted_lock(name) in (None, plan.lock.digest)
        )

    async def _is_trusted_now(self) -> bool:
        refused = await settle_trust(
            self._gate,
            self._policy,
            self._judged,
            attempt=self._attempt,
            asking=self._asking,
            settled=self._settled,
        )
        return refused is None

    async def _ask(self, found: Found, plan: Plan) -> None:
        gate, attempt = self._gate, self._attempt
        name = plan.dependency.name
        verified = plan.dependency.integrity is not None
        accepted, before = self._loader.installer.accepted_lock(name), self._loader.installer.installed(name)
        question = Question(
            session=gate.session,
            tool=self._tool,
            arguments={
                **install_facts(plan, source=found.source, accepted=accepted, before=before),
                **call_facts(self._tool, attempt.arguments),
            },
            subject=Subject.DEPENDENCY_INSTALL,
            artefact=plan.terms,
            deciders=deciders(
                gate,
                self._policy.settings,
                Subject.DEPENDENCY_INSTALL,
                self._tool,
                self._asking,
                verified=verified,
            ),
        )
        because = matched_rule(self._judged)
        try:
            record = await settle(
                gate, question, because, attempt=attempt, asking=self._asking, settled=self._settled
            )
        except NotApproved as exc:
            if exc.outcome == State.CANCELLED and in_use(self._loader, plan.dependency) is not None:
                return  # another call had it installed meanwhile
            raise
        with contextlib.suppress(AlreadyClaimed):
            await _in_background(self._loader, self._carry_out(plan, record))
            return
        await wait(gate.desk, record.id, timeout_s=INSTALL_S, during=CARRIED_OUT)

    async def _carry_out(self, plan: Plan, record: Approval | None) -> None:
        """Install what was approved, or what a rule covers; an approval of it covers the call as well.

        Raises: what `claim` and the installer raise.
        """
        gate = self._gate
        if record is not None:
            record = await claim(gate.desk, record.id, artefact=plan.terms)
        async with _finishing(gate, record):
            with _unsound_is_unavailable():
                await self._loader.installer.install(plan, told=self._told)
            if record is not None:  # before anybody learns that it is done
                gate.covered[coverage(self._tool, self._attempt.arguments)] = record
        entry = dependency_installed(
            plan.dependency.name,
            plan.dependency.version,
            integrity=plan.dependency.integrity,
            lock=plan.lock.digest,
            why=why(self._judged) if record is None else "approved",
            at=gate.desk.clock.now(),
            session_id=gate.session.id,
            tool=self._tool,
            approval_id=None if record is None else record.id,
        )
        await gate.desk.store.audit.record(entry)
        await _withdraw_same(gate, Subject.DEPENDENCY_INSTALL, plan.terms)

    async def ask_for_variables(self, installed: Installed) -> bool:
        """Ask for variables that are not set; tell whether somebody was asked. Raises: EnvMissing."""
        gate, dependency = self._gate, installed.dependency
        missing = await missing_variables(gate, self._loader, self._policy, dependency)
        settled = self._settled
        is_answer = settled is not None and settled.subject is Subject.API_KEY_REQUIRED
        if not missing:
            if is_answer and settled is not None and settled.status is State.ALLOWED:
                with contextlib.suppress(AlreadyClaimed):  # by an earlier look of the same call
                    await claim(gate.desk, settled.id)
                    await finish(gate.desk, settled.id)
            return False
        question = Question(
            session=gate.session,
            tool=self._tool,
            arguments={
                "server": dependency.name,
                "missing": missing,
                **call_facts(self._tool, self._attempt.arguments),
            },
            subject=Subject.API_KEY_REQUIRED,
            deciders=deciders(
                gate, self._policy.settings, Subject.API_KEY_REQUIRED, self._tool, self._asking
            ),
        )
        record = await settle(
            gate, question, None, attempt=self._attempt, asking=self._asking, settled=settled
        )
        still = await missing_variables(gate, self._loader, self._policy, dependency)
        with contextlib.suppress(AlreadyClaimed):
            await claim(gate.desk, record.id)
            await finish(gate.desk, record.id, error="not set" if still else None)
        if still:
            raise EnvMissing(dependency.name, still)
        return True


async def missing_variables(
    gate: Gate, loader: Loader, policy: Policy, dependency: McpDependency
) -> tuple[str, ...]:
    """Return the names that the server requires and that are set nowhere."""
    workspace = gate.session.workspace if policy.trusted else None
    names = dependency.env_required
    known = await asyncio.to_thread(loader.variables.values, names, workspace=workspace)
    return tuple(name for name in names if name not in known)


async def _withdraw_same(gate: Gate, subject: Subject, artefact: str) -> None:
    """Withdraw what other calls of the session still ask about the same: it is settled, and they go on."""
    async for other in all_pending(gate.desk, session_id=gate.session.id):
        if (other.subject, other.artefact) == (subject, artefact):
            with contextlib.suppress(Conflict, NotFound):
                await cancel(gate.desk, other.id, reason=SETTLED)


async def _in_background(loader: Loader, work: Coroutine[Any, Any, None]) -> None:
    """Do the work to its end also if the call is given up: the next one finds it done."""
    task = asyncio.create_task(work)
    loader.installing.add(task)
    task.add_done_callback(loader.installing.discard)
    await asyncio.shield(task)


@contextlib.contextmanager
def _unsound_is_unavailable() -> Generator[None]:
    """Let what a registry said wrongly be nobody's fault here: the call and the files of PML are sound."""
    try:
        yield
    except (ConfigInvalid, Changed):
        raise
    except (Invalid, Conflict) as exc:
        raise Unavailable(exc.message, hint=exc.hint) from exc


@contextlib.asynccontextmanager
async def _finishing(gate: Gate, record: Approval | None) -> AsyncGenerator[None]:
    """Record how the deed that `record` approved ended."""
    try:
        yield
    except BaseException as exc:
        if record is not None:
            said = exc.message if isinstance(exc, PmlError) else "interrupted"
            await finish(gate.desk, record.id, error=said)
        raise
    if record is not None:
        await finish(gate.desk, record.id)
