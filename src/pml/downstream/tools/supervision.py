"""The loopback and session tools: by which a client asks permission, and a session supervises others.

What they do is `service`'s; here their arguments are read and their results worded. The tool that asks is
listed to every session. The others are listed where a token says that the session launches agents; a client
on stdio finds them with `discover` and uses them through `call`, and a child does neither.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from pml.core.approvals.record import Approval, ApprovalId, Scope, SessionId, instant
from pml.core.audit.feed_events import request_facts
from pml.core.errors import Invalid, NotFound, PmlError, ToolDenied
from pml.core.names import ToolName
from pml.core.own_tools import OWN_NAMESPACE
from pml.core.ports.records import Session
from pml.core.sessions.launch import LaunchConsent
from pml.core.sessions.token import TokenRole
from pml.core.text import quote
from pml.core.values import JsonObject
from pml.core.wire import error_json, listed_json, session_json
from pml.downstream.keepalive import WAITING
from pml.downstream.protocol.connection import Exchange
from pml.downstream.tools.supervision_tools import (
    NAMES,
    PERMIT,
    TOOLS,
    check_names,
    flag_of,
    object_of,
    read_wish,
    session_of,
    text_of,
    timeout_of,
)
from pml.downstream.tools.tool_table import ToolTable
from pml.service.call import Attempt, Gate
from pml.service.calls.own_tools import refuse_denied_call
from pml.service.calls.tools import Known
from pml.service.sessions.launcher import Wish
from pml.service.sessions.loopback import Permit, Request, pending, permit, respond, wait_for_requests
from pml.service.sessions.supervision import Child, Kind, Next, child_of, children_of, next_for

SERVER: Final = "plexus"  # what PML calls itself in the configuration of the agents that it launches
LAUNCH: Final = ToolName(namespace=OWN_NAMESPACE, action="session_launch")
_READ_S: Final = 0.05
_NEXT: Final = "`session_wait` returns the next thing that needs you: a request, a message, or its end"


def permit_again(approval_id: str) -> JsonObject:
    """Return the call that continues a question that waited when PML ended."""
    return {"name": "loopback_permit", "arguments": {"approval_id": approval_id}}


class Launching(Protocol):
    """What starts and ends the agents of this session."""

    @property
    def is_on(self) -> bool: ...

    async def check(self, wish: Wish, *, parent: Session, workspace: str) -> None: ...

    async def launch(
        self, wish: Wish, *, parent: Session, workspace: str, consent: LaunchConsent
    ) -> Session: ...

    async def stop(self, session_id: SessionId, *, reason: str) -> None: ...


class Supervision:
    def __init__(self, gate: Gate, table: ToolTable, launching: Launching) -> None:
        self._gate = gate
        self._table = table
        self._launching = launching
        self._told: set[ApprovalId] = set()  # requests that the session has been given

    def found(self) -> Sequence[Known]:
        """Return the tools that this session may use, and which of them it is listed."""
        if not self._launching.is_on:
            return ()
        session = self._gate.session
        may_launch = session.role is TokenRole.SESSION
        return tuple(
            Known(
                tool=ToolName(namespace=OWN_NAMESPACE, action=str(tool["name"])),
                wire=str(tool["name"]),
                shape=tool,
                listed=tool is PERMIT or (may_launch and not self._gate.is_stdio),
            )
            for tool in TOOLS
            if may_launch or tool is PERMIT
        )

    def tool(self, name: str) -> ToolName | None:
        """Return the tool that `name` means, dotted or not; None if it is none of these."""
        action = name.replace(".", "_")
        is_one = action in NAMES and self._launching.is_on  # in this order: a hub is looked for on the disk
        return ToolName(namespace=OWN_NAMESPACE, action=action) if is_one else None

    async def check_launch(self, arguments: JsonObject) -> None:
        """Refuse what could not be launched, before anybody is asked. Raises: as `Launcher.check`."""
        check_names("session_launch", arguments)
        session = self._gate.session
        await self._launching.check(read_wish(arguments), parent=session, workspace=session.workspace)

    async def launch(self, arguments: JsonObject, consent: LaunchConsent) -> JsonObject:
        """Return the result of a launch that a person allowed with these arguments."""
        session = self._gate.session
        try:
            check_names("session_launch", arguments)
            launched = await self._launching.launch(
                read_wish(arguments), parent=session, workspace=session.workspace, consent=consent
            )
        except PmlError as exc:
            return refused(exc)
        facts: JsonObject = {"session_id": launched.id, "name": launched.name, "state": "starting"}
        return _structured({**facts, "parent_may_decide": launched.parent_may, "next": _NEXT})

    async def answer(self, attempt: Attempt, exchange: Exchange) -> JsonObject:
        """Return the result of any other of these tools; what is refused is told as an error result."""
        action, arguments = attempt.tool.action, attempt.arguments
        exchange.stage = WAITING
        if action == "loopback_permit":
            return await self._permit(arguments, exchange)
        try:
            check_names(action, arguments)
            return _structured(await self._answers()[action](arguments))
        except PmlError as exc:
            return refused(exc)

    def _answers(self) -> "Mapping[str, Callable[[JsonObject], _Answer]]":
        return {
            "loopback_respond": self._respond,
            "loopback_pending": self._pending,
            "loopback_wait": self._wait,
            "session_wait": self._session_wait,
            "session_list": self._session_list,
            "session_stop": self._session_stop,
        }

    async def _permit(self, arguments: JsonObject, exchange: Exchange) -> JsonObject:
        """Return exactly one text block, as Claude Code wants it; doubt is a no."""
        given = arguments.get("input")
        input: JsonObject = given if isinstance(given, Mapping) else {}
        try:
            answer = await self._permitted(arguments, exchange)
        except PmlError as exc:
            answer = Permit(allow=False, input=input, message=f"Not permitted: {exc.message}")
        said: JsonObject = (
            {"behavior": "allow", "updatedInput": answer.input}
            if answer.allow
            else {"behavior": "deny", "message": answer.message or "Not permitted"}
        )
        return {"content": [{"type": "text", "text": msgspec.json.encode(said).decode()}]}

    async def _permitted(self, arguments: JsonObject, exchange: Exchange) -> Permit:
        """Raises: Invalid, ToolDenied."""
        session = self._gate.session
        named = arguments.get("session_id")
        if named is not None and named != session.id:
            raise Invalid("`session_id` is not the session of this token")
        if "approval_id" in arguments:
            return await self._permitted(
                await self._asked_before(text_of(arguments, "approval_id")), exchange
            )
        tool, input = text_of(arguments, "tool_name"), object_of(arguments, "input")
        if self._gate.is_held and tool.startswith(prefix := f"mcp__{SERVER}__"):
            return await self._own(tool.removeprefix(prefix), input)
        return await permit(
            self._gate.context,
            session,
            tool_name=tool,
            input=input,
            tool_use_id=text_of(arguments, "tool_use_id", default=""),
            may_ask=session.waits or not self._gate.is_held,
            on_asked=lambda record: _tell_asked(exchange, record),
            heard=lambda: until_read(exchange),
        )

    async def _asked_before(self, approval_id: str) -> JsonObject:
        """Return the arguments of a call that was cut off while its question waited. Raises: NotFound."""
        record = await self._gate.context.store.approvals.get(ApprovalId(approval_id))
        if record is None or record.session_id != self._gate.session.id or not record.tool_use_id:
            raise NotFound(f"no question `{approval_id}` of this session")
        return {
            "tool_name": record.tool_name,
            "input": record.tool_input,
            "tool_use_id": record.tool_use_id,
        }

    async def _own(self, wire: str, input: JsonObject) -> Permit:
        """Let a tool of this gateway through: the gateway itself asks for it, unless a rule denies it."""
        own = self.tool(wire)
        if own is None and wire in ("call", "discover", "execute"):
            own = ToolName(namespace=OWN_NAMESPACE, action=wire)
        attempt = (
            await self._table.resolve(wire, input)
            if own is None
            else Attempt(tool=own, arguments=input, offered=True)
        )
        try:
            await refuse_denied_call(self._gate, attempt)
        except ToolDenied as exc:
            rule = "" if exc.rule is None else f" ({exc.rule})"
            message = f"Tool {attempt.tool} is denied by user config{rule}"
            return Permit(allow=False, input=input, message=message)
        return Permit(allow=True, input=input)

    async def _respond(self, arguments: JsonObject) -> JsonObject:
        scope = text_of(arguments, "scope", default="once")
        if scope not in ("once", "session"):
            raise Invalid(f"`scope` must be `once` or `session`, not {quote(scope)}")
        decided = await respond(
            self._gate.context,
            self._gate.session,
            text_of(arguments, "approval_id"),
            allow=flag_of(arguments, "allow"),
            message=text_of(arguments, "message", default="") or None,
            updated_input=object_of(arguments, "updated_input") if "updated_input" in arguments else None,
            scope=Scope(scope),
        )
        return listed_json(decided.record)

    async def _pending(self, arguments: JsonObject) -> JsonObject:
        found = await pending(self._gate.context, self._gate.session, of=session_of(arguments))
        return {"approvals": [_request(request) for request in found]}

    async def _wait(self, arguments: JsonObject) -> JsonObject:
        found = await wait_for_requests(
            self._gate.context,
            self._gate.session,
            of=session_of(arguments),
            timeout_s=timeout_of(arguments),
            told=self._told,
        )
        return {"requests": [_request(request) for request in found]}

    async def _session_wait(self, arguments: JsonObject) -> JsonObject:
        found = await next_for(
            self._gate.context,
            self._gate.session,
            of=session_of(arguments),
            timeout_s=timeout_of(arguments),
            told=self._told,
        )
        return _next(found)

    async def _session_list(self, arguments: JsonObject) -> JsonObject:
        return {
            "sessions": [
                child_json(each) for each in await children_of(self._gate.context, self._gate.session)
            ]
        }

    async def _session_stop(self, arguments: JsonObject) -> JsonObject:
        context, session = self._gate.context, self._gate.session
        below = await child_of(context, session, SessionId(text_of(arguments, "session_id")))
        await self._launching.stop(below.session.id, reason=f"stopped by session `{session.name}`")
        return child_json(await child_of(context, session, below.session.id))


_Answer = Coroutine[Any, Any, JsonObject]


async def until_read(exchange: Exchange) -> None:
    """Return once somebody reads the answer: one whose client is cut off leaves it to who comes back."""
    while exchange.sink.gone:  # noqa: ASYNC110 - a stream has no event for it, and this is rare
        await asyncio.sleep(_READ_S)


def _tell_asked(exchange: Exchange, record: Approval) -> None:
    """Tell the client that its call waits, and how to find it again after a restart."""
    exchange.again = record.id
    exchange.progress(WAITING)


def refused(error: PmlError) -> JsonObject:
    """Return the result that tells why nothing was done."""
    text = error.message if error.hint is None else f"{error.message}\n{error.hint}"
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": error_json(error),
        "isError": True,
    }


def _structured(result: JsonObject) -> JsonObject:
    text = msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": result}


def _request(request: Request) -> JsonObject:
    return {
        **request_facts(request.record, request.session.name),
        "session_id": request.session.id,
        "may_decide": request.may_decide,
        "expires_at": instant(request.record.expires_at),
    }


def child_json(child: Child) -> JsonObject:
    """A launched session as supervisors, the API and `pml sessions` have it."""
    return session_json(child.session, child.run, state=child.state, waiting=child.waiting)


def _next(found: Next) -> JsonObject:
    match found.kind:
        case Kind.REQUEST:
            requests = [_request(request) for request in found.requests]
            return {"kind": found.kind, "requests": requests, "next": "decide with `loopback_respond`"}
        case Kind.NOTHING:
            return {"kind": found.kind, "next": "nothing needs you now; call it again to wait on"}
        case Kind.MESSAGE | Kind.ENDED:
            assert found.child is not None
            messages = [{"kind": each.kind, "text": each.text} for each in found.messages]
            return {"kind": found.kind, "session": child_json(found.child), "messages": messages}
