"""`pml call`: one call from the terminal or a script, through the same pipeline as an agent's."""

import argparse
import asyncio
import contextlib
import re
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.open_context import opened
from pml.cli.options import read_object
from pml.cli.shell_session import script_session
from pml.cli.terminal.cards import short
from pml.cli.terminal.output import complain, complain_prose, local_time, print_json
from pml.cli.terminal.progress import InstallBar
from pml.cli.terminal.question import TerminalAsking
from pml.cli.terminal.results import print_result
from pml.cli.verbs.verbs import add_common
from pml.core.approvals.subjects import headline
from pml.core.errors import Invalid, Unavailable
from pml.core.names import parse_tool
from pml.core.text import quote, visible
from pml.core.values import JsonObject
from pml.core.wire import approval_json

if TYPE_CHECKING:
    from pml.core.ports.loader import Told
    from pml.core.ports.servers import Servers
    from pml.core.servers.manifest import Manifest
    from pml.core.servers.spec import ServerSpec
    from pml.service.call import Asking, Gate, Paused, PendingCall

EXAMPLES = """Runs a tool of a server if rules and people let it, and prints the result. A server that is not
installed yet is found in the catalog or the registry, and installed after you agreed to exactly that. On a
terminal you are asked there: continue, session, always or abort; an answer from elsewhere applies as well.
Without one it exits 4 and says how to approve; running the same command again collects the answer.

examples:
  pml call time:get_current_time '{"timezone": "Europe/Paris"}'
  pml call time__get_current_time '{"timezone": "Europe/Paris"}'     by the name that clients see
  jq -n '{path: "a.txt"}' | pml call fs:read_text_file -             arguments from stdin
  pml call github:create_issue '{"title": "Hi"}' --json              the whole result
  pml call acme.tools.notes.summarize '{"day": "today"}'              a capability, by its full name
  pml call pml:execute --code report.ts                              code that calls tools, or a .py file
  pml call pml:execute '{"code": "return await mcp.memory.read_graph()"}'
  pml call db:backup --session nightly                               collects from another shell: cron, CI

exit codes: 0 ok, 1 the tool or its server failed, 2 usage or invalid arguments, 3 denied, 4 approval pending,
5 approval expired, or no such tool, 6 the answer was used already, 130 interrupted"""
_WORD: Final = re.compile(r"(?!(?:null|true|false)$)[A-Za-z][A-Za-z0-9_.-]*")
SLOW_S: Final = 1.0  # what takes longer is reported, so that a person sees that something happens


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_common(parser)
    parser.add_argument("tool", metavar="TOOL", help="namespace:action, or the wire name namespace__action")
    parser.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="the tool's arguments; - reads stdin"
    )
    parser.set_defaults(late="arguments")
    parser.add_argument("--code", metavar="FILE", help="with pml:execute: the code, from a .ts or .py file")
    parser.add_argument("--session", metavar="ID", help="call in this session (default: that of the shell)")


