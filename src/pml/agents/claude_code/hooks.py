"""Claude Code's hooks: what it asks before a tool runs, and how it is answered.

The same rules and the same inbox as everywhere. A tool of PML's own gateway is not asked for twice: the
gateway judges and asks itself, so the hook only passes a deny on. Doubt raises; the caller of the hook turns
that into a refusal. How the hook is started and what it prints to is not known here.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Final

import msgspec

from pml.agents.claude_code.gateway_name import proven_names
from pml.core.approvals.record import Approval, SessionId, Subject
from pml.core.errors import Invalid, PmlError, ToolDenied, Unavailable
from pml.core.names import ToolName, wire_of
from pml.core.own_tools import EXECUTE, META_TOOLS, OWN_NAMESPACE, SUPERVISING
from pml.core.ports.records import Session
from pml.core.rules.globs import Glob
from pml.core.rules.ruleset import Call
from pml.core.sessions.process import Process
from pml.core.text import quote
from pml.core.values import Json, JsonObject, is_same, loads_object
from pml.service.approvals.lifecycle import cancel
from pml.service.context import Context
from pml.service.policy.policy import Policy, current_policy, judge, refuse_denied
from pml.service.session_tree import start_session
from pml.service.sessions.loopback import Permit, permit

_HUB: Final = "plexus"  # the name by which PML gives it to the agents that it launches
_OWN_TOOLS: Final = META_TOOLS | SUPERVISING | {EXECUTE}
_HOOKED: Final = "hook-"  # begins the id of a session that no gateway holds
_LOOK_S: Final = 1.0  # how soon a client that was killed is noticed, and its question taken back


class HookEvent(StrEnum):
    PRE_TOOL_USE = "PreToolUse"
    PERMISSION_REQUEST = "PermissionRequest"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the client wants to know. A permission request has no `tool_use_id`: it is empty then."""

    event: HookEvent
    session_id: str
    tool: str
    input: JsonObject
    tool_use_id: str
    cwd: str | None = None  # where the client is now; an agent may have gone elsewhere than its project


def read_asked(text: bytes) -> Asked:
    """Return what the client asks. Raises: Invalid."""
    given = loads_object(text, what="the hook's input")
    event = _text(given, "hook_event_name")
    if event not in list(HookEvent):
        raise Invalid(f"the hook is not made for the event {quote(event)}")
    input = given.get("tool_input")
    if not isinstance(input, Mapping):
        raise Invalid("the hook's input has no object `tool_input`")
    is_call = event == HookEvent.PRE_TOOL_USE
    return Asked(
        event=HookEvent(event),
        session_id=_text(given, "session_id"),
        tool=_text(given, "tool_name"),
        input=input,
        tool_use_id=_text(given, "tool_use_id") if is_call else "",
        cwd=cwd if isinstance(cwd := given.get("cwd"), str) and cwd.startswith("/") else None,
    )


def _text(given: JsonObject, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise Invalid(f"the hook's input has no text `{name}`")
    return value


def answer_json(asked: Asked, said: Permit) -> JsonObject:
    """Return the answer in the client's words; an input that was not edited is not repeated."""
    is_edited = said.allow and not is_same(said.input, asked.input)
    edited: dict[str, Json] = {"updatedInput": said.input} if is_edited else {}
    message = said.message or ("allowed by PML" if said.allow else "Not permitted")
    answer: dict[str, Json] = {"hookEventName": asked.event}
    if asked.event is HookEvent.PRE_TOOL_USE:
        word = "allow" if said.allow else "deny"
        answer |= {"permissionDecision": word, "permissionDecisionReason": message, **edited}
    elif said.allow:
        answer["decision"] = {"behavior": "allow", **edited}
    else:
        answer["decision"] = {"behavior": "deny", "message": message}
    return {"hookSpecificOutput": answer}


async def session_for(
    context: Context, asked: Asked, *, principal: str, workspace: str, is_tried: bool
) -> Session:
    """Return the session of the nearest agent above this process; where there is none, a new one.

    `is_tried`: no client started this, but a person who tries it out: whatever is above is not an agent.

    An agent may hold several: that of its own project comes first, then the oldest, which no command of the
    agent can have brought about.
    """
    above = context.processes.ancestors()
    held = await _held_by(context, above)
    if held:
        nearest = min(above.index(process) for process, _ in held)
        sessions = (session for process, session in held if above.index(process) == nearest)
        return min(sessions, key=lambda each: (each.workspace != workspace, each.started_at, each.id))
    client = above[0] if is_tried else context.processes.client()
    return await start_session(
        context,
        session_id=_session_id(asked, client),
        name="claude-code",
        principal=principal,
        workspace=workspace,
        process=client,
        is_agent=not is_tried,
    )


async def _held_by(context: Context, processes: list[Process]) -> list[tuple[Process, Session]]:
    live = await context.store.sessions.live()
    return [(each.process, each) for each in live if each.is_agent and each.process in processes]


def _session_id(asked: Asked, client: Process) -> SessionId:
    """Return the same id for every hook of one session in one process: a resumed one is another."""
    name = f"claude-code:{asked.session_id}:{client.pid}:{client.started}"
    return SessionId(f"{_HOOKED}{uuid.uuid5(uuid.NAMESPACE_URL, name)}")


async def answer(
    context: Context,
    session: Session,
    asked: Asked,
    *,
    client: Process,
    limit_s: float,
    on_asked: Callable[[Approval], None],
) -> JsonObject | None:
    """Return what the client is to be told within `limit_s`; None: nothing, its own flow continues.

    A question waits as long as the hook does, whatever the settings say: nobody else could use its answer.
    `on_asked` gets each question that is stored, before the wait.

    Raises: PmlError. Cancelled, or with its client gone, it takes its question back.
    """
    own = await _own_wire(context, session, asked)
    if own is not None:
        denied = await _denied_own(context, session, own, asked)
        return None if denied is None else answer_json(asked, denied)
    questions: list[Approval] = []

    def hear(record: Approval) -> None:
        questions.append(record)
        on_asked(record)

    try:
        async with asyncio.timeout(limit_s):
            said = await _permitted(context, session, asked, client, hear, ttl_s=ceil(limit_s))
    except TimeoutError:
        over = f"nobody answered within {_minutes(limit_s)}"
        await _take_back(context, questions, over)
        message = f"Approval timed out: {over}, and the tool did not run. It can be asked again."
        said = Permit(allow=False, input=asked.input, message=message)
    except BaseException:
        await asyncio.shield(_take_back(context, questions, "the client stopped waiting"))
        raise
    return answer_json(asked, said)


def _minutes(seconds: float) -> str:
    """Return the time as a person says it: a few seconds less than an hour are an hour."""
    minutes = ceil(seconds / 60)
    return "a minute" if minutes <= 1 else f"{minutes} minutes"


async def _permitted(
    context: Context,
    session: Session,
    asked: Asked,
    client: Process,
    hear: Callable[[Approval], None],
    *,
    ttl_s: int,
) -> Permit:
    """Raises: Unavailable once the client is gone."""
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_watch(context, client))
            said = await permit(
                context,
                session,
                tool_name=asked.tool,
                input=asked.input,
                tool_use_id=asked.tool_use_id,
                on_asked=hear,
                cwd=asked.cwd,
                ttl_s=ttl_s,
            )
            watching.cancel()
    except ExceptionGroup as exc:
        raise exc.exceptions[0] from exc
    return said


