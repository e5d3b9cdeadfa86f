"""What the rules, the trust in them and the session's memory say of a call. Every path to a tool asks here.

deny → allow → ask, with one addition: while a configuration file is broken, nobody knows what it would
deny, so nothing is allowed by any file and everything that is not denied asks.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

import msgspec
from msgspec.structs import replace

from pml.core.approvals.reasons import (
    AgentLaunch,
    AllowRule,
    AskRule,
    BrokenFile,
    DefaultRule,
    DenyRule,
    Reason,
    Reserved,
    RuleReason,
    UnsureLink,
)
from pml.core.approvals.record import Approval, Role
from pml.core.approvals.states import role_of
from pml.core.approvals.subjects import call_input
from pml.core.config.merged import Loosening, Settings, loosening, unite
from pml.core.digest import digest_call
from pml.core.errors import ConfigInvalid, ToolDenied
from pml.core.own_tools import EXECUTE, LAUNCH_TOOL, META_TOOLS, SUPERVISING
from pml.core.ports.records import Grant, Session, Standing
from pml.core.ports.world import Loaded
from pml.core.rules.arguments import is_short
from pml.core.rules.globs import covers as covers_tool
from pml.core.rules.links import Disk
from pml.core.rules.path_lookups import OverBudget
from pml.core.rules.places import Starts
from pml.core.rules.reserved import WHY_TOO_MUCH, Surroundings, full_budget, small_budget, why_reserved
from pml.core.rules.ruleset import (
    Call,
    Effect,
    Rule,
    RuleSet,
    Verdict,
    VerdictKind,
    rule_text,
    runs_code,
    without_words,
)
from pml.core.servers.conditions import ServerTraits
from pml.core.sessions.launch import power_of
from pml.core.sessions.token import ParentMay, least
from pml.core.text import visible
from pml.core.values import JsonObject, canonical
from pml.service.context import Context
from pml.service.policy.kept_rules import AS_TRUSTED, Kept, kept_of, note_content, notice_of
from pml.service.policy.model_rules import without_models

WHY_LAUNCH = "starting an agent is a person's to allow: what it may use, and who answers for it, is shown"
_MAY_LAUNCH = "a person launched it, or one above it, with leave to launch agents"
_NOT_GIVEN = "it is not among the tools that this session was given"
_UNSURE = "a path goes through a link that could lead to what a rule denies before it is opened"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The configuration in force for a workspace, and what an untrusted file would add to it."""

    workspace: str
    loaded: Loaded
    standing: Standing
    trusted: bool
    settings: Settings
    rules: RuleSet
    untrusted: Loosening | None
    rules_if_trusted: RuleSet
    kept: Kept | None = None

    @cached_property
    def broken(self) -> tuple[ConfigInvalid, ...]:
        errors = (self.loaded.user.error, self.loaded.workspace.error, self.kept and self.kept.error)
        return tuple(error for error in errors if error is not None)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with all that led to it. `why_reserved`: why only a person may allow it, if so.

    `is_launch`: it starts an agent, which a person allows, or the user's file by that very name.
    """

    kind: VerdictKind
    verdict: Verdict
    grant: Grant | None = None
    asking_is_off: bool = False
    broken: tuple[ConfigInvalid, ...] = ()
    why_reserved: str | None = None
    is_launch: bool = False
    is_unasked: bool = False  # a person let the session launch agents when they launched it
    not_given: bool = False
    if_trusted: Rule | None = None

    @property
    def reserved(self) -> bool:
        """Whether only a person may allow the call."""
        return self.why_reserved is not None

    @property
    def is_named(self) -> bool:
        """Whether an `ask` rule names the call, or something else does that makes it a person's."""
        return self.kind is VerdictKind.ASK

    @property
    def needs_trust(self) -> bool:
        """Whether the call would be allowed if the workspace's file were trusted."""
        return self.if_trusted is not None


async def current_policy(context: Context, workspace: str) -> Policy:
    """Return the policy of `workspace` as its files and their trust are now."""
    files = context.configs.of(workspace)
    loaded = files.read()
    file = loaded.workspace
    standing = await context.store.trusts.standing(file.path, file.digest)
    known = context.policies.get(workspace)
    if known is None or known.loaded is not loaded or known.standing != standing:
        standing = await note_content(context, files, standing)
        is_in_force = standing.trusted and file.config is not None
        kept = None if is_in_force else await kept_of(context, files, file)
        known = _build(workspace, loaded, files.paths, standing=standing, kept=kept)
        context.policies[workspace] = known
    return known


