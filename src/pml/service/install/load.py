"""Servers that no file configures: found, consented to, installed, and ready to be proven and started.

Consent is to exactly one lock and one set of variables. A rule that allows the tool covers an install that
`core.packages.install_facts.rule_could_cover`; a model or a parent decides no other either.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from pml.core.approvals.deciders import Matter
from pml.core.approvals.reasons import ForeignPublisher, Reason
from pml.core.approvals.record import Approval, State, Subject, call_facts
from pml.core.audit.entries import dependency_installed
from pml.core.digest import digest
from pml.core.errors import (
    AlreadyClaimed,
    AlreadySettled,
    Changed,
    ConfigInvalid,
    Conflict,
    EnvMissing,
    IntegrityFailed,
    Invalid,
    ToolDenied,
    Unavailable,
)
from pml.core.packages.capability import CapabilityType, McpDependency, Routing
from pml.core.packages.install_facts import install_facts, rule_could_cover
from pml.core.ports.loader import Age, Found, Installed, Plan, Progress, Told
from pml.core.rules.ruleset import VerdictKind, runs_code
from pml.core.values import JsonObject
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.inquiry import ask_and_wait, carry_out, settle_trust
from pml.service.approvals.lifecycle import Question
from pml.service.call import Attempt, Gate, Loaded, Loader, PendingCall, ServerTarget, deciders, matter_of
from pml.service.install.deeds import INSTALL_S, in_background, was_under_way, withdraw_same
from pml.service.policy.policy import (
    Policy,
    current_policy,
    is_allowed_whole,
    is_denied_whole,
    matched_rule,
    why,
)


async def load_server(call: PendingCall, loader: Loader, found: Found) -> ServerTarget | None:
    """Return how the server that was `found` is started; None after anything that took time: judge again.

    Raises: IntegrityFailed, EnvMissing, NotApproved, Paused, Unavailable.
    """
    step, attempt = _Step(call, loader), call.attempt
    is_inner = attempt.inner is not None and attempt.inner.found is found
    needed = [it for it in found.metadata.mcp_deps if not is_inner or it.name == attempt.tool.namespace]
    for dependency in needed:
        if dependency.name != attempt.tool.namespace:
            check_name(call, loader, dependency)
    for dependency in needed:
        installed = _ready(loader, dependency)
        if installed is None:
            await step.install(found, dependency)
            return None
        if await step.ask_for_variables(installed):
            return None
    return _remember(call, loader)


async def find(loader: Loader, policy: Policy, attempt: Attempt) -> Found | None:
    """Return what offers the tool: the calling capability's own servers, the catalog, or the registry.

    Raises: Unavailable.
    """
    tool, settings, inner = attempt.tool, policy.settings, attempt.inner
    own = None if inner is None or inner.found is None else inner.found
    if own is not None and own.metadata.dependency(tool.namespace or "") is not None:
        return own
    prefix = attempt.prefix or settings.registry_prefix
    with _unsound_is_unavailable():
        found = await loader.sources.find(tool, registries=settings.registries, prefix=prefix)
    if found is None or (attempt.prefix is not None and not _is_beneath(attempt.prefix, found)):
        return None
    metadata = found.metadata
    is_offered = metadata.type is not CapabilityType.SERVER or metadata.routing is Routing.SERVER
    return found if is_offered or metadata.dependency(tool.namespace or "") is not None else None


def _is_beneath(prefix: str, found: Found) -> bool:
    return prefix == f"{found.metadata.fqdn.org}.{found.metadata.fqdn.project}"


def in_use(loader: Loader, dependency: McpDependency) -> Installed | None:
    """Return the server as installed, if it is what `dependency` says it should be."""
    installed = loader.installer.installed(dependency.name)
    if installed is None:
        return None
    given = dependency.lock if isinstance(dependency.lock, str | None) else dependency.lock.digest
    lock = given or installed.lock
    is_it = installed.terms in (dependency.terms(lock), dependency.former_terms(lock))
    return installed if is_it else None


def _ready(loader: Loader, dependency: McpDependency) -> Installed | None:
    """Return the server as installed, unless less would hold it now than what was consented to."""
    installed = in_use(loader, dependency)
    if installed is None:
        return None
    held = loader.containment(installed.dependency.permissions)
    return None if held.is_weaker_than(installed.containment) else installed


def loaded_server(call: PendingCall) -> ServerTarget | None:
    """Return how a server that was loaded before is started, while nothing has changed since."""
    gate, policy, attempt = call.gate, call.policy, call.attempt
    namespace = attempt.tool.namespace
    loaded = None if namespace is None else gate.loaded.get(namespace)
    if namespace in policy.settings.unusable:
        return None  # a file means another server by this name, which cannot be used
    if loaded is None or gate.loader is None or loaded.brought_by != _bringer(gate.loader, attempt):
        return None
    prefix = attempt.prefix or policy.settings.registry_prefix
    if (loaded.registries, loaded.prefix) != (policy.settings.registries, prefix):
        return None
    installed = gate.loader.installer.installed(loaded.launch.spec.name)
    return loaded.launch if installed is loaded.installed or installed == loaded.installed else None


def _bringer(loader: Loader, attempt: Attempt) -> str | None:
    """Return the capability that brings the call's server along; None where the name means it to all."""
    found = None if attempt.inner is None else attempt.inner.found
    name = attempt.tool.namespace or ""
    dependency = None if found is None else found.metadata.dependency(name)
    if found is None or dependency is None or _is_bundled(loader, dependency):
        return None
    return str(found.metadata.fqdn)


