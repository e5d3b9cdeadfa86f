"""The argument `*` of a rule: every text of a call, at any depth, that can be a path or a URL.

Contents, patterns and numbers are arguments too, and a deny that took each of them for a path in doubt would
deny everything. So a text is read in all the ways in which tools make a path of it, and only where none of
them says anything is it in doubt. Only the text is looked at: links are followed elsewhere.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from pml.core.rules.arguments import is_list, names_location
from pml.core.rules.readings import MAX_PATH_CHARS
from pml.core.text import has_hidden
from pml.core.values import Json, JsonObject

MAX_TEXTS: Final = 5_000  # in one call; more of them are in doubt, for reading takes time
MAX_SEGMENTS: Final = 50_000
MAX_LISTED: Final = 200  # paths in one text, by commas and the like

_LINE_BREAK: Final = re.compile(r"[\r\n\v\f\x85\u2028\u2029]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:")
_URL_START: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):[/\\]{2}")
_FILE_URL: Final = re.compile(r"file:(?://(?:localhost)?(?=/))?", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_HOME: Final = re.compile(r"\$(?:\{HOME\}|HOME\b|env:HOME\b)|%HOME%")
_VARIABLE: Final = re.compile(r"\$[A-Za-z_{(]|%[A-Za-z_]+%|\{\{")
_VARIABLE_FIRST: Final = re.compile(r"(?:\$\w+|\$\{[^}/]*\}|\$\([^)]*\)|%\w+%|\{\{[^}]*\}\})(?:[/\\]|$)")
_PATTERN: Final = re.compile(r"[*?\[{]|[@+!]\(")
# `{a,/etc}` and `@(a|/etc)` leave open where the path begins; code has blanks or quotes there
_START_OPEN: Final = re.compile(r"""(?:\{|[@+!?*]\()[^\s"']*[{(,|][/~\\]""")
_URL_WORDS: Final = frozenset(
    "domain endpoint host hosts href link links origin site uri uris url urls".split()
)
_WEB_SCHEMES: Final = frozenset("http https ws wss".split())  # what follows is a host and its paths
_LIST_MARKS: Final = re.compile(r"[,;|]")
_BLANK: Final = re.compile(r"\s")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Guess(NamedTuple):
    """A path that a text may stand for; `is_open`: a pattern, for anything beneath the path."""

    path: str
    is_open: bool


def path_texts(arguments: JsonObject) -> Counter[str] | None:
    """Return how often each text is there that can be a path, without blanks around them; None if too many.

    Names of members count too (`{"files": {"a.txt": …}}`), though a bare word, such as `content`, does not.
    """
    found = Counter(
        text
        for name, text in _texts(arguments)
        if "/" in text
        or "\\" in text
        or "~" in text
        or ("." in text if name is None else names_location(name))
    )
    segments = sum(text.count("/") + text.count("\\") for text in found)
    return None if len(found) > MAX_TEXTS or segments > MAX_SEGMENTS else found


def url_texts(arguments: JsonObject) -> Iterator[str]:
    """Yield the texts that can be a URL: as one is written, or in an argument that is named like one."""
    for name, text in _texts(arguments):
        start = _URL_START.match(text)
        if start is not None:
            if start[1].lower() != "file":
                yield text
        elif name is not None and not _URL_WORDS.isdisjoint(_words(name)[-1:]):
            yield text if _SCHEME.match(text) else f"https://{text.lstrip('/')}"


def values_in(arguments: JsonObject) -> Iterator[tuple[str | None, Json]]:
    """Yield every value at any depth with the name of the member it stands in, and names of members too."""
    todo: list[tuple[str | None, Json]] = list(arguments.items())
    todo += [(None, name) for name in arguments]
    while todo:
        name, value = todo.pop()
        yield name, value
        if isinstance(value, Mapping):
            todo += value.items()
            todo += [(None, inner) for inner in value]
        elif is_list(value):
            todo += [(name, inner) for inner in value]


def guesses(text: str, *, folders: Sequence[str], homes: Sequence[str]) -> list[Guess]:
    """Return every path that a tool could make of `text`, or [] when there is no telling."""
    found: dict[Guess, None] = {}
    for variant in _variants(text, homes):
        if _VARIABLE_FIRST.match(variant) or _START_OPEN.match(variant):
            return []
        for start, rest in _places(variant, folders, homes):
            guess = _guess(start, rest)
            if guess is None:
                return []
            found[guess] = None
            if guess.is_open and "[" in rest:  # `[id].tsx` is also a name
                found[Guess(start + rest, is_open=False)] = None
    within = inner_paths(text)
    if len(within) > MAX_LISTED:
        return []
    for inner in within:  # what is not surely a path leaves nothing in doubt
        for start, rest in _places(inner, folders, homes):
            guess = _guess(start, rest)
            if guess is not None and (not guess.is_open or inner[0] in "/~"):
                found[guess] = None
    return list(found)


def inner_paths(text: str) -> list[str]:
    """Return what a text may have for a path within: `sqlite:////abs`, `--file=/abs`, `a.txt,/abs`."""
    pieces = map(str.strip, _LIST_MARKS.split(text)) if _LIST_MARKS.search(text) else ()
    found = [piece for piece in pieces if _is_listed(piece)]
    url = _URL_START.match(text)
    if url is not None and url[1].lower() not in _WEB_SCHEMES:
        rest = text[url.end() :].replace("\\", "/")
        _, slash, path = rest.partition("/")
        found += [rest, slash + path]
    for sign in "=@":
        if sign in text:
            found += [text.partition(sign)[2], text.rpartition(sign)[2]]
    found += [unquote(each) for each in found if _ESCAPE.search(each)]
    return list(dict.fromkeys(filter(None, map(str.strip, found))))


def _is_listed(piece: str) -> bool:
    """Tell whether a piece of a text is a path in a list: with blanks, and not at the root, it is prose."""
    if piece[:1] in ("/", "~"):
        return True
    return ("/" in piece or "\\" in piece or piece[:1] == ".") and _BLANK.search(piece) is None


def _texts(arguments: JsonObject) -> Iterator[tuple[str | None, str]]:
    for name, value in values_in(arguments):
        if isinstance(value, str):
            text = _trimmed(value)
            if text and len(text) <= MAX_PATH_CHARS and not _LINE_BREAK.search(text):
                yield name, text


def _trimmed(text: str) -> str:
    """Return the text without what tools take from its ends: blanks, and what cannot be seen."""
    text = text.strip()
    while text and (has_hidden(text[0]) or has_hidden(text[-1])):
        text = (text[1:] if has_hidden(text[0]) else text[:-1]).strip()
    return text


def _variants(text: str, homes: Sequence[str]) -> list[str]:
    """Return the text as tools that decode, unwrap or expand something would have it."""
    found = [text]
    if _ESCAPE.search(text):
        found.append(unquote(text))
    found += [each[matches[-1].end() :] for each in found if (matches := list(_FILE_URL.finditer(each)))]
    found += [_HOME.sub(lambda _, to=home: to, each) for each in found if "HOME" in each for home in homes]
    found += [
        each[match.end() :].strip()
        for each in found
        if (match := _SCHEME.match(each)) is not None and _URL_START.match(each) is None
    ]
    found += [
        other for each in found if "\\" in each for other in (each.replace("\\", "/"), each.replace("\\", ""))
    ]
    return list(dict.fromkeys(filter(None, found)))


def _places(text: str, folders: Sequence[str], homes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield where the path can start, and the rest of it as it is written."""
    if text.startswith("/"):
        yield "", text
        return
    yield from ((f"{folder}/", text) for folder in folders)
    if text.startswith("~"):
        user, slash, rest = text[1:].partition("/")
        if user == "root":
            yield "/root", slash + rest
        for home in homes:
            yield (f"{home.rpartition('/')[0]}/{user}" if user else home), slash + rest


def _guess(start: str, rest: str) -> Guess | None:
    """Return what the path stands for, or None if it climbs out of what a pattern leaves open."""
    segments = rest.split("/")
    for position, segment in enumerate(segments):
        if _PATTERN.search(segment) or _VARIABLE.search(segment):
            if ".." in segments[position:]:
                return None
            return Guess(start + "/".join(segments[:position]) or "/", is_open=True)
    return Guess(start + rest, is_open=False)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
