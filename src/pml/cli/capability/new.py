"""`pml capability new` and `types`: a capability to begin with, and the types of the tools that code calls.

What is there is never changed, but for types that PML made.
"""

import argparse
import json
import keyword
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pml.cli.capability.known_tools import Here, look_around
from pml.cli.capability.type_check import DECLARATIONS
from pml.cli.exits import Exit
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, print_json, say, say_prose
from pml.core.code.sandbox import Language
from pml.core.code.schema_types import ANY_OBJECT, UNKNOWN, type_of
from pml.core.code.signatures import DECLARATIONS_HEAD, MAX_DECLARED, declarations
from pml.core.code.static_calls import static_calls
from pml.core.errors import Conflict, NotFound, Unavailable
from pml.core.names import FALLBACK_EXPORT, Fqdn, ToolName, code_of, parse_fqdn, tool_of
from pml.core.packages.capability import parse_metadata
from pml.core.text import quote, visible, visible_json
from pml.core.values import Json, JsonObject
from pml.host.disk import unavailable

PLACEHOLDER: Final = "(Tell here what it does: people and models read it.)"
SUFFIXES: Final = {Language.TYPESCRIPT: ".ts", Language.PYTHON: ".py"}
_TYPES: Final = {Language.TYPESCRIPT: "deno", Language.PYTHON: "python"}
_MODE: Final = 0o644
_MAX_CODE: Final = 4 * 1024 * 1024  # as a registry takes it
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = frozenset(
    "break case catch class const continue debugger default delete do else enum export extends false finally "
    "for function if import in instanceof new null return super switch this throw true try typeof var void "
    "while with let static yield await implements interface package private protected public".split()
)
_HELLO: Final[JsonObject] = {
    "type": "object",
    "properties": {"name": {"type": "string", "description": "whom to greet"}},
    "required": ["name"],
}


async def new_capability(args: argparse.Namespace) -> int:
    """Raises: Invalid, NotFound, Conflict, Unavailable."""
    fqdn, language, folder = parse_fqdn(args.name), Language(args.language), Path(args.dir)
    here = await _look(args)
    tools = here.of(args.use)
    example = _example(tools)
    more = _other_calls(tools, example)
    code, metadata = folder / f"{fqdn}{SUFFIXES[language]}", folder / f"{fqdn}.json"
    _refuse_existing(folder / f"{fqdn}{suffix}" for suffix in (*SUFFIXES.values(), ".json"))
    written = [
        _create(code, _code(fqdn, language, example, more)),
        _create(metadata, _metadata(fqdn, language, example)),
    ]
    types = folder / DECLARATIONS
    if _may_write(types):
        written.append(_replace(types, declarations(here.of(_declared(called_in(folder), args.use, here)))))
    if args.json:
        print_json(
            {"fqdn": str(fqdn), "tool": str(tool_of(fqdn)), "written": [str(path) for path in written]}
        )
        return Exit.OK
    for path in written:
        say(f"wrote {visible(str(path))}")
    if types not in written:
        say_prose(
            f"  kept {visible(str(types))}, which PML did not make: it may lack types of what the code calls"
        )
    say(f"  change the code, then: {shlex.join(['pml', 'capability', 'check', visible(str(code))])}")
    publish = ["pml", "publish", visible(str(metadata)), "--to", "FOLDER"]
    say(f"  publish it: {shlex.join(publish)}, with FOLDER as `registry` in .pml.json")
    return Exit.OK


async def write_types(args: argparse.Namespace) -> int:
    """Raises: NotFound, Conflict, Unavailable."""
    folder = Path(args.dir)
    path = folder / DECLARATIONS
    called = called_in(folder)
    if not called and not args.use:
        raise NotFound(
            f"no code in {quote(str(folder))} calls a tool",
            hint="name servers with `--use`, or a folder with `--dir`",
        )
    here = await _look(args)
    namespaces = _declared(called, args.use, here)
    text = declarations(here.of(namespaces))
    if not _may_write(path):
        raise Conflict(f"{quote(str(path))} was not made by PML", hint="remove it, or choose another `--dir`")
    _replace(path, text)
    if args.json:
        print_json({"written": str(path), "servers": namespaces})
        return Exit.OK
    say_prose(f"wrote {visible(str(path))}: {', '.join(map(visible, namespaces)) or 'no servers'}")
    for name in called:
        if name not in namespaces:
            complain(f"  nothing is known of {visible(name)}, which the code calls")
    return Exit.OK


def called_in(folder: Path) -> list[str]:
    """Return the namespaces that the code in `folder` calls."""
    found: dict[str, None] = {}
    for language, suffix in SUFFIXES.items():
        for path in sorted(folder.glob(f"*{suffix}")):
            if path.name != DECLARATIONS and path.is_file() and path.stat().st_size <= _MAX_CODE:
                calls = static_calls(path.read_text(encoding="utf-8", errors="replace"), language)
                found |= {tool.namespace: None for tool in calls.tools if tool.namespace is not None}
    return [*found]


def _declared(called: Sequence[str], used: Sequence[str], here: Here) -> list[str]:
    """Return the namespaces whose types are written: those to use, and those that are called and known."""
    return [*dict.fromkeys([*used, *(name for name in called if name in here.namespaces)])]


