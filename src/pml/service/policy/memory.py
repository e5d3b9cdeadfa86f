"""Remembering an allow: for the session as a grant, for always as an entry in the workspace's file.

The wish is stored with the decision, in one transaction; a crash before it reaches the file is made
good by `redo_intents`. PML's own writes keep a trusted file trusted, and never make an untrusted one so.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from pml.core.approvals.memory import always_entry, check_scope
from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, Role, Scope, SessionId, Subject
from pml.core.approvals.states import role_of
from pml.core.approvals.subjects import call_input
from pml.core.config.file import FileKind
from pml.core.errors import NotFound, PmlError
from pml.core.ports.records import Grant, Intent, Session, Trust
from pml.core.rules.ruleset import Call, Effect, RuleSet, VerdictKind, parse_entry, runs_code
from pml.core.values import Json, JsonObject, is_same
from pml.service.context import Context
from pml.service.policy.kept_rules import KEEPER, keeps_more, looser_contents
from pml.service.policy.policy import call_of, covers, current_policy, remembered_digest

INTENT_S: Final = 24 * 3600
WRITING_S: Final = 5.0  # for the process that took an "always" to write it; then it is taken to have died
_TRUST_S: Final = 10.0  # the store's own bound on a busy database, and then some


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What is remembered. `counts` is False while its file is not trusted, or could not be written yet.

    `added` is False where the entry stood in the file already.
    """

    scope: Scope
    entry: Json
    file: str | None = None
    counts: bool = True
    added: bool = True
    problem: PmlError | None = None


def memory_of(
    context: Context,
    record: Approval,
    session: Session,
    by: Decider,
    scope: Scope,
    *,
    arguments: JsonObject,
    literal: bool,
    over_http: bool = False,
) -> Grant | Intent | None:
    """Return what is to be stored with the decision to run the call with `arguments`.

    What a form says `over_http` is no more than a model's word: the holder of the token may be one.
    Raises: Invalid for what is never remembered.
    """
    check_scope(record, scope)
    if scope is Scope.ONCE:
        return None
    now = context.clock.now()
    if record.subject is not Subject.TOOL_CALL:  # what is remembered is the call that needed it
        arguments = call_input(record)
    # what was shown beside the button was made from the call as it was asked
    is_edited = not is_same(arguments, call_input(record))
    exact = literal or is_edited or runs_code(record.tool_name, arguments)
    if scope is Scope.ALWAYS:
        entry = always_entry(record.tool_name, arguments, literal=exact)
        return Intent(
            id=context.ids.new(),
            workspace=session.workspace,
            effect=Effect.ALLOW,
            entry=entry,
            approval_id=record.id,
            created_at=now,
            model=by.id if over_http or role_of(by) is Role.MODEL else None,
        )
    return Grant(
        id=context.ids.new(),
        session_id=record.session_id,
        tool=record.tool_name,
        digest=remembered_digest(record.tool_name, arguments) if exact else None,
        definition=record.definition,
        artefact=record.artefact,
        approval_id=record.id,
        by=by,
        created_at=now,
    )


async def apply_memory(context: Context, memory: Grant | Intent) -> Remembered:
    """Make what was stored with the decision take effect; what cannot be written now is tried again later."""
    if isinstance(memory, Grant):
        entry: Json = memory.tool if memory.digest is None else {"tool": memory.tool, "digest": memory.digest}
        kept = await context.store.grants.of(memory.session_id, memory.tool)
        problem = None if memory in kept else NotFound(f"session `{memory.session_id}` has ended")
        return Remembered(scope=Scope.SESSION, entry=entry, counts=problem is None, problem=problem)
    file = context.configs.of(memory.workspace).read().workspace.path
    try:
        added = await write_rule(context, memory.workspace, memory.effect, memory.entry, by=_writer(memory))
        await context.store.intents.close(memory.id, at=context.clock.now())
        counts = (await current_policy(context, memory.workspace)).trusted
    except PmlError as exc:
        return Remembered(scope=Scope.ALWAYS, entry=memory.entry, file=file, counts=False, problem=exc)
    return Remembered(scope=Scope.ALWAYS, entry=memory.entry, file=file, counts=counts, added=added)


def _writer(intent: Intent) -> Decider:
    """Return in whose name the file's new content is trusted: PML's, or that of the model that said so."""
    if intent.model is None:
        return KEEPER
    return Decider(kind=DeciderKind.CLIENT, id=intent.model, channel=Channel.MODEL)


async def redo_intents(context: Context) -> int:
    """Finish what a crash or a broken file held up; adding an entry that stands already changes nothing.

    What could not be written for a day is forgotten: by then another project may stand in that place. What
    was said a moment ago is being written by the process that took the answer, which offers to undo it.
    """
    done = 0
    now = context.clock.now()
    for intent in await context.store.intents.open():
        age_s = (now - intent.created_at).total_seconds()
        if age_s > INTENT_S:
            await context.store.intents.forget(intent.id)
        elif age_s >= WRITING_S:
            done += (await apply_memory(context, intent)).problem is None
    return done


