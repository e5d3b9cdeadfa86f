"""What is known of each server: which file defines it or what is installed, whether it may start, its runs.

One that cannot be understood is told as refused, and hides no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from pml.core.approvals import instant
from pml.core.config import ConfigFile
from pml.core.effective import unset_text
from pml.core.errors import PmlError
from pml.core.loading import Installed
from pml.core.permissions import permissions_json
from pml.core.ports import Process
from pml.core.rules import Source
from pml.core.servers import ServerSpec, Unusable
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.ports import Session
    from pml.service.desk import Desk
    from pml.service.policy import Policy
    from pml.upstream.board import Posted
    from pml.upstream.containment import Held


@dataclass(frozen=True, kw_only=True)
class Run:
    """A server of one gateway, and the sessions that the gateway serves."""

    posted: "Posted"
    sessions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A server under one launch digest, which is None if how it would start is not known.

    `spec` is None then too, or if it runs, but no file defines it so any more; `source` is where a file does.
    `installed`: PML installed it.
    """

    name: str
    launch: str | None
    spec: ServerSpec | None
    source: Source | None = None
    trusted: bool
    problem: str | None
    tools: tuple[str, ...] | None
    runs: tuple[Run, ...]
    next_held: "Held | None" = None
    installed: Installed | None = None
    is_switched_off: bool = False

    @property
    def containment(self) -> "Sequence[Held]":
        """What holds each that runs; of a server that does not run, what would."""
        now = [run.posted.containment for run in self.runs] or [self.next_held]
        return list(dict.fromkeys(held for held in now if held is not None))

    @property
    def state(self) -> str:
        if self.runs:
            return ", ".join(dict.fromkeys(run.posted.state for run in self.runs))
        if self.is_switched_off:
            return "disabled"
        if self.problem is not None:
            return "refused"
        return "stopped" if self.trusted else "not trusted"


async def all_standing(desk: "Desk", place: "Place", policy: "Policy") -> list[Standing]:
    """Return every server that files define, that is installed, or that runs in the workspace, by name."""
    runs = _runs(_posted(place), await desk.store.sessions.live())
    specs = [spec for config in _files(policy) for spec in config.servers.values()]
    found = [await _configured(desk, place, policy, spec, runs) for spec in specs]
    found += [_unusable(policy, each) for config in _files(policy) for each in config.unusable.values()]
    installs = _all_installed(place)
    if not isinstance(installs, PmlError):
        found += [await _installed(desk, place, policy, each, runs) for each in installs.values()]
    known = {(standing.name, standing.launch) for standing in found}
    found += [
        Standing(
            name=name, launch=launch, spec=None, trusted=False, problem=None, tools=None, runs=tuple(own)
        )
        for (name, launch), own in runs.items()
        if (name, launch) not in known
    ]
    return sorted(found, key=lambda standing: standing.name)


async def servers_json(desk: "Desk", place: "Place") -> JsonObject:
    """Return the servers of the workspace as `pml servers list --json` and the API have them."""
    from pml.service.policy import current_policy

    policy = await current_policy(desk, str(place.workspace))
    found = await all_standing(desk, place, policy)
    return {"servers": [standing_json(standing) for standing in found]}


def broken_installs(place: "Place") -> PmlError | None:
    """Return why it is not known what is installed, if it is not."""
    found = _all_installed(place)
    return found if isinstance(found, PmlError) else None


def _all_installed(place: "Place") -> Mapping[str, Installed] | PmlError:
    from pml.app import open_installer

    try:
        return open_installer(place).all_installed()
    except PmlError as exc:
        return exc


def _posted(place: "Place") -> "list[Posted]":
    """Return the servers that run in this workspace; what killed gateways left is ended first."""
    from pml.upstream.board import end_orphans, list_servers

    end_orphans(place.home)  # listing forgets what they left, and then nobody would end it
    return [posted for posted in list_servers(place.home) if posted.workspace == str(place.workspace)]


def _runs(
    all_posted: "Sequence[Posted]", sessions: "Sequence[Session]"
) -> Mapping[tuple[str, str], list[Run]]:
    names: dict[tuple[Process | None, str], list[str]] = {}
    for session in sessions:
        names.setdefault((session.process, session.workspace), []).append(session.name)
    runs: dict[tuple[str, str], list[Run]] = {}
    for posted in all_posted:
        nearby = (posted.owner_process, *posted.above)
        held = (names.get((process, posted.workspace), []) for process in nearby)
        nearest = next(filter(None, held), list[str]())
        run = Run(posted=posted, sessions=tuple(dict.fromkeys(nearest)))
        runs.setdefault((posted.name, posted.launch), []).append(run)
    return runs


