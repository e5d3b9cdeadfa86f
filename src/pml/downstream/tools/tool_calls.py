"""`tools/call`: finds out what is called, runs it through the pipeline, and words what comes of it.

Nothing is decided here; a repeated call brings its answer along (a form's, or `continue_workflow`), and the
pipeline continues from what is stored.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from pml.core.approvals.record import Approval
from pml.core.errors import Invalid, NotFound, PmlError, ServerRefused, WorkflowAborted, WorkflowGone
from pml.core.names import ToolName, parse_tool
from pml.core.own_tools import CONTINUE, EXECUTE, OWN_NAMESPACE, SUPERVISING
from pml.core.values import Json, JsonObject
from pml.downstream.forms.elicitation import Asker, FormNeeded, HubUrl, Spawn, no_hub
from pml.downstream.forms.relay import server_error
from pml.downstream.forms.rounds import Round, Rounds, Settled, read_round
from pml.downstream.keepalive import ticking
from pml.downstream.protocol.connection import Connection, Exchange
from pml.downstream.protocol.eras import Era, stamp
from pml.downstream.results import approval_result, refusal_result
from pml.downstream.tools.listing import discovery
from pml.downstream.tools.sent import SentLists
from pml.downstream.tools.supervision import LAUNCH, Supervision, refused
from pml.downstream.tools.tool_table import ToolTable
from pml.jsonrpc.codes import INVALID_PARAMS, SERVER_ERROR
from pml.jsonrpc.messages import RpcError
from pml.service.approvals.answers import is_asked_anew
from pml.service.approvals.inquiry import settle_trust
from pml.service.call import Attempt, Gate, Paused, PendingCall
from pml.service.calls.execute import is_server, run_or_call
from pml.service.calls.own_tools import admit_own, refuse_denied_call
from pml.service.calls.tool_names import untrusted_servers
from pml.service.calls.workflows import Continuation, resume
from pml.service.sessions.launch_consent import admit_launch

CALL = ToolName(namespace=OWN_NAMESPACE, action="call")
DISCOVER = ToolName(namespace=OWN_NAMESPACE, action="discover")
RUN: Final = parse_tool(EXECUTE)
OWN: Final[Mapping[str, ToolName]] = {"call": CALL, "discover": DISCOVER, "execute": RUN}
_WIRE: Final = {str(tool): wire for wire, tool in OWN.items()}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a client's `tools/call` says."""

    name: str
    arguments: JsonObject
    said: Continuation | None
    round: Round


