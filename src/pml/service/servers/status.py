"""Status of servers: which file defines each or what is installed, whether it may start, and its runs.

A server that cannot be understood is shown as refused, and hides no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from pml.core.approvals.record import instant
from pml.core.config.file import ConfigFile
from pml.core.config.merged import unset_text
from pml.core.errors import PmlError
from pml.core.ports.loader import Installed
from pml.core.ports.records import Session
from pml.core.ports.server_logins import ServerLogin
from pml.core.ports.servers import ServerHost
from pml.core.rules.ruleset import Source
from pml.core.servers.remote_target import RemoteTarget
from pml.core.servers.run import ContainedBy, ServerRun
from pml.core.servers.spec import ServerSpec, Unusable
from pml.core.sessions.process import Process
from pml.core.values import Json, JsonObject
from pml.service.context import Context
from pml.service.policy.policy import Policy, current_policy


@dataclass(frozen=True, kw_only=True)
class GatewayRun:
    """A server of one gateway, and the sessions that the gateway serves."""

    run: ServerRun
    sessions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ServerStatus:
    """A server of one target; the digest is None if that is not known.

    `spec` is None then too, or if it runs, but no file defines it so any more; `source` is where a file does.
    `installed`: PML installed it.
    """

    name: str
    target_digest: str | None
    spec: ServerSpec | None
    source: Source | None = None
    trusted: bool
    problem: str | None
    tools: tuple[str, ...] | None
    runs: tuple[GatewayRun, ...]
    next_contained: ContainedBy | None = None
    installed: Installed | None = None
    is_switched_off: bool = False
    login: ServerLogin | None = None

    @property
    def login_words(self) -> str | None:
        """How it stands with the login to a remote server; None where nothing tells of one."""
        target = None if self.spec is None else self.spec.target
        if not isinstance(target, RemoteTarget):
            return None
        if self.login is None or not self.login.is_logged_in:
            is_wanted = self.login is not None or target.oauth is not None
            return f"needs login: `pml login {self.name}`" if is_wanted else None
        if self.login.wants is not None:
            return f"needs login: `pml login {self.name}`, since it asks for {self.login.wants}"
        if self.login.expires_at is None:
            return "logged in"
        refreshed = ", refreshed by itself" if self.login.can_refresh else ""
        return f"logged in until {instant(self.login.expires_at)}{refreshed}"

    @property
    def containment(self) -> Sequence[ContainedBy]:
        """What contains each that runs; of a server that does not run, what would."""
        now = [served.run.containment for served in self.runs] or [self.next_contained]
        return list(dict.fromkeys(by for by in now if by is not None))

    @property
    def state(self) -> str:
        if self.runs:
            return ", ".join(dict.fromkeys(served.run.state for served in self.runs))
        if self.is_switched_off:
            return "disabled"
        if self.problem is not None:
            return "refused"
        if not self.trusted:
            return "not trusted"
        return "needs login" if (self.login_words or "").startswith("needs") else "stopped"


async def server_statuses(context: Context, host: ServerHost, policy: Policy) -> list[ServerStatus]:
    """Return every server that files define, that is installed, or that runs in the workspace, by name."""
    runs = _runs(host.runs(policy.workspace), await context.store.sessions.live())
    specs = [spec for config in _files(policy) for spec in config.servers.values()]
    found = [await _configured(context, host, policy, spec, runs) for spec in specs]
    found += [_unusable(policy, each) for config in _files(policy) for each in config.unusable.values()]
    installs = _all_installed(host)
    if not isinstance(installs, PmlError):
        found += [await _installed(context, host, policy, each, runs) for each in installs.values()]
    known = {(status.name, status.target_digest) for status in found}
    found += [
        ServerStatus(
            name=name,
            target_digest=target_digest,
            spec=None,
            trusted=False,
            problem=None,
            tools=None,
            runs=tuple(own),
        )
        for (name, target_digest), own in runs.items()
        if (name, target_digest) not in known
    ]
    return sorted(found, key=lambda status: status.name)


async def servers_json(context: Context, host: ServerHost, workspace: str) -> JsonObject:
    """Return the servers of the workspace as `pml servers list --json` and the API have them."""
    policy = await current_policy(context, workspace)
    found = await server_statuses(context, host, policy)
    return {"servers": [status_json(status) for status in found]}


def broken_installs(host: ServerHost) -> PmlError | None:
    """Return why it is not known what is installed, if it is not."""
    found = _all_installed(host)
    return found if isinstance(found, PmlError) else None


def _all_installed(host: ServerHost) -> Mapping[str, Installed] | PmlError:
    try:
        return host.installer.all_installed()
    except PmlError as exc:
        return exc


def _runs(
    server_runs: Sequence[ServerRun], sessions: Sequence[Session]
) -> Mapping[tuple[str, str], list[GatewayRun]]:
    names: dict[tuple[Process | None, str], list[str]] = {}
    for session in sessions:
        names.setdefault((session.process, session.workspace), []).append(session.name)
    runs: dict[tuple[str, str], list[GatewayRun]] = {}
    for run in server_runs:
        nearby = (run.owner_process, *run.above)
        of_each = (names.get((process, run.workspace), []) for process in nearby)
        nearest = next(filter(None, of_each), list[str]())
        served = GatewayRun(run=run, sessions=tuple(dict.fromkeys(nearest)))
        runs.setdefault((run.name, run.target_digest), []).append(served)
    return runs


def _files(policy: Policy) -> list[ConfigFile]:
    files = (policy.loaded.user.config, policy.loaded.workspace.config)
    return [config for config in files if config is not None]


def _unusable(policy: Policy, entry: Unusable) -> ServerStatus:
    is_users = entry.source.file == policy.loaded.user.path
    return ServerStatus(
        name=entry.name,
        target_digest=None,
        spec=None,
        source=entry.source,
        trusted=is_users or policy.trusted,
        problem=entry.problem,
        tools=None,
        runs=(),
        is_switched_off=entry.is_switched_off,
    )


async def _configured(
    context: Context,
    host: ServerHost,
    policy: Policy,
    spec: ServerSpec,
    runs: Mapping[tuple[str, str], list[GatewayRun]],
) -> ServerStatus:
    is_users = spec.source.file == policy.loaded.user.path
    status = await _startable(context, host, policy.workspace, spec, runs)
    unusable = policy.settings.unusable.get(spec.name)
    problem = unset_text(spec) if spec.target.unset else None if unusable is None else unusable.problem
    return replace(
        status, trusted=is_users or policy.trusted, source=spec.source, problem=problem or status.problem
    )


async def _installed(
    context: Context,
    host: ServerHost,
    policy: Policy,
    installed: Installed,
    runs: Mapping[tuple[str, str], list[GatewayRun]],
) -> ServerStatus:
    name = installed.dependency.name
    try:
        spec = host.installer.launch(installed, workspace=policy.workspace)
    except PmlError as exc:
        return ServerStatus(
            name=name,
            target_digest=None,
            spec=None,
            trusted=True,
            problem=exc.message,
            tools=None,
            runs=(),
            installed=installed,
        )
    status = await _startable(context, host, policy.workspace, spec, runs)
    is_taken = name in policy.settings.servers or name in policy.settings.unusable
    hidden = "a file configures another server of this name" if is_taken else None
    return replace(status, problem=hidden or status.problem, installed=installed)


async def _startable(
    context: Context,
    host: ServerHost,
    workspace: str,
    spec: ServerSpec,
    runs: Mapping[tuple[str, str], list[GatewayRun]],
) -> ServerStatus:
    """Return what is known of the server that `spec` starts, as if it were trusted."""
    target_digest = spec.target_digest
    manifest = await context.store.manifests.get(spec.name, target_digest)
    contained = _next_contained(host, spec, workspace)
    login = _login(host, spec)
    broken = next((each.message for each in (contained, login) if isinstance(each, PmlError)), None)
    return ServerStatus(
        name=spec.name,
        target_digest=target_digest,
        spec=spec,
        trusted=True,
        problem=broken,
        tools=None if manifest is None else tuple(manifest.definitions),
        runs=tuple(runs.get((spec.name, target_digest), ())),
        next_contained=None if isinstance(contained, PmlError) else contained,
        login=None if isinstance(login, PmlError) else login,
    )


def _login(host: ServerHost, spec: ServerSpec) -> ServerLogin | PmlError | None:
    try:
        return host.login(spec)
    except PmlError as exc:
        return exc


def _next_contained(host: ServerHost, spec: ServerSpec, workspace: str) -> ContainedBy | PmlError | None:
    try:
        return host.containment(spec, workspace=workspace)
    except PmlError as exc:
        return exc


def status_json(status: ServerStatus) -> JsonObject:
    spec = status.spec
    return {
        "name": status.name,
        "state": status.state,
        "source": None if status.source is None else msgspec.to_builtins(status.source),
        "installed": None if status.installed is None else status.installed.dependency.title,
        "trusted": status.trusted,
        "problem": status.problem,
        "launch": status.target_digest,
        "start": None if spec is None else spec.target.start_json(spec.name),
        "tools": status.tools,
        "login": _login_json(status),
        "containment": [_contained_json(by) for by in status.containment],
        "runs": [run_json(run) for run in status.runs],
    }


def _login_json(status: ServerStatus) -> Json:
    if status.login_words is None:
        return None
    login = status.login
    is_logged_in = login is not None and login.is_logged_in
    ends = None if login is None or login.expires_at is None else instant(login.expires_at)
    return {
        "told": status.login_words,
        "issuer": login.issuer if login is not None and is_logged_in else None,
        "scope": login.scope if login is not None and is_logged_in else None,
        "expires_at": ends if is_logged_in else None,
    }


def _contained_json(by: ContainedBy) -> JsonObject:
    return {"kind": by.kind, "told": by.words}


def run_json(served: GatewayRun) -> JsonObject:
    run = served.run
    return {
        "pid": None if run.process is None else run.process.pid,
        "state": run.state,
        "since": instant(run.since),
        "restarts": run.restarts,
        "last_error": run.last_error,
        "gateway_pid": run.owner_process.pid,
        "owner": run.owner,
        "sessions": served.sessions,
        "containment": None if run.containment is None else _contained_json(run.containment),
    }
