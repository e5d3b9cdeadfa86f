"""`pml servers`: which MCP servers the workspace has, how they are, stopping them, and what they wrote."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from pml.cli.exits import Exit
from pml.cli.open_context import opened
from pml.cli.terminal.output import (
    Shown,
    complain_prose,
    console,
    local_time,
    print_json,
    print_table,
    say,
    say_prose,
)
from pml.cli.terminal.results import print_foreign
from pml.cli.verbs.verbs import Verbs, page_size, run_verb
from pml.core.config.trust_facts import launch_lines
from pml.core.errors import NotFound
from pml.core.servers.remote_target import RemoteTarget
from pml.core.text import quote, visible
from pml.service.servers.status import (
    GatewayRun,
    ServerStatus,
    broken_installs,
    run_json,
    server_statuses,
    status_json,
)

EXAMPLES = """Servers are started when a call needs them, by the gateway of each agent for itself.

examples:
  pml servers list                  what is configured here or installed, and what of it runs
  pml servers status github         how it is started, its tools, restarts and last error
  pml servers stop github           in every gateway of this workspace; the next call starts it again
  pml servers logs github --follow  what it writes to stderr

exit codes: 0 ok, 1 failed, 2 usage, 5 no such server, or it does not run"""
_LIST: Final = """examples:
  pml servers list
  pml servers list --json | jq '.servers[] | select(.state == "crash-loop")'"""
_STATUS: Final = """examples:
  pml servers status
  pml servers status github --json"""
_STOP: Final = """Calls that wait for the server fail at once. The next call starts it again.

examples:
  pml servers stop github"""
_COLUMNS: Final = ("SERVER", "STATE", "TOOLS", "CONTAINED BY", "RUNS AS", "DEFINED IN")
_EPILOG: Final = """examples:
  pml servers logs github
  pml servers logs github --lines 500
  pml servers logs github --follow"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    verbs.add("list", "list the servers of this workspace", list_servers, epilog=_LIST)
    status = verbs.add("status", "show all that is known of servers", show_status, epilog=_STATUS)
    status.add_argument("name", metavar="NAME", nargs="?", help="only this server")
    stop = verbs.add("stop", "stop a server in every gateway of this workspace", stop_server, epilog=_STOP)
    stop.add_argument("name", metavar="NAME", help="the server")
    configure_logs(verbs.add("logs", "show what a server wrote to stderr", show_logs))


run = run_verb


async def list_servers(args: argparse.Namespace) -> int:
    found, is_broken = await _look(args)
    if args.json:
        print_json({"servers": [status_json(status) for status in found]})
    elif not found and not is_broken:
        _tell_nothing()
    elif found:
        print_table(_COLUMNS, [_row(each) for each in found])
    return Exit.FAILED if is_broken else Exit.OK


async def show_status(args: argparse.Namespace) -> int:
    """Raises: NotFound."""
    found, is_broken = await _look(args)
    if args.name is not None:
        found = _named(found, args.name)
    if args.json:
        print_json({"servers": [status_json(status) for status in found]})
        return Exit.OK
    for status in found:
        _print_status(status)
    if not found and not is_broken:
        _tell_nothing()
    return Exit.OK


def _tell_nothing() -> None:
    say_prose("no server is configured here: `mcpServers` in .pml.json or in the user's file names them")
    say_prose("  none is installed either: `pml catalog list` shows what can be, `pml deps list` what is")


async def stop_server(args: argparse.Namespace) -> int:
    """Raises: NotFound if it does not run."""
    from pml.app import find_place
    from pml.upstream.board import ask_stop

    home = find_place(args.workspace).home
    found, _ = await _look(args)
    runs = [run for status in _named(found, args.name) for run in status.runs]
    ended = await asyncio.gather(*(asyncio.to_thread(ask_stop, home, run.run) for run in runs))
    stopped = [run for run, has_ended in zip(runs, ended, strict=True) if has_ended]
    if not stopped:
        raise NotFound(f"server {quote(args.name)} does not run in this workspace")
    if args.json:
        print_json({"stopped": [run_json(run) for run in stopped]})
        return Exit.OK
    for run in stopped:
        say(f"stopped {visible(args.name)}: {_where(run)}")
    say("  the next call starts it again")
    return Exit.OK


async def _look(args: argparse.Namespace) -> tuple[list[ServerStatus], bool]:
    """Return the servers, and whether a broken file may define more."""
    from pml.app import find_place, open_server_host
    from pml.service.policy.policy import current_policy

    place = find_place(args.workspace)
    host = open_server_host(place)
    async with opened(args) as context:
        policy = await current_policy(context, str(place.workspace))
        for error in policy.broken:
            complain_prose(f"warning: {visible(error.message)}; its servers are not known until it is fixed")
        unknown = broken_installs(host)
        if unknown is not None:
            complain_prose(f"warning: refused: {visible(unknown.message)}; what is installed is not known")
        is_broken = bool(policy.broken) or unknown is not None
        return await server_statuses(context, host, policy), is_broken


