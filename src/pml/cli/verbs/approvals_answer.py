"""`pml approvals ask`, `allow` and `deny`: putting a question, and answering it as a person."""

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pml.cli.exits import Exit, exit_of
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.options import read_object
from pml.cli.shell_session import script_session
from pml.cli.terminal.cards import print_card, short
from pml.cli.terminal.output import complain, complain_prose, print_error, print_json, say, say_prose
from pml.core.approvals.record import Approval, ApprovalId, Scope, State, Subject
from pml.core.approvals.subjects import headline, row_of, title
from pml.core.errors import Invalid, PmlError, Unavailable
from pml.core.names import parse_tool
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.packages.install_facts import missing_variables, variable_names
from pml.core.sessions.launch import PARENT_MAY, with_powers
from pml.core.sessions.token import ParentMay
from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject
from pml.core.wire import approval_json, error_json

if TYPE_CHECKING:
    from pml.service.approvals.consent import Consent
    from pml.service.approvals.lifecycle import Decided, Decision
    from pml.service.context import Context
    from pml.service.policy.memory import Remembered


def configure_ask(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tool", metavar="TOOL", help="namespace:action, or a client's built-in name")
    parser.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="the call's arguments; - reads stdin"
    )
    parser.set_defaults(late="arguments")
    parser.add_argument("--wait", action="store_true", help="wait for the answer (default: exit 4 if asked)")
    parser.add_argument("--session", metavar="ID", help="ask in this session (default: that of the shell)")
    parser.add_argument("--tool-use-id", metavar="ID", default="", help="tells repeated questions apart")
    parser.epilog = """Prints what may run. An allow rule answers at once; a deny rule refuses at once.

examples:
  pml approvals ask db:drop_table '{"name": "old"}' --wait && ./drop old
  pml approvals ask deploy:prod '{"version": "1.4"}'     asks; run it again to collect the answer
  pml approvals ask deploy:prod --session nightly        collects from another shell: cron, CI"""


def configure_decide(parser: argparse.ArgumentParser, *, allow: bool) -> None:
    parser.add_argument("ids", metavar="ID", nargs="+", help="ids, the starts of them, or a workflow's id")
    parser.add_argument("--message", metavar="M", help="tell the agent something with the answer")
    parser.set_defaults(allow=allow, remember=None, literal=False, input=None, release=[], digest=None)
    parser.set_defaults(tools=None, parent_may=None)
    if not allow:
        return
    parser.add_argument("--remember", choices=["session", "always"], help="also allow it from now on")
    parser.add_argument("--literal", action="store_true", help="remember it with these arguments only")
    parser.add_argument(
        "--input", metavar="JSON", help="let it run with these arguments instead; - reads stdin"
    )
    parser.add_argument(
        "--tools", metavar="NAMES", help="of a launch: give the agent only these (Read,github:*)"
    )
    parser.add_argument(
        "--parent-may",
        choices=[may for may in ParentMay if may is not ParentMay.ALL],
        help="of a launch: let the session that launches it answer for it no more than this",
    )
    parser.add_argument("--digest", metavar="D", help="only if the question still has this digest")
    parser.add_argument(
        "--release",
        metavar="ID",
        nargs="+",
        default=[],
        help="with --remember: also let these run, if covered",
    )


async def ask(args: argparse.Namespace) -> int:
    from pml.app import find_place
    from pml.service.approvals.consent import seek_consent
    from pml.service.approvals.lifecycle import Question

    tool = str(parse_tool(args.tool))
    arguments = read_object(args.arguments, what="the input")
    place = find_place(args.workspace)
    async with opened(args) as context:
        session = await script_session(context, place, args.session)
        question = Question(session=session, tool=tool, arguments=arguments, tool_use_id=args.tool_use_id)

        def announce(record: Approval) -> None:
            if args.wait and record.status is State.PENDING and not args.json:
                print_card(
                    record,
                    workspace=session.workspace,
                    session_name=session.name,
                    now=context.clock.now(),
                    to_stderr=True,
                )
                complain_prose("\nwaiting for an answer from another terminal; Ctrl-C withdraws the question")

        consent = await seek_consent(context, question, wait_s=None if args.wait else 0, on_asked=announce)
    return _tell_consent(consent, as_json=args.json)