def _build(workspace: str, loaded: Loaded, paths: Disk, *, standing: Standing, kept: Kept | None) -> Policy:
    user, local, trusted = loaded.user.config, loaded.workspace.config, standing.trusted
    settings = unite(user, local, trusted=trusted, kept=() if kept is None else kept.rules)
    rules = _rule_set(settings, workspace, paths)
    would = rules if trusted else _rule_set(unite(user, local, trusted=True), workspace, paths)
    return Policy(
        workspace=workspace,
        loaded=loaded,
        standing=standing,
        trusted=trusted,
        settings=settings,
        rules=rules,
        untrusted=None if trusted or local is None else loosening(local, drops=kept.rules if kept else ()),
        rules_if_trusted=would,
        kept=kept,
    )


def _rule_set(settings: Settings, workspace: str, paths: Disk) -> RuleSet:
    servers = settings.servers.values()
    starts = {spec.name: spec.target.starts(workspace=workspace, home=paths.home) for spec in servers}
    traits = {spec.name: spec.traits for spec in servers}
    return RuleSet(settings.rules, paths=paths, starts=starts, traits=traits)


async def judge(context: Context, policy: Policy, call: Call, *, session: Session | None) -> Judgement:
    """Return what is to be done with `call`. A configured deny beats every grant."""
    now = context.clock.now()
    call = await _with_annotations(context, policy, call)
    verdict = await _verdict(policy.rules, call, now)
    denied = _denied(verdict, call, session)
    if denied is not None:
        return denied
    if verdict.kind is VerdictKind.ALLOW and runs_code(call.tool, call.arguments):
        verdict = await without_models(context, policy.workspace, call, verdict)
    # Before grants, switches and allows: none of them stands in for a person here.
    reserved = await _why_reserved(context, policy, call)
    if reserved is not None:
        return Judgement(kind=VerdictKind.ASK, verdict=verdict, broken=policy.broken, why_reserved=reserved)
    is_launch = call.tool == LAUNCH_TOOL
    # A file that cannot be read may hold a deny or an ask: no allow of the other file applies.
    if policy.broken:
        return Judgement(kind=VerdictKind.ASK, verdict=verdict, broken=policy.broken, is_launch=is_launch)
    if is_launch:
        return _judge_launch(policy, verdict, session)
    if verdict.unsure:
        return Judgement(kind=VerdictKind.ASK, verdict=verdict)
    if verdict.kind is VerdictKind.ALLOW:
        return Judgement(kind=VerdictKind.ALLOW, verdict=verdict)
    is_named = verdict.kind is VerdictKind.ASK
    grant = None if session is None else await _grant_for(context, policy, session, call, named=is_named)
    if grant is not None:
        return Judgement(kind=VerdictKind.ALLOW, verdict=verdict, grant=grant)
    if not policy.settings.approval.asking_enabled(now):
        return Judgement(kind=VerdictKind.ALLOW, verdict=verdict, asking_is_off=True)
    would = None if policy.untrusted is None else await _if_trusted(context, policy, call, now)
    return Judgement(kind=verdict.kind, verdict=verdict, if_trusted=would)


async def _if_trusted(context: Context, policy: Policy, call: Call, now: datetime) -> Rule | None:
    """Return the rule that would allow the call if the workspace's file were trusted."""
    would = policy.rules_if_trusted.judge(call, now=now)
    would = await without_models(context, policy.workspace, call, would)
    return would.rule if would.kind is VerdictKind.ALLOW else None


async def judge_denied(
    context: Context, policy: Policy, call: Call, *, session: Session | None
) -> Judgement | None:
    """Return the denial of `call`, if it is denied; of the rest nothing is looked at."""
    call = await _with_annotations(context, policy, call)
    return _denied(await _verdict(policy.rules, call, context.clock.now()), call, session)


async def _with_annotations(context: Context, policy: Policy, call: Call) -> Call:
    """Return the call with what its tool says of itself, as far as rules ask and a manifest is known.

    Of another definition than the one that would run, nothing is known.
    """
    if call.starts is not None and call.server is None:
        call = replace(call, server=ServerTraits())  # an installed server: it runs here
    if not (policy.rules.reads_annotations or policy.rules_if_trusted.reads_annotations):
        return call
    namespace, _, action = call.tool.partition(":")
    spec = policy.settings.servers.get(namespace)
    digest = call.artefact or (None if spec is None else spec.target_digest)
    manifest = None if digest is None else await context.store.manifests.get(namespace, digest)
    tool = None if manifest is None else manifest.tool(action)
    if manifest is None or tool is None or call.definition not in (None, manifest.definitions[action]):
        return call
    return replace(call, annotations=tool.get("annotations", {}))


