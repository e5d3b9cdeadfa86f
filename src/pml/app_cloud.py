"""The cloud put together: others' calls of this registry's tools, run here, by the rules of this place."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from pml.app import Place, open_context, open_fleet, open_loader, open_workshop, register_process
from pml.core.approvals.record import Approval, SessionId
from pml.core.errors import Forbidden, Invalid, NotFound, PmlError
from pml.core.names import ToolName, parse_fqdn, tool_of
from pml.core.packages.capability import Routing
from pml.core.ports.loader import Found, Sources
from pml.core.sessions.token import Identity, TokenId
from pml.core.text import quote
from pml.core.values import JsonObject
from pml.downstream.results import approval_result, refusal_result
from pml.registry.catalog import SOURCE as CATALOG
from pml.registry.cloud.served_calls import Executor
from pml.service.call import Attempt, Gate, Loader, Paused, PendingCall
from pml.service.calls.absent_client import Nobody
from pml.service.calls.execute import run_or_call
from pml.service.calls.pipeline import refuse_continuation
from pml.service.context import Context
from pml.service.install.deeds import stop_installs
from pml.service.session_tree import session_of
from pml.service.sessions.tokens import identify_bearer, is_live_token
from pml.service.upkeep import sweep

REVOKED_S: Final = 0.5  # how long a call may outlive its token; an expiry is noticed as soon


class OwnFolder:
    """The port `Sources` of a cloud: what it serves, whatever registry its configuration names."""

    def __init__(self, sources: Sources, folder: Path) -> None:
        self._sources = sources
        self._folder = str(folder)

    async def find(self, tool: ToolName, *, registries: Sequence[str], prefix: str | None) -> Found | None:
        return await self._sources.find(tool, registries=[self._folder], prefix=prefix)

    async def code(self, found: Found) -> bytes:
        return await self._sources.code(found)

    def bundled(self) -> Sequence[Found]:
        return self._sources.bundled()

    def known(self, registries: Sequence[str]) -> Sequence[Found]:
        return self._sources.known([self._folder])


class PeopleElsewhere:
    """The port `Asking` of a cloud: whoever calls decides nothing; people of this place do."""

    has_form = False
    declares_form = False
    has_model = False

    async def put(self, record: Approval) -> Approval:
        return record


class CloudExecutor:
    """The port `Executor`: one gate for every session that a token speaks for."""

    def __init__(self, context: Context, open_gate: Callable[[SessionId], Awaitable[Gate]]) -> None:
        self._context = context
        self._open_gate = open_gate
        self._gates: dict[SessionId, Gate] = {}
        self._working: dict[asyncio.Future[bytes], TokenId | None] = {}  # None: its token counts no longer

    async def identify(self, authorization: str | None) -> Identity | None:
        return await identify_bearer(self._context, authorization)

    async def call(self, identity: Identity, params: JsonObject) -> bytes:
        """Raises: PmlError for what is not the caller's business."""
        work = asyncio.ensure_future(self._call(identity, params))
        self._working[work] = identity.token_id
        try:
            return await work
        except asyncio.CancelledError:
            work.cancel()
            if self._working[work] is None:
                raise Forbidden("the token is no longer valid") from None
            raise
        finally:
            del self._working[work]

    async def end_revoked(self) -> None:
        """End the calls of tokens that count no longer."""
        for work, token_id in list(self._working.items()):
            if token_id is not None and not await is_live_token(self._context, token_id):
                self._working[work] = None
                work.cancel()

    async def _call(self, identity: Identity, params: JsonObject) -> bytes:
        gate = await self._gate(identity)
        try:
            attempt = read_attempt(params)
            await self._check_offered(gate, attempt)
            return await run_or_call(PendingCall(gate, attempt, PeopleElsewhere()))
        except Paused as exc:
            result = approval_result(exc.record, exc.workflow, now=self._context.clock.now())
        except PmlError as exc:
            refused = refusal_result(exc)
            if refused is None:
                raise
            result = refused
        return msgspec.json.encode(result)

    async def _check_offered(self, gate: Gate, attempt: Attempt) -> None:
        """Raise NotFound for all but what this cloud's registry says it runs for others."""
        sources = None if gate.loader is None else gate.loader.sources
        found = (
            None
            if sources is None
            else await sources.find(attempt.tool, registries=(), prefix=attempt.prefix)
        )
        if found is None or found.source == CATALOG or found.metadata.routing is not Routing.SERVER:
            raise NotFound(f"this cloud runs no tool {quote(str(attempt.tool))}")

    async def _gate(self, identity: Identity) -> Gate:
        if identity.session_id is None:
            raise NotFound("this token speaks for no session", hint="make one with `--role session`")
        session = await session_of(self._context, identity.session_id)
        known = self._gates.get(session.id)
        if known is None or known.session != session:
            self._gates[session.id] = await self._open_gate(session.id)
        return self._gates[session.id]


def read_attempt(params: JsonObject) -> Attempt:
    """Return the call that is meant, by its FQDN. Raises: Invalid."""
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise Invalid("`tools/call` needs `name`, and `arguments` must be an object")
    refuse_continuation(arguments)
    fqdn = parse_fqdn(name)
    return Attempt(
        tool=tool_of(fqdn), arguments=arguments, offered=False, prefix=f"{fqdn.org}.{fqdn.project}"
    )


@contextlib.asynccontextmanager
async def open_cloud(place: Place, *, folder: Path, warn: Callable[[str], None]) -> AsyncGenerator[Executor]:
    """Yield what runs the calls of others; at the end nothing that they started is left."""
    async with AsyncExitStack() as stack:
        context = await stack.enter_async_context(open_context(place))
        await sweep(context)
        await register_process(context, place, stack, name="cloud")
        workshop = open_workshop(place)
        stack.push_async_callback(workshop.close)
        fleet = open_fleet(context, place, Nobody(str(place.workspace)))
        stack.push_async_callback(fleet.close)
        opened = open_loader(context, place, fleet, warn=warn)
        loader = Loader(
            sources=OwnFolder(opened.sources, folder),
            installer=opened.installer,
            variables=opened.variables,
            containment=opened.containment,
        )
        stack.push_async_callback(stop_installs, loader)

        async def open_gate(session_id: SessionId) -> Gate:
            session = await session_of(context, session_id)
            if session.workspace != str(place.workspace):
                raise NotFound("this token belongs to another workspace than the cloud's")
            return Gate(
                context=context,
                session=session,
                servers=fleet,
                loader=loader,
                workshop=workshop,
                is_cloud=True,
            )

        executor = CloudExecutor(context, open_gate)
        chores = asyncio.create_task(_keep_house(context, executor))
        stack.push_async_callback(_end, chores)
        yield executor


async def _keep_house(context: Context, executor: CloudExecutor) -> None:
    """Notice what nobody's request would notice, for as long as the cloud runs."""
    while True:
        await asyncio.sleep(REVOKED_S)
        with contextlib.suppress(PmlError):
            await executor.end_revoked()
            await sweep(context)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
