"""Stand-ins for the clock, ids, processes and servers. Each does what its port says, as the test wants it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from pml.core.approvals.record import Approval, OwnerId, SessionId
from pml.core.errors import Changed, PmlError
from pml.core.servers.manifest import Manifest
from pml.core.servers.spec import ServerSpec
from pml.core.sessions.agent import Order, Outcome, RunState, Told
from pml.core.sessions.process import Process
from pml.core.values import JsonObject
from tests.builders import NOW, OWNER

_BOUND_S = 60.0


class FakeClock:
    """A clock that stands still until it is told."""

    def __init__(self, at: datetime = NOW) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at += timedelta(seconds=seconds)

    def set(self, at: datetime) -> None:
        self._at = at


class SequentialIds:
    """Valid UUIDs that count: the same ones in every run."""

    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return str(UUID(int=self._count, version=4))


class FakeOwners:
    """`me` is alive, and so are the owners in `others` until they are discarded."""

    def __init__(self, me: OwnerId = OWNER, others: Iterable[OwnerId] = ()) -> None:
        self.me = me
        self.others = set(others)

    def alive(self, owner: OwnerId) -> bool:
        return owner == self.me or owner in self.others

    def alive_others(self) -> list[str]:
        return sorted(self.others)


class FakeProcesses:
    """The processes that run, and the ones this process stands beneath (nearest first)."""

    def __init__(self, running: Iterable[Process] = (), ancestors: Iterable[Process] = ()) -> None:
        self.above = list(ancestors)
        self.alive = {*running, *self.above}
        self.detached = False

    def running(self, process: Process) -> bool:
        return process in self.alive

    def ancestors(self) -> list[Process]:
        return list(self.above)

    def client(self) -> Process:
        return self.above[min(1, len(self.above) - 1)]

    def feeds(self, process: Process) -> bool:
        return True

    def leader(self) -> Process:
        return self.above[-1]

    def is_detached(self) -> bool:
        return self.detached


class FakeServers:
    """Servers without processes. `started` and `ran` keep all that happened, in order."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ran: list[tuple[str, str, JsonObject]] = []
        self.start_error: PmlError | None = None
        self.error: PmlError | None = None
        self.hangs = False
        self.running = asyncio.Event()
        self.before_request: Callable[[], Awaitable[None]] | None = None
        self.identity: str | None = None
        self._offers: dict[str, tuple[JsonObject, ...]] = {}
        self._live: dict[tuple[str, str], Manifest] = {}

    def offer(self, server: str, *tools: JsonObject) -> None:
        """Let the server offer these tools; one that runs announces the change."""
        self._offers[server] = tools
        self.stop(server)

    def stop(self, server: str) -> None:
        """End the server, or let what is known of it be no longer true."""
        self._live = {key: manifest for key, manifest in self._live.items() if key[0] != server}

    def live(self, spec: ServerSpec) -> Manifest | None:
        return self._live.get((spec.name, spec.target_digest))

    async def manifest(self, spec: ServerSpec) -> Manifest:
        live = self.live(spec)
        if live is not None:
            return live
        self.started.append(spec.name)
        if self.start_error is not None:
            raise self.start_error
        launch = spec.target_digest
        tools = self._offers.get(spec.name, ())
        manifest = Manifest(
            server=spec.name, target_digest=launch, capabilities={}, tools=tools, identity=self.identity
        )
        self._live[spec.name, launch] = manifest
        return manifest

    async def request(
        self,
        spec: ServerSpec,
        method: str,
        params: JsonObject,
        *,
        seen: Manifest | None = None,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> bytes:
        if self.before_request is not None:
            await self.before_request()
        live = self.live(spec)
        if seen is not None and live is not seen:
            raise Changed(f"server `{spec.name}` no longer offers what it offered")
        self.ran.append((spec.name, method, params))
        self.running.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return msgspec.json.encode({"ran": len(self.ran)})

    async def close(self) -> None:
        self._live.clear()


class FakeAsking:
    """A client that is asked: each question gets the next answer, and when there is none stays undecided."""

    def __init__(
        self,
        *answers: Callable[[Approval], Awaitable[Approval]],
        has_form: bool = False,
        has_model: bool = True,
    ) -> None:
        self.has_form = has_form
        self.declares_form = has_form
        self.has_model = has_model
        self.asked: list[Approval] = []
        self._answers = list(answers)

    async def put(self, record: Approval) -> Approval:
        self.asked.append(record)
        return await self._answers.pop(0)(record) if self._answers else record


class FakeAgents:
    """Agents without processes: each runs until the test ends it, or it is cancelled.

    `ran` keeps what each was started with, and its token; `configs` are the folders that stand.
    """

    def __init__(self) -> None:
        self.ran: dict[SessionId, tuple[Order, str]] = {}
        self.told: dict[SessionId, Told] = {}
        self.configs: set[str] = set()
        self.killed: list[Process] = []
        self.error: Exception | None = None
        self.before_end: Callable[[], Awaitable[None]] | None = None  # takes its time to stop an agent
        self._ends: dict[SessionId, asyncio.Future[Outcome]] = {}
        self._started = asyncio.Semaphore(0)

    def config_folder(self, session_id: SessionId) -> str:
        return f"/configs/{session_id}"

    def remove_config(self, folder: str) -> None:
        self.configs.discard(folder)

    def kill(self, process: Process) -> None:
        self.killed.append(process)

    async def run(self, order: Order, *, session_id: SessionId, token: str, told: Told) -> Outcome:
        self.ran[session_id] = order, token
        self.told[session_id] = told
        self.configs.add(self.config_folder(session_id))
        self._ends[session_id] = asyncio.get_running_loop().create_future()
        self._started.release()
        if self.error is not None:
            raise self.error
        try:
            await told.started(self.process(session_id))
            return await self._ends[session_id]
        finally:
            if self.before_end is not None:
                await self.before_end()

    def process(self, session_id: SessionId) -> Process:
        """Return the process that the session's agent has."""
        return Process(pid=1000 + list(self.ran).index(session_id), started=1.0)

    def end(
        self, session_id: SessionId, state: RunState = RunState.DONE, result: str | None = "done"
    ) -> None:
        """Let the agent end by itself."""
        exit_code = 0 if state is RunState.DONE else 1
        self._ends[session_id].set_result(Outcome(state=state, exit_code=exit_code, result=result))

    async def until_running(self, count: int = 1) -> None:
        """Return once so many more agents were started, in time."""
        async with asyncio.timeout(_BOUND_S):
            for _ in range(count):
                await self._started.acquire()