def _files(policy: "Policy") -> list[ConfigFile]:
    files = (policy.loaded.user.config, policy.loaded.workspace.config)
    return [config for config in files if config is not None]


def _unusable(policy: "Policy", entry: Unusable) -> Standing:
    is_users = entry.source.file == policy.loaded.user.path
    return Standing(
        name=entry.name,
        launch=None,
        spec=None,
        source=entry.source,
        trusted=is_users or policy.trusted,
        problem=entry.problem,
        tools=None,
        runs=(),
        is_switched_off=entry.is_switched_off,
    )


async def _configured(
    desk: "Desk",
    place: "Place",
    policy: "Policy",
    spec: ServerSpec,
    runs: Mapping[tuple[str, str], list[Run]],
) -> Standing:
    is_users = spec.source.file == policy.loaded.user.path
    standing = await _startable(desk, place, spec, runs)
    unusable = policy.settings.unusable.get(spec.name)
    problem = unset_text(spec) if spec.unset else None if unusable is None else unusable.problem
    return replace(
        standing, trusted=is_users or policy.trusted, source=spec.source, problem=problem or standing.problem
    )


async def _installed(
    desk: "Desk",
    place: "Place",
    policy: "Policy",
    installed: Installed,
    runs: Mapping[tuple[str, str], list[Run]],
) -> Standing:
    from pml.app import open_installer

    name = installed.dependency.name
    try:
        spec = open_installer(place).launch(installed, workspace=str(place.workspace))
    except PmlError as exc:
        return Standing(
            name=name,
            launch=None,
            spec=None,
            trusted=True,
            problem=exc.message,
            tools=None,
            runs=(),
            installed=installed,
        )
    standing = await _startable(desk, place, spec, runs)
    is_taken = name in policy.settings.servers or name in policy.settings.unusable
    hidden = "a file configures another server of this name" if is_taken else None
    return replace(standing, problem=hidden or standing.problem, installed=installed)


async def _startable(
    desk: "Desk", place: "Place", spec: ServerSpec, runs: Mapping[tuple[str, str], list[Run]]
) -> Standing:
    """Return what is known of the server that `spec` starts, as if it were trusted."""
    from pml.core.manifests import launch_digest

    launch = launch_digest(spec)
    manifest = await desk.store.manifests.get(spec.name, launch)
    holds = _next_held(place, spec)
    return Standing(
        name=spec.name,
        launch=launch,
        spec=spec,
        trusted=True,
        problem=holds.message if isinstance(holds, PmlError) else None,
        tools=None if manifest is None else tuple(manifest.definitions),
        runs=tuple(runs.get((spec.name, launch), ())),
        next_held=None if isinstance(holds, PmlError) else holds,
    )


def _next_held(place: "Place", spec: ServerSpec) -> "Held | PmlError":
    from pml.upstream.containment import available, held

    try:
        return held(
            available(),
            spec,
            home=place.home,
            user_home=place.user_home,
            workspace=str(place.workspace),
        )
    except PmlError as exc:
        return exc


def standing_json(standing: Standing) -> JsonObject:
    spec = standing.spec
    return {
        "name": standing.name,
        "state": standing.state,
        "source": None if standing.source is None else msgspec.to_builtins(standing.source),
        "installed": None if standing.installed is None else standing.installed.dependency.title,
        "trusted": standing.trusted,
        "problem": standing.problem,
        "launch": standing.launch,
        "start": None if spec is None else launch_json(spec),
        "tools": standing.tools,
        "containment": [_held_json(held) for held in standing.containment],
        "runs": [run_json(run) for run in standing.runs],
    }


def launch_json(spec: ServerSpec) -> JsonObject:
    """Return how a server is started; of its variables only the names, for the values may be secrets."""
    shown = spec.shown
    return {
        "name": spec.name,
        "command": shown.command,
        "args": shown.args,
        "cwd": shown.cwd,
        "env_names": tuple(spec.env),
        "path": shown.env.get("PATH"),
        "permissions": permissions_json(spec.permissions),
        "variables": () if spec.written is None else spec.written.names,
        "unset": spec.unset,
    }


def _held_json(held: "Held") -> JsonObject:
    return {"kind": held.kind, "told": held.words}


def run_json(run: Run) -> JsonObject:
    posted = run.posted
    return {
        "pid": None if posted.process is None else posted.process.pid,
        "state": posted.state,
        "since": instant(posted.since),
        "restarts": posted.restarts,
        "last_error": posted.last_error,
        "gateway_pid": posted.owner_process.pid,
        "owner": posted.owner,
        "sessions": run.sessions,
        "containment": None if posted.containment is None else _held_json(posted.containment),
    }
