"""Reserved calls: those that name PML itself, or lead to its files or to a settings file. A person's.

An agent that could make them unasked could answer its own questions, or undo a deny. What hides the name
from this look (a variable, an encoding) is beyond it; containment is there for that. A look costs no more
than its budget: beyond that a call is in doubt, and doubt is a person's too.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final
from urllib.parse import unquote

from pml.core.rules.any_argument import inner_paths
from pml.core.rules.arguments import names_exclusion, names_location
from pml.core.rules.joined_paths import Kind, Part, join
from pml.core.rules.path_lookups import Budget, Identity, OverBudget, Tree, Walk
from pml.core.rules.places import CallContext
from pml.core.rules.readings import MAX_PATH_CHARS, MAX_SPELLINGS, path_readings
from pml.core.rules.ruleset import runs_code
from pml.core.sessions.agent_profiles import AgentProfiles
from pml.core.values import Json, JsonObject

WHY_PML: Final = "it names PML itself, which only a person may let an agent use"
WHY_TOO_MUCH: Final = "its arguments hold more than PML looks through, so only a person may let it run"
PIECE_CHARS: Final = 64 * 1024  # of a long text, looked at in one go: other threads wait for that

_SPLITTING: Final = str.maketrans("", "", "'\"\\")  # a shell takes `p'm'l` for `pml`
_SLASHES: Final = re.compile(r"/(?:\.?/)+")
_NAME: Final = re.compile(r"(?<![a-z0-9])pml(?![a-z0-9])")
_FOLDER: Final = re.compile(r"(?:^|[/\\])\.pml(?:[/\\]|$)")
_CARRIED_CHARS: Final = 512  # of what was looked at, so that no name is cut in two
_NO_TEXT: Final = frozenset({int, float, bool, type(None)})
_ENDS: Final = " \t\r\n\v\f'\"`"  # what tools take off the ends of a path
_NAME_CHARS: Final = 64  # of the end of an argument's name, which tells whether it is where something is


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Where a call is looked at: PML_HOME, the workspace, the file system, and the clients there are.

    `context` returns where the paths of the call could begin; most calls have none, and are not asked.
    """

    home: str
    workspace: str
    context: Callable[[], CallContext]
    tree: Tree
    clients: AgentProfiles


def small_budget() -> Budget:
    """Return what is looked at between two turns of the loop: some milliseconds at most."""
    return Budget(values=2_000, texts=256, chars=32 * 1024, segments=3_000, lookups=200)


def full_budget() -> Budget:
    """Return what is looked at before a call is in doubt: about a tenth of a second, so not on the loop."""
    return Budget(values=1_000_000, texts=50_000, chars=1 << 40, segments=100_000, lookups=10_000)


def why_reserved(tool: str, arguments: JsonObject, around: Surroundings, *, budget: Budget) -> str | None:
    """Return why only a person may decide the call, or None if others may. Raises: OverBudget."""
    look = _Look(tool, arguments, around, budget)
    for name, text in _texts(arguments, budget):
        why = look.at_words(text) or look.at_path(name, text)
        if why is not None:
            return why
    return look.at_joined_paths()


def _why_settings(file: str) -> str:
    return f"it leads to {file}, which says what agents may do: only a person may let an agent use it"