class ToolCalls:
    def __init__(
        self,
        gate: Gate,
        connection: Connection,
        table: ToolTable,
        rounds: Rounds,
        spawn: Spawn,
        supervision: Supervision | None,
        sent: SentLists,
        hub_url: HubUrl = no_hub,
    ) -> None:
        self._gate = gate
        self._connection = connection
        self._table = table
        self._rounds = rounds
        self._spawn = spawn
        self._supervision = supervision
        self._sent = sent
        self._hub_url = hub_url

    async def answer(self, exchange: Exchange, era: Era) -> bytes:
        """Return the result of one `tools/call`, as its era has it. Raises: RpcError."""
        asked = read_call(exchange.request.params)
        asker = Asker(self._gate, self._connection, exchange, era, self._spawn, self._hub_url)
        try:
            with ticking(exchange):
                return await self._answer(exchange, era, asked, asker)
        except Paused as exc:
            now = self._gate.context.clock.now()
            no_form = asker.why_no_form(exc.record)
            still = asked.said is not None and asked.said.workflow_id == exc.workflow.id
            paused = approval_result(
                exc.record,
                exc.workflow,
                now=now,
                no_form=no_form,
                still=still,
                anew=not still and await is_asked_anew(self._gate.context, exc.record),
                is_shown=asker.is_shown(exc.record),
            )
            if not era.has_structure:  # its client knows only the text, or shows a model all that it gets
                del paused["structuredContent"]
            return stamp(msgspec.json.encode(paused), era)
        except ServerRefused as exc:
            raise server_error(exc) from exc
        except PmlError as exc:
            if isinstance(exc, WorkflowGone | WorkflowAborted) and asked.name not in OWN:
                raise RpcError(SERVER_ERROR, exc.message) from exc  # as programs know it; models use `call`
            refused = refusal_result(exc)
            if refused is None:
                raise
            return stamp(msgspec.json.encode(refused), era)

    async def _answer(self, exchange: Exchange, era: Era, asked: Asked, asker: Asker) -> bytes:
        settled: Approval | None = None
        returned = await self._rounds.returned(asked.round, exchange, asker)
        if isinstance(returned, bytes):
            return returned
        if isinstance(returned, Settled):
            attempt, settled = returned.attempt, returned.approval
        elif asked.said is not None:
            given = await self._given(asked)
            said = asked.said if given is not None else replace(asked.said, arguments=_inner(asked.arguments))
            attempt, settled = await resume(
                self._gate, said, given=given, client=era.client, undecided=asker.wait_on
            )
        else:
            attempt = await self._attempt(asked)
        try:
            names = self._sent.names(exchange, era, "tools")
            if attempt.tool == CALL:
                used = await admit_own(PendingCall(self._gate, attempt, asker, settled=settled))
                attempt = await self._called(used, names)
            if attempt.tool == DISCOVER:
                use = PendingCall(self._gate, attempt, asker, settled=settled)
                found = await self._discover(use, names)
                return stamp(msgspec.json.encode(found), era)
            if str(attempt.tool) in SUPERVISING:
                use = PendingCall(self._gate, attempt, asker, settled=settled)
                answer = await self._supervise(use, exchange)
                return stamp(msgspec.json.encode(answer), era)
            call = attempt
            return await self._rounds.work(
                call,
                self._server(call),
                asked.round,
                exchange,
                asker,
                lambda heard: run_or_call(
                    PendingCall(self._gate, call, asker, settled=settled, on_progress=heard)
                ),
            )
        except FormNeeded as exc:
            return self._rounds.form(exc, attempt, asked.round, asker)

    def _server(self, attempt: Attempt) -> str | None:
        """Return the server that works on the call, None where that is for code to say."""
        name = attempt.tool.namespace
        return name if is_server(self._gate, name) and attempt.run_id is None else None

    async def _attempt(self, asked: Asked) -> Attempt:
        """Return the call that is meant. Raises: NotFound."""
        own = OWN.get(asked.name)
        if own is not None:
            return Attempt(tool=own, arguments=asked.arguments, offered=True)
        return await self._meant(asked.name, asked.arguments)

    async def _meant(self, name: str, arguments: JsonObject) -> Attempt:
        """Return the call of a tool that is not `call`, `discover` or `execute`. Raises: NotFound."""
        own = None if self._supervision is None else self._supervision.tool(name.removeprefix("pml:"))
        if own is not None:
            return Attempt(tool=own, arguments=arguments, offered=True)
        return await self._table.resolve(name, arguments)

    async def _called(self, call: Attempt, sent: Collection[str]) -> Attempt:
        """Return what `call` calls; `sent` are the names that the client has. Raises: NotFound, Invalid."""
        name = call.arguments.get("tool")
        if not isinstance(name, str) or not name:
            raise Invalid("`call` needs `tool`, as `namespace:action`", hint="`discover` lists what there is")
        attempt = await self._meant(name, _inner(call.arguments))
        is_own = attempt.tool.namespace == OWN_NAMESPACE
        if is_own and str(attempt.tool) not in SUPERVISING:
            raise NotFound(
                f"no tool `{attempt.tool}` for `call`", hint="PML's own tools are called themselves"
            )
        wire = attempt.tool.action if is_own else self._table.wire(attempt.tool)
        if attempt.offered and wire in sent:
            raise Invalid(
                f"`{attempt.tool}` is listed by its own name: call `{wire}`",
                hint="so that the client's own rules hold for it",
            )
        # Whatever its client asks, it asks of `call`; what that asked about trust is not asked again.
        return msgspec.structs.replace(attempt, offered=False, no_trust=call.no_trust)

    async def _given(self, asked: Asked) -> Mapping[str, JsonObject] | None:
        """Return the tools whose workflow may be continued, with their arguments; None where any may be.

        Raises: ToolDenied if a rule denies the tool of PML's own that is used for it.
        """
        attempt = await self._attempt(asked)
        given = {str(attempt.tool): attempt.arguments}
        if attempt.tool.namespace != CALL.namespace:
            return given
        await refuse_denied_call(self._gate, attempt)
        if attempt.tool != CALL:
            return given
        name = asked.arguments.get("tool")
        if not isinstance(name, str):
            return None
        inner = await self._meant(name, _inner(asked.arguments))
        return {**given, str(inner.tool): inner.arguments}

    async def _discover(self, use: PendingCall, sent: Collection[str]) -> JsonObject:
        arguments = use.attempt.arguments
        query, names = arguments.get("query", ""), arguments.get("tools", [])
        if not isinstance(query, str) or not isinstance(names, list | tuple):
            raise Invalid("`query` must be a text and `tools` a list of names")
        settled = use.settled
        use.attempt = await admit_own(use)
        await use.look_up_policy()
        if untrusted_servers(use.policy):
            await settle_trust(use, settled, is_for_call=False)
        tools, policy = await self._table.learn()
        known = self._table.with_own(tools)
        waiting, problems = untrusted_servers(policy), self._table.problems(policy)
        found = discovery(known, query, [str(name) for name in names], waiting, problems, sent=sent)
        text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
        return {"content": [{"type": "text", "text": text}], "structuredContent": found}

    async def _supervise(self, use: PendingCall, exchange: Exchange) -> JsonObject:
        """Use a tool by which sessions ask, answer and launch; of these only a launch is asked about."""
        attempt = use.attempt
        if self._supervision is None:
            raise NotFound(f"no tool `{attempt.tool}`: no hub runs", hint="`pml serve` starts one")
        await refuse_denied_call(self._gate, attempt)
        if attempt.tool == LAUNCH:
            try:
                await self._supervision.check_launch(attempt.arguments)
            except PmlError as exc:
                return refused(exc)
            arguments, consent = await admit_launch(use)
            return await self._supervision.launch(arguments, consent)
        return await self._supervision.answer(attempt, exchange)


