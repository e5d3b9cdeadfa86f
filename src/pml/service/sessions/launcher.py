"""Launching agents: what a session may start, with what powers, and keeping the books while it runs.

How an agent is run is `Agents`' business. What it may use is never more than whoever launches it may, and it
ends with the session that launched it.
"""

import asyncio
import contextlib
import posixpath
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import msgspec

from pml.core.approvals.record import Decider, SessionId
from pml.core.audit.entries import Entry, session_launched
from pml.core.config.merged import Settings
from pml.core.errors import Conflict, Forbidden, IllegalEvent, Invalid, NotFound, PmlError
from pml.core.ports.records import Session
from pml.core.rules.globs import covers
from pml.core.sessions.agent import ENDED_RUN, Agents, Message, MessageKind, Order, Outcome, Run, RunState
from pml.core.sessions.launch import LaunchConsent, power_of
from pml.core.sessions.process import Process
from pml.core.sessions.token import ParentMay, TokenRole, least
from pml.core.text import has_hidden, quote
from pml.core.values import check
from pml.service.context import Context
from pml.service.policy.policy import current_policy
from pml.service.session_tree import session_of, start_session
from pml.service.sessions.loopback import guard_supervisor
from pml.service.sessions.tokens import MAX_NAME, create_token
from pml.service.upkeep import end_session

