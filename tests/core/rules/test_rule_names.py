"""Rules that name a tool or an argument which a known server does not have are noticed."""

from pml.core.rules.ruleset import Effect, parse_entry
from pml.core.rules.unknown_names import doubts_about
from pml.core.values import Json, JsonObject
from tests.core.judging import PATHS
from tests.promises import promise


def tool(name: str, *arguments: str) -> JsonObject:
    return {"name": name, "inputSchema": {"type": "object", "properties": {key: {} for key in arguments}}}


OFFERS = {
    "files": [
        tool("read_file", "path", "head"),
        tool("read_files", "paths"),
        tool("move", "source", "destination"),
        tool("roots"),
    ],
    "loose": [{"name": "any"}],
}


def told(entry: Json, effect: Effect = Effect.DENY) -> list[tuple[str, str | None, bool]]:
    rule = parse_entry(effect, entry, source=None, base_dir="/repo", paths=PATHS)
    assert rule is not None
    return [(each.message, each.hint, each.is_void) for each in doubts_about(rule, OFFERS, {"quiet"})]


@promise("rules:names-are-checked")
def test_a_tool_or_server_that_is_not_there_is_told_with_the_near_one() -> None:
    assert told("files:read_fil") == [
        ("server `files` has no tool `read_fil`", "did you mean `read_file`?", True)
    ]
    assert told("files:write_*")[0][0] == "server `files` has no tool `write_*`"
    assert told("file:read_file") == [("no server `file` is known", "did you mean `files`?", True)]


@promise("rules:names-are-checked")
def test_an_argument_that_is_not_there_is_told_with_the_near_one() -> None:
    entry: Json = {"tool": "files:read_*", "args": {"pth": {"under": "~"}}}
    assert told(entry) == [("no tool that it names has an argument `pth`", "did you mean `path`?", True)]
    assert told({"tool": "files:read_*", "args": {"/pth/0": 1}})[0][2]


@promise("rules:names-are-checked")
def test_a_deny_by_path_that_misses_other_tools_with_paths_is_told() -> None:
    entry: Json = {"tool": "files:*", "args": {"path": {"under": "~/.ssh"}}}
    missed = "`files:read_files`, `files:move` take paths or URLs, and have no argument `path`"
    assert told(entry) == [(missed, "it does not match them: write `*` for any argument", False)]
    assert told(entry, Effect.ALLOW) == []
    assert told({"tool": "files:*", "args": {"*": {"under": "~/.ssh"}}}) == []


def test_what_may_well_be_there_is_not_told() -> None:
    for entry in (
        "files:*",
        "files:read_?ile",
        "*:read",
        "Bash",
        "read_file",
        "quiet:x",
        "other:x",
        "loose:any",
    ):
        assert told(entry) == [], entry
    assert told("files:resources/read") == []
    assert told({"tool": "loose:any", "args": {"whatever": 1}}) == []
