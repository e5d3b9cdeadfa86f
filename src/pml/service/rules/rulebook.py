"""Changing rules by command: written to a file, told in the audit log, and the waiting looked at again.

Who may change them is the edge's question; what an entry means is that of `core.rules`.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pml.core.approvals.record import Approval, Decider, Subject
from pml.core.audit.entries import rule_added, rule_removed, rule_switched
from pml.core.config.file import FileKind
from pml.core.errors import Invalid, NotFound
from pml.core.rules.entry_reference import is_named, is_to_switch
from pml.core.rules.ruleset import Effect, Rule, VerdictKind, names_tool, parse_entry
from pml.core.text import entry_text, quote
from pml.core.values import Json, check
from pml.service.approvals.lifecycle import all_pending, refuse_denied_waiting
from pml.service.context import Context
from pml.service.policy.memory import remove_rule, write_rule, write_switch
from pml.service.policy.policy import call_of, judge_in_session
from pml.service.session_tree import session_of


async def add_rule(
    context: Context, workspace: str, effect: Effect, entry: Json, *, which: FileKind, by: Decider
) -> bool:
    """Write a rule; False when it stands there already. Raises: Invalid, Unavailable."""
    added = await write_rule(context, workspace, effect, entry, which=which)
    await _unmark(context, workspace, effect, entry, which)
    if added:
        file = _path(context, workspace, which)
        await context.store.audit.record(rule_added(file, effect, entry, at=context.clock.now(), by=by))
    if effect is Effect.ASK:
        await _end_grants(context, workspace, entry, which=which, by=by)
    return added


async def _unmark(context: Context, workspace: str, effect: Effect, entry: Json, which: FileKind) -> None:
    """Learn that the entry is a person's, if it is the one that a model may have had written."""
    if effect is Effect.ALLOW and which is FileKind.WORKSPACE:
        await context.store.intents.unmark(workspace, entry)


async def _end_grants(context: Context, workspace: str, entry: Json, *, which: FileKind, by: Decider) -> None:
    """Forget what sessions remember of the tools that are to be asked for from now on."""
    paths = context.configs.of(workspace).paths
    rule = parse_entry(Effect.ASK, entry, source=None, base_dir=workspace, paths=paths)
    for grant in await context.store.grants.all():
        session = await context.store.sessions.get(grant.session_id)
        concerned = which is FileKind.USER or (session is not None and session.workspace == workspace)
        if rule is not None and not rule.is_default and concerned and names_tool(rule, grant.tool):
            with contextlib.suppress(NotFound):
                await context.store.grants.revoke(grant.id, at=context.clock.now(), by=by)


async def drop_rule(
    context: Context, workspace: str, effect: Effect | None, entry: Json, *, which: FileKind, by: Decider
) -> int:
    """Remove the rules equal to `entry`, or with that id; return how many.

    Raises: Invalid, also without an `effect` if several lists have such a rule; Unavailable.
    """
    if effect is None:
        effect = _only_list(context, workspace, entry, which, lambda rule: is_named(rule.entry, entry))
    if effect is None:
        return 0
    count = await remove_rule(context, workspace, effect, entry, which=which)
    await _unmark(context, workspace, effect, entry, which)
    if count:
        file = _path(context, workspace, which)
        await context.store.audit.record(rule_removed(file, effect, entry, at=context.clock.now(), by=by))
    return count


@dataclass(frozen=True, kw_only=True)
class Switched:
    """How many rules were disabled or enabled, and what waited and is denied by that."""

    count: int
    denied: Sequence[Approval]


