"""An edit or a write is shown as what it makes of the file."""

import json

import pytest

from pml.core.cards.card import Diff
from pml.core.cards.files import Present, change_of, diff_of
from pml.core.names import parse_tool
from pml.core.values import Json, JsonObject
from tests.core.cards.test_diffs import drawn
from tests.promises import promise

CWD = "/repo/shop"
NOTES = "one\ntwo\nthree\ntwo\n"


def diff(
    tool: str,
    arguments: JsonObject,
    *,
    text: str | None = NOTES,
    present: Present | None = None,
    cwd: str = CWD,
) -> Diff:
    """Return the diff of a call on a file with this text; None: there is none."""

    def read(path: str) -> Present:
        return present or Present(path=path, text=text, is_missing=text is None)

    change = change_of(parse_tool(tool), arguments)
    assert change is not None
    return diff_of(change, cwd=cwd, workspace=CWD, read=read)


def edit(old: str, new: str, **more: Json) -> JsonObject:
    return {"file_path": f"{CWD}/notes.txt", "old_string": old, "new_string": new, **more}


@promise("card:diff-against-file")
def test_an_edit_is_shown_in_its_place_in_the_file() -> None:
    shown = diff("Edit", edit("one\n", "ONE\n"))
    assert (shown.title, shown.note) == ("notes.txt", None)
    assert drawn(shown.lines) == ["-one", "+ONE", " two", " three", " two"]
    assert (shown.lines[0].old, shown.lines[1].new) == (1, 1)


@promise("card:diff-against-file")
def test_a_write_is_shown_against_what_the_file_holds() -> None:
    shown = diff("Write", {"file_path": "notes.txt", "content": "one\nthree\ntwo\n"})
    assert drawn(shown.lines) == [" one", "-two", " three", " two"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Write", {"file_path": "notes.txt", "content": "new\n"}),
        ("filesystem:write_file", {"path": "notes.txt", "content": "new\n"}),
        ("edit:tool", {"command": "create", "path": "notes.txt", "file_text": "new\n"}),
    ],
)
def test_writes_of_every_spelling_are_known_by_their_shape(tool: str, arguments: JsonObject) -> None:
    shown = diff(tool, arguments, text=None)
    assert drawn(shown.lines) == ["+new"]
    assert "new file" in (shown.note or "")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("MultiEdit", {"file_path": "notes.txt", "edits": [{"old_string": "one", "new_string": "1"}]}),
        ("filesystem:edit_file", {"path": "notes.txt", "edits": [{"oldText": "one", "newText": "1"}]}),
        ("edit:tool", {"command": "str_replace", "path": "notes.txt", "old_str": "one", "new_str": "1"}),
    ],
)
def test_edits_of_every_spelling_are_known_by_their_shape(tool: str, arguments: JsonObject) -> None:
    assert drawn(diff(tool, arguments).lines)[:2] == ["-one", "+1"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("github:create_or_update_file", {"owner": "o", "repo": "r", "path": "notes.txt", "content": "x"}),
        ("filesystem:append_file", {"path": "notes.txt", "content": "x"}),
        ("files:write", {"path": "notes.txt", "content": "x", "command": "rm -rf /"}),
        ("files:write", {"path": "notes.txt", "content": "x", "command": ["rm"]}),
        ("files:write", {"path": "notes.txt", "file_path": "other.txt", "content": "x"}),
        ("files:edit", {"path": "notes.txt", "edits": [{"old_string": "a", "new_string": "b"}, 7]}),
        ("files:write", {"path": 7, "content": "x"}),
        ("Read", {"file_path": "notes.txt"}),
    ],
)
def test_what_could_mean_something_else_is_not_taken_for_a_change_of_a_file(
    tool: str, arguments: JsonObject
) -> None:
    assert change_of(parse_tool(tool), arguments) is None


