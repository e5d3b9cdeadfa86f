"""Machine that runs one server, `shop`, in every workspace, after which its launch digest is named."""

from collections.abc import AsyncGenerator, Sequence

from pml.core.approvals.record import OwnerId
from pml.core.packages.permissions import Containment
from pml.core.servers.run import ContainedBy, ServerRun
from pml.core.servers.spec import ServerSpec
from pml.core.sessions.process import Process
from tests.builders import NOW
from tests.fakes_loading import FakeInstaller


class FakeLog:
    def __init__(self, path: str) -> None:
        self.path = path

    def exists(self) -> bool:
        return True

    def tail(self, count: int) -> list[str]:
        return [f"line {n}" for n in range(3)][-count:]

    async def follow(self, count: int) -> AsyncGenerator[str]:
        for line in self.tail(count):
            yield line


class FakeServerHost:
    def __init__(self) -> None:
        self.installer = FakeInstaller()

    def runs(self, workspace: str) -> Sequence[ServerRun]:
        gateway = Process(pid=70, started=1.0)
        run = ServerRun(
            name="shop",
            workspace=workspace,
            target_digest=workspace,
            state="running",
            since=NOW,
            owner=OwnerId("other"),
            owner_process=gateway,
        )
        return [run]

    def containment(self, spec: ServerSpec, *, workspace: str) -> ContainedBy:
        return ContainedBy(kind=Containment.NONE, words="not contained")

    def login(self, spec: ServerSpec) -> None:
        return None

    def log(self, server: str, target_digest: str) -> FakeLog:
        return FakeLog(target_digest)
