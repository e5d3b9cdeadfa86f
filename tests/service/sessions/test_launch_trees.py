"""Trees of sessions under whatever rules: who allowed what ran, and where they had that power from.

A model on the side keeps which sessions a person let be started, and with which powers; it knows nothing of
how PML keeps that. Sessions come into being in every way there is, and everybody tries to allow everything.
"""

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, Role, Scope, SessionId, State
from pml.core.approvals.states import role_of
from pml.core.config.file import FileKind
from pml.core.errors import PmlError
from pml.core.names import parse_tool
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.ports.records import Session
from pml.core.sessions.process import Process
from pml.core.sessions.token import ParentMay, TokenRole
from pml.core.values import Json, JsonObject
from pml.downstream.tools.supervision_tools import read_wish
from pml.service.approvals.lifecycle import Decision, decide, get
from pml.service.call import Attempt, Gate, PendingCall, Suspended
from pml.service.sessions.launch_consent import admit_launch, consent_unasked
from pml.service.sessions.launcher import Launcher
from pml.service.sessions.loopback import permit
from pml.service.sessions.tokens import create_agent_token
from pml.testing.store import MemoryStore
from tests.builders import PERSON
from tests.downstream.parties import FakeServers
from tests.fakes import FakeAgents
from tests.promises import promise
from tests.service.families import join
from tests.service.offices import BOUND_S, Asked, Office

TOOLS: Final = ("Bash", "Bash", "notes:add", LAUNCH_TOOL)
ROUNDS: Final = 60  # of the event loop: more than a step on a store in memory needs


@dataclass(frozen=True)
class Answer:
    """Somebody's try to allow a question: a parent is `who` steps above who asks, beyond that a stranger."""

    kind: DeciderKind
    channel: Channel
    who: int = 0
    scope: Scope = Scope.ONCE
    narrow: str | None = None  # a person lets the parent answer no more than this


@dataclass(frozen=True)
class Step:
    kind: str  # launch, post, gateway, token, old, typed, ask
    at: int
    answers: tuple[Answer, ...] = ()
    tool: str = "Bash"
    more: JsonObject = field(default_factory=dict[str, Json])
    over_http: bool = False


PARENT = DeciderKind.PARENT, Channel.LOOPBACK
OTHERS = (
    (DeciderKind.CLIENT, Channel.MODEL),
    (DeciderKind.CLIENT, Channel.FORM),
    (DeciderKind.PERSON, Channel.INBOX),
)
MAY = st.sampled_from([None, None, None, *ParentMay])


def _answer(kind: tuple[DeciderKind, Channel], who: int, scope: Scope, narrow: str | None) -> Answer:
    return Answer(kind[0], kind[1], who, scope, narrow)


def answers(*kinds: tuple[DeciderKind, Channel]) -> st.SearchStrategy[Answer]:
    return st.builds(
        _answer,
        st.sampled_from(kinds),
        st.integers(0, 3),
        st.sampled_from([Scope.ONCE, Scope.SESSION]),
        MAY,
    )


BUILDS = st.builds(
    Step,
    st.sampled_from(["launch"] * 5 + ["post", "gateway", "token", "old", "typed"]),
    st.integers(-2, 3),
    st.lists(answers(PARENT, *OTHERS, OTHERS[-1], OTHERS[-1]), min_size=1, max_size=2).map(tuple),
    more=st.fixed_dictionaries(
        {"may_launch": st.sampled_from([True, True, False])},
        optional={"parent_may_decide": st.sampled_from([*ParentMay])},
    ),
    over_http=st.booleans(),
)
ASKS = st.builds(
    Step,
    st.just("ask"),
    st.sampled_from([-1, -1, -2, -3, 0]),
    st.lists(answers(PARENT, PARENT, PARENT, *OTHERS), min_size=1, max_size=3).map(tuple),
    tool=st.sampled_from(TOOLS),
)
STEPS = st.tuples(
    st.lists(BUILDS, min_size=1, max_size=6),
    st.lists(ASKS, min_size=2, max_size=6),
    st.lists(BUILDS, max_size=2),
).map(lambda parts: [*parts[0], *parts[1], *parts[2]])
APPROVED: Final = Step(  # by a person, for the newest session
    "launch", -1, (Answer(DeciderKind.PERSON, Channel.INBOX),), more={"may_launch": True}
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "allow": st.lists(st.sampled_from(["*", "pml:*", LAUNCH_TOOL, "notes:*"]), max_size=2),
        "ask": st.lists(st.sampled_from(["*", "pml:*", LAUNCH_TOOL, "Bash", "notes:*"]), max_size=2),
        "deny": st.lists(st.sampled_from(["notes:add", "Bash"]), max_size=1),
    },
)
APPROVAL = st.fixed_dictionaries(
    {},
    optional={
        "parent_may_decide": st.sampled_from(["unlisted", True, False, ["Bash"], ["*"], ["pml:*"]]),
        "model_may_approve": st.sampled_from(["if_no_form", "never", "always"]),
        "unlisted": st.sampled_from(["every_call", "if_client_cannot"]),
        "enabled": st.booleans(),
    },
)


