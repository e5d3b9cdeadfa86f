"""What a call would make of a file: recognised by the shape of its arguments, shown against what it is now.

Only shapes whose meaning is plain are recognised: an argument that is not known, or a verb such as `append`,
could change what is written, and then the text is shown as a text. How a file is read is not known here.
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from pml.core.cards.card import Diff
from pml.core.cards.diff import diff_lines
from pml.core.cards.shorten import brief
from pml.core.errors import Invalid
from pml.core.names import ToolName
from pml.core.rules.arguments import is_list
from pml.core.text import visible
from pml.core.values import Json, JsonObject, loads

_PATHS: Final = ("file_path", "path", "filePath", "notebook_path")
_CONTENTS: Final = ("content", "contents", "file_text")
_OLD: Final = ("old_string", "old_str", "oldText", "oldString")
_NEW: Final = ("new_string", "new_str", "newText", "newString")
_ALL: Final = ("replace_all", "replaceAll")
_HARMLESS: Final = ("command", "dryRun", "encoding", "instruction")  # tell how, not what
_ENCODINGS: Final = (None, "utf-8", "utf8")  # any other writes something else than the text
_EDITOR_COMMANDS: Final = (None, "create", "str_replace")  # any other may be one for a shell
_WRITES: Final = re.compile(r"write|create|save", re.IGNORECASE)
_EDITS: Final = re.compile(r"edit|replace|update|patch|modify", re.IGNORECASE)
_ADDS: Final = re.compile(r"append|insert|prepend", re.IGNORECASE)
_OF_A_CELL: Final = frozenset({*_PATHS, "cell_id", "new_source", "cell_type", "edit_mode"})
_CELL_MODES: Final = (None, "replace", "insert", "delete")
MAX_HEADING: Final = 300  # of a text that stands whole among the arguments
_MAX_RESULT: Final = 4 * 1024 * 1024  # characters: edits that repeat each other could fill the memory
_MAX_WORK: Final = 256 * 1024 * 1024  # characters that all edits together may look through


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is: its real path and text, or why there is no text. `is_missing`: there is no file."""

    path: str
    text: str | None = None
    problem: str | None = None
    is_missing: bool = False


Read: TypeAlias = Callable[[str], Present]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    old: str
    new: str
    is_all: bool = False


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file's new content, or its edits.

    Of a notebook, the content is that of a cell, None where it is taken out; without `cell` it is a new one.
    """

    path: str
    content: str | None = None
    edits: tuple[Edit, ...] = ()
    cell: str | None = None
    is_notebook: bool = False
    is_own: bool = True  # of the client, which works on this machine's files
    is_dry: bool = False


def change_of(tool: ToolName, arguments: JsonObject) -> Change | None:
    """Return what the call would do to a file, None if that is not plain."""
    path = _text(arguments, _PATHS)
    if path is None:
        return None
    if tool.namespace is None and "notebook_path" in arguments:
        return _notebook(path, arguments)
    known = {*_PATHS, *_CONTENTS, *_OLD, *_NEW, *_ALL, *_HARMLESS, "edits"}
    if not known.issuperset(arguments) or arguments.get("command") not in _EDITOR_COMMANDS:
        return None
    if arguments.get("encoding") not in _ENCODINGS:
        return None
    verb = f"{tool.action} {arguments.get('command', '')}"
    is_own, is_dry = tool.namespace is None, arguments.get("dryRun") is True
    match _shapes(arguments):
        case ["content"]:
            content = _text(arguments, _CONTENTS)
            if content is None or not _WRITES.search(verb) or _ADDS.search(verb):
                return None
            return Change(path=path, content=content, is_own=is_own)
        case ["edits" | "edit"]:
            given = arguments.get("edits", (arguments,))
            edits = tuple(map(_edit if "edits" not in arguments else _item, given if is_list(given) else ()))
            kept = tuple(edit for edit in edits if edit is not None)
            if not kept or len(kept) < len(edits) or not _EDITS.search(verb):
                return None
            return Change(path=path, edits=kept, is_own=is_own, is_dry=is_dry)
        case _:
            return None


def names_of_change(arguments: JsonObject) -> set[str]:
    """Return the arguments that a diff shows whole: the file, and the texts that go and come."""
    path = _text(arguments, _PATHS)
    names = {*_CONTENTS, *_OLD, *_NEW, "new_source"}
    if path is not None and len(path) <= MAX_HEADING:
        names |= {*_PATHS}
    edits = arguments.get("edits")
    if is_list(edits) and not any(isinstance(each, Mapping) and {*_ALL} & each.keys() for each in edits):
        names.add("edits")
    return names & arguments.keys()


def _shapes(arguments: JsonObject) -> list[str]:
    """Return the kinds of change that the arguments tell; with more than one, no telling which is made."""
    kinds = {"content": _CONTENTS, "edit": (*_OLD, *_NEW, *_ALL), "edits": ("edits",)}
    return [kind for kind, names in kinds.items() if any(name in arguments for name in names)]


def place_of(path: str, cwd: str) -> str:
    """Return where the path leads from `cwd`, by its text alone."""
    return posixpath.join(cwd, path)


def is_within(path: str, folder: str) -> bool:
    """Tell whether the path is the folder or lies in it, by its text alone."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def shown_path(path: str, *, cwd: str, workspace: str) -> str:
    """Return the path as a person knows it: short only where it lies in the workspace, visible."""
    if path.startswith("~"):
        return visible(path)
    place = place_of(path, cwd)
    if ".." in place:
        return visible(place)
    place = posixpath.normpath(place)
    short = place[len(workspace.rstrip("/")) + 1 :] if is_within(place, workspace) else ""
    return visible(short if short and not short.startswith("~") else place)


