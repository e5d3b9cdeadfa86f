"""`execute`: code that a client hands over, and going on with code that waited for an answer."""

from collections.abc import Callable, Mapping
from typing import Final

from pml.core.approvals import Approval
from pml.core.digest import digest
from pml.core.errors import Invalid, WorkflowGone
from pml.core.journal import CodeRun
from pml.core.loading import Told
from pml.core.memory import EXECUTE
from pml.core.names import parse_tool
from pml.core.ports import Session
from pml.core.sandbox import Language
from pml.core.text import quote
from pml.core.values import JsonObject
from pml.service.calls import as_progress, call_tool, maker
from pml.service.capabilities import is_beneath, new_seed, result_of, scene_of
from pml.service.coderuns import is_left
from pml.service.coding import run_code
from pml.service.gate import Asking, Attempt, Gate
from pml.service.own_tools import admit_own, refuse_denied_call
from pml.service.policy import current_policy
from pml.service.running import progress_lines

MAX_CODE: Final = 1024 * 1024  # characters; what is longer was not written for one use

Progressing = Callable[[JsonObject], None] | None


async def execute(
    gate: Gate, attempt: Attempt, asking: Asking, *, settled: Approval | None = None, on_progress: Progressing
) -> bytes:
    """Run the code that the client hands over, and return its value as an MCP result.

    Raises: ToolDenied, NotApproved, Invalid, CodeFailed, Suspended, Unavailable.
    """
    read_execute(attempt.arguments)
    attempt = await admit_own(gate, attempt, asking, settled)
    language, code, args = read_execute(attempt.arguments)
    run_id = gate.desk.ids.new()
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
        started_at=gate.desk.clock.now(),
    )
    return await _run(gate, run, asking, on_progress, resumed=False)


async def go_on(gate: Gate, run_id: str, asking: Asking, *, on_progress: Progressing) -> bytes:
    """Go on with code that waited, and return its value as an MCP result.

    Raises: WorkflowGone if it is over, ToolDenied, CodeFailed, Suspended, Conflict, Unavailable.
    """
    run = await gate.desk.store.journals.get(run_id)
    if run is None or not await _is_ours(gate, run):
        raise WorkflowGone
    call = Attempt(tool=parse_tool(run.tool), arguments=run.arguments, offered=run.offered)
    await refuse_denied_call(gate, call)
    return await _run(gate, run, asking, on_progress, resumed=True)


async def run_or_call(
    gate: Gate,
    attempt: Attempt,
    asking: Asking,
    *,
    settled: Approval | None = None,
    on_progress: Progressing,
    told: Told | None = None,
) -> bytes:
    """Return the result of a tool, or of code. Code that waits, or was broken off, goes on.

    So does it where the very call that started it is made again: what it did is not done twice.
    Raises: as `call_tool`, `execute` and `go_on`.
    """
    run_id = attempt.run_id
    if run_id is None and settled is None and _may_be_code(gate, attempt):
        run_id = await _left_run(gate, attempt)
    if run_id is not None:
        return await go_on(gate, run_id, asking, on_progress=on_progress)
    if str(attempt.tool) == EXECUTE:
        return await execute(gate, attempt, asking, settled=settled, on_progress=on_progress)
    return await call_tool(gate, attempt, asking, settled=settled, on_progress=on_progress, told=told)


def _may_be_code(gate: Gate, attempt: Attempt) -> bool:
    is_spelt_out = attempt.prefix is not None
    return attempt.is_tool and (is_spelt_out or not is_server(gate, attempt.tool.namespace))


def is_server(gate: Gate, namespace: str | None) -> bool:
    """Tell whether the tools of the namespace are known to be a server's."""
    policy = gate.desk.policies.get(gate.session.workspace)
    loaded = None if namespace is None else gate.loaded.get(namespace)
    is_loaded = loaded is not None and loaded.brought_by is None
    if policy is None:
        return is_loaded
    return is_loaded or namespace in policy.settings.servers or namespace in policy.settings.unusable


async def _is_ours(gate: Gate, run: CodeRun) -> bool:
    """Tell whether the session may go on with the run: its own, or that of one that had the same powers."""
    if run.principal != gate.session.principal:
        return False
    session = await gate.desk.store.sessions.get(run.session_id)
    return session is not None and _powers(session) == _powers(gate.session)


def _powers(session: Session) -> tuple[object, ...]:
    whose = (session.principal, session.workspace, session.parent_id, session.is_agent)
    return *whose, session.role, session.tools, session.waits


async def _left_run(gate: Gate, attempt: Attempt) -> str | None:
    """Return the run that the same call started and that nobody has: it waits, or was broken off."""
    asked = digest(attempt.arguments)
    policy = await current_policy(gate.desk, gate.session.workspace)
    prefix = attempt.prefix or policy.settings.registry_prefix
    for run in await gate.desk.store.journals.begun_with(gate.session.principal, str(attempt.tool)):
        is_same = digest(run.arguments) == asked and is_beneath(run, prefix) and is_left(gate.desk, run)
        if is_same and await _is_ours(gate, run) and await _is_free(gate, run):
            return run.id
    return None


async def _is_free(gate: Gate, run: CodeRun) -> bool:
    """Tell whether the run is this session's, or of one that cannot want it: ended, or the same client's.

    A client that starts its gateway anew has another session, and its old one lives as long as it does.
    """
    session = await gate.desk.store.sessions.get(run.session_id)
    if session is None or session.id == gate.session.id or session.ended_at is not None:
        return True
    is_same_client = session.process is not None and session.process == gate.session.process
    return is_same_client or run.owner is not None  # which is dead, or it would not be left


async def _run(gate: Gate, run: CodeRun, asking: Asking, on_progress: Progressing, *, resumed: bool) -> bytes:
    make = maker(gate, asking, told=as_progress(on_progress))
    scene = scene_of(gate, run, make=make, told=progress_lines(on_progress), resumed=resumed)
    return result_of(await run_code(scene, run))


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