class _Look:
    """One look at one call; what is found out about its surroundings is found out once."""

    def __init__(self, tool: str, arguments: JsonObject, around: Surroundings, budget: Budget) -> None:
        self._tool = tool
        self._arguments = arguments
        self._around = around
        self._settings = around.clients.settings_files
        self._budget = budget
        self._walk = Walk(around.tree, budget)
        self._plain_home = _plain(around.home)
        self._scene: CallContext | None = None
        self._is_code: bool | None = None
        self._inside: str | None = None
        self._own: str | None = None
        self._guarded: dict[str | Identity, str] | None = None
        self._guarded_folders: dict[str | Identity, str] = {}
        self._texts: Counter[str] = Counter()  # that may be paths
        self._parts: list[Part] = []

    def at_words(self, text: str) -> str | None:
        """Return why, if the text names PML or, in a command, a settings file."""
        is_first, carried = True, ""
        carry = max(_CARRIED_CHARS, len(self._plain_home))
        for piece, is_last in _pieces(text):
            self._budget.take(chars=len(piece))
            plain = _plain(carried + piece)
            why = self._in_plain(plain, is_first=is_first, is_last=is_last)
            if why is not None or is_last:
                return why
            is_first, carried = False, plain[-carry:]
        return None

    def _in_plain(self, plain: str, *, is_first: bool, is_last: bool) -> str | None:
        def finds(pattern: re.Pattern[str]) -> re.Match[str] | None:
            for match in pattern.finditer(plain):  # where a piece was cut, the one before or after tells
                if (is_first or match.start() > 0) and (is_last or match.end() < len(plain)):
                    return match
            return None

        if self._plain_home in plain:
            return WHY_PML
        # Looking for three letters costs nothing beside two patterns, and most texts do not have them.
        if "pml" in plain and (finds(_FOLDER) or (finds(_NAME) and self._runs_code())):
            return WHY_PML
        if any(hint in plain for hint in self._settings.hints):
            file = finds(self._settings.in_commands)
            if file is not None and self._runs_code():
                return _why_settings(file[0])
        return None

    def at_path(self, name: str, text: str) -> str | None:
        """Return why, if the text is a path that really leads to such a file, however it is written."""
        if len(text) > MAX_PATH_CHARS:
            return None
        name, tidy = name[-_NAME_CHARS:], unquote(text).strip(_ENDS)
        if not (
            "/" in tidy or "\\" in tidy or names_location(name) or self._settings.is_named_like_one(tidy)
        ):
            return None  # also a bare name may be a link, where the argument is named like a place
        is_left_out = names_exclusion(name)
        if not is_left_out:
            # Counted also when it was seen: two arguments that are equal may be joined to one path.
            self._texts[text] += 1
            if self._texts[text] > 1:
                return None
        spellings = MAX_SPELLINGS if "[" in text else 1
        self._budget.take(segments=(text.count("/") + 1) * spellings)
        inner = [] if "\n" in tidy else [*([tidy] if tidy != text else []), *inner_paths(text)]
        self._budget.take(segments=sum(each.count("/") + 1 for each in inner))
        folders, homes = self._folders(), self._scene_now().homes()
        places = (place for each in (text, *inner) for place in _places(each, folders, homes))
        for path in dict.fromkeys(places):
            with suppress(OSError, ValueError):  # no system can open it
                real, identity = self._walk.follow(path)
                why = self._at_place(real, identity, is_left_out=is_left_out)
                if why is not None:
                    return why
                self._parts.append(Part(real, text))
        return None

    def at_joined_paths(self) -> str | None:
        """Return why, if a folder that one argument names, and the path in another, lead there."""
        if self._texts.total() < 2:
            return None
        starts = {real for start in self._folders() if (real := self.leads_to(start)) is not None}
        joined = join(self._texts, self._parts, self, starts=starts)
        if joined is None:
            raise OverBudget
        for path, _ in chain(joined.paths, joined.toward(self._is_above_home)):
            with suppress(OSError, ValueError):
                why = self._at_place(*self._walk.follow(path))
                if why is not None:
                    return why
        return None

    def leads_to(self, path: str) -> str | None:
        try:
            return self._walk.follow(path)[0]
        except (OSError, ValueError):
            return None

    def is_there(self, path: str) -> bool:
        return self._walk.is_there(path)

    def kind(self, real: str) -> Kind:
        if not self._walk.is_there(real):
            return Kind.NOTHING
        return Kind.FOLDER if self._around.tree.is_folder(real) else Kind.OTHER

    def _scene_now(self) -> CallContext:
        if self._scene is None:
            self._scene = self._around.context()
        return self._scene

    def _folders(self) -> Sequence[str]:
        """Return every folder that a relative path could be opened from."""
        return self._scene_now().folders() or (self._around.workspace,)

    def _is_above_home(self, folder: str) -> bool:
        return _is_within(self._home(), folder)

    def _home(self) -> str:
        if self._inside is None:
            self._inside = self._walk.follow(self._around.home)[0]
            self._own = self._own_folder(self._inside)
        return self._inside

    def _at_place(self, real: str, identity: Identity | None, *, is_left_out: bool = False) -> str | None:
        home = self._home()
        if _is_within(real, home) and (self._own is None or not _is_within(real, self._own)):
            return WHY_PML
        if self._guarded is None:
            self._guarded = dict(self._followed(self._settings.files_in))
            self._guarded_folders = dict(self._followed(self._settings.folders_in))
        file = self._settings.file(self._by_its_name(real)) or _named(self._guarded, real, identity)
        if file is None and not is_left_out and self._tool not in self._around.clients.readers:
            file = self._settings.folder(real) or _named(self._guarded_folders, real, identity)
        return None if file is None else _why_settings(file)

    def _by_its_name(self, real: str) -> str:
        """Return the path as it is named where a folder on the way is where that of settings files leads."""
        for rest in range(1, 3):
            parts = real.rsplit("/", rest)
            name = self._guarded_folders.get(parts[0])
            if name is not None:
                return "/".join([name, *parts[1:]])
        return real

    def _own_folder(self, inside: str) -> str | None:
        """Return where the server's own folder is in the home; where a link in its place leads is not its."""
        own, home = self._scene_now().starts.own, self._around.home.rstrip("/")
        if own is None or not own.startswith(home + "/"):
            return None
        return inside.rstrip("/") + posixpath.normpath(own[len(home) :])

    def _followed(self, paths_in: Callable[[str], Iterator[str]]) -> Iterator[tuple[str | Identity, str]]:
        """Yield where what the workspace and the home have leads: links and other names of it count."""
        for folder in (self._around.workspace, self._around.tree.home):
            missing: dict[str, str] = {}  # folders that are not there, so that nothing in them is
            for path in paths_in(folder):
                name = path[len(folder.rstrip("/")) + 1 :]
                top, _, rest = name.partition("/")
                if top in missing:
                    yield f"{missing[top]}/{rest}".rstrip("/"), name
                    continue
                with suppress(OSError, ValueError):
                    real, identity = self._walk.follow(path)
                    yield real, name
                    if identity is not None:
                        yield identity, name
                    elif rest and self._walk.follow(f"{folder}/{top}")[1] is None:
                        missing[top] = real[: -len(rest) - 1]

    def _runs_code(self) -> bool:
        if self._is_code is None:
            self._is_code = runs_code(self._tool, self._arguments)
        return self._is_code