def is_foreign(call: PendingCall) -> bool:
    """Tell whether the client spelt out another publisher than the one that the short name means."""
    prefix = call.attempt.prefix
    return prefix is not None and prefix != call.policy.settings.registry_prefix


def marked_foreign(because: Reason | None, call: PendingCall) -> Reason | None:
    """Return why it is asked, so that nothing is remembered under a name that means another tool."""
    if not is_foreign(call):
        return because
    kept = because or ForeignPublisher(why=f"spelt out as {call.attempt.prefix}'s")
    return replace(kept, foreign=True)


def _is_bundled(loader: Loader, dependency: McpDependency) -> bool:
    """Tell whether the catalog has the server, on the same terms."""
    return any(_compared_with_bundled(loader, dependency))


def _compared_with_bundled(loader: Loader, dependency: McpDependency) -> list[bool]:
    """Return, for each server of that name in the catalog, whether it is the same."""
    plain = replace(dependency, lock=None, says_workspace=True)
    same_name = (each for each in _bundled(loader) if each.name == dependency.name)
    return [replace(each, lock=None, says_workspace=True) == plain for each in same_name]


def _bundled(loader: Loader) -> list[McpDependency]:
    return [dependency for found in loader.sources.bundled() for dependency in found.metadata.mcp_deps]


def _remember(call: PendingCall, loader: Loader) -> ServerTarget | None:
    gate, policy, attempt = call.gate, call.policy, call.attempt
    tool = attempt.tool
    installed = loader.installer.installed(tool.namespace or "")
    if installed is None:
        return None
    spec = loader.installer.launch(installed, workspace=gate.session.workspace)
    launch = ServerTarget(spec=spec, digest=spec.target_digest)
    gate.loaded[spec.name] = Loaded(
        launch=launch,
        installed=installed,
        registries=policy.settings.registries,
        prefix=attempt.prefix or policy.settings.registry_prefix,
        brought_by=_bringer(loader, attempt),
    )
    return launch


async def plan_install(
    loader: Loader, dependency: McpDependency, policy: Policy, *, now: datetime, told: Told
) -> Plan:
    """Return what installing it would bring, how it would be held, and whether it is old enough."""
    lock = await loader.installer.resolve(dependency, told=told)
    held, min_days, age = loader.containment(dependency.permissions), policy.settings.min_age_days, None
    if min_days:
        youngest_at = await loader.installer.youngest_at(lock)
        is_enough = youngest_at is not None and now - youngest_at >= timedelta(days=min_days)
        age = Age(min_days=min_days, youngest_at=youngest_at, is_enough=is_enough)
    return Plan(dependency=dependency, lock=lock, containment=held, age=age)


def coverage(tool: str, arguments: JsonObject) -> tuple[str, str]:
    """Return which calls the approval of an install covers: of this tool, or exactly this if it runs code."""
    return tool, digest(arguments) if runs_code(tool, arguments) else ""