def _named(found: Sequence[ServerStatus], name: str) -> list[ServerStatus]:
    """Raises: NotFound."""
    named = [status for status in found if status.name == name]
    if not named:
        near = get_close_matches(name, [status.name for status in found], n=1)
        hint = f"did you mean `{near[0]}`?" if near else "`pml servers list` shows all there are"
        raise NotFound(f"no server {quote(name)} in this workspace", hint=hint)
    return named


def _row(status: ServerStatus) -> tuple[str, ...]:
    return (
        status.name,
        status.state,
        "?" if status.tools is None else str(len(status.tools)),
        ", ".join(dict.fromkeys(held.kind for held in status.containment)) or _uncontained(status),
        Shown("; ".join(_where(run) for run in status.runs) or "-"),
        _defined(status),
    )


def _uncontained(status: ServerStatus) -> str:
    target = None if status.spec is None else status.spec.target
    return "elsewhere" if isinstance(target, RemoteTarget) else "?"


def _defined(status: ServerStatus) -> str:
    source = status.source
    if status.installed is not None:
        return "installed (deps.json)"
    return "no file as it runs" if source is None else f"{source.file}:{source.line}"


_AWAY: Final = frozenset({"running", "unreachable", "needs login"})  # of servers that run elsewhere


def _where(run: GatewayRun) -> str:
    server = run.run
    away = server.state if server.state in _AWAY else "no process"
    what = away if server.process is None else f"process {server.process.pid}"
    whose = f" of {visible(', '.join(run.sessions))}" if run.sessions else ""
    return f"{what} since {local_time(server.since)}{whose}"


def _print_status(status: ServerStatus) -> None:
    from rich.text import Text

    out = console()
    out.print(Text(visible(status.name), style="bold").append(f"  {status.state}", style="not bold"))
    for name, value in _facts(status):
        first, *rest = value.split("\n")
        out.print(Text(f"  {name:<12}", style="dim").append(first, style="not dim"))
        for line in rest:
            out.print(Text(" " * 14 + line))


def _facts(status: ServerStatus) -> list[tuple[str, str]]:
    facts = [("defined in", visible(_defined(status)))]
    if status.installed is not None:
        facts = [("installed", visible(f"{status.installed.dependency.title}, {status.installed.path}"))]
    elif status.spec is not None:
        facts.append(("trusted", "yes" if status.trusted else "no: `pml trust` shows what it would start"))
    if status.spec is not None:
        label = "reaches" if isinstance(status.spec.target, RemoteTarget) else "starts"
        facts.append((label, "\n".join(launch_lines([status.spec.target.start_json(status.name)]))))
    if status.login_words is not None:
        facts.append(("login", visible(status.login_words)))
    if status.problem is not None:
        facts.append(("problem", visible(status.problem)))
    tools = "not known before its first start" if status.tools is None else ", ".join(status.tools)
    facts += [("launch", status.target_digest or "not known"), ("tools", visible(tools or "none"))]
    facts += [("containment", held.words) for held in status.containment]
    for run in status.runs:
        server = run.run
        facts.append(
            ("runs as", f"{server.state}, {_where(run)}\nof gateway process {server.owner_process.pid}")
        )
        facts.append(("restarts", str(server.restarts)))
        if server.last_error is not None:
            facts.append(("last error", visible(server.last_error)))
    return facts


def configure_logs(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="the server")
    parser.add_argument("--lines", type=page_size, default=50, metavar="N", help="the last N (default: 50)")
    parser.add_argument(
        "--follow", action="store_true", help="follow what is written, with --json an object a line"
    )


async def show_logs(args: argparse.Namespace) -> int:
    """Raises: NotFound if no such server is known, or nothing was written yet."""
    from pml.app import find_place, open_server_host
    from pml.service.servers.logs import find_log

    place = find_place(args.workspace)
    async with opened(args) as context:
        log = await find_log(context, open_server_host(place), str(place.workspace), args.name)
    if args.follow:
        async for line in log.follow(args.lines):  # until interrupted
            _print_line(line, as_json=args.json)
    if not log.exists():
        raise NotFound(
            f"server {quote(args.name)} has written nothing yet", hint="it is logged once it starts"
        )
    lines = await asyncio.to_thread(log.tail, args.lines)
    if args.json:
        print_json({"name": args.name, "path": log.path, "lines": lines})
        return Exit.OK
    for line in lines:
        print_foreign(line)
    return Exit.OK


def _print_line(line: str, *, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"line": line}))
    else:
        print_foreign(line)