def _named(known: Mapping[str | Identity, str], real: str, identity: Identity | None) -> str | None:
    return known.get(real) or (None if identity is None else known.get(identity))


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _places(text: str, folders: Sequence[str], homes: Sequence[str]) -> Iterator[str]:
    """Yield every place that the text can stand for: as it is written, tidied, and by its readings.

    Where there is no telling what a tool makes of it, some take it as it is written.
    """
    for folder in folders[:1] if text.startswith("/") else folders:
        for home in homes if text.startswith("~") else homes[:1]:
            yield from path_readings(text, cwd=folder, home=home)
        written = posixpath.join(folder, text)
        yield written
        yield posixpath.normpath(written)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text in pieces, and of each whether it is the last; a broken line is not parted."""
    start = 0
    while True:
        end = start + PIECE_CHARS
        if text[end - 1 : end] == "\\":
            end += 1
        yield text[start:end], end >= len(text)
        if end >= len(text):
            return
        start = end


def _plain(text: str) -> str:
    """Return the text as a shell and the system would read its words and paths, in one case."""
    if "\\" in text or "'" in text or '"' in text:
        text = text.replace("\\\n", "").translate(_SPLITTING)
    plain = text.lower()
    return _SLASHES.sub("/", plain) if "//" in plain or "/./" in plain else plain


def _texts(arguments: JsonObject, budget: Budget) -> Iterator[tuple[str, str]]:
    """Yield every text in them with the name of its member; names too, with that of what they are in."""
    todo: list[tuple[str, Json]] = [("", arguments)]
    while todo:
        name, value = todo.pop()
        budget.take(texts=1)
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, Mapping):
            budget.take(values=len(value), texts=len(value))
            yield from ((name, key) for key in value)
            todo += [(key, inner) for key, inner in value.items() if type(inner) not in _NO_TEXT]
        elif isinstance(value, list | tuple):
            budget.take(values=len(value))
            todo += [(name, inner) for inner in value if type(inner) not in _NO_TEXT]