class _Step:
    """One look at what a call's server needs, with all that asking about it takes."""

    def __init__(self, call: PendingCall, loader: Loader) -> None:
        self._call = call
        self._gate = call.gate
        self._loader = loader
        self._policy = call.policy
        self._judged = call.judgement
        self._attempt = call.attempt
        self._tool = str(call.attempt.tool)

    async def install(self, found: Found, dependency: McpDependency) -> None:
        """Install the server if a rule covers it or somebody consents."""
        loader = self._loader
        if dependency.integrity is None and not self._policy.settings.allow_unverified:
            raise IntegrityFailed(
                dependency.title,
                expected="the integrity of its artefact",
                got="none",
                hint=_how_to_have_it(dependency),
            )
        with _unsound_is_unavailable():
            plan = await plan_install(
                loader,
                dependency,
                self._policy,
                now=self._gate.context.clock.now(),
                told=self._call.tell_install,
            )
        if await current_policy(self._gate.context, self._gate.session.workspace) is not self._policy:
            return  # resolving took time, and the rules are others now
        if await was_under_way(self._gate, loader, Subject.DEPENDENCY_INSTALL, plan.terms):
            return
        could = self._rule_could_cover(plan)
        if could and self._is_allowed(dependency):
            work = self._noting(self._install(plan, None), plan, None)
            await in_background(loader, plan.terms, work)
            return
        if self._judged.needs_trust and await settle_trust(self._call) is None:
            return
        await self._ask(found, plan, rule_could_cover=could)

    def _rule_could_cover(self, plan: Plan) -> bool:
        installer, name = self._loader.installer, plan.dependency.name
        return rule_could_cover(
            plan,
            bundled=_bundled(self._loader),
            accepted=installer.accepted(name),
            before=installer.installed(name),
        )

    def _is_allowed(self, dependency: McpDependency) -> bool:
        """Tell whether a rule allows the tool, or all tools of what comes along."""
        if _bringer(self._loader, self._attempt) is not None or is_foreign(self._call):
            return False  # a rule means what the name means to all, not what a capability calls so
        if dependency.name != self._attempt.tool.namespace:
            now = self._gate.context.clock.now()
            return is_allowed_whole(self._policy, dependency.name, now=now)
        return self._judged.kind is VerdictKind.ALLOW

    async def _ask(self, found: Found, plan: Plan, *, rule_could_cover: bool) -> None:
        gate, attempt = self._gate, self._attempt
        name = plan.dependency.name
        matter = replace(
            matter_of(Subject.DEPENDENCY_INSTALL, self._judged, self._tool, attempt.arguments),
            is_verified=plan.dependency.integrity is not None,
            is_foreign=is_foreign(self._call),
            is_coverable=rule_could_cover,
        )
        accepted, before = self._loader.installer.accepted(name), self._loader.installer.installed(name)
        question = Question(
            session=gate.session,
            tool=self._tool,
            arguments={
                **install_facts(plan, source=found.source, accepted=accepted, before=before),
                **call_facts(self._tool, attempt.arguments),
            },
            subject=Subject.DEPENDENCY_INSTALL,
            artefact=plan.terms,
            deciders=deciders(self._call, matter, self._tool),
        )
        because = marked_foreign(matched_rule(self._judged), self._call)

        async def is_installed() -> bool:
            return _ready(self._loader, plan.dependency) is not None

        try:
            record = await ask_and_wait(self._call, question, because, is_moot=is_installed)
        except AlreadySettled:
            return

        async def install(claimed: Approval) -> None:
            await self._install(plan, claimed)

        await carry_out(
            gate.context,
            record,
            install,
            artefact=plan.terms,
            timeout_s=INSTALL_S,
            beside=lambda work: in_background(self._loader, plan.terms, self._noting(work, plan, record)),
        )

    async def _install(self, plan: Plan, record: Approval | None) -> None:
        """Install what was approved, or what a rule covers; an approval that said so covers the call as well.

        Raises: what the installer raises.
        """
        await withdraw_same(self._gate, Subject.DEPENDENCY_INSTALL, plan.terms)
        with _unsound_is_unavailable():
            await self._loader.installer.install(plan, told=self._call.tell_install)
        by = " (allowed by a rule)" if record is None else ""
        self._call.tell_install(Progress(done=1, total=1, message=f"installed {plan.dependency.title}{by}"))
        is_for_call = plan.dependency.name == self._attempt.tool.namespace
        if record is not None and record.covers_call and is_for_call:
            # before anybody learns that it is done
            self._gate.covered[coverage(self._tool, self._attempt.arguments)] = record

    async def _noting(self, work: Coroutine[Any, Any, None], plan: Plan, record: Approval | None) -> None:
        """Do the work, note it, and let go on what other calls of the session ask about the same."""
        await work
        gate = self._gate
        entry = dependency_installed(
            plan.dependency.name,
            plan.dependency.version,
            integrity=plan.dependency.integrity,
            lock=plan.lock.digest,
            why=why(self._judged) if record is None else "approved",
            at=gate.context.clock.now(),
            session_id=gate.session.id,
            tool=self._tool,
            approval_id=None if record is None else record.id,
        )
        await gate.context.store.audit.record(entry)
        await withdraw_same(gate, Subject.DEPENDENCY_INSTALL, plan.terms)

    async def ask_for_variables(self, installed: Installed) -> bool:
        """Ask for variables that are not set; tell whether somebody was asked. Raises: EnvMissing."""
        gate, dependency = self._gate, installed.dependency
        missing = await missing_variables(gate, self._loader, self._policy, dependency)
        settled = self._call.settled
        is_answer = settled is not None and settled.subject is Subject.API_KEY_REQUIRED
        if not missing:
            if is_answer and settled is not None and settled.status is State.ALLOWED:
                with contextlib.suppress(AlreadyClaimed):  # by an earlier look of the same call
                    await claim(gate.context, settled.id)
                    await finish(gate.context, settled.id)
            return False
        # whether it is set is looked up, whoever says so, and the call itself is asked about afterwards
        matter = Matter(subject=Subject.API_KEY_REQUIRED)
        question = Question(
            session=gate.session,
            tool=self._tool,
            arguments={
                "server": dependency.name,
                "missing": missing,
                **call_facts(self._tool, self._attempt.arguments),
            },
            subject=Subject.API_KEY_REQUIRED,
            deciders=deciders(self._call, matter, self._tool),
        )
        record = await ask_and_wait(self._call, question, None)
        still = await missing_variables(gate, self._loader, self._policy, dependency)
        with contextlib.suppress(AlreadyClaimed):
            await claim(gate.context, record.id)
            await finish(gate.context, record.id, error="not set" if still else None)
        if still:
            raise EnvMissing(dependency.name, still)
        return True