class World:
    """Sessions of all kinds, and what a person is known to have allowed."""

    def __init__(self, root: Path, rules: JsonObject, approval: JsonObject) -> None:
        self.office = Office(MemoryStore(), root)
        self.office.write(FileKind.USER, {"permissions": rules, "approval": approval})
        self.rules, self.approval = rules, approval
        self.agents = FakeAgents()
        self.launcher = Launcher(self.office.context, self.agents)
        self.sessions: list[Session] = []
        self.may: dict[SessionId, ParentMay] = {}  # what a person let those above answer for it
        self.leave: set[SessionId] = set()  # a person typed that it may launch
        self.asked: dict[str, frozenset[Role]] = {}  # who might decide, when each question was asked
        self.uses = 0

    def at(self, index: int) -> Session:
        return self.sessions[index % len(self.sessions)]

    def above(self, session_id: SessionId) -> list[SessionId]:
        """Return the session and those above it, the nearest first."""
        parents = {each.id: each.parent_id for each in self.sessions}
        line: list[SessionId] = []
        at: SessionId | None = session_id
        while at is not None:
            line.append(at)
            at = parents.get(at)
        return line

    def note(self, record: Approval) -> None:
        self.asked.setdefault(record.id, record.deciders)

    async def try_all(self, record: Approval, answers: tuple[Answer, ...]) -> Approval:
        """Let everybody try to allow the question; return what became of it."""
        self.note(record)
        for answer in answers:
            line = [*self.above(record.session_id)[1:], *(each.id for each in self.sessions)]
            who = line[answer.who % len(line)] if answer.kind is DeciderKind.PARENT else "somebody"
            edited = None
            is_person = answer.kind is DeciderKind.PERSON
            if answer.narrow and is_person and record.tool_name == LAUNCH_TOOL:
                edited = {**record.tool_input, "parent_may_decide": answer.narrow}
            decision = Decision(
                by=Decider(kind=answer.kind, id=who, channel=answer.channel),
                digest=record.digest,
                allow=True,
                scope=Scope.ONCE if record.tool_name == LAUNCH_TOOL else answer.scope,
                updated_input=edited,
            )
            with suppress(PmlError):
                await decide(self.office.context, record.id, decision)
        return await get(self.office.context, record.id)

    async def take(self, step: Step) -> None:
        with suppress(PmlError, Suspended):
            await getattr(self, f"_{step.kind}")(step)

    async def _launch(self, step: Step) -> None:
        parent = self.at(step.at)
        is_top = parent.parent_id is None and parent.role is TokenRole.SESSION
        stdio = is_top and not step.over_http
        gate = Gate(context=self.office.context, session=parent, servers=FakeServers(), is_stdio=stdio)
        self.uses += 1
        arguments: JsonObject = {"prompt": f"task {self.uses}", **step.more}
        attempt = Attempt(tool=parse_tool(LAUNCH_TOOL), arguments=arguments, offered=True)
        given, consent = await admit_launch(PendingCall(gate, attempt, Asking(self, step.answers)))
        session = await self.launcher.launch(
            read_wish(given), parent=parent, workspace=parent.workspace, consent=consent
        )
        if consent.approval_id is None:
            self._check_beforehand(parent)
        else:
            by = (await get(self.office.context, consent.approval_id)).decided_by
            assert by is not None
            is_form = by.kind is DeciderKind.CLIENT and by.channel is Channel.FORM
            assert by.kind is DeciderKind.PERSON or (is_form and stdio)
        self._started(session, ParentMay(str(given.get("parent_may_decide", "all"))))

    async def _post(self, step: Step) -> None:
        parent = self.at(step.at)
        arguments: JsonObject = {"prompt": "over HTTP", **step.more}
        consent = await consent_unasked(self.office.context, parent, arguments)
        session = await self.launcher.launch(
            read_wish(arguments), parent=parent, workspace=parent.workspace, consent=consent
        )
        self._check_beforehand(parent)
        self._started(session, ParentMay(str(arguments.get("parent_may_decide", "all"))))

    def _check_beforehand(self, parent: Session) -> None:
        """Check that a person said of such a launch beforehand what was not asked."""
        allows: Any = self.rules.get("allow", ())
        assert LAUNCH_TOOL in allows or parent.id in self.leave

    def _started(self, session: Session, may: ParentMay) -> None:
        assert session.parent_id is not None
        self.sessions.append(session)
        self.may[session.id] = may
        if session.parent_id in self.leave and session.role is TokenRole.SESSION:
            self.leave.add(session.id)

    async def _gateway(self, step: Step) -> None:
        """What an agent's own shell starts: `pml stdio` beneath it."""
        parent = self.at(step.at)
        self.sessions.append(
            await join(self.office, self._name(), parent=parent, parent_may=ParentMay.NOTHING)
        )

    async def _old(self, step: Step) -> None:
        """A session that was launched before that needed anybody's yes."""
        self.sessions.append(
            await join(
                self.office,
                self._name(),
                parent=self.at(step.at),
                role=TokenRole.SESSION,
                parent_may=ParentMay.NOTHING,
            )
        )

    async def _typed(self, step: Step) -> None:
        """`pml launch --may-launch`, typed by a person."""
        session = await join(self.office, self._name(), launches_unasked=True)
        self.sessions.append(session)
        self.leave.add(session.id)

    async def _token(self, step: Step) -> None:
        """`pml token create --role session --parent ID`, typed by a person."""
        name, parent = SessionId(self._name()), self.at(step.at)
        await create_agent_token(
            self.office.context,
            role=TokenRole.SESSION,
            name=name,
            session_id=name,
            parent_id=parent.id,
            workspace=str(self.office.workspace),
            ttl_s=None,
            by=PERSON,
        )
        session = await self.office.context.store.sessions.get(name)
        assert session is not None
        self.sessions.append(session)
        self.may[name] = ParentMay.ALL

    async def _ask(self, step: Step) -> None:
        session, asked = self.at(step.at), Asked()
        self.uses += 1
        input: JsonObject = {"command": f"ls {self.uses}"} if step.tool == "Bash" else {"n": self.uses}
        task = asyncio.create_task(
            permit(
                self.office.context,
                session,
                tool_name=step.tool,
                input=input,
                tool_use_id=f"use-{self.uses}",
                on_asked=asked,
            )
        )
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        for record in asked.records:
            after = await self.try_all(record, step.answers)
            if after.status is State.PENDING:
                await self.office.deny(after)
        async with asyncio.timeout(BOUND_S):
            await task

    def _name(self) -> str:
        return f"session-{len(self.sessions)}"

    async def check(self) -> None:
        """Check who allowed all that was allowed, and where they had that power from."""
        for approval_id, deciders in self.asked.items():
            record = await self.office.context.store.approvals.get(approval_id)  # pyright: ignore[reportArgumentType]
            assert record is not None
            by = record.decided_by
            if by is None or record.status is State.DENIED:
                continue
            assert role_of(by) in deciders
            assert record.deciders == deciders
            if by.kind is DeciderKind.PARENT:
                self._check_parent(record, SessionId(by.id))
        for grant in await self.office.context.store.grants.all():
            if grant.by.kind is DeciderKind.PARENT:
                self._check_power(grant.session_id, SessionId(grant.by.id), grant.tool)

    def _check_parent(self, record: Approval, parent: SessionId) -> None:
        assert record.tool_name != LAUNCH_TOOL
        self._check_power(record.session_id, parent, record.tool_name)

    def _check_power(self, session_id: SessionId, parent: SessionId, tool: str) -> None:
        """Check that a person let that be answered, for everybody between the two."""
        asks, setting = self.rules.get("ask", ()), self.approval.get("parent_may_decide", "unlisted")
        assert isinstance(asks, list | tuple)
        named = any(each != "*" and _names(str(each), tool) for each in asks)
        listed = isinstance(setting, list) and any(_names(str(each), tool) for each in setting)
        line = self.above(session_id)
        assert parent in line[1:]
        for each in line[: line.index(parent)]:
            match self.may.get(each, ParentMay.NOTHING):
                case ParentMay.NOTHING:
                    raise AssertionError(f"nobody let `{parent}` answer for `{each}`")
                case ParentMay.LISTED:
                    assert listed
                case ParentMay.UNLISTED:
                    assert listed or (setting in ("unlisted", True) and not named)
                case ParentMay.ALL:
                    assert listed or setting is True or (setting == "unlisted" and not named)