def read_call(params: JsonObject) -> Asked:
    """Return what the params of `tools/call` say. Raises: RpcError."""
    name, given = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or not isinstance(given, Mapping | None):
        raise RpcError(INVALID_PARAMS, "`tools/call` needs `name`, and `arguments` must be an object")
    name = _WIRE.get(name, name)
    arguments, said = _without_continuation({} if given is None else given)
    inner = arguments.get("arguments") if name == "call" else None
    if isinstance(inner, Mapping):
        inner, inner_said = _without_continuation(inner)
        arguments, said = {**arguments, "arguments": inner}, said or inner_said
    continued = None if said is None else said.workflow_id
    request: JsonObject = {"name": name, "arguments": arguments, CONTINUE: continued}
    return Asked(name=name, arguments=arguments, said=said, round=read_round(params, request=request))


def _inner(arguments: JsonObject) -> JsonObject:
    """Return the arguments of the tool that `call` calls. Raises: Invalid."""
    inner = arguments.get("arguments", {})
    if not isinstance(inner, Mapping):
        raise Invalid("`arguments` must be an object")
    return inner


def _without_continuation(arguments: JsonObject) -> tuple[JsonObject, Continuation | None]:
    """Return the tool's own arguments, and what the reserved one says."""
    if CONTINUE not in arguments:
        return arguments, None
    own = {key: value for key, value in arguments.items() if key != CONTINUE}
    return own, _continuation(arguments[CONTINUE])


def _continuation(said: Json) -> Continuation:
    expected = "`continue_workflow` must be {workflow_id, approved, always?, message?}"
    if not isinstance(said, Mapping):
        raise RpcError(INVALID_PARAMS, expected)
    workflow_id, approved = said.get("workflow_id"), said.get("approved")
    always, message = said.get("always", False), said.get("message")
    if not isinstance(workflow_id, str) or not isinstance(approved, bool) or not isinstance(always, bool):
        raise RpcError(INVALID_PARAMS, expected)
    if message is not None and not isinstance(message, str):
        raise RpcError(INVALID_PARAMS, expected)
    return Continuation(workflow_id=workflow_id, approved=approved, always=always, message=message)
