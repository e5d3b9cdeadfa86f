"""What would happen, in one plain sentence, and what must not be overlooked.

The words for a server's tool are the server's own, marked as quoted; those for tools known here are ours.
Nothing here decides: a sentence that misleads still stands above the whole input.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from pml.core.approvals import Subject
from pml.core.arguments import is_list, names_location
from pml.core.card_blocks import Asked, facts_of
from pml.core.card_files import is_new, shown_path
from pml.core.cards import Facts
from pml.core.dependency import dependency_title, server_name, variable_names
from pml.core.diffs import split_lines
from pml.core.telling import needs_of
from pml.core.text import visible
from pml.core.values import Json, JsonObject

_MAX_SENTENCE: Final = 160
_MAX_NAME: Final = 100
_MAX_ALIKE: Final = 5  # a person who does not heed these heeds no more
_LOOKED_AT: Final = 4096  # no path and no host is longer
_SENTENCE: Final = re.compile(r".+?[.!?](?=\s+[^a-z\s]|$)")  # not at `e.g. this`
_PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n")
_FETCHES: Final = re.compile(r"fetch|navigate|open_url", re.IGNORECASE)
_HOST: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\\]*@)?(\[[^\]/]*\]|[^/?#:\\]*)")
_WORD: Final = re.compile(r"[^\W\d_]+")
_CONFUSABLE: Final = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL"})


def sentence_of(asked: Asked) -> tuple[str, bool]:
    """Return what would happen in plain words, and whether they are those of a server."""
    record = asked.record
    match record.subject:
        case Subject.TOOL_CALL:
            return _call_sentence(asked)
        case Subject.WORKSPACE_TRUST:
            return _trust_sentence(record.tool_input), False
        case Subject.TOOL_CHANGED:
            return f"Go on with {record.tool_name} although its server now describes it otherwise", False
        case Subject.DEPENDENCY_INSTALL:
            return f"Install {dependency_title(record.tool_input)}, then call {record.tool_name}", False
        case Subject.INTEGRITY_CHANGED:
            return f"Run {server_name(record.tool_input)} with files that changed since its install", False
        case Subject.API_KEY_REQUIRED:
            names = variable_names(record.tool_input)
            return f"{server_name(record.tool_input)} needs {names} before {record.tool_name} can run", False


def _call_sentence(asked: Asked) -> tuple[str, bool]:
    tool, arguments = asked.tool, asked.record.run_input
    host = host_of(arguments.get("url"))
    if host is not None and _FETCHES.search(tool.action):
        return f"Fetch a page from {_brief(host)}", False
    if tool.namespace is None:
        return _own_sentence(asked), False
    if tool.namespace == "pml" and tool.action in _OF_PML:
        return _OF_PML[tool.action](arguments), False
    told = needs_of(asked.record) or asked.definition or {}
    words = _first_sentence(told.get("description"))
    if words is not None:
        return words, True
    return _changed(asked) or f"Call {tool.action} of {tool.namespace}", False


def _own_sentence(asked: Asked) -> str:
    tool, arguments = asked.tool, asked.record.run_input
    if (changed := _changed(asked)) is not None:
        return changed
    if tool.action in _OF_CLIENT:
        return _OF_CLIENT[tool.action](arguments, asked.cwd)
    match tool.action.split("__"):
        case ["mcp", server, *rest] if rest:
            return f"Call {'__'.join(rest)} of the client's own server {server}"
        case _:
            return f"Use {tool.action}, a tool of the client's own"


def _changed(asked: Asked) -> str | None:
    """Return what becomes of a file."""
    change = asked.change
    if change is None:
        return None
    name = _brief_path(change.path, asked.cwd)
    if change.is_notebook:
        return f"Edit a cell of {name}" if change.content else f"Take a cell out of {name}"
    if change.content is None:
        return f"Edit {name}" if len(change.edits) == 1 else f"Edit {name} in {len(change.edits)} places"
    lines = _count(len(split_lines(change.content)) if change.content else 0, "line")
    new_file = "new file " if is_new(change, cwd=asked.cwd, read=asked.read) else ""
    return f"Write {lines} to {new_file}{name}"


def _bash(arguments: JsonObject, _: str) -> str:
    return "Run a command" + (" in the background" if arguments.get("run_in_background") is True else "")


def _agent(arguments: JsonObject, _: str = "") -> str:
    prompt = arguments.get("prompt", arguments.get("description"))
    return f"Start an agent: {_brief(_one_line(prompt))}"


def _with_path(verb: str, key: str) -> Callable[[JsonObject, str], str]:
    return lambda arguments, cwd: f"{verb} {_brief_path(str(arguments.get(key, '.')), cwd)}"


def _with_text(verb: str, key: str) -> Callable[[JsonObject, str], str]:
    return lambda arguments, _: f"{verb} `{_brief(_one_line(arguments.get(key)))}`"


_OF_CLIENT: Final[Mapping[str, Callable[[JsonObject, str], str]]] = {
    "Bash": _bash,
    "Task": _agent,
    "Agent": _agent,
    "Read": _with_path("Read", "file_path"),
    "NotebookRead": _with_path("Read", "notebook_path"),
    "Edit": _with_path("Edit", "file_path"),
    "MultiEdit": _with_path("Edit", "file_path"),
    "Write": _with_path("Write to", "file_path"),
    "NotebookEdit": _with_path("Edit", "notebook_path"),
    "LS": _with_path("List", "path"),
    "Glob": _with_text("Find files named", "pattern"),
    "Grep": _with_text("Search files for", "pattern"),
    "WebSearch": _with_text("Search the web for", "query"),
    "WebFetch": _with_text("Fetch", "url"),
    "Skill": _with_text("Use the skill", "skill"),
    "SlashCommand": _with_text("Run the client's command", "command"),
    "KillShell": lambda _, __: "End a command that runs in the background",
    "BashOutput": lambda _, __: "Read what a command in the background has printed",
    "TodoWrite": lambda _, __: "Write down what is to be done",
    "ExitPlanMode": lambda _, __: "End planning and begin the work",
}
_OF_PML: Final[Mapping[str, Callable[[JsonObject], str]]] = {
    "execute": lambda _: "Run code that calls tools; each call is judged by itself",
    "call": lambda arguments: f"Call {_brief(_one_line(arguments.get('tool')))}",
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


def _trust_sentence(asked: JsonObject) -> str:
    def count_of(key: str, noun: str) -> str:
        given = asked.get(key)
        return _count(len(given) if is_list(given) else 0, noun)

    rules, commands = count_of("allows", "rule"), count_of("launches", "command")
    return f"Trust this workspace's .pml.json: {rules} to allow, {commands} to start"


def warnings_of(asked: Asked, *, hidden: int) -> tuple[str, ...]:
    """Return what a person must not overlook."""
    record = asked.record
    found: list[str] = []
    if hidden:
        is_one = hidden == 1
        drawn = "is drawn as a mark" if is_one else "are drawn as marks"
        found.append(f"{_count(hidden, 'hidden character')} {drawn}")
    if record.subject is Subject.DEPENDENCY_INSTALL:
        found += _alarms(facts_of(record))
    if record.subject is Subject.TOOL_CALL:
        found += islice(dict.fromkeys(_look_alikes(record.run_input)), _MAX_ALIKE)
        if record.run_input.get("dangerouslyDisableSandbox") is True:
            found.append("it would run outside of the client's sandbox")
    return tuple(found)


def _alarms(facts: Facts) -> Iterator[str]:
    return (f"{row.name}: {row.value.partition(chr(10))[0]}" for row in facts.rows if row.alarming)


def _look_alikes(arguments: JsonObject) -> Iterator[str]:
    """Yield a warning for every path or host with letters that pass for others."""
    for name, value in arguments.items():
        if not isinstance(value, str) or value.isascii() or not names_location(name):
            continue
        host = host_of(value)
        if host is not None and not host.isascii():
            yield f"the host {_brief(host)} has letters that are not those of plain English"
        for word in _WORD.findall(value[:_LOOKED_AT]):
            if is_mixed(word):
                yield f"{_brief(visible(word))} in `{visible(name)}` mixes alphabets that look alike"


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
    return _brief(found[0] if found else text, limit=_MAX_SENTENCE)


def _one_line(text: Json) -> str:
    """Return the start of a text in one line, visible."""
    return visible(" ".join(text[:_LOOKED_AT].split())) if isinstance(text, str) else "?"


def _brief_path(path: str, cwd: str) -> str:
    return _brief(shown_path(path, cwd))


def _brief(text: str, *, limit: int = _MAX_NAME) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
