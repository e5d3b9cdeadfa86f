"""Changing rules by command: written to a file, told in the audit log, and the waiting looked at again.

Who may change them is the edge's question; what an entry means is that of `core.rules`.
"""

import contextlib

from pml.core.approvals import Approval, Decider, Subject
from pml.core.audit import rule_added, rule_removed
from pml.core.config import FileKind
from pml.core.errors import NotFound
from pml.core.rules import Call, Effect, VerdictKind, names_tool, parse_entry
from pml.core.values import Json
from pml.service.approvals import all_pending, refuse_denied_waiting
from pml.service.desk import Desk
from pml.service.policy import judge_in_session
from pml.service.remembering import remove_rule, write_rule
from pml.service.sessions import session_of


async def add_rule(
    desk: Desk, workspace: str, effect: Effect, entry: Json, *, which: FileKind, by: Decider
) -> bool:
    """Write a rule; False when it stands there already. Raises: Invalid, Unavailable."""
    added = await write_rule(desk, workspace, effect, entry, which=which)
    if added:
        file = _path(desk, workspace, which)
        await desk.store.audit.record(rule_added(file, effect, entry, at=desk.clock.now(), by=by))
    if effect is Effect.ASK:
        await _end_grants(desk, workspace, entry, which=which, by=by)
    return added


async def _end_grants(desk: Desk, workspace: str, entry: Json, *, which: FileKind, by: Decider) -> None:
    """Forget what sessions remember of the tools that are to be asked for from now on."""
    paths = desk.configs.of(workspace).paths
    rule = parse_entry(Effect.ASK, entry, source=None, base_dir=workspace, paths=paths)
    for grant in await desk.store.grants.all():
        session = await desk.store.sessions.get(grant.session_id)
        concerned = which is FileKind.USER or (session is not None and session.workspace == workspace)
        if rule is not None and not rule.is_default and concerned and names_tool(rule, grant.tool):
            with contextlib.suppress(NotFound):
                await desk.store.grants.revoke(grant.id, at=desk.clock.now(), by=by)


async def drop_rule(
    desk: Desk, workspace: str, effect: Effect | None, entry: Json, *, which: FileKind, by: Decider
) -> int:
    """Remove the rules equal to `entry`, or with that id; return how many. Raises: Invalid, Unavailable."""
    count = await remove_rule(desk, workspace, effect, entry, which=which)
    if count:
        file = _path(desk, workspace, which)
        await desk.store.audit.record(rule_removed(file, effect, entry, at=desk.clock.now(), by=by))
    return count


async def covered_by_rules(desk: Desk) -> list[Approval]:
    """Return the waiting calls that rules allow by now: what is shown before it is released."""
    covered: list[Approval] = []
    async for record in all_pending(desk):
        if record.subject is not Subject.TOOL_CALL or record.is_for_itself:
            continue
        session = await session_of(desk, record.session_id)
        call = Call(tool=record.tool_name, arguments=record.tool_input, cwd=session.workspace)
        judged = await judge_in_session(desk, session, call)
        if judged.kind is VerdictKind.ALLOW and judged.verdict.kind is VerdictKind.ALLOW:
            covered.append(record)
    return covered


async def refuse_denied_everywhere(desk: Desk) -> tuple[Approval, ...]:
    """Deny the waiting calls of every workspace that a deny rule names now."""
    workspaces = {session.workspace for session in await desk.store.sessions.live()}
    return tuple(
        [
            record
            for workspace in sorted(workspaces)
            for record in await refuse_denied_waiting(desk, workspace)
        ]
    )


def _path(desk: Desk, workspace: str, which: FileKind) -> str:
    loaded = desk.configs.of(workspace).read()
    return loaded.user.path if which is FileKind.USER else loaded.workspace.path