async def covered_by(
    context: Context, memory: Grant | Intent, waiting: AsyncIterator[Approval]
) -> list[Approval]:
    """Return those of the waiting that `memory` would allow: what is shown beside the button."""
    covered: list[Approval] = []
    sessions: dict[SessionId, Session | None] = {}
    is_covered = _covering(context, memory)
    async for record in waiting:
        if record.id == memory.approval_id or record.subject is not Subject.TOOL_CALL:
            continue
        if record.is_for_itself:
            continue
        if record.session_id not in sessions:
            sessions[record.session_id] = await context.store.sessions.get(record.session_id)
        session = sessions[record.session_id]
        if session is not None and is_covered(call_of(record, session), session):
            covered.append(record)
    return covered


def _covering(context: Context, memory: Grant | Intent) -> Callable[[Call, Session], bool]:
    """Return what tells of a call in its session whether `memory` would allow it."""
    if isinstance(memory, Grant):
        return lambda call, session: session.id == memory.session_id and covers(memory, call)
    paths, now = context.configs.of(memory.workspace).paths, context.clock.now()
    rule = parse_entry(memory.effect, memory.entry, source=None, base_dir=memory.workspace, paths=paths)
    rules = RuleSet([] if rule is None else [rule], paths=paths)
    return lambda call, session: (
        session.workspace == memory.workspace
        and rules.judge(call, now=now).kind is VerdictKind.ALLOW
        and (memory.model is None or not runs_code(call.tool, call.arguments))
    )


async def write_rule(
    context: Context,
    workspace: str,
    effect: Effect,
    entry: Json,
    *,
    which: FileKind = FileKind.WORKSPACE,
    by: Decider = KEEPER,
) -> bool:
    """Add a rule to a file; False when it stands there already. Raises: Invalid, Changed, Unavailable."""
    files = context.configs.of(workspace)
    async with kept_trust(context, workspace, which, by=by) as keep:
        return await asyncio.to_thread(files.add_rule, which, effect, entry, before_replace=keep)


async def remove_rule(
    context: Context, workspace: str, effect: Effect, entry: Json, *, which: FileKind = FileKind.WORKSPACE
) -> int:
    """Remove rules equal to `entry`, or with that id. Raises: Invalid, Changed, Unavailable."""
    files = context.configs.of(workspace)
    async with kept_trust(context, workspace, which) as keep:
        return await asyncio.to_thread(files.remove_rule, which, effect, entry, before_replace=keep)


async def write_switch(
    context: Context, workspace: str, effect: Effect, entry: Json, *, enabled: bool, which: FileKind
) -> int:
    """Disable or enable rules that are `entry`, or have that id. Raises: Invalid, Changed, Unavailable."""
    files = context.configs.of(workspace)
    async with kept_trust(context, workspace, which) as keep:
        return await asyncio.to_thread(
            files.switch_rule, which, effect, entry, enabled=enabled, before_replace=keep
        )


async def init_workspace(context: Context, workspace: str) -> bool:
    """Create the workspace's file, trusted; False when there is one. Raises: ConfigInvalid, Unavailable."""
    files = context.configs.of(workspace)
    file = files.read().workspace
    if file.error is not None:
        raise file.error
    if file.digest is not None:
        return False
    async with kept_trust(context, workspace, FileKind.WORKSPACE) as keep:
        return await asyncio.to_thread(files.create, FileKind.WORKSPACE, before_replace=keep)


@contextlib.asynccontextmanager
async def kept_trust(
    context: Context, workspace: str, which: FileKind, *, by: Decider = KEEPER
) -> AsyncGenerator[Callable[[str | None, str, str], None] | None]:
    """Yield what carries trust over to a file's new content just before it is replaced.

    Afterwards the old content is trusted no longer: putting it back would undo what was written.
    """
    if which is FileKind.USER:
        yield None
        return
    files = context.configs.of(workspace)
    path = files.read().workspace.path
    loop = asyncio.get_running_loop()
    trusted: list[str] = []
    superseded: list[str] = []

    async def carry_over(old: str | None, new: str, text: str) -> None:
        if old is not None and not await context.store.trusts.holds(path, old):
            return
        config = files.parse_workspace(text, name=path)
        if old is None and await keeps_more(context, files, config):
            return  # the file was taken away: writing one does not undo what it denied
        trust = Trust(path=path, digest=new, content=text, by=by, trusted_at=context.clock.now())
        everything = [content.digest for content in await context.store.trusts.of(path)]
        ends = everything if old is None else await looser_contents(context, files, config)
        await context.store.trusts.add(trust, ends=[each for each in ends if each not in (old, new)])
        trusted.append(new)
        superseded.extend([] if old is None else [old])

    def keep(old: str | None, new: str, text: str) -> None:
        asyncio.run_coroutine_threadsafe(carry_over(old, new, text), loop).result(_TRUST_S)

    try:
        yield keep
    except BaseException:
        present = context.configs.of(workspace).read().workspace.digest
        for digest in trusted:
            if digest != present:  # nothing was written: nobody may write it later and find it trusted
                await context.store.trusts.forget(path, digest)
        raise
    for digest in superseded:
        await context.store.trusts.forget(path, digest)