async def _watch(context: Context, client: Process) -> None:
    while context.processes.running(client):  # noqa: ASYNC110  (it is not ours to wait for)
        await asyncio.sleep(_LOOK_S)
    raise Unavailable("the client is gone")


async def _take_back(context: Context, questions: list[Approval], reason: str) -> None:
    for question in questions:
        if question.subject is Subject.TOOL_CALL:  # others of the session may wait for trust as well
            with contextlib.suppress(PmlError):  # it was answered meanwhile
                await cancel(context, question.id, reason=reason)


async def _own_wire(context: Context, session: Session, asked: Asked) -> str | None:
    """Return the wire name of a tool of PML's gateway, None for any other.

    The name of a server proves nothing: a project may call a server of its own `pml`. So a gateway must run
    for this very client, or PML must have launched it.
    """
    names = proven_names(Path(context.home), session.workspace, user_home=Path.home())
    for server in (*names, _HUB):
        wire = asked.tool.removeprefix(f"mcp__{server}__")
        if wire != asked.tool:
            is_ours = await (_is_launched(context, session) if server == _HUB else _has_gateway(context))
            return wire if is_ours and await _is_known(context, session, wire) else None
    return None


async def _is_known(context: Context, session: Session, wire: str) -> bool:
    """Tell whether the gateway lists a tool by this name: another server may be called `pml__x`."""
    policy = await current_policy(context, session.workspace)
    if await _tools_of_wire(context, policy, wire):
        return True
    namespace, _, action = wire.partition("__")
    return any(Glob(text).matches(f"{namespace}:{action}") for text in policy.settings.expose or ())


async def _has_gateway(context: Context) -> bool:
    held = await _held_by(context, [context.processes.client()])
    return any(not each.id.startswith(_HOOKED) for _, each in held)


async def _is_launched(context: Context, session: Session) -> bool:
    return await context.store.runs.get(session.id) is not None


async def _denied_own(context: Context, session: Session, wire: str, asked: Asked) -> Permit | None:
    """Return the refusal of a tool that a rule denies; what is not known here the gateway judges."""
    policy = await current_policy(context, session.workspace)
    for tool in await _tools_of_wire(context, policy, wire):
        call = Call(tool=tool, arguments=asked.input, cwd=session.workspace)
        try:
            refuse_denied(await judge(context, policy, call, session=session), tool)
        except ToolDenied as exc:
            rule = "" if exc.rule is None else f" ({exc.rule})"
            message = f"Tool {tool} is denied by user config{rule}"
            return Permit(allow=False, input=asked.input, message=message)
    return None


async def _tools_of_wire(context: Context, policy: Policy, wire: str) -> list[str]:
    """Return the tools that clients see by this name, by what servers last offered."""
    found: list[str] = []
    if f"{OWN_NAMESPACE}:{wire}" in _OWN_TOOLS:
        found.append(f"{OWN_NAMESPACE}:{wire}")
    for name, spec in policy.settings.servers.items():
        manifest = await context.store.manifests.get(name, spec.target_digest)
        for shape in () if manifest is None else manifest.tools:
            with contextlib.suppress(Invalid):
                tool = ToolName(namespace=name, action=str(shape.get("name")))
                if wire_of(tool) == wire:
                    found.append(str(tool))
    return found