@promise("card:diff-against-file")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Write", {**edit("one", "two"), "content": "other\n"}),
        ("fs:write_file", {"path": "a", "content": "other\n", "edits": [{"oldText": "a", "newText": "b"}]}),
        ("Edit", {**edit("one", "two"), "edits": [{"old_string": "a", "new_string": "b"}]}),
        ("Edit", {**edit("one", "two"), "path": ["elsewhere"]}),
        ("Edit", edit("one", "two", oldText=7)),
        ("Edit", edit("one", "two", replace_all="true")),
        ("Edit", edit("one", "two", replace_all=False, replaceAll=True)),
        ("NotebookEdit", {"notebook_path": "n.ipynb", "new_source": "y"}),
        ("NotebookEdit", {"notebook_path": "n.ipynb", "cell_number": 3, "new_source": "y"}),
        ("NotebookEdit", {"notebook_path": "n.ipynb", "edit_mode": "delete"}),
        ("NotebookEdit", {"notebook_path": "n", "cell_id": "b", "new_source": "y", "edit_mode": "append"}),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "a", "new_string": "b", "from": 7}]}),
        ("fs:delete_file", {"path": "a", "oldText": "a", "newText": "a"}),
        ("fs:write_file", {"path": "a", "content": "cm0gLXJm", "encoding": "base64"}),
    ],
)
def test_a_call_that_could_be_read_in_two_ways_is_drawn_in_none(tool: str, arguments: JsonObject) -> None:
    assert change_of(parse_tool(tool), arguments) is None


@pytest.mark.parametrize("growth", [1000, 3])
def test_edits_that_would_fill_the_memory_are_shown_apart(growth: int) -> None:
    more = {"old_string": "a", "new_string": "a" * growth, "replace_all": True}
    same = {"old_string": "b" * 1000, "new_string": "b" * 1000}
    edits: Json = [more] * 12 if growth > 3 else [same] * 20_000
    shown = diff("MultiEdit", {"file_path": "a", "edits": edits}, text="a\n" + "b" * 500_000)
    assert "too long to be shown" in (shown.note or "")


def test_a_text_that_is_not_there_is_told_and_shown_apart() -> None:
    shown = diff("Edit", edit("four", "FOUR"))
    assert "the text to replace is not in the file" in (shown.note or "")
    assert drawn(shown.lines) == ["-four", "+FOUR"]
    assert shown.lines[0].old is None


def test_a_text_that_is_there_several_times_is_told_with_what_becomes_of_it() -> None:
    every = diff("Edit", edit("two", "2", replace_all=True))
    assert every.note == "the text occurs 2 times and all are replaced"
    assert drawn(every.lines) == [" one", "-two", "+2", " three", "-two", "+2"]
    assert diff("Edit", edit("two", "2")).note == "the text occurs 2 times: the edit will fail"
    other = diff("fs:edit_file", {"path": "notes.txt", "edits": [{"oldText": "two", "newText": "2"}]})
    assert "which of them is replaced, the server decides" in (other.note or "")


def test_edits_of_one_call_build_on_each_other() -> None:
    edits: Json = [{"old_string": "one", "new_string": "1"}, {"old_string": "1\ntwo", "new_string": "12"}]
    assert drawn(diff("MultiEdit", {"file_path": "notes.txt", "edits": edits}).lines)[:3] == [
        "-one",
        "-two",
        "+12",
    ]


@promise("card:diff-against-file")
@pytest.mark.parametrize("problem", ["the file is not text", "it is not a regular file"])
def test_a_file_that_cannot_be_shown_says_why_and_what_is_written_is_shown_whole(problem: str) -> None:
    present = Present(path=f"{CWD}/notes.txt", problem=problem)
    shown = diff("Write", {"file_path": "notes.txt", "content": "a\nb"}, present=present)
    assert (shown.note or "").startswith(problem)
    assert drawn(shown.lines) == ["+a", "+b"]


@promise("card:diff-against-file")
def test_a_path_that_leads_elsewhere_tells_where() -> None:
    present = Present(path="/etc/passwd", text=NOTES)
    shown = diff("Write", {"file_path": "notes.txt", "content": NOTES}, present=present)
    assert (shown.note, shown.lines) == ("leads to /etc/passwd; nothing changes", ())
    assert shown.title == f"{CWD}/notes.txt"