class Asking:
    """A client with a form and a model, both of which allow whatever they are let."""

    has_form = True
    declares_form = True
    has_model = True

    def __init__(self, world: World, answers: tuple[Answer, ...]) -> None:
        self._world = world
        self._answers = answers

    async def put(self, record: Approval) -> Approval:
        return await self._world.try_all(record, self._answers)


def _names(pattern: str, tool: str) -> bool:
    """Tell whether the pattern, one of those above, names the tool."""
    if pattern.endswith("*"):
        return tool.startswith(pattern[:-1])
    return pattern == tool or pattern == tool.partition(":")[2]


@promise("supervise:power-from-a-person")
@promise("launch:a-persons-to-allow")
@settings(max_examples=100)
@given(rules=RULES, approval=APPROVAL, steps=STEPS)
def test_nothing_is_allowed_by_anybody_whom_no_person_let_decide(
    rules: JsonObject, approval: JsonObject, steps: list[Step]
) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as root:
            world = World(Path(root), rules, approval)
            process = Process(pid=4711, started=1.0)
            world.sessions.append(await join(world.office, "top", process=process))
            for step in (APPROVED, APPROVED):
                await world.take(step)
            try:
                for step in steps:
                    await world.take(step)
                await world.check()
            finally:
                await world.launcher.close()

    asyncio.run(run())
