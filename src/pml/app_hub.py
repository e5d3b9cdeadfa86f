"""The hub put together: the gateway over HTTP, the API, events, launched agents, and the upkeep of it all.

Imported by the commands that serve or launch: it brings the web framework.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from pml.app import (
    Place,
    is_debugging,
    open_agents,
    open_cloud_client,
    open_context,
    open_fleet,
    open_loader,
    open_logins,
    open_server_host,
    open_variables,
    open_workshop,
    register_process,
)
from pml.core.approvals.record import OwnerId, SessionId
from pml.core.audit.feed_events import HubEvent, install_progress, server_changed
from pml.core.errors import NotFound, PmlError
from pml.core.ports.loader import Progress
from pml.core.ports.records import Session
from pml.core.sessions.agent import Agents
from pml.core.sessions.token import Identity, TokenId
from pml.core.text import visible
from pml.downstream.forms.relay import Relay
from pml.downstream.gateway import Gateway
from pml.downstream.http.endpoint import McpEndpoint
from pml.downstream.protocol.connection import Connection
from pml.downstream.protocol.eras import Era
from pml.downstream.tools.supervision import permit_again
from pml.hub.app import hub_app
from pml.hub.event_stream import EventStreams
from pml.hub.metrics import Gauges
from pml.hub.origins import Allowed
from pml.hub.webhook.notifier import Webhook
from pml.hub.webhook.post import SECRET
from pml.service.call import Gate
from pml.service.context import Context
from pml.service.install.deeds import stop_installs
from pml.service.session_tree import session_of
from pml.service.sessions.feed import Feed
from pml.service.sessions.launcher import Launcher, close_left_runs
from pml.service.sessions.tokens import is_live_token
from pml.service.upkeep import clean_up, sweep
from pml.settings.secrets import OneSecret
from pml.upstream.board import end_orphans, list_servers

SWEEP_S: Final = 2.0  # how soon an agent's end, or an expiry, is noticed by nobody's doing
CLEAN_S: Final = 3600.0
BOARD_S: Final = 1.0
WEBHOOK_S: Final = 1.0  # how soon one is noticed that was set meanwhile
REVOKED_S: Final = 0.5  # how long what is open for a token may outlive it


@dataclass(frozen=True, kw_only=True)
class OpenHub:
    """A hub that is ready to be served."""

    app: ASGIApp
    context: Context
    launcher: Launcher
    stop: Callable[[], None]  # ends what would go on for ever: whoever follows events


@asynccontextmanager
async def open_hub(place: Place, *, url: str, allowed: Allowed) -> AsyncGenerator[OpenHub]:
    """Yield the hub that will be served at `url`; at the end its agents, servers and streams have ended."""
    async with AsyncExitStack() as stack:
        context = await stack.enter_async_context(open_context(place))
        await sweep(context)
        await register_process(context, place, stack, name="hub")
        agents = open_agents(place, hub_url=lambda: url)
        await close_left_runs(context, agents)
        end_orphans(place.home)
        gateways = _Gateways(context, place, agents, url=allowed.public or url)
        stack.push_async_callback(gateways.close_shared)
        webhook = _open_webhook(context, place, base=gateways.url)
        streams = EventStreams(gateways.feed)
        logins = open_logins(place)
        stack.push_async_callback(logins.close)
        chores = [
            asyncio.create_task(_keep_house(context, agents, gateways.launcher, str(place.workspace))),
            asyncio.create_task(_watch_servers(context, place, gateways.feed, streams)),
            asyncio.create_task(_end_revoked(context, gateways.endpoint)),
            asyncio.create_task(_repeat(webhook.follow, every_s=WEBHOOK_S)),
        ]
        stack.push_async_callback(_end_all, chores)
        stack.push_async_callback(gateways.endpoint.close)
        stack.push_async_callback(gateways.launcher.close)
        stack.callback(gateways.feed.close)
        app = hub_app(
            context,
            mcp=gateways.endpoint,
            events=streams,
            launcher=gateways.launcher,
            server_host=open_server_host(place),
            secrets=open_variables(place).secrets,
            logins=logins,
            workspace=str(place.workspace),
            allowed=allowed,
            gauges=Gauges(
                waiting_permits=lambda: gateways.endpoint.in_flight,
                event_streams=lambda: streams.counts.open_now,
                deliveries=lambda: webhook.counts,
            ),
            started_at=context.clock.now(),
            complain=_complain,
        )
        yield OpenHub(app=app, context=context, launcher=gateways.launcher, stop=gateways.feed.close)


class _Gateways:
    """The gateways of all sessions: what they share, where they are reached, who launches their agents."""

    def __init__(self, context: Context, place: Place, agents: Agents, *, url: str) -> None:
        self.url: Final = url  # as a person's browser knows the hub
        self.feed: Final = Feed(context)
        self.endpoint: Final = McpEndpoint(
            self._open,
            must_resume=self._must_resume,
            again=permit_again,
            is_live=lambda token_id: is_live_token(context, token_id),
            debug=is_debugging(),
        )
        self.launcher: Final = Launcher(context, agents, self.endpoint.end)
        self._context: Final = context
        self._place: Final = place
        self._workshop: Final = open_workshop(place)
        self._cloud: Final = open_cloud_client()

    async def close_shared(self) -> None:
        await self._cloud.close()
        await self._workshop.close()

    async def _must_resume(self, session_id: SessionId) -> bool:
        return (await session_of(self._context, session_id)).waits

    async def _open(
        self, identity: Identity, connection: Connection, era: Era, stack: AsyncExitStack
    ) -> Gateway:
        """Return the gateway of the session that the token speaks for; the stack closes it."""
        context = self._context
        if identity.session_id is None:
            raise NotFound("this token speaks for no session")
        session = await session_of(context, identity.session_id)
        place = Place(
            home=self._place.home, workspace=Path(session.workspace), user_home=self._place.user_home
        )
        relay = Relay(connection, session.workspace, is_shared=True)
        fleet = open_fleet(context, place, relay, owner=OwnerId(session.id))
        stack.push_async_callback(fleet.close)
        loader = open_loader(
            context, place, fleet, warn=lambda line: relay.logged("pml", {"level": "warning", "data": line})
        )
        stack.push_async_callback(stop_installs, loader)
        run = await context.store.runs.get(session.id)
        gate = Gate(
            context=context,
            session=session,
            servers=fleet,
            loader=loader,
            workshop=self._workshop,
            cloud=self._cloud,
            is_held=run is not None and run.order.is_held,
            client_answers=identity.forms,
            told=lambda name, step: self.feed.publish(_installing(session, name, step, context.clock.now())),
        )
        gateway = Gateway(gate, connection, relay, self.launcher, lambda: self.url)
        stack.push_async_callback(gateway.close)
        return gateway


def _open_webhook(context: Context, place: Place, *, base: str) -> Webhook:
    return Webhook(
        context,
        workspace=str(place.workspace),
        base=base,
        key=OneSecret(open_variables(place).secrets, SECRET),
        tell=_tell,
    )


def _installing(session: Session, name: str, step: Progress, at: datetime) -> HubEvent:
    return install_progress(
        name, done=step.done, total=step.total, message=step.message, at=at, session_id=session.id
    )


async def _keep_house(context: Context, agents: Agents, launcher: Launcher, workspace: str) -> None:
    """Notice what nobody's request would notice, for as long as the hub lives."""
    loop = asyncio.get_running_loop()
    clean_at = loop.time()

    async def look() -> None:
        nonlocal clean_at
        await sweep(context)
        await launcher.stop_orphans()
        await close_left_runs(context, agents)
        if loop.time() >= clean_at:
            await clean_up(context, workspace)
            clean_at = loop.time() + CLEAN_S

    await _repeat(look, every_s=SWEEP_S)


