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
    open_desk,
    open_fleet,
    open_loader,
    open_variables,
    open_workshop,
    register_process,
)
from pml.core.agents import Agents
from pml.core.approvals import OwnerId, SessionId
from pml.core.cloud import Cloud
from pml.core.errors import NotFound, PmlError
from pml.core.events import HubEvent, install_progress, server_changed
from pml.core.identity import Identity, TokenId
from pml.core.loading import Progress
from pml.core.ports import Session
from pml.core.text import visible
from pml.downstream.connection import Connection
from pml.downstream.eras import Era
from pml.downstream.gateway import Gateway
from pml.downstream.http import McpEndpoint
from pml.downstream.relay import Relay
from pml.downstream.supervision import permit_again
from pml.hub.app import hub_app
from pml.hub.events import EventStreams
from pml.hub.metrics import Gauges
from pml.hub.origins import Allowed
from pml.hub.visits import ServerLogs, Servers
from pml.hub.webhook import Webhook
from pml.hub.webhook_post import SECRET
from pml.service.carrying import stop_installs
from pml.service.desk import Desk
from pml.service.feed import Feed
from pml.service.gate import Gate
from pml.service.launching import Launcher, close_left_runs
from pml.service.sessions import session_of
from pml.service.tokens import is_live_token
from pml.service.upkeep import clean_up, sweep
from pml.service.workshop import Workshop
from pml.settings.one_secret import OneSecret
from pml.upstream.board import list_servers

SWEEP_S: Final = 2.0  # how soon an agent's end, or an expiry, is noticed by nobody's doing
CLEAN_S: Final = 3600.0
BOARD_S: Final = 1.0
WEBHOOK_S: Final = 1.0  # how soon one is noticed that was set meanwhile
REVOKED_S: Final = 0.5  # how long what is open for a token may outlive it


@dataclass(frozen=True, kw_only=True)
class OpenHub:
    """A hub that is ready to be served."""

    app: ASGIApp
    desk: Desk
    launcher: Launcher
    stop: Callable[[], None]  # ends what would go on for ever: whoever follows events


@asynccontextmanager
async def open_hub(
    place: Place, *, url: str, allowed: Allowed, servers: Servers, server_logs: ServerLogs
) -> AsyncGenerator[OpenHub]:
    """Yield the hub that will be served at `url`; at the end its agents, servers and streams have ended."""
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(open_desk(place))
        await sweep(desk)
        await register_process(desk, place, stack, name="hub")
        agents = open_agents(place, hub_url=lambda: url)
        await close_left_runs(desk, agents)
        feed = Feed(desk)
        streams = EventStreams(feed)
        shared: list[_Shared] = []

        def open_gateway(
            identity: Identity, connection: Connection, era: Era, opened: AsyncExitStack
        ) -> Awaitable[Gateway]:
            return _open_gateway(shared[0], identity, connection, opened)

        async def must_resume(session_id: SessionId) -> bool:
            return (await session_of(desk, session_id)).waits

        endpoint = McpEndpoint(
            open_gateway, must_resume=must_resume, again=permit_again, debug=is_debugging()
        )
        launcher = Launcher(desk, agents, endpoint.end)
        workshop, cloud = open_workshop(place), open_cloud_client()
        stack.push_async_callback(workshop.close)
        stack.push_async_callback(cloud.close)
        shared.append(
            _Shared(
                desk=desk,
                place=place,
                url=allowed.public or url,
                feed=feed,
                launcher=launcher,
                workshop=workshop,
                cloud=cloud,
            )
        )
        webhook = Webhook(
            desk,
            workspace=str(place.workspace),
            base=shared[0].url,
            key=OneSecret(open_variables(place).secrets, SECRET),
            tell=_tell,
        )
        chores = [
            asyncio.create_task(_keep_house(desk, agents, launcher, str(place.workspace))),
            asyncio.create_task(_watch_servers(desk, place, feed, streams)),
            asyncio.create_task(_end_revoked(desk, endpoint)),
            asyncio.create_task(_repeat(webhook.follow, every_s=WEBHOOK_S)),
        ]
        stack.push_async_callback(_end_all, chores)
        stack.push_async_callback(endpoint.close)
        stack.push_async_callback(launcher.close)
        stack.callback(feed.close)
        app = hub_app(
            desk,
            mcp=endpoint,
            events=streams,
            launcher=launcher,
            servers=servers,
            server_logs=server_logs,
            secrets=open_variables(place).secrets,
            workspace=str(place.workspace),
            allowed=allowed,
            gauges=Gauges(
                waiting_permits=lambda: endpoint.in_flight,
                event_streams=lambda: streams.counts.open_now,
                deliveries=lambda: webhook.counts,
            ),
            started_at=desk.clock.now(),
            complain=_complain,
        )
        yield OpenHub(app=app, desk=desk, launcher=launcher, stop=feed.close)