async def switch_rule(
    context: Context,
    workspace: str,
    effect: Effect | None,
    entry: Json,
    *,
    enabled: bool,
    which: FileKind,
    by: Decider,
) -> Switched:
    """Disable or enable the rules that are `entry`, or have that id.

    One that is enabled does what one that is added does; one that is disabled, what one that is removed.
    Raises: Invalid, also without an `effect` if several lists have such a rule; Unavailable.
    """

    def is_meant(rule: Rule) -> bool:
        return is_to_switch(rule.effect, rule.entry, entry, enabled=enabled)

    if effect is None:
        effect = _only_list(context, workspace, entry, which, is_meant)
    if effect is None:
        return Switched(count=0, denied=())
    before = [rule.entry for rule in _rules(context, workspace, which)]
    count = await write_switch(context, workspace, effect, entry, enabled=enabled, which=which)
    if not count:
        return Switched(count=0, denied=())
    file, word = _path(context, workspace, which), "enabled" if enabled else "disabled"
    await context.store.audit.record(rule_switched(file, effect, entry, word, at=context.clock.now(), by=by))
    for rule in _rules(context, workspace, which):
        if enabled and rule.effect is Effect.ASK and rule.entry not in before:
            await _end_grants(context, workspace, rule.entry, which=which, by=by)
    return Switched(count=count, denied=await refuse_denied_everywhere(context) if enabled else ())


async def covered_by_rules(context: Context) -> list[Approval]:
    """Return the waiting calls that rules allow by now: what is shown before it is released."""
    covered: list[Approval] = []
    async for record in all_pending(context):
        if record.subject is not Subject.TOOL_CALL or record.is_for_itself:
            continue
        session = await session_of(context, record.session_id)
        judged = await judge_in_session(context, session, call_of(record, session))
        if judged.kind is VerdictKind.ALLOW and judged.verdict.kind is VerdictKind.ALLOW:
            covered.append(record)
    return covered


async def refuse_denied_everywhere(context: Context) -> tuple[Approval, ...]:
    """Deny the waiting calls of every workspace that a deny rule names now."""
    workspaces = {session.workspace for session in await context.store.sessions.live()}
    return tuple(
        [
            record
            for workspace in sorted(workspaces)
            for record in await refuse_denied_waiting(context, workspace)
        ]
    )


def _only_list(
    context: Context, workspace: str, entry: Json, which: FileKind, is_meant: Callable[[Rule], bool]
) -> Effect | None:
    """Return which list of the file has such a rule, None if none has.

    The workspace's file is meant where none is named, so such a rule of the user's file is a doubt as well.
    Raises: Invalid if several lists have one, ConfigInvalid.
    """
    check(entry, what="the rule")
    loaded = context.configs.of(workspace).read()
    files = [loaded.user] if which is FileKind.USER else [loaded.workspace, loaded.user]
    if files[0].error is not None:
        raise files[0].error
    lists: dict[tuple[FileKind, Effect], Rule] = {}
    for file in (state.config for state in files if state.config is not None):
        for rule in filter(is_meant, (*file.rules, *file.disabled)):
            lists.setdefault((file.kind, rule.effect), rule)
    if len(lists) > 1:
        raise _several(entry, lists)
    return next((effect for kind, effect in lists if kind is which), None)


def _several(entry: Json, lists: Mapping[tuple[FileKind, Effect], Rule]) -> Invalid:
    places = ", ".join(
        f"{rule.effect} at {rule.source.file}:{rule.source.line}" for rule in lists.values() if rule.source
    )
    *options, last = (
        f"`--effect {effect}{' --user' if kind is FileKind.USER else ''}`" for kind, effect in lists
    )
    return Invalid(
        f"{quote(entry_text(entry))} stands in several lists: {places}",
        hint=f"name the one you mean: {', '.join(options)} or {last}",
    )


def _path(context: Context, workspace: str, which: FileKind) -> str:
    loaded = context.configs.of(workspace).read()
    return loaded.user.path if which is FileKind.USER else loaded.workspace.path


def _rules(context: Context, workspace: str, which: FileKind) -> Sequence[Rule]:
    loaded = context.configs.of(workspace).read()
    config = (loaded.user if which is FileKind.USER else loaded.workspace).config
    return () if config is None else config.rules