def shown_file(change: Change, *, cwd: str, workspace: str, read: Read | None) -> str:
    """Return the path of the file, whole where a link leads out of the workspace."""
    if read is not None and not change.path.startswith("~"):
        place = place_of(change.path, cwd)
        if not is_within(read(place).path, workspace):
            return visible(place)
    return shown_path(change.path, cwd=cwd, workspace=workspace)


def is_new(change: Change, *, cwd: str, read: Read | None) -> bool:
    """Tell whether the file is not there yet."""
    if read is None or change.path.startswith("~"):
        return False
    return read(place_of(change.path, cwd)).is_missing


def diff_of(change: Change, *, cwd: str, workspace: str, read: Read | None, is_edited: bool = False) -> Diff:
    """Return the change against the file as it is; without `read`, only what was asked for or edited."""
    title = brief(shown_file(change, cwd=cwd, workspace=workspace, read=read), MAX_HEADING)
    if read is None:
        told = "as it was edited" if is_edited else "as it was asked for"
        return _apart(title, change, [f"{told}; the file is not looked at any more"])
    if change.path.startswith("~"):
        return _apart(title, change, ["which file this is, the tool decides"])
    place = place_of(change.path, cwd)
    present = read(place)
    notes: list[str] = []
    if present.path != posixpath.normpath(place):
        notes.append(f"leads to {visible(present.path)}")
    if not change.is_own:
        notes.append("compared with the file on this machine, which the server may not see")
    if change.is_dry:
        notes.append("a dry run: it says that it writes nothing")
    if present.problem is not None:
        return _apart(title, change, [*notes, f"{present.problem}: what is written is shown without it"])
    if change.is_notebook:
        return _cell_diff(title, change, present, notes)
    if change.content is None:
        return _edited(title, change, present, notes)
    if present.is_missing:
        notes.append("new file" if change.content else "new, empty file")
        return _drawn(title, "", change.content, notes, numbered=True)
    return _diff(title, present.text or "", change.content, notes)


def _edited(title: str, change: Change, present: Present, notes: list[str]) -> Diff:
    was = present.text or ""
    if present.is_missing and change.edits[0].old == "":
        notes.append("new file")
    elif present.is_missing:
        return _apart(title, change, [*notes, "there is no such file"])
    if "\r\n" in was and not all(edit.old in was for edit in change.edits):
        was = was.replace("\r\n", "\n")  # as clients do that know only plain line breaks
        notes.append("its lines end with CR LF, which is not shown")
    now = was
    work = 0
    for number, edit in enumerate(change.edits, 1):
        which = "" if len(change.edits) == 1 else f"edit {number}: "
        times = now.count(edit.old) if edit.old else int(now == "")
        grown = len(now) + (times if edit.is_all else 1) * (len(edit.new) - len(edit.old))
        work += len(now) + grown
        if grown > _MAX_RESULT or work > _MAX_WORK:
            return _apart(title, change, [*notes, "what becomes of the file is too long to be shown"])
        if times == 0:
            missing = "the text to replace is not in the file"
            return _apart(title, change, [*notes, f"{which}{missing}; what is asked for is shown apart"])
        if times > 1:
            notes.append(f"{which}the text occurs {times:,} times{_which(edit, change)}")
        now = now.replace(edit.old, edit.new, -1 if edit.is_all else 1) if edit.old else edit.new
    return _diff(title, was, now, notes)


