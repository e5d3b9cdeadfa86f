"""Finding things in the arguments of a call: by name or JSON pointer, through lists, and by what names mean.

It knows JSON and the names people give to arguments, and nothing of rules.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias, TypeGuard, cast

from pml.core.text import quote
from pml.core.values import Json, JsonObject

# Arguments that are run. One word in a name is enough (`shell_command`, `sqlQuery`): taking a harmless
# argument (`code` for a voucher's) for a command costs a question, missing a command costs more.
# Left out are words that mostly stand for data or for a thing's name: `payload`, `template`, `input`.
CODE_WORDS: Final = frozenset(
    "aql argv bash cmd cmdline cmds code command commandline commands cypher entrypoint eval evaluate exec "
    "executable execute expr expression expressions formula formulas function graphql gremlin javascript js "
    "keystrokes kql lua macro macros perl php powershell program pwsh python queries query rawquery ruby "
    "script scripts sh shell snippet snippets source sources sparql sql statement statements stdin stmt "
    "typescript zsh".split()
)
# Tools that run what they are given, whatever they call it. `run` does unless it is a thing to be read.
_RUNNING_WORDS: Final = frozenset(
    "bash cmd command commands eval evaluate exec execute javascript js lua perl php powershell pwsh python "
    "repl ruby script scripts sh shell sql terminal typescript zsh".split()
)
_READING_WORDS: Final = frozenset("describe find get list read search show view".split())
# Programs that run what they are told, and ways to type into something that does; not where they are read of.
_PROGRAM_WORDS: Final = frozenset(
    "ansible applescript cli cron crontab docker gdb interpreter keyboard keystroke keystrokes kubectl lldb "
    "npm npx osascript pip pipx pnpm podman program pty spawn ssh stdin subprocess sudo terraform tmux "
    "uvx".split()
)
_RUNNING_PAIRS: Final = tuple(
    frozenset(pair.split())
    for pair in (
        *("database query", "db query", "input process", "interact process", "launch app", "launch process"),
        *("open app", "process send", "process start", "process write", "control send", "input send"),
        *("key send", "keys send", "keys type"),
    )
)
_RUNNING_NAMES: Final = frozenset("computer console make query".split())  # if it is the whole name
_RUNNING_AT_END: Final = re.compile(
    r"(?:exec(?!utive)|shell|sql)|.*(?:command|exec|(?<!nut)shell|(?<!manu)(?<!tran)script|sql)\Z", re.DOTALL
)
_MOVING_WORDS: Final = frozenset("backup copy cp move mv rename".split())
# `source` is here too: a tool that moves files takes a path of this name
LOCATION_WORDS: Final = frozenset(
    "cwd destination dir directories directory dirname dirs file filename filenames filepath filepaths files "
    "folder folders host hosts path pathname paths root source uri uris url urls workdir".split()
)
# what other paths of the call may be read from: `cwd`, `repo_path`, `baseDir`
_BASE_WORDS: Final = frozenset(
    "base basedir cwd dir directory folder project repo repository root rootdir workdir working "
    "workspace".split()
)
_EXCLUSION_WORDS: Final = frozenset("exclude excluded excludes excluding ignore ignored ignores".split())
# `source` before one of these, and `code` after one, is part of a name for data: `source_timezone`
_SOURCE_OF: Final = frozenset(
    "account branch city country currency date format id ids lang language locale time timezone tz unit "
    "units zone".split()
)
_CODE_OF: Final = frozenset(
    "airline airport area color colour country currency dial error exit iata language locale postal region "
    "state status zip".split()
)
# what a person types into a search box: a line of words, without what statements and commands are made of
_SEARCH_TEXT: Final = re.compile(r"[^\W_][\w ,.:?!'\"/#@+-]{0,399}")
_BEGINS_STATEMENT: Final = frozenset(
    "alter analyze attach begin bulk call checkpoint cluster commit copy create dbcc deallocate declare "
    "delete deny desc describe detach disable discard drop dump enable eval exec execute explain export "
    "flush flushall flushdb for foreach from grant handler import insert install kill let listen load "
    "lock match merge notify optimize optional pragma prepare purge reassign refresh reindex remove "
    "rename repair replace reset restore return revoke rollback savepoint select set show shutdown sp "
    "start stop truncate union unlisten unlock unwind update upsert use vacuum values waitfor with xp".split()
)
_QUOTE_AT_ONCE: Final = re.compile(r"[^\s\"']+(?!'[a-z]{1,2}(?: |\Z))[\"']")  # `run"x"`, not `what's new`
_HAS_STATEMENT: Final = re.compile(
    r"\b(?:select|union|exec|execute|xp cmdshell|delete from|insert into|"
    r"(?:alter|create|drop|truncate) (?:database|index|schema|table|user|view))\b"
)
_PATH_TEXT: Final = re.compile(r"[\w ,.:@/\\~+#-]{1,4096}")
# with blanks only where it begins like a path, and without what could be an option
_PATH_WITH_BLANKS: Final = re.compile(r"(?:[/~.]|[A-Za-z]:[/\\]|[^ ]*[/\\])(?:(?! -+\w).)*")

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # `SQLQuery`: sql, query
_WORD_AFTER_CAPITALS: Final = re.compile(r"[A-Z]{2,}|[A-Z]?[a-z]+")  # `SQLquery`: sql, query
_NOT_LETTER: Final = re.compile(r"[^a-z]+")
# unmistakable even where nothing parts the words: `sqltext`, `runcommand`
_CODE_AT_END: Final = re.compile(
    r"(?:sql|shell|script|command(?!er)|code)|.*(?:sql|shell|script|command|code)\Z", re.DOTALL
)
MOST_NAMES: Final = 2_000  # of arguments, looked at for words of code; a call with more is taken to run some
MOST_NAME_CHARS: Final = 1_024
MOST_VALUES: Final = 100_000
SHORT_CHARS: Final = 32 * 1024
SHORT_VALUES: Final = 256
_KNOWN_NAMES: Final = 4096  # agents choose names: so many, and no longer ones, are read once only
_KNOWN_NAME_CHARS: Final = 64
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


class Gap(Enum):
    """What is found where there is no value."""

    MISSING = "missing"
    UNREADABLE = "unreadable"  # the way leads into a text or number, and only the tool knows what that holds


Found: TypeAlias = "Json | Gap"


def is_list(value: object) -> TypeGuard[Sequence[Json]]:
    return isinstance(value, list | tuple)


def segments_of(argument: str) -> tuple[str, ...]:
    """Return the steps to `argument`: one for a name, one for each part of a JSON pointer.

    Raises: ValueError, if it is neither.
    """
    if not argument:
        raise ValueError("an argument needs a name")
    if not argument.startswith("/"):
        return (argument,)
    if re.search(r"~(?![01])", argument):
        raise ValueError(
            f"{quote(argument)} is not a JSON pointer: in a name, `~` is written `~0` and `/` is written `~1`"
        )
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in argument[1:].split("/"))


def lookup(arguments: JsonObject, segments: Sequence[str]) -> list[Found]:
    """Return what `segments` lead to, never nothing; a list is entered by index, else in all its elements."""
    found: list[Found] = [arguments]
    for segment in segments:
        found = [inner for value in found for inner in _step(value, segment)]
    return found


def leaves(value: Json) -> Iterator[Json]:
    """Yield what lists within lists hold: everything that is not a list, and the empty lists."""
    todo = [value]
    while todo:
        item = todo.pop()
        if is_list(item) and item:
            todo.extend(reversed(item))
        else:
            yield item


def same(left: Json, right: Json) -> bool:
    """Say whether two values are the same JSON: `true` is not 1, 1 is 1.0, and keys have no order."""
    todo: list[tuple[Json, Json]] = [(left, right)]
    while todo:
        one, other = todo.pop()
        if isinstance(one, Mapping):
            if not isinstance(other, Mapping) or one.keys() != other.keys():
                return False
            todo.extend((one[key], other[key]) for key in one)
        elif is_list(one):
            if not is_list(other) or len(one) != len(other):
                return False
            todo.extend(zip(one, other, strict=True))
        elif isinstance(one, bool) or isinstance(other, bool):
            if one is not other:
                return False
        elif one != other:
            return False
    return True


def names_code(name: str) -> bool:
    """Say whether an argument of this name may hold a command or code."""
    return _short_names_code(name) if len(name) <= _KNOWN_NAME_CHARS else _names_code(name)


@lru_cache(_KNOWN_NAMES)
def _short_names_code(name: str) -> bool:
    return _names_code(name)


def _names_code(name: str) -> bool:
    words = _words(name)
    rest = [word for at, word in enumerate(words) if not _is_of_data(words, at)]
    return _has_code_word(name if len(rest) == len(words) else "_".join(rest))


def _is_of_data(words: Sequence[str], at: int) -> bool:
    """Say whether the word is half of a name for data: `source` of a time zone, `code` of a country."""
    if words[at] == "source":
        return at + 1 < len(words) and words[at + 1] in _SOURCE_OF
    return words[at] == "code" and at > 0 and words[at - 1] in _CODE_OF


def _has_code_word(name: str) -> bool:
    letters = _NOT_LETTER.sub("", name.lower())
    words = {letters, *_words(name), *map(str.lower, _WORD_AFTER_CAPITALS.findall(name))}
    return not CODE_WORDS.isdisjoint(words) or _CODE_AT_END.match(letters) is not None


def names_location(name: str) -> bool:
    """Say whether an argument of this name is where something is (`script_path`), not the thing itself."""
    return not LOCATION_WORDS.isdisjoint(_words(name)[-1:])


def names_base(name: str) -> bool:
    """Say whether an argument of this name may be the folder that other paths of the call begin in."""
    return not _BASE_WORDS.isdisjoint(_words(name))


def names_exclusion(name: str) -> bool:
    """Say whether an argument of this name tells what is left out (`excludePatterns`)."""
    return not _EXCLUSION_WORDS.isdisjoint(_words(name))


def without_searches_and_paths(action: str, arguments: JsonObject) -> JsonObject:
    """Return the arguments without those that a name of code has, and that are plainly something else.

    That is the `query` of a tool that searches, if it is a line of words, and the `source` of one that copies
    or moves, if it and its `destination` are paths. What could be a statement, a command or code stays.
    """
    words = _words(action)
    is_search = "search" in words and CODE_WORDS.isdisjoint(words)
    is_move = not _MOVING_WORDS.isdisjoint(words) and _is_path(arguments.get("destination"))
    return {
        name: value
        for name, value in arguments.items()
        if not (name == "query" and is_search and _is_search_text(value))
        and not (name == "source" and is_move and _is_path(value))
    }


def _is_search_text(value: Json) -> bool:
    if not isinstance(value, str) or _SEARCH_TEXT.fullmatch(value) is None:
        return False
    text = unicodedata.normalize("NFKC", value).lower()
    words = _NOT_LETTER.sub(" ", text).split()
    if words[:1] and words[0] in _BEGINS_STATEMENT:
        return False
    return _QUOTE_AT_ONCE.match(text) is None and _HAS_STATEMENT.search(" ".join(words)) is None


def _is_path(value: Json) -> bool:
    if not isinstance(value, str) or _PATH_TEXT.fullmatch(value) is None:
        return False
    return " " not in value or _PATH_WITH_BLANKS.fullmatch(value) is not None


def is_running(action: str, arguments: JsonObject) -> bool:
    """Say whether a tool of this name runs what it is given, whatever the arguments are called."""
    words = _words(action)
    letters = _NOT_LETTER.sub("", action.lower())
    if not _RUNNING_WORDS.isdisjoint(words) or _RUNNING_AT_END.match(letters) is not None:
        return True
    if _is_program(words) or _has_args(arguments):
        return True
    is_run = "run" in words and words[0] not in _READING_WORDS
    return is_run and any(not isinstance(value, bool | int | float | None) for value in arguments.values())


def _has_args(arguments: JsonObject) -> bool:
    """Say whether the call hands a program, or another tool, its arguments."""
    given = arguments.get("args")
    return bool(given) and not isinstance(given, bool | int | float)


def _is_program(words: Sequence[str]) -> bool:
    """Say whether a tool is named after a program that runs what it is told, or for typing into one."""
    named = set(words)
    if not _READING_WORDS.isdisjoint(named):
        return False
    is_named_so = not _PROGRAM_WORDS.isdisjoint(named) or any(pair <= named for pair in _RUNNING_PAIRS)
    return is_named_so or (len(words) == 1 and words[0] in _RUNNING_NAMES)


def holds_code(arguments: JsonObject) -> bool:
    """Say whether any argument, however deep, has a name of commands or code, or there are too many."""
    todo: list[Json] = [arguments]
    names: set[str] = set()
    values = 0
    while todo:
        item = todo.pop()
        if isinstance(item, Mapping):
            new = [name for name in item if name not in names]
            names.update(new)
            values += len(item)
            if len(names) > MOST_NAMES or values > MOST_VALUES:
                return True
            if any(len(name) > MOST_NAME_CHARS or names_code(name) for name in new):
                return True
            todo.extend(value for value in item.values() if isinstance(value, Mapping | list | tuple))
        elif is_list(item):
            values += len(item)
            if values > MOST_VALUES:
                return True
            todo.extend(value for value in item if isinstance(value, Mapping | list | tuple))
    return False


def is_short(arguments: JsonObject) -> bool:
    """Say whether looking through the arguments takes no time that anybody would notice."""
    todo: list[Json] = [arguments]
    chars = values = 0
    while todo:
        item = todo.pop()
        values += 1
        if isinstance(item, str):
            chars += len(item)
        elif isinstance(item, Mapping):
            values += len(item)
            chars += sum(map(len, item)) if values <= SHORT_VALUES else 0
            todo.extend(item.values() if values <= SHORT_VALUES else ())
        elif is_list(item):
            values += len(item)
            todo.extend(item if values <= SHORT_VALUES else ())
        if chars > SHORT_CHARS or values > SHORT_VALUES:
            return False
    return True


def _step(value: Found, segment: str) -> list[Found]:
    if is_list(value):
        if _INDEX.fullmatch(segment):
            index = int(segment)
            return [value[index]] if index < len(value) else [Gap.MISSING]
        return [_member(leaf, segment) for leaf in leaves(cast(Json, value))]
    return [_member(value, segment)]


def _member(value: Found, key: str) -> Found:
    if isinstance(value, Gap):
        return value
    if isinstance(value, Mapping):
        return value.get(key, Gap.MISSING)
    return Gap.MISSING if value is None or is_list(value) else Gap.UNREADABLE


def _words(name: str) -> tuple[str, ...]:
    return _short_words(name) if len(name) <= _KNOWN_NAME_CHARS else _words_of(name)


@lru_cache(_KNOWN_NAMES)
def _short_words(name: str) -> tuple[str, ...]:
    return _words_of(name)


def _words_of(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))
