"""`pml sessions`: the tree of agents, what each said, and stopping one with all that it launched."""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.cards import short
from pml.cli.terminal.output import Shown, count, local_time, print_json, print_table, say, say_prose
from pml.cli.verbs.verbs import Verbs, run_verb
from pml.core.approvals.record import SessionId, State
from pml.core.cards.facts import span
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.sessions.agent import ENDED_RUN, Message, Run
from pml.core.text import quote, visible
from pml.core.values import Json
from pml.core.wire import message_json, session_json

if TYPE_CHECKING:
    from pml.service.context import Context

EXAMPLES = """examples:
  pml sessions list                   who runs, who started whom, and who waits for an answer
  pml sessions show 3f2a              one of them; the start of its id is enough
  pml sessions messages 3f2a --follow what it says, as it says it
  pml sessions stop 3f2a              end it, and all that it launched

exit codes: 0 ok, 1 failed, 2 usage, 5 not found"""
_PAGE: Final = 1000
_HUB: Final = "hub"  # the principal of a hub's own session
_LOOK_AGAIN_S: Final = 1.0  # a message may come from another process whose hint was lost


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """A session and how it stands."""

    session: Session
    run: Run | None
    waiting: int

    @property
    def state(self) -> str:
        from pml.service.sessions.supervision import WAITING, child

        if self.run is not None:
            return child(self.session, self.run, waiting=self.waiting).state
        if self.session.ended_at is not None:
            return "ended"
        return WAITING if self.waiting else "connected"

    def as_json(self) -> dict[str, Json]:
        return session_json(self.session, self.run, state=self.state, waiting=self.waiting)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    listing = verbs.add(
        "list", "list the sessions of all agents, each beneath the one that started it", _list
    )
    listing.add_argument("--all", action="store_true", help="also those that have ended, and hubs")
    showing = verbs.add("show", "show one session", _show)
    messages = verbs.add("messages", "print what a launched agent said and used, oldest first", _messages)
    messages.add_argument("--follow", action="store_true", help="follow until it ends")
    stopping = verbs.add("stop", "end a launched agent and all that it launched", _stop)
    for parser in (showing, messages, stopping):
        parser.add_argument("id", metavar="ID", help="its name, its id, or the start of that")


run = run_verb


async def _list(args: argparse.Namespace) -> int:
    async with opened(args) as context:
        sessions = await (_all_sessions(context) if args.all else _live_agents(context))
        found = [await _standing(context, session) for session in sessions]
    if args.json:
        print_json({"sessions": [each.as_json() for each in found]})
    elif not found:
        say("nothing here yet" if args.all else "no session runs")
    else:
        columns = ("SESSION", "ID", "STATE", "WAITING", "TURNS", "COST", "WORKSPACE")
        print_table(columns, [_row(depth, each) for depth, each in _tree(found)])
    return Exit.OK


async def _show(args: argparse.Namespace) -> int:
    async with opened(args) as context:
        found = await _standing(context, await find_session(context, args.id))
        above = found.session.parent_id
        starter = None if above is None else await context.store.sessions.get(above)
        now = context.clock.now()
    if args.json:
        print_json(found.as_json())
        return Exit.OK
    session, run = found.session, found.run
    say(f"{visible(session.name)} ({session.id}): {found.state}")
    by = above if starter is None else starter.name
    parent = "" if by is None else f", started by {visible(by)}"
    say(f"  {session.role} in {visible(session.workspace)}{parent}")
    say_prose(
        f"  since {local_time(session.started_at)} ({span((now - session.started_at).total_seconds())} ago)"
    )
    if found.waiting:
        say_prose(
            f"  waits for {count(found.waiting, 'answer')}: `pml approvals list --session {session.id}`"
        )
    if run is not None:
        known = [f"{count(run.turns, 'turn')}, {_cost(run)}"] if _is_counted(run) else []
        known += [f"prompt {quote(run.order.prompt)}"] if run.order.prompt else []
        say(f"  {'; '.join(known) or 'on its own screen'}")
        if run.result is not None:
            say(f"  result: {visible(run.result)}")
    return Exit.OK


async def _messages(args: argparse.Namespace) -> int:
    async with opened(args) as context:
        session = await find_session(context, args.id)
        await _launched(context, session, hint="PML hears only agents that it launched")
        seen, told = 0, list[Message]()
        with context.store.changes.watch() as changes:
            while True:
                is_over = not args.follow or (await _launched(context, session)).state in ENDED_RUN
                while found := await context.store.runs.messages(session.id, after=seen):
                    seen = found[-1].seq
                    told += found if args.json and not args.follow else []
                    _print_messages(found, args)
                if is_over:
                    break
                await changes.wait(_LOOK_AGAIN_S)
    if args.json and not args.follow:
        print_json({"messages": [message_json(message) for message in told]})
    return Exit.OK


