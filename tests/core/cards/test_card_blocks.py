"""What is common is shown in a form read at a glance, and the whole input always stands beneath it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pml.agents.known import KNOWN
from pml.core.approvals.reasons import CapabilityNeeds
from pml.core.approvals.record import State, Subject
from pml.core.cards.blocks import Asked, blocks_of
from pml.core.cards.card import Arguments, Block, Code, Command, Diff, Fact, Facts, Mark
from pml.core.cards.files import Present
from pml.core.text import has_hidden
from pml.core.values import MAX_DEPTH, Json, JsonObject
from tests.builders import WORKSPACE, make_approval
from tests.core.test_text import json_values
from tests.promises import promise


def asked(tool: str, arguments: JsonObject, *, subject: Subject = Subject.TOOL_CALL) -> Asked:
    record = make_approval(tool_name=tool, tool_input=arguments, subject=subject)
    return Asked(
        record=record,
        cwd=WORKSPACE,
        workspace=WORKSPACE,
        clients=KNOWN.tools,
        read=lambda path: Present(path=path, is_missing=True),
    )


def blocks(tool: str, arguments: JsonObject, *, subject: Subject = Subject.TOOL_CALL) -> tuple[Block, ...]:
    return blocks_of(asked(tool, arguments, subject=subject))


def whole(found: tuple[Block, ...]) -> Json:
    """Return the input as the card has it."""
    *_, shown = (block for block in found if isinstance(block, Arguments))  # the raw, if any
    return json.loads("\n".join(shown.lines))


@promise("card:command-whole")
def test_a_command_is_shown_in_full_with_where_it_runs_and_what_the_agent_says() -> None:
    command = "cd build\nrm -rf \u202e*\t" + "x" * 100_000
    shown = blocks("Bash", {"command": command, "description": "tidy\u200b up"})
    assert shown[0] == Command(
        lines=(("cd build",), ("rm -rf ", 0x202E, "*", 9, "x" * 100_000)),
        cwd=WORKSPACE,
        says="tidy\\u{200b} up",
    )
    assert whole(shown) == {"command": command, "description": "tidy\u200b up"}


@pytest.mark.parametrize(
    ("tool", "arguments", "line", "cwd"),
    [
        ("shell:run", {"command": "ls"}, "ls", "wherever shell runs it"),
        ("shell:run", {"cmd": "ls", "cwd": "sub"}, "ls", f"{WORKSPACE}/sub"),
        ("shell", {"command": ["bash", "-lc", "a b"], "workdir": "/x"}, "bash -lc 'a b'", "/x"),
        ("shell:exec", {"command": "ls", "args": ["-l", "; rm"]}, "ls -l '; rm'", "wherever shell runs it"),
        ("shell:exec", {"command": "ls", "cwd": "/a", "workdir": "/b"}, "ls", "wherever shell runs it"),
        ("shell:exec", {"command": "ls", "cwd": ["/a"]}, "ls", "wherever shell runs it"),
    ],
)
def test_commands_of_other_tools_are_known_by_their_argument(
    tool: str, arguments: JsonObject, line: str, cwd: str
) -> None:
    assert blocks(tool, arguments)[0] == Command(lines=((line,),), cwd=cwd)


def test_code_and_long_texts_are_shown_as_they_are() -> None:
    code = blocks("pml:execute", {"code": "return 1\n// \u202e", "language": "typescript"})
    assert code[0] == Code(title="code", language="typescript", lines=(("return 1",), ("// ", 0x202E)))
    query = blocks("db:query", {"sql": "SELECT 1\nFROM t"})
    assert query[0] == Code(title="sql", language="sql", lines=(("SELECT 1",), ("FROM t",)))
    issue = blocks("github:create_issue", {"title": "x", "body": "a\nb"})
    assert issue[0] == Code(title="body", language=None, lines=(("a",), ("b",)))
    short = blocks("box:run", {"script": "rm(1)"})
    assert short[0] == Code(title="script", language=None, lines=(("rm(1)",),))
    assert [type(block) for block in blocks("web:search", {"query": "cats"})] == [Arguments]


def test_an_edited_call_shows_what_would_run_and_both_inputs() -> None:
    made = asked("Bash", {"command": "ls"})
    record = replace(made.record, updated_input={"command": "ls -l"}, status=State.ALLOWED)
    shown = blocks_of(Asked(record=record, cwd=WORKSPACE, workspace=WORKSPACE, clients=KNOWN.tools))
    facts, command, asked_for, edited = shown
    assert isinstance(facts, Facts)
    assert facts.rows[0].name == "edited"
    assert "as it was edited" in facts.rows[0].value
    assert isinstance(command, Command)
    assert command.lines == (("ls -l",),)
    assert isinstance(asked_for, Arguments)
    assert isinstance(edited, Arguments)
    assert (asked_for.title, edited.title) == (
        "arguments as they were asked for",
        "arguments as they were edited",
    )


@pytest.mark.parametrize("is_edited", [False, True])
def test_the_diff_of_a_decided_call_says_whether_it_is_as_asked_for_or_as_edited(is_edited: bool) -> None:
    made = asked("Write", {"file_path": "notes.md", "content": "one\n"})
    updated: JsonObject | None = {"file_path": "notes.md", "content": "two\n"} if is_edited else None
    record = replace(made.record, updated_input=updated, status=State.ALLOWED)
    shown = blocks_of(Asked(record=record, cwd=WORKSPACE, workspace=WORKSPACE, clients=KNOWN.tools))
    (diff,) = (block for block in shown if isinstance(block, Diff))
    assert diff.note is not None
    assert diff.note.startswith("as it was edited" if is_edited else "as it was asked for")
    assert [line.line for line in diff.lines] == [("two" if is_edited else "one",)]


def test_code_that_makes_the_call_is_shown_whole() -> None:
    record = replace(make_approval(), run_id="run-12345678")
    shown = blocks_of(
        Asked(
            record=record,
            cwd=WORKSPACE,
            workspace=WORKSPACE,
            clients=KNOWN.tools,
            code="a\n" * 30_000,
            language="python",
        )
    )
    assert shown[-1] == Code(
        title="the code that makes this call", language="python", lines=(("a",),) * 30_000
    )
    assert shown[0] == Facts(rows=(Fact(name="asked from", value="code that is paused here (run run-1234)"),))


def test_a_capability_tells_what_it_calls() -> None:
    rule = CapabilityNeeds(capability="a.b.c.d", source="registry", calls=("x:y",), covers=("x:y",))
    shown = blocks_of(
        Asked(
            record=replace(make_approval(), rule=rule),
            cwd=WORKSPACE,
            workspace=WORKSPACE,
            clients=KNOWN.tools,
        )
    )
    assert isinstance(shown[0], Facts)
    assert [row.name for row in shown[0].rows] == ["full name", "calls", "covers"]


def test_a_decided_edit_does_not_look_at_the_file_any_more() -> None:
    made = asked("Write", {"file_path": "a", "content": "x"})
    decided = Asked(
        record=replace(made.record, status=State.DENIED),
        cwd=WORKSPACE,
        workspace=WORKSPACE,
        clients=KNOWN.tools,
        read=made.read,
    )
    shown = blocks_of(decided)[0]
    assert isinstance(shown, Diff)
    assert "not looked at" in (shown.note or "")


def test_what_is_alarming_in_an_install_is_marked() -> None:
    facts: JsonObject = {
        "name": "memory",
        "version": "1.0.0",
        "integrity": None,
        "containment": "none",
        "accepted_lock": "sha256:1",
        "contained_before": "landlock",
        "released_at": "2026-11-02T00:00:00+00:00",
    }
    (shown,) = blocks("memory:read", {"dependency": facts}, subject=Subject.DEPENDENCY_INSTALL)
    assert isinstance(shown, Facts)
    assert [row.name for row in shown.rows if row.alarming] == [
        "hash",
        "moved",
        "runs",
        "weaker",
        "released",
    ]


def test_an_install_that_is_proven_and_contained_alarms_nobody() -> None:
    facts: JsonObject = {
        "integrity": "sha512-NOT CONTAINED UNVERIFIED: NEW",
        "containment": "bubblewrap",
        "released_at": "2025-01-01T00:00:00+00:00",
    }
    (shown,) = blocks("memory:read", {"dependency": facts}, subject=Subject.DEPENDENCY_INSTALL)
    assert isinstance(shown, Facts)
    assert [row.name for row in shown.rows if row.alarming] == []


def test_a_workspace_file_tells_what_it_allows_and_starts() -> None:
    (shown,) = blocks(
        "pml:trust",
        {
            "path": "/w/.pml.json",
            "digest": "d",
            "allows": ['"*"'],
            "launches": [{"name": "x", "command": "sh"}],
        },
        subject=Subject.WORKSPACE_TRUST,
    )
    assert isinstance(shown, Facts)
    assert {row.name: row.value for row in shown.rows}["starts"] == 'x: ["sh"]'
    assert [row.name for row in shown.rows if row.alarming] == ["starts"]


def test_a_changed_tool_is_shown_as_a_diff() -> None:
    diff: Json = [" name: add", "-description: Adds.", "+description: Adds and sends."]
    (shown,) = blocks("notes:add", {"diff": diff}, subject=Subject.TOOL_CHANGED)
    assert isinstance(shown, Diff)
    assert [each.mark for each in shown.lines] == [Mark.SAME, Mark.REMOVED, Mark.ADDED]
    assert shown.lines[2].line == ("description: Adds and sends.",)


@promise("card:nothing-hidden")
@given(
    st.dictionaries(st.sampled_from(["command", "code", "path", "content", "edits", "url", "x"]), json_values)
)
def test_whatever_the_arguments_are_they_are_shown_whole_and_nothing_is_hidden(arguments: JsonObject) -> None:
    shown = blocks("files:write", arguments)
    assert whole(shown) == json.loads(json.dumps(arguments))
    for block in shown:
        if isinstance(block, Command | Code):
            texts = [piece for line in block.lines for piece in line if isinstance(piece, str)]
        elif isinstance(block, Diff):
            texts = [piece for each in block.lines for piece in each.line if isinstance(piece, str)]
        elif isinstance(block, Arguments):
            texts = [*block.lines]
        else:
            texts = []
        assert not any(map(has_hidden, texts))


@pytest.mark.parametrize("name", ["command", "content", "edits"])
def test_arguments_as_deep_as_pml_takes_them_in_are_shown(name: str) -> None:
    value: Json = "end"
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert whole(blocks("files:write", {"path": "a", name: value})) == {"path": "a", name: value}


@promise("card:command-whole")
@pytest.mark.parametrize(
    "besides", [{"cwd": "/tmp/scratch"}, {"args": ["--dry-run"]}, {"cmd": "ls"}, {"directory": "/tmp"}]
)
def test_of_the_clients_bash_only_what_it_heeds_is_believed(besides: dict[str, Json]) -> None:
    shown = blocks("Bash", {"command": "git push", **besides})
    assert [block for block in shown if isinstance(block, Command)] == [
        Command(lines=(("git push",),), cwd=WORKSPACE)
    ]


@promise("card:command-whole")
@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "git push", "cmd": "ls"},
        {"command": "git push", "args": [{"a": 1}, None]},
        {"command": "git push", "args": "--dry-run"},
        {"command": ["git", "push"], "args": ["--dry-run"]},
        {"command": ["git", 7]},
        {"command": [["git"]]},
        {"command": {"git": "push"}},
    ],
)
def test_a_command_that_could_be_read_in_two_ways_is_drawn_in_none(arguments: JsonObject) -> None:
    shown = blocks("shell:run", arguments)
    assert [block for block in shown if isinstance(block, Command)] == []
    assert [block.title for block in shown if isinstance(block, Code)] == [
        name for name, value in arguments.items() if isinstance(value, str) and name != "args"
    ]


@promise("card:path-and-folder")
def test_a_call_that_is_not_made_in_the_workspace_tells_where() -> None:
    record = make_approval(tool_name="Grep", tool_input={"pattern": "x"})
    for cwd, is_alarming in ((f"{WORKSPACE}/sub", False), ("/outside\u202e", True)):
        first = blocks_of(Asked(record=record, cwd=cwd, workspace=WORKSPACE, clients=KNOWN.tools))[0]
        folder = cwd.replace("\u202e", "\\u{202e}")
        assert first == Facts(rows=(Fact(name="made in", value=folder, alarming=is_alarming),))
    elsewhere = make_approval(tool_name="notes:add", tool_input={})
    shown = blocks_of(Asked(record=elsewhere, cwd="/outside", workspace=WORKSPACE, clients=KNOWN.tools))
    assert [type(block) for block in shown] == [Arguments]


def test_a_thousand_texts_are_not_a_thousand_parts() -> None:
    arguments: JsonObject = {f"text{number}": "a\nb" for number in range(1000)}
    shown = blocks("notes:add", arguments)
    assert len(shown) == 14
    assert whole(shown) == arguments
    rest = shown[12]
    assert isinstance(rest, Arguments)
    assert len(json.loads("".join(rest.lines))) == 988


def test_headings_are_bounded_even_in_a_whole_card() -> None:
    long = "d" * 900_000
    command = blocks("Bash", {"command": "ls", "description": long})[0]
    assert isinstance(command, Command)
    assert command.says == "d" * 299 + "…"
    code = blocks("notes:add", {long: "a\nb"})[0]
    assert isinstance(code, Code)
    assert code.title == "d" * 299 + "…"
    diff = blocks("Write", {"file_path": long, "content": "x"})[0]
    assert isinstance(diff, Diff)
    assert len(diff.title) == 300