async def run(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_cloud_client, open_fleet, open_loader, open_workshop
    from pml.core.own_tools import CONTINUE
    from pml.service.call import Gate, Paused
    from pml.service.calls.absent_client import Nobody
    from pml.service.calls.execute import is_server, run_or_call
    from pml.service.install.deeds import stop_installs

    _refuse_two_words(args.tool, args.arguments)
    arguments = {**read_object(args.arguments, what="the input"), **_code(args.code)}
    if CONTINUE in arguments:
        raise Invalid(
            f"`{CONTINUE}` is for agents", hint="decide with `pml approvals`, then run the same call again"
        )
    place = find_place(args.workspace)
    async with opened(args) as context:
        session = await script_session(context, place, args.session)
        fleet = open_fleet(context, place, Nobody(session.workspace))
        loader = open_loader(context, place, fleet, warn=complain)
        bar = InstallBar()
        servers = Announced(fleet, before=bar.clear)
        workshop, cloud = open_workshop(place), open_cloud_client()
        gate = Gate(
            context=context, session=session, servers=servers, loader=loader, workshop=workshop, cloud=cloud
        )
        try:
            with bar:
                asking = TerminalAsking(context, session, args, before=bar.clear)
                call = await _pending(gate, args.tool, arguments, asking, on_install=bar)
                server = call.attempt.tool.namespace or ""
                result = await run_or_call(call)
            is_code = not is_server(gate, server)
            return print_result(result, server=server, as_json=args.json, is_code=is_code)
        except Paused as paused:
            return _tell_paused(paused, as_json=args.json)
        finally:
            await stop_installs(loader)
            await workshop.close()
            await cloud.close()
            await fleet.close()


async def _pending(
    gate: "Gate", name: str, arguments: JsonObject, asking: "Asking", *, on_install: "Told"
) -> "PendingCall":
    """Return the call that is meant, by the name of its tool or of PML's own."""
    from msgspec.structs import replace

    from pml.core.own_tools import EXECUTE
    from pml.service.call import Attempt, PendingCall
    from pml.service.calls.tool_names import resolve_tool

    if name in (EXECUTE, "execute"):
        attempt = Attempt(tool=parse_tool(EXECUTE), arguments=arguments, offered=False)
    else:
        attempt = replace(await resolve_tool(gate, name, arguments), offered=False)  # PML alone asks
    return PendingCall(gate, attempt, asking, on_install=on_install)


def _code(file: str | None) -> JsonObject:
    """Return the arguments of `pml:execute` that a file stands for. Raises: Invalid, Unavailable."""
    if file is None:
        return {}
    try:
        code = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise Unavailable(f"{quote(file)} cannot be read: {reason}") from exc
    language = "python" if file.endswith(".py") else "typescript"
    return {"code": code, "language": language}


def _refuse_two_words(tool: str, arguments: str) -> None:
    """Raise Invalid for `pml call server action`, which is likelier than input that is not JSON."""
    if ":" not in tool and "__" not in tool and _WORD.fullmatch(arguments):
        meant = quote(f"{tool}:{arguments}")
        raise Invalid(f"a tool is written `server:action`: did you mean {meant}?")


def _tell_paused(paused: "Paused", *, as_json: bool) -> Exit:
    record = paused.record
    if as_json:
        shape = {"approval_required": True, "workflow_id": paused.workflow.id}
        print_json({**shape, "approval": approval_json(record)})
        return Exit.PENDING
    what = "nothing has run" if paused.workflow.run_id is None else "the code waits there"
    complain(f"{visible(headline(record))}: {what}")
    complain_prose(f"  id {record.id}, to be decided until {local_time(record.expires_at)}")
    complain(f"  look at it with `pml approvals show {short(record.id)}`")
    complain_prose(
        f"  answer with `pml approvals allow {short(record.id)}` or `pml approvals deny {short(record.id)}`"
    )
    complain("  then run the same command again: it collects the answer")
    return Exit.PENDING


class Announced:
    """The servers, with a word on the terminal about whatever takes long."""

    def __init__(self, servers: "Servers", *, before: Callable[[], None], slow_s: float = SLOW_S) -> None:
        """`before` makes room on the terminal."""
        self._servers = servers
        self._before = before
        self._slow_s = slow_s

    def live(self, spec: "ServerSpec") -> "Manifest | None":
        return self._servers.live(spec)

    async def manifest(self, spec: "ServerSpec") -> "Manifest":
        self._before()
        with self._told(f"starting server {spec.name}…"):
            return await self._servers.manifest(spec)

    async def request(
        self,
        spec: "ServerSpec",
        method: str,
        params: JsonObject,
        *,
        seen: "Manifest | None" = None,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> bytes:
        tell = on_progress or (self._progress(spec.name) if sys.stderr.isatty() else None)
        with self._told(f"waiting for server {spec.name}…"):
            return await self._servers.request(spec, method, params, seen=seen, on_progress=tell)

    async def close(self) -> None:
        await self._servers.close()

    @contextlib.contextmanager
    def _told(self, text: str) -> Generator[None]:
        if not sys.stderr.isatty():
            yield
            return
        telling = asyncio.get_running_loop().call_later(self._slow_s, complain, text)
        try:
            yield
        finally:
            telling.cancel()

    def _progress(self, server: str) -> Callable[[JsonObject], None]:
        loop = asyncio.get_running_loop()
        quiet_until = loop.time() + self._slow_s

        def tell(params: JsonObject) -> None:
            if loop.time() >= quiet_until:
                total = "" if params.get("total") is None else f" of {params['total']}"
                message = "" if params.get("message") is None else f": {params['message']}"
                complain(f"  {server}: " + visible(f"{params.get('progress')}{total}{message}"))

        return tell
