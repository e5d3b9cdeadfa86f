"""The readable parts of a card: a diff, a command, code, facts; each value once, the whole input to unfold.

What is shown depends on the shape of the arguments as much as on the tool's name, since every server has
names of its own. Nothing is cut here but what is too long to be drawn, and that stands in the arguments too.
"""

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from pml.core.approvals.fact import Fact, plain
from pml.core.approvals.record import Approval, State, Subject
from pml.core.approvals.subjects import caller_facts, launch_rows, row_of
from pml.core.cards.card import (
    Arguments,
    Block,
    Code,
    Command,
    Diff,
    DiffLine,
    Facts,
    Line,
    Mark,
)
from pml.core.cards.diff import MAX_LINES, split_lines
from pml.core.cards.files import (
    MAX_HEADING,
    Change,
    Read,
    change_of,
    diff_of,
    is_within,
    names_of_change,
    place_of,
)
from pml.core.cards.shorten import brief
from pml.core.names import ToolName, parse_tool
from pml.core.own_tools import EXECUTE, LAUNCH_TOOL
from pml.core.rules.arguments import is_list, names_code, names_location
from pml.core.sessions.client_tools import ClientTools
from pml.core.text import pieces, visible, visible_json
from pml.core.values import Json, JsonObject

_COMMANDS: Final = frozenset(
    {"command", "cmd", "commandline", "command_line", "cmdline", "argv", "shell_command"}
)
_CODES: Final = frozenset("bash code eval javascript js powershell python script shell snippet sql".split())
_FOLDERS: Final = ("cwd", "workdir", "working_directory", "workingDirectory", "directory")
_LANGUAGES: Final[Mapping[str, str]] = {
    "sql": "sql",
    "python": "python",
    "javascript": "javascript",
    "js": "javascript",
    "typescript": "typescript",
    "bash": "bash",
    "graphql": "graphql",
    "patch": "diff",
    "diff": "diff",
}
_CHANGED: Final = (Mark.ADDED, Mark.REMOVED)
_MARKS: Final = {" ": Mark.SAME, "-": Mark.REMOVED, "+": Mark.ADDED}
_SHORT_TEXT: Final = 100  # what has one line of this length is as readable among the arguments
_MAX_TEXTS: Final = 12  # laid out by themselves; who reads so many reads the arguments
_MAX_PATH: Final = 4096  # no folder that exists has a longer name
_EDITED: Final = "this is the call as it was edited; what was asked for stands in the arguments"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question with what is known around it.

    Relative paths begin at `cwd`, and are shown short if they lie in `workspace`. `definition` is the tool as
    its server describes it, `starts` how that is started. `code` makes the call.
    Without `read`, files are not looked at. `is_plain`: no change is compared, only its texts are shown.
    """

    record: Approval
    cwd: str
    workspace: str
    clients: ClientTools
    definition: JsonObject | None = None
    starts: str | None = None
    code: str | None = None
    language: str | None = None
    read: Read | None = None
    is_plain: bool = False

    @property
    def tool(self) -> ToolName:
        return parse_tool(self.record.tool_name)

    @property
    def client_command(self) -> str | None:
        """The argument with the command line of a client's own tool, None for any other tool."""
        known = self.clients.get(self.record.tool_name)
        return None if known is None else known.command

    @property
    def folder(self) -> str:
        """Where the call would be made; visible."""
        return shown_folder(self.cwd)

    @property
    def is_elsewhere(self) -> bool:
        """Tell whether it would be made outside of the workspace; a server works wherever it was started."""
        is_own = self.record.subject is Subject.TOOL_CALL and self.tool.namespace is None
        return is_own and not is_within(posixpath.normpath(self.cwd), self.workspace)

    @property
    def change(self) -> Change | None:
        """What the call would do to a file."""
        is_call = self.record.subject is Subject.TOOL_CALL
        return change_of(self.tool, self.record.run_input) if is_call and not self.is_plain else None


def shown_folder(path: str) -> str:
    return visible(brief(path, _MAX_PATH))


def blocks_of(asked: Asked) -> tuple[Block, ...]:
    """Return all that is to be read of the question before it is decided."""
    record = asked.record
    if record.subject is Subject.TOOL_CALL:
        return _call_blocks(asked)
    return (_definition_diff(record) if row_of(record).is_diff else facts_of(record),)


def facts_of(record: Approval) -> Facts:
    """Return what installing, trusting or accepting something means, but for what the card says above."""
    row = row_of(record)
    return Facts(rows=tuple(fact for fact in row.facts(record) if fact.name not in row.told_above))


def _call_blocks(asked: Asked) -> tuple[Block, ...]:
    record = asked.record
    is_edited = record.updated_input is not None
    shown: list[Block] = []
    change = asked.change
    if change is not None:
        read = asked.read if record.status is State.PENDING else None
        drawn = diff_of(change, cwd=asked.cwd, workspace=asked.workspace, read=read, is_edited=is_edited)
        shown.append(drawn)
    else:
        shown += _texts(asked)
    rows = [Fact(name="edited", value=_EDITED)] if is_edited else []
    if record.tool_name == LAUNCH_TOOL:
        rows += launch_rows(record.run_input)
    rows += plain(caller_facts(record))
    tells_folder = any(isinstance(block, Command) for block in shown)
    if asked.tool.namespace is None and asked.cwd != asked.workspace and not tells_folder:
        rows.append(Fact(name="made in", value=asked.folder, alarming=asked.is_elsewhere))
    found: list[Block] = [Facts(rows=tuple(rows)), *shown] if rows else [*shown]
    if record.updated_input is None:
        found += _rest(record.tool_input, drawn_names(asked, shown))
    else:
        found.append(_arguments("arguments as they were asked for", record.tool_input))
        found.append(_arguments("arguments as they were edited", record.updated_input))
    if asked.code is not None:
        lines = tuple(map(pieces, split_lines(asked.code)))  # whole: the arguments do not have it
        found.append(Code(title="the code that makes this call", language=asked.language, lines=lines))
    return tuple(found)


