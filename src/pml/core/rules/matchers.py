"""Argument matchers: what a rule says about a call's arguments, judged so that doubt never lets it run.

A value has every reading that a tool could give it. An allow matches when all of them do; a deny or ask
when any does. A value that cannot be read for sure, such as a URL with two possible hosts, does not match an
allow and does match a deny or ask. Judging never raises. It knows neither rules nor tools, and sees the file
system only through `Paths`.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from itertools import chain
from typing import Final, Protocol, TypeAlias

from pml.core.errors import Invalid
from pml.core.rules.any_argument import path_texts, url_texts, values_in
from pml.core.rules.arguments import (
    Found,
    Gap,
    is_list,
    leaves,
    lookup,
    names_code,
    names_location,
    same,
    segments_of,
)
from pml.core.rules.globs import Glob, has_wildcard
from pml.core.rules.links import Followed
from pml.core.rules.places import CallContext
from pml.core.rules.readings import fold, host_glob, host_readings, is_under, normal, path_readings
from pml.core.text import quote
from pml.core.values import Json, JsonObject

Pointer: TypeAlias = tuple[str | int, ...]

MAX_JOINED: Final = 500  # paths of two arguments or more that are looked at; beyond that is doubt
KINDS: Final = ("is", "under", "host", "glob")
ANY: Final = "*"  # an argument that is really named so is `/*`, a pointer
# why a rule that reads how a command begins would be fooled by the rest of it
_LIST_MARKS: Final = re.compile(r"[\s,;|=@]+")
_FOOLED: Final = {
    "under": "which is not a path: `./x.sh; curl …` is beneath the directory too",
    "host": "which is not a URL: `https://good.example; curl …` has that host too",
    "glob": "which only a literal can name: `git status*` also allows `git status; curl …`",
}


class RuleInvalid(Invalid):
    """A rule that cannot be used; `pointer` leads from its entry to the part that is wrong."""

    def __init__(self, pointer: Pointer, problem: str, *, hint: str | None = None) -> None:
        super().__init__(problem, hint=hint)
        self.pointer = pointer
        self.problem = problem


class Reach(Enum):
    """How far a rule reaches when a value is in doubt: an allow is narrow, a deny or ask is wide."""

    NARROW = "narrow"
    WIDE = "wide"


class Paths(Protocol):
    """Where paths lead."""

    @property
    def home(self) -> str: ...

    def real(self, path: str) -> str:
        """Return where the absolute `path` leads, links followed; a tail that does not exist is kept.

        Raises: OSError, ValueError.
        """
        ...


class Condition(Protocol):
    """What a matcher asks of one value."""

    def passes(self, value: Json, *, reach: Reach, context: CallContext) -> bool: ...

    def is_in(self, arguments: JsonObject, context: CallContext) -> bool:
        """Say whether any argument, at any depth, is what a deny or ask is about."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Matcher:
    """A condition, and the way to the argument that must meet it."""

    segments: tuple[str, ...]
    condition: Condition

    def matches(self, arguments: JsonObject, *, reach: Reach, context: CallContext) -> bool:
        """Say whether the argument meets the condition. An argument that is not there never does."""
        # A way through a list leads to many values: an allow must hold for all, a deny or ask for one.
        verdicts = (self._passes(found, reach, context) for found in lookup(arguments, self.segments))
        return all(verdicts) if reach is Reach.NARROW else any(verdicts)

    def _passes(self, found: Found, reach: Reach, context: CallContext) -> bool:
        # The tool may read a member out of the text there: enough for a deny, not for an allow.
        if isinstance(found, Gap):
            return reach is Reach.WIDE and found is Gap.UNREADABLE
        return self.condition.passes(found, reach=reach, context=context)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnyArgument:
    """A condition that any argument may meet. Only a deny or ask has one."""

    condition: Condition
    segments: tuple[str, ...] = ()

    def matches(self, arguments: JsonObject, *, reach: Reach, context: CallContext) -> bool:
        """Say whether an argument meets the condition."""
        return reach is Reach.WIDE and self.condition.is_in(arguments, context)


@dataclass(frozen=True, slots=True)
class Is:
    """The value is this literal; a wide rule also finds it inside of lists."""

    literal: Json

    def passes(self, value: Json, *, reach: Reach, context: CallContext) -> bool:
        candidates = _within(value) if reach is Reach.WIDE else [value]
        return any(same(candidate, self.literal) for candidate in candidates)

    def is_in(self, arguments: JsonObject, context: CallContext) -> bool:
        return any(same(value, self.literal) for _, value in values_in(arguments))