def _print_messages(found: Sequence[Message], args: argparse.Namespace) -> None:
    for message in found:
        if not args.json:
            say(f"{message.at:%H:%M:%SZ} {message.kind:<6} {visible(message.text)}")
        elif args.follow:
            say(json.dumps(message_json(message)))


async def _stop(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_agents
    from pml.service.sessions.launcher import Launcher

    async with opened(args) as context:
        await guard(context, args)
        session = await find_session(context, args.id)
        if (await _launched(context, session)).state in ENDED_RUN:
            raise Conflict(f"session {quote(session.name)} has ended already")
        agents = open_agents(find_place(args.workspace), hub_url=str)
        await Launcher(context, agents).stop(session.id, reason="stopped by a person")
    if args.json:
        print_json({"stopped": session.id})
    else:
        say(f"stopped {visible(session.name)}")
    return Exit.OK


async def _live_agents(context: "Context") -> list[Session]:
    return [session for session in await context.store.sessions.live() if session.principal != _HUB]


async def _all_sessions(context: "Context") -> list[Session]:
    found: list[Session] = []
    while page := await context.store.sessions.page(
        after=(found[-1].started_at, found[-1].id) if found else None, limit=_PAGE
    ):
        found += page
    return found


async def find_session(context: "Context", given: str) -> Session:
    """Return the session with this id, this name or this start of its id.

    Of those with the name, the living come first. A name that is the start of another's id tells nobody
    which is meant, and agents choose names. Raises: NotFound, Invalid if several are meant.
    """
    exact = await context.store.sessions.get(SessionId(given))
    if exact is not None:
        return exact
    sessions = await _all_sessions(context)
    named = [session for session in sessions if given and session.name == given]
    named = [session for session in named if session.ended_at is None] or named
    begun = [session for session in sessions if given and session.id.startswith(given)]
    found = {session.id: session for session in [*named, *begun]}
    if not found:
        raise NotFound(f"no session {quote(given)}", hint="`pml sessions list --all` shows them")
    if len(found) > 1:
        raise Invalid(
            f"{len(found)} sessions are named {quote(given)} or begin with it", hint="give more of the id"
        )
    return next(iter(found.values()))


async def _launched(
    context: "Context", session: Session, *, hint: str = "it ends with the client that opened it"
) -> Run:
    """Raises: Invalid if PML did not launch it."""
    run = await context.store.runs.get(session.id)
    if run is None:
        raise Invalid(f"session {quote(session.name)} was not launched by PML", hint=hint)
    return run


async def _standing(context: "Context", session: Session) -> _Standing:
    query = ApprovalQuery(states=frozenset({State.PENDING}), session_id=session.id, limit=_PAGE)
    waiting = len(await context.store.approvals.page(query))
    return _Standing(session=session, run=await context.store.runs.get(session.id), waiting=waiting)


def _tree(found: Sequence[_Standing]) -> Iterator[tuple[int, _Standing]]:
    """Yield every session beneath the one that started it, oldest first, with its depth."""
    shown = {each.session.id for each in found}
    below: defaultdict[SessionId | None, list[_Standing]] = defaultdict(list)
    for each in sorted(found, key=lambda each: (each.session.started_at, each.session.id)):
        parent = each.session.parent_id
        below[parent if parent in shown else None].append(each)
    waiting = [(0, each) for each in reversed(below[None])]
    while waiting:
        depth, each = waiting.pop()
        yield depth, each
        waiting += [(depth + 1, lower) for lower in reversed(below[each.session.id])]


def _row(depth: int, each: _Standing) -> tuple[str, ...]:
    run = each.run
    name = Shown("  " * depth + visible(each.session.name))
    turns, cost = ("", "") if run is None or not _is_counted(run) else (str(run.turns), _cost(run))
    waiting = str(each.waiting) if each.waiting else ""
    return name, short(each.session.id), each.state, waiting, turns, cost, each.session.workspace


def _is_counted(run: Run) -> bool:
    """Tell whether turns and cost are known: an agent on its own screen does not report them."""
    return bool(run.turns) or not run.order.is_here


def _cost(run: Run) -> str:
    return f"${run.cost_usd:.4f}"
