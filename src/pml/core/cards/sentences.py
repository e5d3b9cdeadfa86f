"""What would happen, in one plain sentence, and what must not be overlooked.

The words for a server's tool are the server's own, marked as quoted; those for tools known here are ours.
Nothing here decides: a sentence that misleads still stands above the whole input.
"""

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, islice
from typing import Final

from pml.core.approvals.reasons import CapabilityNeeds
from pml.core.approvals.record import Subject
from pml.core.approvals.subjects import row_of
from pml.core.cards.blocks import Asked, command_of, facts_of, folder_of
from pml.core.cards.card import Facts
from pml.core.cards.diff import split_lines
from pml.core.cards.files import is_new, shown_file, shown_path
from pml.core.cards.shorten import brief
from pml.core.rules.arguments import names_location
from pml.core.sessions.client_tools import ClientTool, Shows
from pml.core.text import has_rtl, visible, visible_json
from pml.core.values import Json, JsonObject

_MAX_SENTENCE: Final = 160
_MAX_NAME: Final = 100
_MAX_WARNING: Final = 300
_MAX_GLIMPSE: Final = 80
_MAX_FOLDER: Final = 40  # beside a glimpse
_MAX_PLACES: Final = 2  # the two of a move
_MAX_ALIKE: Final = 5  # a person who does not heed these heeds no more
_LOOKED_AT: Final = 4096  # no path and no host is longer
_SENTENCE: Final = re.compile(r".+?[.!?](?=\s+[^a-z\s]|$)")  # not at `e.g. this`
_PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n")
_FETCHES: Final = frozenset({"fetch", "fetch_url", "navigate", "browser_navigate", "open_url"})
_OF_A_FETCH: Final = frozenset({"url", "prompt", "max_length", "start_index", "raw", "timeout"})
_HOST: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\\]*@)?(\[[^\]/]*\]|[^/?#:\\]*)")
_WORD: Final = re.compile(r"[^\W\d_]+")
_SUBSTITUTES: Final = re.compile(r"[`$\\]|<<|[<>]\(")
_OTHER_BREAKS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_KEYWORDS: Final = frozenset(
    "! case do done elif else esac fi for function if in select then time until while { }".split()
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9./][A-Za-z0-9_./+:@-]*")
_WITH_SUBCOMMAND: Final = frozenset(
    "apt apt-get brew bun cargo docker doas env gh git go kubectl make npm npx nohup pip pipx pnpm podman "
    "poetry sudo systemctl time uv uvx xargs yarn".split()
)
_MAX_PROGRAMS: Final = 4
_MAX_PROGRAM: Final = 40
_CONFUSABLE: Final = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL"})


def sentence_of(asked: Asked) -> tuple[str, bool]:
    """Return what would happen in plain words, and whether they are those of a server."""
    sentence = row_of(asked.record).sentence
    return _call_sentence(asked) if sentence is None else (sentence(asked.record), False)


def _call_sentence(asked: Asked) -> tuple[str, bool]:
    tool, arguments = asked.tool, asked.record.run_input
    host = host_of(arguments.get("url"))
    if host is not None and _only_fetches(asked):
        return f"Fetch a page from {brief(host, _MAX_NAME)}", False
    if tool.namespace is None:
        return _own_sentence(asked), False
    if tool.namespace == "pml" and tool.action in _OF_PML:
        return _OF_PML[tool.action](arguments), False
    rule = asked.record.rule
    is_capability = isinstance(rule, CapabilityNeeds)
    words = _first_sentence(
        rule.description if is_capability else (asked.definition or {}).get("description")
    )
    if words is not None:
        return words, True
    return _changed(asked) or f"Call {tool.namespace}:{tool.action}", False


def touches_of(asked: Asked) -> str | None:
    """Return what a call names in its arguments: its file, its command, or its paths and URLs; visible.

    None where it names nothing of the kind.
    """
    if asked.record.subject is not Subject.TOOL_CALL:
        return None
    if asked.change is not None:
        file = shown_file(asked.change, cwd=asked.cwd, workspace=asked.workspace, read=asked.read)
        return brief(file, _MAX_NAME)
    command = command_of(asked)
    if command is not None:
        return brief(_one_line(command), _MAX_GLIMPSE)
    arguments = asked.record.run_input.items()
    places = [value for name, value in arguments if isinstance(value, str) and names_location(name)]
    named = [brief(_one_line(place), _MAX_GLIMPSE) for place in places[:_MAX_PLACES]]
    more = [f"{len(places) - _MAX_PLACES} more"] if len(places) > _MAX_PLACES else []
    return ", ".join([*named, *more]) or None


def _only_fetches(asked: Asked) -> bool:
    """Tell whether a page is all that is asked for: a server may do more by a name that sounds like it."""
    if asked.tool.namespace is None:
        known = asked.clients.get(asked.tool.action)
        return known is not None and known.shows is Shows.PAGE
    return asked.tool.action.lower() in _FETCHES and _OF_A_FETCH.issuperset(asked.record.run_input)


def _own_sentence(asked: Asked) -> str:
    tool = asked.tool
    if (changed := _changed(asked)) is not None:
        return changed
    known = asked.clients.get(tool.action)
    if known is not None:
        return _known_sentence(asked, known)
    match asked.clients.server_tool(tool.action):
        case (server, action):
            return f"Call {server} {action} (a server of the client)"
        case None:
            return f"Use {tool.action}, one of the client's own tools"


def _known_sentence(asked: Asked, tool: ClientTool) -> str:
    arguments = asked.record.run_input
    match tool.shows:
        case Shows.NOTHING:
            return tool.verb
        case Shows.PATH:
            path = shown_path(
                str(arguments.get(tool.argument, ".")), cwd=asked.cwd, workspace=asked.workspace
            )
            return f"{tool.verb} {brief(path, _MAX_NAME)}"
        case Shows.TEXT | Shows.PAGE:
            return f"{tool.verb} `{brief(_one_line(arguments.get(tool.argument)), _MAX_NAME)}`"
        case Shows.COMMAND:
            is_behind = tool.background is not None and arguments.get(tool.background) is True
            behind = " in the background" if is_behind else ""
            return f"{tool.verb} {_named_programs(arguments.get(tool.argument))}{behind}"
        case Shows.TASK:
            task = arguments.get(tool.argument, arguments.get(tool.or_else or ""))
            return f"{tool.verb} {brief(_one_line(task), _MAX_NAME)}"


def _changed(asked: Asked) -> str | None:
    """Return what becomes of a file."""
    change = asked.change
    if change is None:
        return None
    file = shown_file(change, cwd=asked.cwd, workspace=asked.workspace, read=asked.read)
    name = brief(file, _MAX_NAME)
    if change.is_notebook:
        return f"Take a cell out of {name}" if change.content is None else f"Edit a cell of {name}"
    if change.content is None:
        return f"Edit {name}" if len(change.edits) == 1 else f"Edit {name} in {len(change.edits)} places"
    lines = _count(len(split_lines(change.content)) if change.content else 0, "line")
    new_file = "new file " if is_new(change, cwd=asked.cwd, read=asked.read) else ""
    return f"Write {lines} to {new_file}{name}"


def _named_programs(line: Json) -> str:
    programs = programs_of(line[:_LOOKED_AT]) if isinstance(line, str) else []
    more = len(programs) - _MAX_PROGRAMS
    names = ", ".join(programs[:_MAX_PROGRAMS]) + (f" and {more} more" if more > 0 else "")
    return names or "a command"


def programs_of(line: str) -> list[str]:
    """Return the programs that a command line names, in order; none where a shell could start others."""
    is_cut = len(line) >= _LOOKED_AT
    line = line.replace("\\\n", " ")  # a line that continues in the next
    if is_cut or _SUBSTITUTES.search(line) or _OTHER_BREAKS.search(line):
        return []
    found: dict[str, None] = {}
    for each in (each for each in line.split("\n") if not each.lstrip().startswith("#")):
        words = shlex.shlex(each, posix=True, punctuation_chars=";|&()<>")
        words.whitespace_split, words.commenters = True, ""  # a `#` within a word begins no comment
        try:
            simple = _simple_commands(words)
        except ValueError:  # a quote that is not closed: it may continue in the next line
            return []
        for command in simple:
            program = _program(command)
            if program is None:
                return []
            found[program] = None
    return [*found]


def _simple_commands(words: Iterable[str]) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    is_file = False  # of a redirection
    for word in words:
        is_mark = bool(word) and set(word) <= set(";|&()<>")
        if is_mark and not {"<", ">"} & {*word}:
            commands.append([])
        elif not is_mark and not is_file:
            commands[-1].append(word)
        is_file = is_mark and bool({"<", ">"} & {*word})
    return [command for command in commands if command]


def _program(words: Sequence[str]) -> str | None:
    """Return the program, with its subcommand where that says what it does; None if it cannot be told."""
    named = [*dropwhile(_ASSIGNMENT.match, words)]
    if not named or named[0] in _KEYWORDS or _PROGRAM.fullmatch(named[0]) is None:
        return None
    has_more = named[0] in _WITH_SUBCOMMAND and len(named) > 1 and _PROGRAM.fullmatch(named[1])
    return brief(" ".join(named[:2] if has_more else named[:1]), _MAX_PROGRAM)


def _agent(arguments: JsonObject) -> str:
    prompt = arguments.get("prompt", arguments.get("description"))
    return f"Start an agent: {brief(_one_line(prompt), _MAX_NAME)}"


_OF_PML: Final[Mapping[str, Callable[[JsonObject], str]]] = {
    "execute": lambda _: "Run code that calls tools; each call is judged by itself",
    "call": lambda arguments: f"Call {brief(_one_line(arguments.get('tool')), _MAX_NAME)}",
    "discover": lambda _: "Look for tools",
    "session_launch": _agent,
    "session_stop": lambda _: "End an agent that this session launched",
    "session_list": lambda _: "List the agents that this session launched",
    "session_wait": lambda _: "Wait for agents that this session launched",
    "loopback_pending": lambda _: "List what waits in sessions that this one launched",
    "loopback_wait": lambda _: "Wait for questions of sessions that this one launched",
    "loopback_respond": lambda _: "Decide a question of a session that this one launched",
    "loopback_permit": lambda _: "Ask whether a tool may be used",
}


def glimpse_of(asked: Asked) -> str:
    """Return the start of the command or of the arguments, and the folder where that matters; visible."""
    command = command_of(asked)
    if command is None:
        start = brief(visible_json(asked.record.run_input, indent=None), _MAX_GLIMPSE)
        folder = asked.folder if asked.tool.namespace is None else None
    else:
        start = brief(visible(command[:_LOOKED_AT]), _MAX_GLIMPSE)
        folder = folder_of(asked)
    return start if folder is None else f"{start} in {brief(folder, _MAX_FOLDER)}"


def warnings_of(asked: Asked, *, hidden: int) -> tuple[str, ...]:
    """Return what a person must not overlook."""
    record = asked.record
    found: list[str] = []
    if hidden:
        is_one = hidden == 1
        drawn = "is drawn as a mark" if is_one else "are drawn as marks"
        found.append(f"{_count(hidden, 'hidden character')} {drawn}")
    if row_of(record).warns:
        found += _alarms(facts_of(record))
    if record.subject is Subject.TOOL_CALL:
        if asked.is_elsewhere:
            found.append(f"it would be made in {brief(asked.folder, _MAX_WARNING)}, outside of the workspace")
        if has_rtl(record.tool_input) or has_rtl(record.updated_input):
            found.append("it has letters that are written from right to left: mind in which order they run")
        found += islice(dict.fromkeys(_look_alikes(record.run_input)), _MAX_ALIKE)
        if asked.clients.leaves_sandbox(record.run_input):
            found.append("it would run outside of the client's sandbox")
    return tuple(found)


def _alarms(facts: Facts) -> Iterator[str]:
    alarming = (row for row in facts.rows if row.alarming)
    return (f"{row.name}: {brief(row.value.partition(chr(10))[0], _MAX_WARNING)}" for row in alarming)


def _look_alikes(arguments: JsonObject) -> Iterator[str]:
    """Yield a warning for every path or host with letters that pass for others."""
    for name, value in arguments.items():
        if not isinstance(value, str) or value.isascii() or not names_location(name):
            continue
        host = host_of(value)
        if host is not None and not host.isascii():
            yield f"the host {brief(host, _MAX_NAME)} has letters that are not those of plain English"
        for word in _WORD.findall(value[:_LOOKED_AT]):
            if is_mixed(word):
                where = brief(visible(name), _MAX_NAME)
                yield f"{brief(visible(word), _MAX_NAME)} in `{where}` mixes alphabets that look alike"


def is_mixed(word: str) -> bool:
    """Tell whether a word has Latin letters and others that look like them."""
    scripts = {unicodedata.name(char, "?").split(" ")[0] for char in word if not char.isascii()}
    has_latin = any(char.isascii() for char in word) or "LATIN" in scripts
    return bool(scripts & _CONFUSABLE) and has_latin


def host_of(url: Json) -> str | None:
    """Return the host that most readers of the URL would find; visible."""
    found = _HOST.match(url[:_LOOKED_AT]) if isinstance(url, str) else None
    return visible(found[1]) if found and found[1] else None


def _first_sentence(description: Json) -> str | None:
    if not isinstance(description, str) or not description.strip():
        return None
    text = _one_line(_PARAGRAPH.split(description[:_LOOKED_AT].strip(), maxsplit=1)[0])
    found = _SENTENCE.match(text)
    return brief(found[0] if found else text, _MAX_SENTENCE)


def _one_line(text: Json) -> str:
    """Return the start of a text in one line, visible."""
    return visible(" ".join(text[:_LOOKED_AT].split())) if isinstance(text, str) else "?"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