def _may_write(types: Path) -> bool:
    """Tell whether there is no such file, or one that PML made, and so may make anew."""
    if types.is_symlink() or not types.is_file():
        return not types.is_symlink() and not types.exists()
    return types.read_text(encoding="utf-8", errors="replace").startswith(DECLARATIONS_HEAD)


async def _look(args: argparse.Namespace) -> Here:
    from pml.app import find_place
    from pml.service.policy.policy import current_policy

    place = find_place(args.workspace)
    async with opened(args) as context:
        return await look_around(context, place, await current_policy(context, str(place.workspace)))


def _example(tools: Mapping[ToolName, JsonObject]) -> tuple[ToolName, JsonObject] | None:
    """Return the tool that the template calls: one that only reads if there is one, and needs little."""

    def weight(item: tuple[ToolName, JsonObject]) -> tuple[bool, int]:
        notes, schema = item[1].get("annotations"), item[1].get("inputSchema")
        is_reading = isinstance(notes, Mapping) and notes.get("readOnlyHint") is True
        required = schema.get("required") if isinstance(schema, Mapping) else None
        return not is_reading, len(required) if isinstance(required, list | tuple) else 0

    return min(tools.items(), key=weight, default=None)


def _other_calls(
    tools: Mapping[ToolName, JsonObject], example: tuple[ToolName, JsonObject] | None
) -> list[str]:
    """Return how a tool of each other server is called, in either language; values are left open."""
    calls: list[str] = []
    for server in dict.fromkeys(tool.namespace for tool in tools):
        found = _example({tool: shape for tool, shape in tools.items() if tool.namespace == server})
        if found is None or example is None or server == example[0].namespace:
            continue
        schema = found[1].get("inputSchema")
        required = schema.get("required") if isinstance(schema, Mapping) else None
        names = (
            [each for each in required if isinstance(each, str)] if isinstance(required, list | tuple) else []
        )
        given = ", ".join(f"{visible_json(name, indent=None)}: …" for name in names)
        calls.append(f"await {code_of(found[0])}({f'{{{given}}}' if given else ''})")
    return calls


def _code(
    fqdn: Fqdn, language: Language, example: tuple[ToolName, JsonObject] | None, more: Sequence[str]
) -> str:
    name = _function_name(fqdn)
    if language is Language.PYTHON:
        body = "f\"hello {args['name']}\"" if example is None else f"await {code_of(example[0])}(args)"
        return (
            f"# `mcp` is all there is: {DECLARATIONS} tells what its tools take and return.\n"
            f"async def {name}(args, mcp):\n"
            + "".join(f"    # {line}\n" for line in more)
            + f"    return {body}\n"
        )
    given = _HELLO if example is None else example[1].get("inputSchema")
    arguments = type_of(given, limit=MAX_DECLARED)
    body = "`hello ${args.name}`" if example is None else f"await {code_of(example[0])}(args)"
    context = "" if example is None else ", { mcp }: Context"
    imports = "" if example is None else f'import type {{ Context }} from "./{DECLARATIONS}";\n\n'
    return (
        f"{imports}"
        f"/** As `inputSchema` in {fqdn}.json has it. */\n"
        f"type Args = {ANY_OBJECT if arguments == UNKNOWN else arguments};\n\n"
        f"export async function {name}(args: Args{context}) {{\n"
        + "".join(f"  // {line}\n" for line in more)
        + f"  return {body};\n"
        f"}}\n"
    )


def _metadata(fqdn: Fqdn, language: Language, example: tuple[ToolName, JsonObject] | None) -> str:
    schema: Json = _HELLO if example is None else example[1].get("inputSchema")
    does = "Says hello" if example is None else f"Calls {example[0]}"
    about = f"{does}. {PLACEHOLDER}"
    tool: dict[str, Json] = {
        "name": tool_of(fqdn).action,
        "description": about,
        "inputSchema": schema if isinstance(schema, Mapping) else {"type": "object"},
    }
    content: dict[str, Json] = {
        "fqdn": str(fqdn),
        "type": _TYPES[language],
        "routing": "client",
        "description": about,
        "tools": [tool],
    }
    text = f"{json.dumps(content, indent=2, ensure_ascii=False)}\n"
    parse_metadata(text.encode(), what=f"{fqdn}.json")
    return text


def _function_name(fqdn: Fqdn) -> str:
    action = tool_of(fqdn).action
    is_name = _NAME.fullmatch(action) and not keyword.iskeyword(action) and action not in _RESERVED
    return action if is_name else FALLBACK_EXPORT


def _refuse_existing(paths: Iterable[Path]) -> None:
    """Raises: Conflict."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise Conflict(f"{quote(str(path))} is there already", hint="choose another NAME or `--dir`")


def _create(path: Path, text: str) -> Path:
    """Raises: Conflict if it has come to be; Unavailable."""
    from pml.host.replace import create_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        create_file(path, text.encode(), mode=_MODE)
    except FileExistsError:
        raise Conflict(f"{quote(str(path))} is there already") from None
    except OSError as exc:
        raise _cannot_write(path, exc) from exc
    return path


def _replace(path: Path, text: str) -> Path:
    """Raises: Unavailable."""
    from pml.host.replace import replace_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode(), mode=_MODE)
    except OSError as exc:
        raise _cannot_write(path, exc) from exc
    return path


def _cannot_write(path: Path, exc: OSError) -> Unavailable:
    return unavailable(f"cannot write {quote(str(path))}", exc)
