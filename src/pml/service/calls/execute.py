"""`execute`: code that a client hands over, and going on with code that waited for an answer."""

from collections.abc import Mapping
from typing import Final

from pml.core.code.journal import CodeRun
from pml.core.code.sandbox import Language
from pml.core.digest import digest
from pml.core.errors import Invalid, WorkflowGone
from pml.core.names import parse_tool
from pml.core.own_tools import EXECUTE
from pml.core.ports.records import Session
from pml.core.text import quote
from pml.core.values import JsonObject
from pml.service.call import Attempt, Gate, PendingCall
from pml.service.calls.own_tools import admit_own, refuse_denied_call
from pml.service.calls.pipeline import call_tool, maker
from pml.service.calls.send import progress_lines
from pml.service.code.capabilities import is_beneath, new_seed, result_of, scene_of
from pml.service.code.lifetime import is_left
from pml.service.code.run import run_code
from pml.service.policy.policy import current_policy

MAX_CODE: Final = 1024 * 1024  # characters; what is longer was not written for one use


async def execute(call: PendingCall) -> bytes:
    """Run the code that the client hands over, and return its value as an MCP result.

    Raises: ToolDenied, NotApproved, Invalid, CodeFailed, Suspended, Unavailable.
    """
    gate = call.gate
    read_execute(call.attempt.arguments)
    call.attempt = attempt = await admit_own(call)
    language, code, args = read_execute(attempt.arguments)
    run_id = gate.context.ids.new()
    run = CodeRun(
        id=run_id,
        root=run_id,
        principal=gate.session.principal,
        session_id=gate.session.id,
        tool=EXECUTE,
        arguments=attempt.arguments,
        offered=attempt.offered,
        language=language,
        code=code,
        export=None,
        args=args,
        seed=new_seed(gate),
        started_at=gate.context.clock.now(),
    )
    return await _run(call, run, resumed=False)


async def go_on(call: PendingCall, run_id: str) -> bytes:
    """Go on with code that waited, and return its value as an MCP result. `call` is what does so.

    Raises: WorkflowGone if it is over, ToolDenied, CodeFailed, Suspended, Conflict, Unavailable.
    """
    run = await call.gate.context.store.journals.get(run_id)
    if run is None or not await _is_ours(call.gate, run):
        raise WorkflowGone
    began = Attempt(tool=parse_tool(run.tool), arguments=run.arguments, offered=run.offered)
    await refuse_denied_call(call.gate, began)
    return await _run(call, run, resumed=True)


async def run_or_call(call: PendingCall) -> bytes:
    """Return the result of a tool, or of code. Code that waits, or was broken off, goes on.

    So does it where the very call that started it is made again: what it did is not done twice.
    Raises: as `call_tool`, `execute` and `go_on`.
    """
    attempt = call.attempt
    run_id = attempt.run_id
    if run_id is None and call.settled is None and _may_be_code(call.gate, attempt):
        run_id = await _left_run(call.gate, attempt)
    if run_id is not None:
        return await go_on(call, run_id)
    return await (execute(call) if str(attempt.tool) == EXECUTE else call_tool(call))


def _may_be_code(gate: Gate, attempt: Attempt) -> bool:
    is_spelt_out = attempt.prefix is not None
    return (is_spelt_out or not is_server(gate, attempt.tool.namespace)) and attempt.is_tool


def is_server(gate: Gate, namespace: str | None) -> bool:
    """Tell whether the tools of the namespace are known to be a server's."""
    policy = gate.context.policies.get(gate.session.workspace)
    loaded = None if namespace is None else gate.loaded.get(namespace)
    is_loaded = loaded is not None and loaded.brought_by is None
    if policy is None:
        return is_loaded
    return is_loaded or namespace in policy.settings.servers or namespace in policy.settings.unusable


async def _is_ours(gate: Gate, run: CodeRun) -> bool:
    """Tell whether the session may go on with the run: its own, or that of one that had the same powers."""
    if run.principal != gate.session.principal:
        return False
    session = await gate.context.store.sessions.get(run.session_id)
    return session is not None and _powers(session) == _powers(gate.session)


def _powers(session: Session) -> tuple[object, ...]:
    whose = (session.principal, session.workspace, session.parent_id, session.is_agent)
    return *whose, session.role, session.tools, session.waits


async def _left_run(gate: Gate, attempt: Attempt) -> str | None:
    """Return the run that the same call started and that nobody has: it waits, or was broken off."""
    asked = digest(attempt.arguments)
    policy = await current_policy(gate.context, gate.session.workspace)
    prefix = attempt.prefix or policy.settings.registry_prefix
    for run in await gate.context.store.journals.begun_with(gate.session.principal, str(attempt.tool)):
        is_same = digest(run.arguments) == asked and is_beneath(run, prefix) and is_left(gate.context, run)
        if is_same and await _is_ours(gate, run) and await _is_free(gate, run):
            return run.id
    return None


async def _is_free(gate: Gate, run: CodeRun) -> bool:
    """Tell whether the run is this session's, or of one that cannot want it: ended, or the same client's.

    A client that starts its gateway anew has another session, and its old one lives as long as it does.
    """
    session = await gate.context.store.sessions.get(run.session_id)
    if session is None or session.id == gate.session.id or session.ended_at is not None:
        return True
    is_same_client = session.process is not None and session.process == gate.session.process
    return is_same_client or run.owner is not None  # which is dead, or it would not be left


async def _run(call: PendingCall, run: CodeRun, *, resumed: bool) -> bytes:
    call.make = maker(call, call.tell_progress)
    run_context = scene_of(call, run, on_line=progress_lines(call.on_progress), resumed=resumed)
    return result_of(await run_code(run_context, run))


def read_execute(arguments: JsonObject) -> tuple[Language, str, JsonObject]:
    """Return what `execute` is to run. Raises: Invalid."""
    code, language, args = arguments.get("code"), arguments.get("language"), arguments.get("args", {})
    if not isinstance(code, str) or not code.strip():
        raise Invalid("`execute` needs `code`, a text")
    if len(code) > MAX_CODE:
        raise Invalid(f"`code` has {len(code)} characters; at most {MAX_CODE} are run")
    if not isinstance(args, Mapping):
        raise Invalid("`args` must be an object")
    if language is None:
        return Language.TYPESCRIPT, code, args
    try:
        return Language(str(language)), code, args
    except ValueError:
        known = " or ".join(f"`{known}`" for known in Language)
        raise Invalid(f"`language` is {quote(str(language))}; it must be {known}") from None
