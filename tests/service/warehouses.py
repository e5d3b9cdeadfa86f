"""A gatehouse with a loader behind it: a catalog that offers `memory`, and a disk that is empty."""

from typing import ClassVar, Final

from msgspec.structs import replace

from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, OwnerId, SessionId, Subject
from pml.core.config.file import FileKind
from pml.core.packages.capability import McpDependency
from pml.core.packages.lock import Lock
from pml.core.packages.permissions import Containment
from pml.core.ports.loader import Plan
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.values import JsonObject
from pml.service.call import Loader
from pml.service.context import Context
from tests.fakes_loading import (
    FakeInstaller,
    FakeSources,
    FakeVariables,
    ProvenServers,
    make_dependency,
    make_lock,
)
from tests.service.gatehouses import ADD, LIST, Gatehouse
from tests.service.offices import SESSION, Office

TOOL: Final = "memory:add"
OTHER_TOOL: Final = "memory:list"
CODE_TOOL: Final = "memory:run"
ARGUMENTS: Final[JsonObject] = {"text": "hello"}
OTHER_ARGUMENTS: Final[JsonObject] = {"text": "good-bye"}
RAN: Final = ("memory", "tools/call", {"name": "add", "arguments": ARGUMENTS})
CODE: Final[JsonObject] = {"command": "ls"}
MODEL: Final = Decider(kind=DeciderKind.CLIENT, id="agent", channel=Channel.MODEL)
PLAN: Final = Plan(
    dependency=make_dependency(), lock=make_lock(make_dependency()), containment=Containment.BUBBLEWRAP
)
RUN: Final[JsonObject] = {"name": "run", "inputSchema": {"type": "object"}}


class Warehouse(Gatehouse):
    """The catalog offers `memory@1.2.3`, nothing is installed, no rule names its tools, nobody answers."""

    configured: ClassVar[JsonObject] = {}

    def __init__(
        self,
        office: Office,
        session: Session,
        *,
        context: Context | None = None,
        sources: FakeSources | None = None,
        installer: FakeInstaller | None = None,
        variables: FakeVariables | None = None,
        containment: Containment = Containment.BUBBLEWRAP,
    ) -> None:
        self.sources = sources or FakeSources()
        self.installer = installer or FakeInstaller()
        self.variables = variables or FakeVariables()
        self.loader = Loader(
            sources=self.sources,
            installer=self.installer,
            variables=self.variables,
            containment=lambda permissions: containment,
        )
        servers = ProvenServers(self.installer)
        servers.offer("memory", ADD, LIST, RUN)
        super().__init__(office, session, context=context, servers=servers, loader=self.loader)
        self.proven = servers

    async def restart(
        self, session_id: str = "session-2", *, containment: Containment = Containment.BUBBLEWRAP
    ) -> "Warehouse":
        """Return the gate of another process of the same user, on the same store and disk."""
        config = self.office.read(FileKind.USER)
        other = Warehouse(
            self.office,
            await self.office.session(SessionId(session_id)),
            context=self.office.context_of(OwnerId(f"owner of {session_id}")),
            sources=self.sources,
            installer=self.installer,
            variables=self.variables,
            containment=containment,
        )
        self.office.write(FileKind.USER, config)
        return other

    def place(
        self,
        dependency: McpDependency,
        *,
        lock: Lock | None = None,
        containment: Containment = Containment.BUBBLEWRAP,
    ) -> None:
        """Let the server be installed from before."""
        plan = Plan(dependency=dependency, lock=lock or make_lock(dependency), containment=containment)
        self.installer.place(plan)

    @property
    def installs(self) -> list[str]:
        return [plan.dependency.title for plan in self.installer.installed_plans]

    async def questions(self, subject: Subject | None = None) -> list[Approval]:
        """Return all questions ever asked, oldest first; of one subject where it is given."""
        records = await self.office.context.store.approvals.page(ApprovalQuery(limit=1000))
        found = [record for record in records if subject in (None, record.subject)]
        return sorted(found, key=lambda record: record.id)


async def enter_warehouse(office: Office) -> Warehouse:
    return Warehouse(office, await office.session(SESSION))


def moved(lock: Lock) -> Lock:
    """Return a lock with another dependency than `lock` has."""
    *others, last = lock.packages
    packages = (*others, replace(last, key="zod@4.0.1", version="4.0.1"))
    return replace(lock, packages=packages)