async def _end_revoked(context: Context, endpoint: McpEndpoint) -> None:
    """End what is open for tokens that were revoked, or whose session has ended."""

    async def counts(token_id: TokenId) -> bool:
        return await is_live_token(context, token_id)

    await _repeat(lambda: endpoint.end_dead(counts), every_s=REVOKED_S)


async def _watch_servers(context: Context, place: Place, feed: Feed, streams: EventStreams) -> None:
    """Tell readers of events how the servers of all PML processes stand, whenever that changes."""
    known: dict[tuple[OwnerId, str], str] = {}

    async def look() -> None:
        nonlocal known
        if not streams.counts.open_now:
            return
        posted = await asyncio.to_thread(list_servers, place.home)
        now = {(each.owner, each.name): str(each.state) for each in posted}
        for key in known.keys() | now.keys():
            if known.get(key) != now.get(key):
                state = now.get(key, "stopped")
                feed.publish(server_changed(key[1], state, at=context.clock.now()))
        known = now

    await _repeat(look, every_s=BOARD_S)


async def _repeat(work: Callable[[], Awaitable[None]], *, every_s: float) -> None:
    """Do the work again and again; what goes wrong once must not end it for the life of the hub."""
    while True:
        try:
            await work()
        except PmlError:
            pass  # the store was busy, or a file could not be read: the next time tells
        except Exception as exc:
            _complain(exc)
        await asyncio.sleep(every_s)


async def _end_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _tell(line: str) -> None:
    """Tell the person who runs the hub; what came from outside must have passed `visible`."""
    print(f"pml: {line}", file=sys.stderr)


def _complain(error: Exception) -> None:
    """Tell of a mistake of ours: whole for who debugs."""
    print(f"pml: internal error: {visible(str(error) or type(error).__name__)}", file=sys.stderr)
    if is_debugging():
        import traceback

        traceback.print_exception(error)
