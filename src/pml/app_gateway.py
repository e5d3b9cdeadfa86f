"""The gateway of `pml stdio` put together: a session for its client, and all that calls of it need.

Whatever is opened is on a stack, in its order, so that the last is closed first: no server outlives the
gateway, and no session the servers.
"""

import contextlib
import functools
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pml.app import (
    Place,
    open_agents,
    open_cloud_client,
    open_context,
    open_fleet,
    open_loader,
    open_workshop,
    principal,
)
from pml.core.errors import Unavailable

if TYPE_CHECKING:
    from pml.core.approvals.record import SessionId
    from pml.core.ports.records import Session
    from pml.core.sessions.launch import LaunchConsent
    from pml.downstream.forms.relay import Relay
    from pml.downstream.gateway import Gateway
    from pml.downstream.protocol.connection import Connection
    from pml.downstream.protocol.eras import Era
    from pml.service.call import Gate
    from pml.service.context import Context
    from pml.service.sessions.launcher import Launcher, Wish


async def open_gateway(
    place: Place,
    connection: "Connection",
    era: "Era",
    stack: contextlib.AsyncExitStack,
    *,
    shows_forms: bool = True,
) -> "Gateway":
    """Return the gateway for the client of `connection`; the stack closes it and all that it started."""
    from pml.downstream.forms.relay import Relay
    from pml.downstream.gateway import Gateway

    async with contextlib.AsyncExitStack() as opening:  # one that fails leaves nothing behind
        context = await opening.enter_async_context(open_context(place))
        session = await _open_session(context, place, era.client, opening)
        relay = Relay(connection, session.workspace)
        gate = _open_gate(context, place, session, relay, opening, shows_forms=shows_forms)
        launching = BesideHub(context, place)
        opening.push_async_callback(launching.close)
        gateway = Gateway(gate, connection, relay, launching, launching.hub_url)
        opening.push_async_callback(gateway.close)
        stack.push_async_exit(opening.pop_all())
    gc.freeze()  # all that was imported stays: the collector need not look through it during calls
    return gateway


async def _open_session(
    context: "Context", place: Place, client_name: str, opening: contextlib.AsyncExitStack
) -> "Session":
    """Return the session of the client above this process, as a child's where that is an agent's."""
    from pml.core.approvals.record import SessionId
    from pml.core.sessions.token import TokenRole
    from pml.service.session_tree import agent_above, start_session
    from pml.service.upkeep import end_session, sweep

    await sweep(context)
    client = context.processes.client()
    agent = await agent_above(context, client)
    session = await start_session(
        context,
        session_id=SessionId(context.ids.new()),
        name=client_name,
        principal=principal(place),
        workspace=str(place.workspace),
        process=client,
        is_agent=True,
        parent_id=None if agent is None else agent.id,
        role=TokenRole.SESSION if agent is None else TokenRole.CHILD,
    )
    opening.push_async_callback(end_session, context, session)
    return session


def _open_gate(
    context: "Context",
    place: Place,
    session: "Session",
    relay: "Relay",
    opening: contextlib.AsyncExitStack,
    *,
    shows_forms: bool,
) -> "Gate":
    """Return what the calls of the session go through: its servers, installs, code and cloud."""
    from pml.service.call import Gate
    from pml.service.install.deeds import stop_installs

    fleet = open_fleet(context, place, relay)
    opening.push_async_callback(fleet.close)
    loader = open_loader(
        context, place, fleet, warn=lambda line: relay.logged("pml", {"level": "warning", "data": line})
    )
    opening.push_async_callback(stop_installs, loader)
    workshop, cloud = open_workshop(place), open_cloud_client()
    opening.push_async_callback(workshop.close)
    opening.push_async_callback(cloud.close)
    return Gate(
        context=context,
        session=session,
        servers=fleet,
        loader=loader,
        workshop=workshop,
        cloud=cloud,
        client_answers=not _is_left_alone(context),
        form_hook=_form_hook(place, session.name),
        asks_nothing=functools.partial(_asks_nothing, place),
        is_stdio=True,
        shows_forms=shows_forms,
    )


def _is_left_alone(context: "Context") -> bool:
    """Tell whether no person is behind the client: what PML started has this started, or nobody does.

    An agent can have its shell start a gateway that is no longer beneath it. The marks of clients tell
    nothing here, since they set them for their servers too.
    """
    from pml.core.sessions.agent_marks import MARK

    processes = context.processes
    is_orphan = processes.is_detached() and not processes.feeds(processes.client())
    return bool(os.environ.get(MARK)) or is_orphan


def _form_hook(place: Place, client: str) -> Callable[[], str | None]:
    """Return what tells why a program may answer the client's forms; Claude Code lets hooks do so."""
    from pml.agents.claude_code.form_hooks import FormHooks, config_folder
    from pml.service.call import no_form_hook

    if not client.lower().startswith("claude") and "CLAUDECODE" not in os.environ:
        return no_form_hook
    project = os.environ.get("CLAUDE_PROJECT_DIR")
    folders = [place.workspace, Path.cwd(), *([Path(project)] if project else [])]
    hooks = FormHooks(config_folder(os.environ, place.user_home), folders)
    hooks()  # those that the client started with stay, whatever becomes of the files
    return hooks


def _asks_nothing(place: Place) -> bool:
    """Tell whether settings of Claude Code let this gateway's tools run: then it does not ask about them."""
    from pml.agents.allowances import is_left_to_pml
    from pml.agents.claude_code.form_hooks import config_folder, settings_files
    from pml.agents.claude_code.gateway_name import gateway_names

    folders = dict.fromkeys((place.workspace, Path.cwd()))
    files = settings_files(config_folder(os.environ, place.user_home), [*folders])
    return is_left_to_pml(files, gateway_names(place.home, str(place.workspace)))


class BesideHub:
    """Launching for a gateway on stdio: there while a hub runs, which its agents then speak to."""

    def __init__(self, context: "Context", place: Place) -> None:
        self._context = context
        self._place = place
        self._launcher: Launcher | None = None

    @property
    def is_on(self) -> bool:
        return self.hub_url() is not None

    async def launch(
        self, wish: "Wish", *, parent: "Session", workspace: str, consent: "LaunchConsent"
    ) -> "Session":
        """Raises: as `Launcher.launch`; Unavailable if no hub runs."""
        self._need_hub()
        return await self._opened().launch(wish, parent=parent, workspace=workspace, consent=consent)

    async def check(self, wish: "Wish", *, parent: "Session", workspace: str) -> None:
        """Raises: as `Launcher.check`."""
        await self._opened().check(wish, parent=parent, workspace=workspace)

    async def stop(self, session_id: "SessionId", *, reason: str) -> None:
        """Raises: NotFound."""
        await self._opened().stop(session_id, reason=reason)

    async def close(self) -> None:
        if self._launcher is not None:
            await self._launcher.close()

    def _opened(self) -> "Launcher":
        if self._launcher is None:
            from pml.service.sessions.launcher import Launcher

            self._launcher = Launcher(self._context, open_agents(self._place, hub_url=self._need_hub))
        return self._launcher

    def hub_url(self) -> str | None:
        """Return where the hub of this home is, while one runs."""
        from pml.hub.presence import running_hub

        hub = running_hub(self._place.home)
        return None if hub is None else hub.url

    def _need_hub(self) -> str:
        url = self.hub_url()
        if url is None:
            raise Unavailable("no hub runs", hint="`pml serve` starts one")
        return url