def _which(edit: Edit, change: Change) -> str:
    if edit.is_all:
        return " and all are replaced"
    return ": the edit will fail" if change.is_own else ": which of them is replaced, the server decides"


def _diff(title: str, was: str, now: str, notes: Sequence[str]) -> Diff:
    told = [*notes]
    if was == now:
        told.append("nothing changes")
    if was and now and was.endswith("\n") != now.endswith("\n"):
        told.append(
            "it gets a line break at its end" if now.endswith("\n") else "the line break at its end goes"
        )
    return _drawn(title, was, now, told, numbered=True)


def _drawn(title: str, was: str, now: str, notes: Sequence[str], *, numbered: bool) -> Diff:
    lines, more = diff_lines(was, now, numbered=numbered)
    return Diff(title=title, note="; ".join(notes) or None, lines=lines, more=more)


def _apart(title: str, change: Change, notes: Sequence[str]) -> Diff:
    """Return what is asked for by itself, since it cannot be laid against the file."""
    was = "\n".join(edit.old for edit in change.edits)
    now = "\n".join(edit.new for edit in change.edits) if change.content is None else change.content
    return _drawn(title, was, now, notes, numbered=change.content is not None)


def _item(given: Json) -> Edit | None:
    """Return one edit of a list; a member that is not known could change what it means."""
    known = isinstance(given, Mapping) and {*_OLD, *_NEW, *_ALL}.issuperset(given)
    return _edit(given) if known else None


def _edit(given: Json) -> Edit | None:
    if not isinstance(given, Mapping):
        return None
    old, new = _text(given, _OLD), _text(given, _NEW)
    is_all = [given[name] for name in _ALL if name in given] or [False]
    if old is None or new is None or len(is_all) > 1 or not isinstance(is_all[0], bool):
        return None
    return Edit(old=old, new=new, is_all=is_all[0])


def _notebook(path: str, arguments: JsonObject) -> Change | None:
    source, cell = _text(arguments, ("new_source",)), _text(arguments, ("cell_id",))
    mode = arguments.get("edit_mode")
    if not _OF_A_CELL.issuperset(arguments) or mode not in _CELL_MODES:
        return None
    if mode == "delete":
        source = None
    elif source is None:
        return None
    if mode == "insert":
        cell = None
    elif cell is None:  # of which cell it is, the tool decides
        return None
    return Change(path=path, content=source, cell=cell, is_notebook=True)


def _cell_diff(title: str, change: Change, present: Present, notes: list[str]) -> Diff:
    if change.cell is not None:
        title = f"{title}, cell {brief(visible(change.cell), MAX_HEADING)}"
    if change.cell is None:
        return _drawn(title, "", change.content or "", [*notes, "a new cell"], numbered=True)
    was = _cell_source(present.text or "", change.cell)
    if was is None:
        return _apart(title, change, [*notes, "no such cell is in the notebook"])
    if change.content is None:
        return _drawn(title, was, "", [*notes, "the cell goes"], numbered=True)
    return _diff(title, was, change.content, notes)


def _cell_source(notebook: str, cell: str) -> str | None:
    try:
        read = loads(notebook, what="the notebook")
    except Invalid:
        return None
    cells = read.get("cells") if isinstance(read, Mapping) else None
    for each in cells if is_list(cells) else ():
        if isinstance(each, Mapping) and each.get("id") == cell:
            source = each.get("source")
            return "".join(map(str, source)) if is_list(source) else str(source or "")
    return None


def _text(given: JsonObject, names: Sequence[str]) -> str | None:
    found = [given[name] for name in names if name in given]
    if len(found) != 1:  # two of a kind: no telling which counts
        return None
    return found[0] if isinstance(found[0], str) else None