def _texts(asked: Asked) -> list[Block]:
    """Return the commands among the arguments, then code and other long texts."""
    line = command_of(asked)
    found: list[Block] = [] if line is None else [_command(asked, line)]
    for name, value in asked.record.run_input.items():
        is_drawn = line is not None and name.lower() in _COMMANDS
        if isinstance(value, str) and not is_drawn and _is_worth_a_block(name, value):
            title = visible(brief(name, MAX_HEADING))
            found.append(_code(title, value, _language(asked, name)))
        if len(found) == _MAX_TEXTS:
            break
    return found


def command_of(asked: Asked) -> str | None:
    """Return the command that would run, None if there is none or no telling which it is.

    Words of a list are quoted as a shell would need it.
    """
    arguments = asked.record.run_input
    if (known := asked.client_command) is not None:
        return _string(arguments.get(known))
    given = [value for name, value in arguments.items() if name.lower() in _COMMANDS]
    if len(given) != 1:
        return None
    words = [_string(word) for word in given[0]] if is_list(given[0]) else None
    if words is not None and "args" not in arguments:
        return shlex.join(word for word in words if word is not None) if None not in words else None
    line, rest = _string(given[0]), arguments.get("args", ())
    if line is None or not is_list(rest) or any(not isinstance(word, str) for word in rest):
        return None
    return " ".join([line, *(shlex.quote(str(word)) for word in rest)])


def folder_of(asked: Asked) -> str:
    """Return where a command would run, as far as its arguments tell; visible."""
    tool, arguments = asked.tool, asked.record.run_input
    if asked.client_command is not None:
        return asked.folder
    match [arguments[name] for name in _FOLDERS if name in arguments]:
        case []:
            return asked.folder if tool.namespace is None else f"wherever {tool.namespace} runs it"
        case [str() as given]:
            return shown_folder(place_of(given, asked.cwd))
        case _:
            return f"wherever {tool.namespace or tool.action} runs it"


def _command(asked: Asked, line: str) -> Command:
    says = asked.record.run_input.get("description")
    lines, more = _lines(line)
    return Command(
        lines=lines,
        cwd=folder_of(asked),
        says=visible(brief(says, MAX_HEADING)) if isinstance(says, str) else None,
        more=more,
    )


def _string(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _is_worth_a_block(name: str, value: str) -> bool:
    is_long_code = names_code(name) and not names_location(name) and len(value) > _SHORT_TEXT
    is_code = name.lower() in _CODES or name.lower() in _COMMANDS
    return "\n" in value.rstrip("\n") or is_long_code or is_code


def _language(asked: Asked, name: str) -> str | None:
    told = asked.record.run_input.get("language")
    if isinstance(told, str) and names_code(name):
        return visible(told.lower()[:20])
    if asked.record.tool_name == EXECUTE and name == "code":
        return "typescript"
    return _LANGUAGES.get(name.lower())


def _code(title: str, text: str, language: str | None) -> Code:
    lines, more = _lines(text)
    return Code(title=title, language=language, lines=lines, more=more)


def _lines(text: str) -> tuple[tuple[Line, ...], int]:
    lines = split_lines(text)
    return tuple(map(pieces, lines[:MAX_LINES])), max(0, len(lines) - MAX_LINES)


def _rest(given: JsonObject, drawn: Set[str]) -> Iterator[Arguments]:
    """Yield what no other block shows, and the whole input to look up where that is less."""
    rest = {name: value for name, value in given.items() if name not in drawn}
    if rest or not given:
        yield _arguments("arguments" if len(rest) == len(given) else "other arguments", rest)
    if len(rest) < len(given):
        yield _arguments("raw arguments", given, raw=True)


def drawn_names(asked: Asked, shown: Sequence[Block]) -> frozenset[str]:
    """Return the arguments whose values these blocks show whole: they are not repeated as JSON."""
    given = asked.record.run_input
    names: set[str] = set()
    for block in shown:
        match block:
            case Diff() if not block.more and any(line.mark in _CHANGED for line in block.lines):
                names |= names_of_change(given)
            case Command() if not block.more:
                names |= _names_of_command(asked, block)
            case Code() if not block.more:
                alike = {name for name in given if visible(name) == block.title}
                names |= alike if len(alike) == 1 else set()
            case _:
                pass
    return frozenset(names)


def _names_of_command(asked: Asked, block: Command) -> set[str]:
    given = asked.record.run_input
    known = asked.client_command
    names = {name for name in given if name.lower() in _COMMANDS} | {"args"} if known is None else {known}
    says = given.get("description")
    if isinstance(says, str) and visible(says) == block.says:
        names.add("description")
    folders = [name for name in _FOLDERS if name in given]
    if known is None and len(folders) == 1 and given[folders[0]] == block.cwd:
        names.add(folders[0])
    return names & given.keys()


def _arguments(title: str, value: JsonObject, *, raw: bool = False) -> Arguments:
    return Arguments(title=title, lines=tuple(visible_json(value).split("\n")), raw=raw)


def _definition_diff(record: Approval) -> Diff:
    """Return the lines that `manifests.definition_diff` made."""
    given = record.tool_input.get("diff")
    lines = tuple(
        DiffLine(mark=_MARKS.get(line[:1], Mark.SAME), line=pieces(line[1:]))
        for line in map(str, given if is_list(given) else ())
    )
    return Diff(title=f"{visible(record.tool_name)}, as its server describes it", lines=lines)