@dataclass(frozen=True, slots=True)
class Under:
    """The value is a path in this directory, or the directory itself."""

    directory: str

    def passes(self, value: Json, *, reach: Reach, context: CallContext) -> bool:
        return _passes(value, reach, lambda text: self._readings(text, reach, context))

    def is_in(self, arguments: JsonObject, context: CallContext) -> bool:
        texts, directory = path_texts(arguments), context.follow(self.directory)
        # Too much to look through, or no telling where the folder is: a deny applies.
        if texts is None or directory is None:
            return texts is None or bool(texts)
        if any(self._may_be_led_to(text, directory, context) for text in texts):
            return True
        return self._may_be_joined(texts, directory, context)

    def _readings(self, text: str, reach: Reach, context: CallContext) -> list[bool]:
        directory, readings = context.follow(self.directory), context.readings(text)
        listed = _listed(text) if readings else ()  # to some tools one text is a list of paths, or an option
        if reach is Reach.NARROW:
            based = context.based(text)
            more = [context.readings(each) for each in listed]
            is_sure = based is not None and bool(readings) and all(more)
            readings = (*readings, *(based or ()), *chain.from_iterable(more)) if is_sure else ()
        else:
            readings = (*readings, *chain.from_iterable(map(context.readings, listed)))
        places = [place for reading in readings if (place := context.follow(reading)) is not None]
        # Empty is doubt, which `_passes` takes for a no to an allow and a yes to a deny.
        if directory is None or len(places) < len(readings):
            return []
        if reach is Reach.NARROW:
            # by the time it is opened, a link that the agent's side can exchange may lead elsewhere
            return [
                is_under(place.real, directory.real) and not place.loose and not directory.loose
                for place in places
            ]
        held = [
            self._holds(reading, place, directory, context)
            for reading, place in zip(readings, places, strict=True)
        ]
        return held if not held or any(held) else [*held, self._may_end_joined(text, directory, context)]

    def _holds(self, reading: str, place: Followed, directory: Followed, context: CallContext) -> bool:
        """Say whether a deny is about the path: as it is written, and where it leads.

        A link in the directory belongs to it wherever it leads, and a file system may be blind to case.
        """
        parents = {fold(directory.real), fold(normal(self.directory))}
        spots = (fold(place.real), fold(normal(reading)))
        if any(is_under(spot, parent) for spot in spots for parent in parents):
            return True
        if place.loose:
            context.unsure.add(reading)
        return False

    def _may_be_led_to(self, text: str, directory: Followed, context: CallContext) -> bool:
        """Say whether some tool could make a path of `text` that leads into the directory."""
        readings = context.guesses(text)
        for guess in readings:
            for path in dict.fromkeys((guess.path, normal(guess.path))):
                place = context.follow(path)
                if place is None or self._holds(path, place, directory, context):
                    return True
                if guess.is_open and is_under(fold(directory.real), fold(place.real)):
                    return True
        return not readings

    def _may_end_joined(self, text: str, directory: Followed, context: CallContext) -> bool:
        """Say whether `text` may lead there from a folder that another argument of the call names."""
        texts = path_texts(context.arguments)
        if texts is None:
            return True
        return self._may_be_joined(texts | Counter([text]), directory, context, last=text)

    def _may_be_joined(
        self, texts: Counter[str], directory: Followed, context: CallContext, *, last: str | None = None
    ) -> bool:
        """Say whether some tool could join arguments of the call to a path that leads there."""
        if texts.total() < 2:
            return False
        joined = context.joined(texts)
        if joined is None:
            return True
        parents = (fold(directory.real), fold(normal(self.directory)))
        toward = joined.toward(lambda folder: any(is_under(parent, fold(folder)) for parent in parents))
        most = max(MAX_JOINED, 4 * len(texts))
        for number, (path, text) in enumerate(chain(joined.paths, toward)):
            if number >= most:
                return True
            if text == (last or text) and self._may_be_led_to(path, directory, context):
                return True
        return False


def _listed(text: str) -> list[str]:
    """Return the paths after the first that a text may list, where they are not mere parts of a name."""
    _, *rest = _LIST_MARKS.split(text)
    return [path for path in rest if path[:1] in ("/", "~") or ".." in path.split("/")]


@dataclass(frozen=True, slots=True)
class Host:
    """The value is a URL whose host matches this glob."""

    glob: Glob

    def passes(self, value: Json, *, reach: Reach, context: CallContext) -> bool:
        return _passes(value, reach, lambda text: [self.glob.matches(host) for host in host_readings(text)])

    def is_in(self, arguments: JsonObject, context: CallContext) -> bool:
        return any(
            not (hosts := host_readings(text)) or any(map(self.glob.matches, hosts))
            for text in url_texts(arguments)
        )


@dataclass(frozen=True, slots=True)
class Text:
    """The value is a text that this glob matches."""

    glob: Glob

    def passes(self, value: Json, *, reach: Reach, context: CallContext) -> bool:
        return _passes(value, reach, lambda text: [self.glob.matches(text)])

    def is_in(self, arguments: JsonObject, context: CallContext) -> bool:
        return any(isinstance(value, str) and self.glob.matches(value) for _, value in values_in(arguments))