@dataclass(frozen=True, kw_only=True)
class _Shared:
    """What the gateways of all sessions share."""

    desk: Desk
    place: Place
    url: str  # as a person's browser knows the hub
    feed: Feed
    launcher: Launcher
    workshop: Workshop
    cloud: Cloud


async def _open_gateway(
    hub: _Shared, identity: Identity, connection: Connection, stack: AsyncExitStack
) -> Gateway:
    """Return the gateway of the session that the token speaks for; the stack closes it."""
    desk = hub.desk
    if identity.session_id is None:
        raise NotFound("this token speaks for no session")
    session = await session_of(desk, identity.session_id)
    place = Place(home=hub.place.home, workspace=Path(session.workspace), user_home=hub.place.user_home)
    relay = Relay(connection, session.workspace)
    fleet = open_fleet(desk, place, relay, owner=OwnerId(session.id))
    stack.push_async_callback(fleet.close)
    loader = open_loader(
        desk, place, fleet, warn=lambda line: relay.logged("pml", {"level": "warning", "data": line})
    )
    stack.push_async_callback(stop_installs, loader)
    run = await desk.store.runs.get(session.id)
    gate = Gate(
        desk=desk,
        session=session,
        servers=fleet,
        loader=loader,
        workshop=hub.workshop,
        cloud=hub.cloud,
        is_held=run is not None and run.order.is_held,
        told=lambda name, step: hub.feed.publish(_installing(session, name, step, desk.clock.now())),
    )
    gateway = Gateway(gate, connection, relay, hub.launcher, lambda: hub.url)
    stack.push_async_callback(gateway.close)
    return gateway


def _installing(session: Session, name: str, step: Progress, at: datetime) -> HubEvent:
    return install_progress(
        name, done=step.done, total=step.total, message=step.message, at=at, session_id=session.id
    )


async def _keep_house(desk: Desk, agents: Agents, launcher: Launcher, workspace: str) -> None:
    """Notice what nobody's request would notice, for as long as the hub lives."""
    loop = asyncio.get_running_loop()
    clean_at = loop.time()

    async def look() -> None:
        nonlocal clean_at
        await sweep(desk)
        await launcher.stop_orphans()
        await close_left_runs(desk, agents)
        if loop.time() >= clean_at:
            await clean_up(desk, workspace)
            clean_at = loop.time() + CLEAN_S

    await _repeat(look, every_s=SWEEP_S)


async def _end_revoked(desk: Desk, endpoint: McpEndpoint) -> None:
    """End what is open for tokens that were revoked, or whose session has ended."""

    async def counts(token_id: TokenId) -> bool:
        return await is_live_token(desk, token_id)

    await _repeat(lambda: endpoint.end_dead(counts), every_s=REVOKED_S)


async def _watch_servers(desk: Desk, place: Place, feed: Feed, streams: EventStreams) -> None:
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
                feed.publish(server_changed(key[1], state, at=desk.clock.now()))
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