@promise("card:path-and-folder")
@pytest.mark.parametrize(
    ("path", "cwd", "title"),
    [
        ("notes.txt", f"{CWD}/sub", "sub/notes.txt"),
        ("notes.txt", "/outside", "/outside/notes.txt"),
        ("/home/ana/.bashrc", "/home/ana", "/home/ana/.bashrc"),
        ("etc/passwd", "/", "/etc/passwd"),
        ("../notes.txt", CWD, f"{CWD}/../notes.txt"),
    ],
)
def test_a_file_outside_of_the_workspace_is_never_titled_as_if_it_lay_within(
    path: str, cwd: str, title: str
) -> None:
    assert diff("Write", {"file_path": path, "content": "x"}, cwd=cwd).title == title


def test_emptying_a_file_that_cannot_be_shown_is_not_called_no_change() -> None:
    present = Present(path=f"{CWD}/notes.txt", problem="the file is not text")
    shown = diff("Write", {"file_path": "notes.txt", "content": ""}, present=present)
    assert shown.note == "the file is not text: what is written is shown without it"
    assert diff("Write", {"file_path": "notes.txt", "content": ""}, text=None).note == "new, empty file"


def test_a_lost_line_break_at_the_end_is_told() -> None:
    shown = diff("Write", {"file_path": "notes.txt", "content": NOTES.rstrip("\n")})
    assert (shown.note, shown.lines) == ("the line break at its end goes", ())


def test_an_edit_of_a_file_with_other_line_ends_is_still_found() -> None:
    shown = diff("Edit", edit("one\ntwo", "1\n2"), text="one\r\ntwo\r\n")
    assert drawn(shown.lines) == ["-one", "-two", "+1", "+2"]
    assert "CR LF" in (shown.note or "")


def test_without_a_look_at_the_file_only_what_was_asked_is_shown() -> None:
    change = change_of(parse_tool("Edit"), edit("one", "1"))
    assert change is not None
    shown = diff_of(change, cwd=CWD, workspace=CWD, read=None)
    assert drawn(shown.lines) == ["-one", "+1"]
    assert "not looked at" in (shown.note or "")


def test_which_file_a_tilde_means_is_not_guessed() -> None:
    shown = diff("Write", {"file_path": "~/notes.txt", "content": "x"})
    assert shown.note == "which file this is, the tool decides"


@pytest.mark.parametrize(
    ("arguments", "lines", "note"),
    [
        ({"cell_id": "b", "new_source": "y = 2"}, ["-x = 1", "+y = 2"], None),
        ({"cell_id": "z", "new_source": "y"}, ["+y"], "no such cell is in the notebook"),
        ({"cell_id": "b", "new_source": "y", "edit_mode": "insert"}, ["+y"], "a new cell"),
        ({"cell_id": "b", "new_source": "", "edit_mode": "delete"}, ["-x = 1"], "the cell goes"),
        ({"cell_id": "z", "edit_mode": "delete"}, [], "no such cell is in the notebook"),
        ({"cell_id": "b", "new_source": ""}, ["-x = 1"], None),
        ({"new_source": "", "edit_mode": "insert"}, [], "a new cell"),
    ],
)
def test_a_cell_of_a_notebook_is_compared_with_what_it_holds(
    arguments: dict[str, Json], lines: list[str], note: str | None
) -> None:
    notebook = json.dumps({"cells": [7, {"id": "a"}, {"id": "b", "source": ["x ", "= 1"]}]})
    shown = diff("NotebookEdit", {"notebook_path": "n.ipynb", **arguments}, text=notebook)
    assert (drawn(shown.lines), shown.note) == (lines, note)


def test_a_notebook_that_is_none_is_no_mistake_of_ours() -> None:
    arguments = {"notebook_path": "n.ipynb", "cell_id": "b", "new_source": "y"}
    assert diff("NotebookEdit", arguments, text="[" * 100_000).note == "no such cell is in the notebook"