def _how_to_have_it(dependency: McpDependency) -> str:
    if dependency.mcp_name is not None:
        return f"what a registry lists has no hash: `pml add {dependency.mcp_name}` shows and pins what it is"
    return "`install.allow_unverified` in the user's config.json lets a person decide"


def check_name(call: PendingCall, loader: Loader, dependency: McpDependency) -> None:
    """Refuse what comes along under a name that means another server, or that rules deny as a whole."""
    gate, policy, tool = call.gate, call.policy, call.attempt.tool
    name = dependency.name
    if is_denied_whole(policy, name, now=gate.context.clock.now()):
        raise ToolDenied(f"a rule denies every tool of server `{name}`", tool=f"{name}:*")
    is_others = any(not same for same in _compared_with_bundled(loader, dependency))
    if is_others or name in policy.settings.servers or name in policy.settings.unusable:
        raise Unavailable(
            f"`{tool}` wants to bring a server `{name}` along, but that name means another one",
            hint="ask its publisher to use a name of its own",
        )


async def missing_variables(
    gate: Gate, loader: Loader, policy: Policy, dependency: McpDependency
) -> tuple[str, ...]:
    """Return the names that the server requires and that are set nowhere."""
    workspace = gate.session.workspace if policy.trusted else None
    names = dependency.env_required
    known = await asyncio.to_thread(loader.variables.values, names, workspace=workspace)
    return tuple(name for name in names if name not in known)


@contextlib.contextmanager
def _unsound_is_unavailable() -> Generator[None]:
    """Let what a registry said wrongly be nobody's fault here: the call and the files of PML are sound."""
    try:
        yield
    except (ConfigInvalid, Changed):
        raise
    except (Invalid, Conflict) as exc:
        raise Unavailable(exc.message, hint=exc.hint) from exc
