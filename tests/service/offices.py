"""A context with all that stands around it: real files, a store in memory, a clock that stands still."""

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pml.agents.known import KNOWN
from pml.app import DiskConfigs, Place
from pml.core.approvals.record import (
    Approval,
    ApprovalId,
    Channel,
    Decider,
    DeciderKind,
    OwnerId,
    Role,
    Scope,
    SessionId,
    State,
    Subject,
)
from pml.core.config.file import FileKind
from pml.core.ports.queries import AuditQuery
from pml.core.ports.records import Session
from pml.core.ports.store import Store
from pml.core.rules.ruleset import Call
from pml.core.sessions.process import Process
from pml.core.sessions.token import ParentMay
from pml.core.values import Json, JsonObject
from pml.service.approvals import lifecycle as approvals
from pml.service.approvals.lifecycle import Decided, Decision, Question
from pml.service.approvals.trust import trust_workspace
from pml.service.context import Context
from pml.service.policy.policy import Judgement, judge_in_session
from pml.service.session_tree import start_session
from tests.builders import PERSON
from tests.fakes import FakeClock, FakeOwners, FakeProcesses, SequentialIds

TOOL = "github:create_issue"
ARGUMENTS: JsonObject = {"title": "it is broken"}
SESSION = SessionId("session-1")
BOUND_S = 60.0  # only ever reached by what hangs
_TURNS = 20  # of the event loop; each wake-up and each new task costs one or two


class Office:
    """What a test works with; `context` is what the use cases get."""

    def __init__(self, store: Store, root: Path) -> None:
        self.clock = FakeClock()
        self.owners = FakeOwners()
        self.processes = FakeProcesses()
        self.home = root / "pml-home"
        self.workspace = root / "shop"
        self.home.mkdir()
        self.workspace.mkdir()
        self.place = Place(home=self.home, workspace=self.workspace, user_home=root)
        self.context = Context(
            store=store,
            clock=self.clock,
            ids=SequentialIds(),
            owners=self.owners,
            processes=self.processes,
            configs=DiskConfigs(self.place),
            clients=KNOWN,
            home=str(self.home),
        )

    def context_of(self, owner: OwnerId, store: Store | None = None) -> Context:
        """Return the context of another process, which is alive; on a store of its own if it has one."""
        self.owners.others.add(owner)
        return dataclasses.replace(
            self.context,
            store=store or self.context.store,
            owners=FakeOwners(owner, {self.owners.me}),
            configs=DiskConfigs(self.place),
            policies={},
        )

    def path(self, which: FileKind) -> Path:
        return self.home / "config.json" if which is FileKind.USER else self.workspace / ".pml.json"

    def write(self, which: FileKind, config: Json) -> None:
        self.path(which).write_text(json.dumps(config))

    def write_rules(self, which: FileKind = FileKind.USER, **rules: list[Json]) -> None:
        self.write(which, {"permissions": rules})

    def read(self, which: FileKind = FileKind.WORKSPACE) -> Json:
        return json.loads(self.path(which).read_text())

    async def trust(self) -> None:
        """Trust the workspace's file as it is now."""
        digest = self.context.configs.of(str(self.workspace)).read().workspace.digest
        assert digest is not None
        await trust_workspace(self.context, str(self.workspace), digest=digest, by=PERSON)

    async def session(
        self,
        session_id: SessionId = SESSION,
        *,
        parent_id: SessionId | None = None,
        workspace: Path | None = None,
        process: Process | None = None,
        is_agent: bool = True,
        principal: str = "ana",
    ) -> Session:
        return await start_session(
            self.context,
            session_id=session_id,
            name=session_id,
            principal=principal,
            workspace=str(workspace or self.workspace),
            process=process,
            is_agent=is_agent,
            parent_id=parent_id,
            parent_may=ParentMay.NOTHING if parent_id is None else ParentMay.ALL,
        )

    async def question(
        self,
        tool: str = TOOL,
        arguments: JsonObject = ARGUMENTS,
        *,
        session: Session | None = None,
        subject: Subject = Subject.TOOL_CALL,
        tool_use_id: str = "",
        deciders: frozenset[Role] = frozenset({Role.PERSON}),
        definition: str | None = None,
        artefact: str | None = None,
        cwd: str | None = None,
    ) -> Question:
        return Question(
            session=session or await self.session(),
            tool=tool,
            arguments=arguments,
            subject=subject,
            tool_use_id=tool_use_id,
            deciders=deciders,
            definition=definition,
            artefact=artefact,
            cwd=cwd,
        )

    async def ask(self, tool: str = TOOL, arguments: JsonObject = ARGUMENTS, **more: Any) -> Approval:
        """Ask the question that `question` makes of the same arguments."""
        return await approvals.ask(self.context, await self.question(tool, arguments, **more))

    async def allow(
        self,
        record: Approval,
        *,
        by: Decider = PERSON,
        scope: Scope = Scope.ONCE,
        literal: bool = False,
        updated_input: JsonObject | None = None,
        release: tuple[ApprovalId, ...] = (),
    ) -> Decided:
        decision = Decision(
            by=by,
            digest=record.digest,
            allow=True,
            scope=scope,
            literal=literal,
            updated_input=updated_input,
            release=release,
        )
        return await approvals.decide(self.context, record.id, decision)

    async def deny(self, record: Approval, *, by: Decider = PERSON, message: str | None = None) -> Approval:
        decision = Decision(by=by, digest=record.digest, allow=False, message=message)
        return (await approvals.decide(self.context, record.id, decision)).record

    async def judge(
        self,
        tool: str = TOOL,
        arguments: JsonObject = ARGUMENTS,
        *,
        session: Session | None = None,
        definition: str | None = None,
        artefact: str | None = None,
    ) -> Judgement:
        asking = session or await self.session()
        call = Call(
            tool=tool,
            arguments=arguments,
            cwd=asking.workspace,
            definition=definition,
            artefact=artefact,
        )
        return await judge_in_session(self.context, asking, call)

    async def stored(self, record: Approval) -> Approval:
        return await approvals.get(self.context, record.id)

    async def status(self, record: Approval) -> State:
        return (await self.stored(record)).status

    async def kinds(self) -> list[str]:
        """Return the kinds of all audit entries, oldest first."""
        return [link.entry.kind for link in await self.context.store.audit.list(AuditQuery(limit=10_000))]


class Asked:
    """Keeps what `on_asked` was given."""

    def __init__(self) -> None:
        self.records: list[Approval] = []
        self._given = asyncio.Semaphore(0)

    def __call__(self, record: Approval) -> None:
        self.records.append(record)
        self._given.release()

    async def wait_for(self, count: int) -> None:
        """Return once `count` more approvals were given, in time."""
        async with asyncio.timeout(BOUND_S):
            for _ in range(count):
                await self._given.acquire()


async def until_idle(task: "asyncio.Task[object]") -> None:
    """Let `task` go as far as it gets by itself on a store in memory, what it does in threads included."""
    for _ in range(10):
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await asyncio.sleep(0.002)
    assert not task.done()


def parent(session_id: str) -> Decider:
    return Decider(kind=DeciderKind.PARENT, id=session_id, channel=Channel.LOOPBACK)


def rules_of(config: Json, effect: str) -> Json:
    """Return one list of rules of a configuration file."""
    assert isinstance(config, Mapping)
    permissions = config["permissions"]
    assert isinstance(permissions, Mapping)
    return permissions[effect]
