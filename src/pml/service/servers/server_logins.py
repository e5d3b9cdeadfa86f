"""Logins of remote servers as use cases: which server is meant, what is noted, and whom it lets continue."""

import contextlib
from difflib import get_close_matches

from pml.core.approvals.record import Approval, Decider, State, Subject
from pml.core.audit.entries import server_login_changed
from pml.core.errors import Conflict, Forbidden, Invalid, NotFound
from pml.core.ports.server_logins import LoginWish, ServerLogin
from pml.core.servers.remote_target import OAuthSettings, RemoteTarget
from pml.core.servers.spec import ServerSpec
from pml.core.text import quote
from pml.service.approvals.lifecycle import Decision, all_pending, decide, get
from pml.service.context import Context
from pml.service.policy.policy import Policy, current_policy
from pml.service.session_tree import session_of


def remote_server(policy: Policy, name: str) -> ServerSpec:
    """Return the server `name`, which is reached by URL. Raises: NotFound, Invalid."""
    spec = policy.settings.servers.get(name)
    if spec is None:
        raise _no_server(policy, name)
    if not isinstance(spec.target, RemoteTarget):
        raise Invalid(
            f"server {quote(name)} is a program on this machine: there is nothing to log in to",
            hint=f"`pml secrets set` stores the keys it needs; `pml servers status {name}` names them",
        )
    return spec


def _no_server(policy: Policy, name: str) -> NotFound:
    config = policy.loaded.workspace.config
    if not policy.trusted and config is not None and name in config.servers:
        return NotFound(
            f"server {quote(name)} is defined in {policy.loaded.workspace.path}, which is not trusted",
            hint="`pml trust` shows it; log in once it is trusted",
        )
    if (unusable := policy.settings.unusable.get(name)) is not None:
        return NotFound(unusable.problem, hint=unusable.hint or "`pml doctor` says what to fix")
    near = get_close_matches(name, policy.settings.servers, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "`pml servers list` shows all there are"
    return NotFound(f"no server {quote(name)} in this workspace", hint=hint)


def login_wish(spec: ServerSpec, *, callback_port: int | None = None) -> LoginWish:
    """Return what a login to the server is made with, as its entry says. Raises: Invalid."""
    target = spec.target
    if not isinstance(target, RemoteTarget):
        raise AssertionError("a program has no login")
    if target.unset:
        names = ", ".join(target.unset)
        raise Invalid(
            f"server {quote(spec.name)} cannot be reached until {names} is set", hint="`pml secrets set NAME`"
        )
    settings = target.oauth or OAuthSettings()
    return LoginWish(
        server=spec.name,
        url=target.url,
        shown_url=target.line,
        client_id=settings.client_id,
        client_metadata_url=settings.client_metadata_url,
        scopes=settings.scopes,
        callback_port=callback_port or settings.callback_port,
    )


async def note_login(
    context: Context, spec: ServerSpec, login: ServerLogin, *, by: Decider
) -> list[Approval]:
    """Note a login that is stored, and let continue what waits for it; return that."""
    at = context.clock.now()
    await context.store.audit.record(
        server_login_changed(spec.name, "logged_in", issuer=login.issuer, at=at, by=by)
    )
    released: list[Approval] = []
    async for record in all_pending(context):
        if record.subject is Subject.LOGIN_REQUIRED and record.artefact == spec.target_digest:
            decision = Decision(by=by, digest=record.digest, allow=True)
            with contextlib.suppress(Conflict, Forbidden, NotFound):  # decided meanwhile, or not to be
                released.append((await decide(context, record.id, decision)).record)
    return released


async def note_logout(context: Context, login: ServerLogin, *, by: Decider) -> None:
    entry = server_login_changed(
        login.server, "logged_out", issuer=login.issuer, at=context.clock.now(), by=by
    )
    await context.store.audit.record(entry)


async def server_of_question(context: Context, record: Approval) -> ServerSpec:
    """Return the server that the question wants a login to, as it was asked about.

    Raises: Invalid, NotFound, Conflict.
    """
    if record.subject is not Subject.LOGIN_REQUIRED:
        raise Invalid(f"approval `{record.id}` is not about a login")
    now = await get(context, record.id)
    if now.status is not State.PENDING:
        raise Conflict(f"approval `{record.id}` waits no longer: it is {now.status}")
    session = await session_of(context, record.session_id)
    policy = await current_policy(context, session.workspace)
    spec = remote_server(policy, str(record.tool_input.get("server")))
    if spec.target_digest != record.artefact:
        raise Conflict(f"server {quote(spec.name)} is no longer the one that was asked about")
    return spec