def parse_matcher(
    argument: str, value: Json, *, reach: Reach, base_dir: str, home: str
) -> Matcher | AnyArgument:
    """Return what a rule's `args` say of `argument`. Raises: RuleInvalid, pointing into `value`."""
    if argument == ANY:
        _refuse_any(reach)
        named = parse_matcher("/*", value, reach=reach, base_dir=base_dir, home=home)
        return AnyArgument(condition=named.condition)
    try:
        segments = segments_of(argument)
    except ValueError as exc:
        raise RuleInvalid((), str(exc)) from exc
    if not isinstance(value, Mapping):
        return Matcher(segments=segments, condition=Is(value))
    kind = next(iter(value), "")
    if len(value) != 1 or kind not in KINDS:
        hint = did_you_mean(kind, KINDS) if len(value) == 1 else None
        raise RuleInvalid(
            (),
            f"{quote(argument)} needs a literal or one of `is`, `under`, `host`, `glob`",
            hint=hint or 'write {"is": {…}} for a literal object',
        )
    if kind == "is":
        return Matcher(segments=segments, condition=Is(value[kind]))
    _refuse_for_code(argument, segments, kind)
    return Matcher(segments=segments, condition=_condition(kind, value[kind], reach, base_dir, home))


def did_you_mean(word: str, known: Sequence[str]) -> str | None:
    """Return the question for the known word that `word` resembles, or None if it resembles none."""
    near = get_close_matches(word.lower(), known, n=1)
    return f"did you mean `{near[0]}`?" if near else None


def _condition(kind: str, value: Json, reach: Reach, base_dir: str, home: str) -> Condition:
    if not isinstance(value, str) or not value:
        raise RuleInvalid((kind,), f"`{kind}` needs a text that is not empty")
    match kind:
        case "under":
            return Under(_directory(value, base_dir, home))
        case "host":
            return Host(_host(value, reach))
        case _:
            return Text(Glob(value))


def _refuse_any(reach: Reach) -> None:
    if reach is Reach.NARROW:
        raise RuleInvalid(
            (),
            "`*` means any argument, and an allow must name the ones that it allows",
            hint="name each argument; one that is really called `*` is written `/*`",
        )


def _refuse_for_code(argument: str, segments: Sequence[str], kind: str) -> None:
    """Raise if `kind` would have to understand a command or code: how it begins says nothing of the rest."""
    if not any(map(names_code, segments)) or (kind != "glob" and names_location(segments[-1])):
        return
    raise RuleInvalid(
        (kind,),
        f"{quote(argument)} holds a command or code, {_FOOLED[kind]}",
        hint="write the exact text",
    )


def _directory(text: str, base_dir: str, home: str) -> str:
    if text.rstrip("/").rpartition("/")[2] in ("*", "**"):
        raise RuleInvalid(
            ("under",),
            f"{quote(text)} is not a directory",
            hint="`under` covers all that is in it: leave out the `*`",
        )
    readings = path_readings(text, cwd=base_dir, home=home)
    if not readings or text.lower().startswith("file:"):
        raise RuleInvalid(
            ("under",),
            f"{quote(text)} cannot be read as one directory",
            hint="write it absolute, relative to the folder of this file, or from `~/`",
        )
    return readings[0]


def _host(text: str, reach: Reach) -> Glob:
    glob = host_glob(text)
    if glob is None:
        raise RuleInvalid(
            ("host",),
            f"{quote(text)} is not a host",
            hint="write only the host, such as `api.github.com` or `*.github.com`",
        )
    labels = glob.split(".")
    if reach is Reach.NARROW and glob != "*" and has_wildcard(labels[-1]):
        raise RuleInvalid(
            ("host",),
            f"{quote(text)} leaves the end of the host open, and the end decides whose host it is",
            hint="write the end of the host in full, or `*` for every host",
        )
    if reach is Reach.NARROW and any(label != "*" and label.startswith("*") for label in labels):
        raise RuleInvalid(
            ("host",),
            f"{quote(text)} also matches hosts of others whose name merely ends so",
            hint="write `*.github.com` for what is beneath a host, and the host itself in a rule of its own",
        )
    return Glob(glob)


def _passes(value: Json, reach: Reach, read: Callable[[str], Sequence[bool]]) -> bool:
    """Say whether `value`, or what its lists hold, passes, given the outcome of each reading of a text."""
    for leaf in leaves(value):
        readings = read(leaf) if isinstance(leaf, str) else ()
        if reach is Reach.NARROW:
            if not readings or not all(readings):
                return False
        elif not is_list(leaf) and (not readings or any(readings)):
            return True
    return reach is Reach.NARROW


def _within(value: Json) -> list[Json]:
    """Return `value` and all that its lists hold, lists among them."""
    found: list[Json] = [value]
    for each in found:  # grows while it is read
        if is_list(each):
            found.extend(each)
    return found