def _denied(verdict: Verdict, call: Call, session: Session | None) -> Judgement | None:
    if verdict.kind is VerdictKind.DENY:
        return Judgement(kind=VerdictKind.DENY, verdict=verdict)
    if session is not None and session.tools is not None and not _is_given(session.tools, call.tool):
        return Judgement(kind=VerdictKind.DENY, verdict=verdict, not_given=True)
    return None


def _judge_launch(policy: Policy, verdict: Verdict, session: Session | None) -> Judgement:
    """Return what is to be done with a launch: no glob, grant, switch or workspace's file allows it."""
    user = policy.loaded.user.path
    if verdict.unsure:
        return Judgement(kind=VerdictKind.ASK, verdict=verdict, is_launch=True)
    for rule in verdict.matched:
        is_users = rule.source is not None and rule.source.file == user
        if rule.effect is Effect.ALLOW and rule.tool == LAUNCH_TOOL and is_users:
            by_name = Verdict(kind=VerdictKind.ALLOW, rule=rule, matched=verdict.matched)
            return Judgement(kind=VerdictKind.ALLOW, verdict=by_name, is_launch=True)
    is_unasked = session is not None and session.launches_unasked and verdict.kind is not VerdictKind.ASK
    if is_unasked:
        return Judgement(kind=VerdictKind.ALLOW, verdict=verdict, is_launch=True, is_unasked=True)
    return Judgement(kind=VerdictKind.ASK, verdict=verdict, is_launch=True)


def asking_off(policy: Policy, now: datetime) -> str | None:
    """Return what is to be said loudly while PML does not ask."""
    if policy.settings.approval.asking_enabled(now):
        return None
    return (
        f"ASKING IS OFF (`approval.enabled` in {visible(policy.loaded.user.path)}): "
        "what no rule denies runs without asking"
    )


def kept_notice(policy: Policy) -> str | None:
    """Return what is to be said while rules of the content trusted last are kept in force."""
    return None if policy.kept is None else notice_of(policy.kept, policy.loaded.workspace)


async def _why_reserved(context: Context, policy: Policy, call: Call) -> str | None:
    """Return why only a person may decide the call, or None; a long look is taken off the loop.

    Code may name PML, for what it calls is looked at when it does.
    """
    if call.tool == EXECUTE:
        return None
    around = Surroundings(
        home=context.home,
        workspace=policy.workspace,
        context=lambda: policy.rules.context(call),
        tree=context.configs.of(policy.workspace).paths,
        clients=context.clients,
    )
    try:
        return why_reserved(call.tool, call.arguments, around, budget=small_budget())
    except OverBudget:
        pass
    try:
        return await asyncio.to_thread(why_reserved, call.tool, call.arguments, around, budget=full_budget())
    except OverBudget:
        return WHY_TOO_MUCH


async def _verdict(rules: RuleSet, call: Call, now: datetime) -> Verdict:
    """Return what the rules say; of arguments that take long to look through, off the loop."""
    if is_short(call.arguments):
        return rules.judge(call, now=now)
    return await asyncio.to_thread(rules.judge, call, now=now)


async def judge_in_session(context: Context, session: Session, call: Call) -> Judgement:
    """As `judge`, with the policy of the session's workspace as it is now."""
    return await judge(context, await current_policy(context, session.workspace), call, session=session)


def _is_given(tools: tuple[str, ...], tool: str) -> bool:
    """Tell whether a session that was given these may use the tool; those of PML's own carry or supervise."""
    is_own = tool in META_TOOLS or tool in SUPERVISING or tool == EXECUTE
    return is_own or any(covers_tool(glob, tool) for glob in tools)


def refuse_denied(judged: Judgement, tool: str) -> None:
    """Raise ToolDenied, naming the rule, if the verdict is deny."""
    if judged.not_given:
        raise ToolDenied(f"tool `{tool}` may not be used: {_NOT_GIVEN}", tool=tool, rule=_NOT_GIVEN)
    if judged.kind is VerdictKind.DENY:
        matched = judged.verdict.rule
        rule = None if matched is None else rule_text(matched)
        whose = "" if matched is None or matched.source is None else f" by {_whose(matched.source.file)}"
        raise ToolDenied(
            f"tool `{tool}` is denied{whose}" + ("" if rule is None else f": {rule}"),
            tool=tool,
            rule=rule,
            hint="no approval lifts a deny; `pml rules explain` shows the rule",
        )


def _whose(file: str) -> str:
    if file.endswith(AS_TRUSTED):
        return "the workspace's file as it was last trusted"
    return "the workspace's file" if file.endswith(".pml.json") else "your own file"


def is_denied_whole(policy: Policy, namespace: str, *, now: datetime) -> bool:
    """Tell whether rules deny every tool of a server, whatever it is called with."""
    return _names_whole(policy, namespace, Effect.DENY, now)