MAX_DEPTH: Final = 4  # a child of a child of a child: beyond that nobody oversees what goes on
MAX_CHILDREN: Final = 8  # that run at once for one session
MAX_RUNS: Final = 32  # that run at once in all
MAX_PROMPT: Final = 100_000
MAX_MESSAGE: Final = 20_000  # of one message that is kept
_TTL_S: Final = (1, 24 * 3600)
_MODEL: Final = re.compile(r"[A-Za-z0-9._:/@\[\]-]{1,200}")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a session, or a person, wants launched."""

    prompt: str
    name: str | None = None
    cwd: str | None = None
    model: str | None = None
    tools: tuple[str, ...] | None = None
    loopback: bool = True
    ttl_s: int | None = None
    may_launch: bool = False
    parent_may: ParentMay | None = None  # the most that those above may answer for it; None: all they may


class Launcher:
    """The agents that this process runs. `on_ended` is told which session is over."""

    def __init__(
        self, context: Context, agents: Agents, on_ended: Callable[[SessionId], Awaitable[None]] | None = None
    ) -> None:
        self._context = context
        self._agents = agents
        self._on_ended = on_ended
        self._running: dict[SessionId, asyncio.Task[Outcome]] = {}
        self._why_stopped: dict[SessionId, str] = {}
        self._launching = asyncio.Lock()  # the limits hold for launches at the same time too

    @property
    def is_on(self) -> bool:
        return True

    async def launch(
        self,
        wish: Wish,
        *,
        parent: Session | None,
        workspace: str,
        by: Decider | None = None,
        consent: LaunchConsent | None = None,
    ) -> Session:
        """Start an agent and return its session: for a person (`by`), or, with consent, for a session.

        Raises: Forbidden, Invalid, Conflict, Unavailable.
        """
        if parent is not None and consent is None:
            raise Forbidden("a launch is a person's to allow")
        await self.check(wish, parent=parent, workspace=workspace)
        powers = await _powers(self._context, wish, parent)
        order = Order(
            prompt=wish.prompt,
            cwd=_cwd(self._context, wish.cwd, workspace),
            model=wish.model,
            tools=wish.tools if wish.tools is not None or parent is None else parent.tools,
            loopback=wish.loopback,
            may_launch=wish.may_launch,
        )
        async with self._launching:
            if parent is not None:
                await _guard_launch(self._context, wish, parent)
            session, token = await self._prepare(
                order,
                name=wish.name,
                workspace=workspace,
                ttl_s=wish.ttl_s,
                parent=parent,
                by=by,
                powers=powers,
            )
            if consent is not None:
                await self._context.store.audit.record(
                    _launched(session, consent, at=self._context.clock.now())
                )
            await self._begin(session, order, token)
        return session

    async def check(self, wish: Wish, *, parent: Session | None, workspace: str) -> None:
        """Refuse what could not be launched, before anybody is asked. Raises: as `launch`."""
        _check_wish(wish)
        _cwd(self._context, wish.cwd, workspace)
        if parent is not None:
            await _guard_launch(self._context, wish, parent)

    async def run_here(
        self, order: Order, *, name: str | None, workspace: str, ttl_s: int | None, by: Decider
    ) -> Outcome:
        """Run an agent for the person at this terminal, to its end. Raises: Conflict, Unavailable."""
        powers = ParentMay.NOTHING, order.may_launch
        session, token = await self._prepare(
            order, name=name, workspace=workspace, ttl_s=ttl_s, parent=None, by=by, powers=powers
        )
        running = await self._begin(session, order, token)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            with contextlib.suppress(NotFound):  # it is ending already
                await self.stop(session.id, reason="interrupted")
            await asyncio.wait({running})
            raise

    async def stop(self, session_id: SessionId, *, reason: str) -> None:
        """End the agent and all that it launched, whichever process keeps them. Raises: NotFound."""
        session = await session_of(self._context, session_id)
        if session_id not in self._running and not await self._is_kept(session_id):
            raise NotFound(f"no agent of session `{session_id}` runs", hint="`pml sessions list`")
        for below in await self._context.store.sessions.descendants(session_id):
            await self._stop_any(below, reason="the session that launched it was stopped")
        await self._stop_any(session, reason=reason)

    async def _is_kept(self, session_id: SessionId) -> bool:
        run = await self._context.store.runs.get(session_id)
        return run is not None and run.state not in ENDED_RUN

    async def _stop_any(self, session: Session, *, reason: str) -> None:
        """End an agent; one of another process is marked first, so that its keeper finds it closed."""
        if session.id in self._running:
            await self._stop_one(session.id, reason=reason)
        elif await self._is_kept(session.id):
            outcome = Outcome(state=RunState.STOPPED, exit_code=None, result=reason)
            await close_run(self._context, self._agents, session, outcome)
            process = (await session_of(self._context, session.id)).process  # it may only now have been told
            if process is not None:
                self._agents.kill(process)

    async def stop_orphans(self) -> int:
        """End the agents whose launching session is over: nobody supervises them any more."""
        stopped = 0
        for session_id in list(self._running):
            session = await self._context.store.sessions.get(session_id)
            parent_id = None if session is None else session.parent_id
            parent = None if parent_id is None else await self._context.store.sessions.get(parent_id)
            if parent is not None and parent.ended_at is not None and session_id in self._running:
                await self._stop_one(session_id, reason="the session that launched it ended")
                stopped += 1
        return stopped

    async def close(self) -> None:
        """End every agent of this process."""
        for session_id in list(self._running):
            await self._stop_one(session_id, reason="the hub stopped")

    async def _prepare(
        self,
        order: Order,
        *,
        name: str | None,
        workspace: str,
        ttl_s: int | None,
        parent: Session | None,
        by: Decider | None,
        powers: tuple[ParentMay, bool],
    ) -> tuple[Session, str]:
        context = self._context
        live = await context.store.runs.live()
        if len(live) >= MAX_RUNS:
            raise Conflict(f"{MAX_RUNS} agents run already", hint="`pml sessions list` shows them")
        session_id = SessionId(context.ids.new())
        parent_may, launches_unasked = powers
        session = await start_session(
            context,
            session_id=session_id,
            name=name or f"agent-{session_id[:4]}",
            principal=f"session:{session_id}",
            workspace=workspace,
            process=None,
            is_agent=True,
            parent_id=None if parent is None else parent.id,
            role=TokenRole.SESSION if order.may_launch else TokenRole.CHILD,
            tools=order.tools,
            waits=order.loopback,
            ttl_s=ttl_s,
            parent_may=parent_may,
            launches_unasked=launches_unasked,
        )
        try:
            return session, await self._enter(session, order, by)
        except BaseException:  # also of who gave up: nothing stays live that nobody runs
            outcome = Outcome(state=RunState.FAILED, exit_code=None, result="it could not be launched")
            await asyncio.shield(close_run(context, self._agents, session, outcome))
            raise

    async def _enter(self, session: Session, order: Order, by: Decider | None) -> str:
        """Store the run and return the token of its session."""
        context = self._context
        await context.store.runs.add(
            Run(
                session_id=session.id,
                order=order,
                owner=context.owners.me,
                config=self._agents.config_folder(session.id),
                started_at=context.clock.now(),
            )
        )
        _, token = await create_token(
            context, role=session.role, name=session.name, session_id=session.id, by=by
        )
        return token

    async def _begin(self, session: Session, order: Order, token: str) -> "asyncio.Task[Outcome]":
        running = self._running[session.id] = asyncio.create_task(self._run(session, order, token))
        await asyncio.sleep(0)  # a task that is cancelled before it has begun would close nothing
        return running

    async def _run(self, session: Session, order: Order, token: str) -> Outcome:
        """Run the agent and write down how it ended, whatever happens."""
        outcome = Outcome(state=RunState.FAILED, exit_code=None, result="internal error")
        try:
            books = _Books(self._context, session.id)
            outcome = await self._agents.run(order, session_id=session.id, token=token, told=books)
        except asyncio.CancelledError:
            why = self._why_stopped.get(session.id, "stopped")
            outcome = Outcome(state=RunState.STOPPED, exit_code=None, result=why)
        except PmlError as exc:
            outcome = Outcome(state=RunState.FAILED, exit_code=None, result=exc.message)
        finally:
            await asyncio.shield(self._end(session, outcome))
        return outcome

    async def _end(self, session: Session, outcome: Outcome) -> None:
        self._running.pop(session.id, None)
        self._why_stopped.pop(session.id, None)
        try:
            await close_run(self._context, self._agents, session, outcome)
            if self._on_ended is not None:
                await self._on_ended(session.id)
        finally:  # whatever the store says: what it launched does not outlive it
            for below in await self._context.store.sessions.descendants(session.id):
                await self._stop_one(below.id, reason="the session that launched it ended")

    async def _stop_one(self, session_id: SessionId, *, reason: str) -> None:
        running = self._running.get(session_id)
        if running is None:
            return
        if session_id not in self._why_stopped:  # cancelled twice, it would not end the agent in peace
            self._why_stopped[session_id] = reason
            running.cancel()
        await asyncio.wait({running})
        if self._running.pop(session_id, None) is not None:  # before its first step: it wrote nothing down
            session = await session_of(self._context, session_id)
            await self._end(session, Outcome(state=RunState.STOPPED, exit_code=None, result=reason))


async def close_run(context: Context, agents: Agents, session: Session, outcome: Outcome) -> None:
    """Write down how the run ended: its token, its questions and its configuration end with it."""
    now = context.clock.now()
    with contextlib.suppress(IllegalEvent, NotFound):  # somebody else has closed it, or it never was
        await context.store.runs.move(
            session.id,
            outcome.state,
            at=now,
            exit_code=outcome.exit_code,
            result=None if outcome.result is None else outcome.result[:MAX_MESSAGE],
        )
    await end_session(context, session)
    run = await context.store.runs.get(session.id)
    if run is not None and run.config is not None:
        agents.remove_config(run.config)
        await context.store.runs.forget_config(session.id)


async def close_left_runs(context: Context, agents: Agents) -> int:
    """Close the runs whose keeper is gone: nobody reads what such an agent says, so it is ended too."""
    closed = 0
    for run in await context.store.runs.live():
        session = await context.store.sessions.get(run.session_id)
        if session is None or context.owners.alive(run.owner):
            continue
        if session.process is not None and context.processes.running(session.process):
            agents.kill(session.process)
        outcome = Outcome(state=RunState.FAILED, exit_code=None, result="PML ended while it ran")
        await close_run(context, agents, session, outcome)
        closed += 1
    for run in await context.store.runs.leftovers():
        if run.config is not None:
            agents.remove_config(run.config)
        await context.store.runs.forget_config(run.session_id)
    return closed


class _Books:
    """Writes down what a run tells."""

    def __init__(self, context: Context, session_id: SessionId) -> None:
        self._context = context
        self._session_id = session_id

    async def started(self, process: Process) -> None:
        await self._context.store.sessions.set_process(self._session_id, process)
        await self._context.store.runs.move(self._session_id, RunState.RUNNING, at=self._context.clock.now())

    async def said(self, kind: MessageKind, text: str) -> None:
        await self._context.store.runs.say(
            Message(
                session_id=self._session_id, kind=kind, text=text[:MAX_MESSAGE], at=self._context.clock.now()
            )
        )

    async def counted(self, *, turns: int, cost_usd: float) -> None:
        await self._context.store.runs.count(self._session_id, turns=turns, cost_usd=cost_usd)


def _check_wish(wish: Wish) -> None:
    check([wish.prompt, wish.name, wish.cwd, wish.model, list(wish.tools or ())], what="the launch")
    if not wish.prompt.strip() or len(wish.prompt) > MAX_PROMPT:
        raise Invalid(f"`prompt` needs 1 to {MAX_PROMPT:,} characters")
    if wish.name is not None and (len(wish.name) > MAX_NAME or has_hidden(wish.name)):
        raise Invalid(f"`name` has at most {MAX_NAME} characters, all of which can be seen")
    if wish.model is not None and (wish.model.startswith("-") or not _MODEL.fullmatch(wish.model)):
        raise Invalid(f"`model` {quote(wish.model)} is not a name of a model")
    low, high = _TTL_S
    if wish.ttl_s is not None and not low <= wish.ttl_s <= high:
        raise Invalid(f"`loopback_timeout_secs` must be from {low} to {high}")


async def _powers(context: Context, wish: Wish, parent: Session | None) -> tuple[ParentMay, bool]:
    """Return what those above it may answer for it, and whether it launches unasked; never more than they."""
    if parent is None:
        return ParentMay.NOTHING, wish.may_launch
    settings = (await current_policy(context, parent.workspace)).settings
    return most_for(parent, settings, wish.parent_may), parent.launches_unasked and wish.may_launch


def most_for(parent: Session, settings: Settings, wished: ParentMay | None) -> ParentMay:
    """Return the most that those above may answer for a child of `parent`."""
    return least(power_of(settings.approval.parent_may_decide), parent.gives, wished or ParentMay.ALL)


def _launched(session: Session, consent: LaunchConsent, *, at: datetime) -> Entry:
    return session_launched(
        session.id,
        at=at,
        by=consent.by,
        approval_id=consent.approval_id,
        why=consent.why,
        parent_may=session.parent_may,
        launches_unasked=session.launches_unasked,
    )


async def _guard_launch(context: Context, wish: Wish, parent: Session) -> None:
    """Raises: Forbidden, Conflict."""
    guard_supervisor(parent)
    if (await session_of(context, parent.id)).ended_at is not None:
        raise Conflict(f"session `{parent.name}` has ended, so nobody would supervise its child")
    depth, above = 1, parent.parent_id
    while above is not None and depth <= MAX_DEPTH:
        session = await context.store.sessions.get(above)
        depth, above = depth + 1, None if session is None else session.parent_id
    if depth >= MAX_DEPTH:
        raise Forbidden(f"sessions may stand {MAX_DEPTH} deep, and this one is at the bottom")
    running = {run.session_id for run in await context.store.runs.live()}
    below = await context.store.sessions.descendants(parent.id)
    children = [each for each in below if each.parent_id == parent.id and each.id in running]
    if len(children) >= MAX_CHILDREN:
        raise Conflict(
            f"{MAX_CHILDREN} agents of this session run already", hint="wait for one with `session_wait`"
        )
    own = parent.tools
    wider = [] if own is None else [tool for tool in wish.tools or () if not _within(tool, own)]
    if wider:
        raise Forbidden(
            f"this session may not use {', '.join(quote(tool) for tool in wider)}, so neither may its child"
        )


def _within(tool: str, own: tuple[str, ...]) -> bool:
    return any(covers(wide, tool) for wide in own)


def _cwd(context: Context, given: str | None, workspace: str) -> str:
    """Return the folder that the agent works in: the workspace, or one within it. Raises: Invalid."""
    if given is None:
        return workspace
    try:
        real = context.configs.of(workspace).paths.real(posixpath.join(workspace, given))
    except (OSError, ValueError) as exc:
        raise Invalid(f"`cwd` {quote(given)} cannot be followed") from exc
    if real != workspace and not real.startswith(workspace.rstrip("/") + "/"):
        raise Invalid(f"`cwd` {quote(given)} is not within the workspace {quote(workspace)}")
    return real