_ANSWERS: dict[State, tuple[str, Exit]] = {
    State.COMPLETED: ("allowed", Exit.OK),
    State.PENDING: ("pending", Exit.PENDING),
    State.DENIED: ("denied", Exit.DENIED),
    State.EXPIRED: ("expired", Exit.GONE),
    State.CANCELLED: ("cancelled", Exit.GONE),
}


def _tell_consent(consent: "Consent", *, as_json: bool) -> int:
    from pml.service.policy.policy import why

    record = consent.record
    word, code = ("allowed", Exit.OK) if record is None else _ANSWERS[record.status]
    if as_json:
        print_json(
            {
                "answer": word,
                "input": consent.arguments if consent.granted else None,
                "message": None if record is None else record.response_message,
                "approval": None if record is None else approval_json(record),
            }
        )
    elif record is None:
        say(f"allowed: {visible(why(consent.judged))}")
    elif record.status is State.PENDING:
        _tell_pending(record)
    else:
        by = "" if record.decided_by is None else f" by {visible(str(record.decided_by))}"
        edited = (
            "" if record.updated_input is None else f" as {visible_json(record.updated_input, indent=None)}"
        )
        nobody = "nobody answered in time" if record.status is State.EXPIRED else None
        words = record.response_message or record.reason or nobody
        say(f"{word}{by}{edited}" + ("" if words is None else f": {visible(words)}"))
    for error in consent.judged.broken:
        complain_prose(f"warning: {visible(error.message)}; until it is fixed its denies are unknown")
    return code


def _tell_pending(record: Approval) -> None:
    look = f"look at it with `pml approvals show {short(record.id)}`"
    if record.subject is Subject.WORKSPACE_TRUST:
        say_prose(f"pending: this workspace's .pml.json must be trusted first; {look}, then run this again")
    else:
        say_prose(
            f"pending: {look}, answer with `pml approvals allow {short(record.id)}`, then run this again"
        )


async def decide_each(args: argparse.Namespace) -> int:
    """Answer each id; one that fails does not keep the others from being answered."""
    from pml.service.shapes import decided_json

    _check_options(args)
    results: list[Json] = []
    code: int = Exit.OK
    async with opened(args) as context:
        await guard(context, args)
        for prefix in args.ids:
            try:
                decided = await _decide_one(context, prefix, args)
            except PmlError as exc:
                results.append({"id": prefix, **error_json(exc)})
                code = code or exit_of(exc)
                if not args.json:
                    print_error(exc, as_json=False)
            else:
                results.append(decided_json(decided))
                if not args.json:
                    _tell_decided(decided)
    if args.json:
        print_json({"results": results})
    return code


def _check_options(args: argparse.Namespace) -> None:
    if args.release and args.remember is None:
        raise Invalid("--release goes with --remember: it lets run what the new rule or grant covers")
    if args.literal and args.remember is None:
        raise Invalid("--literal goes with --remember")
    if len(args.ids) > 1 and (args.input is not None or args.digest is not None or args.release):
        raise Invalid("--input, --digest and --release go with one approval at a time")
    if args.input is not None and _narrows(args):
        raise Invalid("--tools and --parent-may change the arguments; --input replaces them: use one")


def _narrows(args: argparse.Namespace) -> bool:
    return args.tools is not None or args.parent_may is not None


async def _decide_one(context: "Context", prefix: str, args: argparse.Namespace) -> "Decided":
    from pml.service.approvals.lifecycle import decide, find

    record = await find(context, prefix)
    if args.allow and row_of(record).wants_key:
        await _refuse_missing(context, record, args)
    release = [(await find(context, other)).id for other in args.release]
    return await decide(context, record.id, _decision(args, record, release))