def is_allowed_whole(policy: Policy, namespace: str, *, now: datetime) -> bool:
    """Tell whether rules allow every tool of a server, and do not deny them all."""
    is_allowed = _names_whole(policy, namespace, Effect.ALLOW, now)
    return is_allowed and not is_denied_whole(policy, namespace, now=now)


def _names_whole(policy: Policy, namespace: str, effect: Effect, now: datetime) -> bool:
    whole = {"*", "*:*", f"{namespace}:*"}
    return any(
        rule.effect is effect
        and rule.tool in whole
        and not (rule.args or rule.exact or rule.server)
        and (rule.expires_at is None or now < rule.expires_at)
        for rule in policy.settings.rules
    )


def why(judged: Judgement) -> str:
    """Return in words what gave the verdict."""
    if judged.grant is not None:
        return "remembered for this session"
    if judged.asking_is_off:
        return "asking is turned off"
    if judged.not_given:
        return _NOT_GIVEN
    if judged.is_unasked:
        return _MAY_LAUNCH
    return judged.verdict.why


def matched_rule(judged: Judgement) -> Reason | None:
    """Return why PML asks, to be kept with the question."""
    if judged.broken:
        error = judged.broken[0]
        return BrokenFile(problem=error.problem, file=error.path, line=error.line)
    if judged.why_reserved is not None:
        return Reserved(why=judged.why_reserved)
    if judged.is_launch:
        return AgentLaunch(why=WHY_LAUNCH)
    if judged.verdict.unsure:
        return UnsureLink(why=_UNSURE)
    rule = judged.verdict.rule
    return None if rule is None else kept_rule(rule, judged.verdict.kind)


_RULE_REASONS: Final[Mapping[VerdictKind, type[RuleReason]]] = {
    VerdictKind.ASK: AskRule,
    VerdictKind.ALLOW: AllowRule,
    VerdictKind.DENY: DenyRule,
    VerdictKind.UNLISTED: DefaultRule,
}


def kept_rule(rule: Rule, verdict: VerdictKind) -> RuleReason:
    """Return the rule as an approval keeps it."""
    return _RULE_REASONS[verdict](
        entry=canonical(rule.entry).decode(),
        file=None if rule.source is None else rule.source.file,
        line=None if rule.source is None else rule.source.line,
    )


def parent_may_decide(session: Session, settings: Settings, tools: Sequence[str], *, named: bool) -> bool:
    """Tell whether the session has a parent that may decide about all the tools; `named`: though a rule asks.

    What an `ask` rule names is a person's unless the user's file gives it to parents. Whoever allowed the
    session's launch may have given them less, and where nobody did they have nothing.
    """
    if session.parent_id is None or session.parent_may is ParentMay.NOTHING:
        return False
    setting = settings.approval.parent_may_decide
    if isinstance(setting, tuple):
        return all(any(covers_tool(glob, tool) for glob in setting) for tool in tools)
    power = least(session.parent_may, power_of(setting))
    return power is ParentMay.ALL or (power is ParentMay.UNLISTED and not named)


async def _grant_for(
    context: Context, policy: Policy, session: Session, call: Call, *, named: bool
) -> Grant | None:
    if call.tool in META_TOOLS:
        return None
    grants = await context.store.grants.of(session.id, call.tool)
    # an answer covers no more than whoever gave it may decide
    parents = parent_may_decide(session, policy.settings, (call.tool,), named=named)
    barred = {*(() if parents else (Role.PARENT,)), *((Role.MODEL,) if named else ())}
    fit = (grant for grant in grants if role_of(grant.by) not in barred)
    return next((grant for grant in fit if covers(grant, call)), None)


def covers(grant: Grant, call: Call) -> bool:
    """Tell whether the grant allows the call: the same tool as it was then, and no code that was not seen."""
    then = (grant.tool, grant.definition, grant.artefact)
    if then != (call.tool, call.definition, call.artefact):
        return False
    if grant.digest is None:
        return not runs_code(call.tool, call.arguments)
    return grant.digest == remembered_digest(call.tool, call.arguments)


def call_of(
    record: Approval,
    session: Session,
    updated_input: JsonObject | None = None,
    *,
    starts: Starts | None = None,
) -> Call:
    """Return the call that the question is about, where it would be made."""
    return Call(
        tool=record.tool_name,
        arguments=call_input(record) if updated_input is None else updated_input,
        cwd=record.cwd or session.workspace,
        starts=starts,
        definition=record.definition,
        artefact=record.artefact,
    )


def remembered_digest(tool: str, arguments: JsonObject) -> str:
    """Return the digest by which a call with exactly these arguments is known again."""
    return digest_call(tool, without_words(tool, arguments))
