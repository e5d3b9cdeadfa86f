"""Remembering an allow: for the session as a grant, for always as an entry in the workspace's file.

The wish is stored with the decision, in one transaction; a crash before it reaches the file is made
good by `redo_intents`. PML's own writes keep a trusted file trusted, and never make an untrusted one so.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from pml.core.approvals import Approval, Channel, Decider, DeciderKind, Scope, Subject
from pml.core.config import FileKind
from pml.core.digest import digest_call
from pml.core.errors import Invalid, PmlError
from pml.core.memory import always_entry, check_rememberable
from pml.core.ports import Grant, Intent, Session, Trust
from pml.core.rules import Call, Effect, RuleSet, VerdictKind, parse_entry, runs_code
from pml.core.values import Json, JsonObject
from pml.service.desk import Desk
from pml.service.policy import current_policy

_TRUST_S: Final = 10.0  # the store's own bound on a busy database, and then some
_KEEPER: Final = Decider(kind=DeciderKind.RULE, id="pml", channel=Channel.RULES)


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What is remembered. `counts` is False while its file is not trusted, or could not be written yet."""

    scope: Scope
    entry: Json
    counts: bool = True
    problem: PmlError | None = None


def memory_of(
    desk: Desk,
    record: Approval,
    session: Session,
    by: Decider,
    scope: Scope,
    *,
    arguments: JsonObject,
    literal: bool,
) -> Grant | Intent | None:
    """Return what is to be stored with the decision to run the call with `arguments`.

    Raises: Invalid for what is never remembered.
    """
    if scope is Scope.ONCE:
        return None
    if record.subject is not Subject.TOOL_CALL:
        raise Invalid(f"a decision on {record.subject} holds once; it has nothing to remember")
    check_rememberable(record.tool_name)
    now = desk.clock.now()
    if scope is Scope.ALWAYS:
        entry = always_entry(record.tool_name, arguments, literal=literal)
        return Intent(
            id=desk.ids.new(),
            workspace=session.workspace,
            effect=Effect.ALLOW,
            entry=entry,
            approval_id=record.id,
            created_at=now,
        )
    exact = literal or runs_code(record.tool_name, arguments)
    return Grant(
        id=desk.ids.new(),
        session_id=record.session_id,
        tool=record.tool_name,
        digest=digest_call(record.tool_name, arguments) if exact else None,
        artefact=record.artefact,
        approval_id=record.id,
        by=by,
        created_at=now,
    )


async def apply_memory(desk: Desk, memory: Grant | Intent) -> Remembered:
    """Make what was stored with the decision take effect; what cannot be written now is tried again later."""
    if isinstance(memory, Grant):
        entry: Json = memory.tool if memory.digest is None else {"tool": memory.tool, "digest": memory.digest}
        return Remembered(scope=Scope.SESSION, entry=entry)
    try:
        await write_rule(desk, memory.workspace, memory.effect, memory.entry)
        await desk.store.intents.close(memory.id, at=desk.clock.now())
        counts = (await current_policy(desk, memory.workspace)).trusted
    except PmlError as exc:
        return Remembered(scope=Scope.ALWAYS, entry=memory.entry, counts=False, problem=exc)
    return Remembered(scope=Scope.ALWAYS, entry=memory.entry, counts=counts)


async def redo_intents(desk: Desk) -> int:
    """Finish what a crash or a broken file held up; adding an entry that stands already changes nothing."""
    done = 0
    for intent in await desk.store.intents.open():
        done += (await apply_memory(desk, intent)).problem is None
    return done


async def covered_by(desk: Desk, memory: Grant | Intent, waiting: AsyncIterator[Approval]) -> list[Approval]:
    """Return those of the waiting that `memory` would allow: what is shown beside the button."""
    covered: list[Approval] = []
    async for record in waiting:
        if record.id == memory.approval_id or record.subject is not Subject.TOOL_CALL:
            continue
        session = await desk.store.sessions.get(record.session_id)
        if session is not None and _covers(desk, memory, record, session):
            covered.append(record)
    return covered


def _covers(desk: Desk, memory: Grant | Intent, record: Approval, session: Session) -> bool:
    if isinstance(memory, Grant):
        same = record.session_id == memory.session_id and record.tool_name == memory.tool
        return same and memory.digest in (None, digest_call(record.tool_name, record.tool_input))
    if session.workspace != memory.workspace:
        return False
    paths = desk.configs.of(session.workspace).paths
    rule = parse_entry(memory.effect, memory.entry, source=None, base_dir=session.workspace, paths=paths)
    call = Call(tool=record.tool_name, arguments=record.tool_input, cwd=session.workspace)
    rules = RuleSet([] if rule is None else [rule], paths=paths)
    return rules.judge(call, now=desk.clock.now()).kind is VerdictKind.ALLOW


async def init_workspace(desk: Desk, workspace: str) -> bool:
    """Create the workspace's file, trusted; False when there is one. Raises: ConfigInvalid, Unavailable."""
    files = desk.configs.of(workspace)
    file = files.read().workspace
    if file.error is not None:
        raise file.error
    if file.digest is not None:
        return False
    keep = _trust_keeper(desk, workspace, FileKind.WORKSPACE)
    return await asyncio.to_thread(files.create, FileKind.WORKSPACE, before_replace=keep)


async def write_rule(
    desk: Desk, workspace: str, effect: Effect, entry: Json, *, which: FileKind = FileKind.WORKSPACE
) -> bool:
    """Add a rule to a file; False when it stands there already. Raises: ConfigInvalid, Unavailable."""
    files = desk.configs.of(workspace)
    keep = _trust_keeper(desk, workspace, which)
    return await asyncio.to_thread(files.add_rule, which, effect, entry, before_replace=keep)


async def remove_rule(
    desk: Desk, workspace: str, effect: Effect | None, entry: Json, *, which: FileKind = FileKind.WORKSPACE
) -> int:
    """Remove rules equal to `entry`, or with that id. Raises: ConfigInvalid, Unavailable."""
    files = desk.configs.of(workspace)
    keep = _trust_keeper(desk, workspace, which)
    return await asyncio.to_thread(files.remove_rule, which, effect, entry, before_replace=keep)


def _trust_keeper(desk: Desk, workspace: str, which: FileKind) -> Callable[[str | None, str], None] | None:
    """Return what carries trust over from the old content to the new, just before the file is replaced."""
    if which is FileKind.USER:
        return None
    path = desk.configs.of(workspace).read().workspace.path
    loop = asyncio.get_running_loop()

    async def carry_over(old: str | None, new: str) -> None:
        if old is None or await desk.store.trusts.holds(path, old):
            trust = Trust(path=path, digest=new, by=_KEEPER, trusted_at=desk.clock.now())
            await desk.store.trusts.add(trust)

    def keep(old: str | None, new: str) -> None:
        asyncio.run_coroutine_threadsafe(carry_over(old, new), loop).result(_TRUST_S)

    return keep