async def _refuse_missing(context: "Context", record: Approval, args: argparse.Namespace) -> None:
    """Raise Unavailable where the key is still missing: the call would only fail.

    What is set in the environment of this terminal does not help the server: it has that of its gateway.
    """
    from pml.app import find_place, open_variables
    from pml.service.policy.policy import current_policy

    session = await context.store.sessions.get(record.session_id)
    if session is None or record.status is not State.PENDING:
        return
    names = missing_variables(record.tool_input)
    policy = await current_policy(context, session.workspace)
    workspace = session.workspace if policy.trusted else None
    variables = open_variables(find_place(args.workspace), but=frozenset(names))
    known = await asyncio.to_thread(variables.values, names, workspace=workspace)
    missing = [name for name in names if name not in known]
    if missing:
        how = " and ".join(f"`pml secrets set {name}`" for name in missing)
        hint = f"{how}, then allow it; or `pml approvals deny {short(record.id)}`"
        raise Unavailable(f"{visible(headline(record))}, which is not set: nothing was decided", hint=hint)


def _edited(args: argparse.Namespace, record: Approval) -> JsonObject | None:
    """Return the arguments to run with instead, if there are any. Raises: Invalid."""
    if not _narrows(args):
        return None if args.input is None else read_object(args.input, what="--input")
    if record.tool_name != LAUNCH_TOOL:
        raise Invalid(f"--tools and --parent-may are for a launch; {short(record.id)} is something else")
    names: list[str] = [] if args.tools is None else args.tools.split(",")
    tools = None if args.tools is None else tuple(name for name in names if name)
    may = record.tool_input.get(PARENT_MAY) if args.parent_may is None else args.parent_may
    return with_powers(record.tool_input, tools=tools, parent_may=ParentMay(str(may)))


def _decision(args: argparse.Namespace, record: Approval, release: list[ApprovalId]) -> "Decision":
    from pml.app import person
    from pml.service.approvals.lifecycle import Decision

    return Decision(
        by=person(),
        digest=record.digest if args.digest is None else f"sha256:{args.digest.removeprefix('sha256:')}",
        allow=args.allow,
        scope=Scope(args.remember or Scope.ONCE),
        literal=args.literal,
        message=args.message,
        updated_input=_edited(args, record),
        release=tuple(release),
        is_batch=len(args.ids) > 1,
    )


def _tell_decided(decided: "Decided") -> None:
    record, memory = decided.record, decided.remembered
    word = "denied" if record.status is State.DENIED else "allowed"
    say(f"{word}: {visible(_what(record))} ({short(record.id)})")
    if memory is not None:
        tell_memory(memory, tell=say)
    for other in decided.released:
        say(f"  also allowed {short(other.id)} {visible(other.tool_name)}")


def _what(record: Approval) -> str:
    """Return what was decided, as the middle of a sentence."""
    if row_of(record).wants_key:
        is_set = record.status is not State.DENIED
        return f"continue, {variable_names(record.tool_input)} is set" if is_set else title(record)
    done = title(record)
    return f"{done[0].lower()}{done[1:]}"


def tell_memory(memory: "Remembered", *, tell: Callable[[str], None]) -> None:
    """Tell what is remembered and where, and complain if it does not apply yet."""
    entry = visible_json(memory.entry, indent=None)
    if isinstance(memory.entry, dict) and "digest" in memory.entry:
        entry = f"{visible(str(memory.entry['tool']))} with exactly these arguments"
    where = "for this session" if memory.file is None else f"in {visible(memory.file)}"
    if memory.scope is Scope.SESSION and memory.problem is not None:
        complain(f"  not remembered: {visible(memory.problem.message)}")
    else:
        tell(f"  remembered {where}: {entry}")
    if memory.scope is Scope.ALWAYS and memory.problem is not None:
        complain_prose(f"  not in the file yet: {visible(memory.problem.message)}; PML writes it once it can")
    elif memory.scope is Scope.ALWAYS and not memory.counts:
        complain_prose("  the file is not trusted, so its entries do not apply yet: run `pml trust`")
