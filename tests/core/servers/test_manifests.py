"""What servers offer: digests that tell every change that counts, and differences that show it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pml.core.packages.permissions import Permissions
from pml.core.rules.ruleset import Source
from pml.core.servers.manifest import DEFINING, Manifest, definition_diff, definition_digest, definition_of
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.servers.spec import ServerSpec
from pml.core.text import has_hidden
from pml.core.values import Json, JsonObject, canonical
from tests.builders import relaunched
from tests.promises import promise

SPEC = ServerSpec(
    name="notes", target=ProcessLaunch(command="notes-server"), source=Source(file="/config.json", line=1)
)
TOOL: JsonObject = {
    "name": "add",
    "title": "Add",
    "description": "Adds a note.\nNever more than one.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": False},
}
TEXTS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
DEFINITIONS = st.dictionaries(st.sampled_from(DEFINING), VALUES, max_size=4)


@pytest.mark.parametrize(
    "changed",
    [
        {"command": "another-server"},
        {"args": ("--all",)},
        {"env": {"TOKEN": "1"}},
        {"cwd": "/tmp"},
        {"permissions": Permissions(net=True)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_server_started_in_another_way_is_another_server(changed: dict[str, object]) -> None:
    other = relaunched(SPEC, **changed)

    assert other.target_digest != SPEC.target_digest


def test_where_a_server_is_configured_does_not_make_it_another() -> None:
    moved = ServerSpec(
        name="notes", target=ProcessLaunch(command="notes-server"), source=Source(file="/other.json", line=9)
    )

    assert moved.target_digest == SPEC.target_digest


@promise("pins:never-silently")
@pytest.mark.parametrize("key", DEFINING)
def test_every_part_that_defines_a_tool_changes_its_digest(key: str) -> None:
    changed: JsonObject = {**TOOL, key: "another"}
    without: JsonObject = {name: value for name, value in TOOL.items() if name != key}

    assert len({definition_digest(tool) for tool in (TOOL, changed, without)}) == 3


def test_decoration_and_the_order_of_members_do_not_change_the_digest() -> None:
    decorated: JsonObject = {
        **{key: TOOL[key] for key in reversed(DEFINING)},
        "_meta": {"a": 1},
        "icons": [{"src": "x"}],
    }

    assert definition_digest(decorated) == definition_digest(TOOL)
    assert definition_of(decorated) == TOOL


def test_a_manifest_knows_its_tools_by_their_actions() -> None:
    manifest = Manifest(server="notes", target_digest="sha256:1", capabilities={}, tools=(TOOL,))

    assert manifest.definitions == {"add": definition_digest(TOOL)}
    assert (manifest.tool("add"), manifest.tool("ad")) == (TOOL, None)


@pytest.mark.parametrize(
    ("schema", "required"),
    [
        ({"required": ["text", "to"]}, ("text", "to")),
        ({"required": ["text", 1, None]}, ("text",)),
        ({"required": "text"}, ()),
        ({}, ()),
        ("no schema", ()),
    ],
)
def test_a_manifest_knows_what_the_schemas_require(schema: Json, required: tuple[str, ...]) -> None:
    tool: JsonObject = {"name": "add", "inputSchema": schema}
    manifest = Manifest(server="notes", target_digest="sha256:1", capabilities={}, tools=(tool,))

    assert manifest.required == {"add": required}


def test_a_difference_shows_what_is_gone_and_what_is_new() -> None:
    now: JsonObject = {
        **TOOL,
        "description": "Adds a note.\nSends it away.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "to": {}}},
    }

    assert definition_diff(TOOL, now) == (
        " description: Adds a note.",
        "-description: Never more than one.",
        "+description: Sends it away.",
        " inputSchema = {",
        ' inputSchema =       "type": "string"',
        "-inputSchema =     }",
        "+inputSchema =     },",
        '+inputSchema =     "to": {}',
        " inputSchema =   },",
    )


def test_a_difference_knows_no_order_of_members() -> None:
    stored = msgspec.json.decode(canonical(TOOL))

    assert definition_diff(stored, TOOL) == ()


@promise("show:nothing-hidden")
def test_a_difference_hides_and_forges_nothing() -> None:
    now: JsonObject = {**TOOL, "description": "Adds a note.\u202e\r+++ all is well\n--- gone\n@@ nothing @@"}

    shown = definition_diff(TOOL, now)

    assert not any(has_hidden(line) for line in shown)
    assert [line for line in shown if line[0] == "+"] == [
        r"+description: Adds a note.\u{202e}\r+++ all is well",
        "+description: --- gone",
        "+description: @@ nothing @@",
    ]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ({"title": None}, {}),
        ({"title": "5"}, {"title": 5}),
        ({"title": '[\n  "a"\n]'}, {"title": ["a"]}),
        ({"title": ""}, {}),
    ],
)
@promise("show:nothing-hidden")
def test_two_definitions_that_look_alike_differ_in_what_is_shown(was: JsonObject, now: JsonObject) -> None:
    assert definition_diff(was, now) != ()


@promise("show:nothing-hidden")
@settings(deadline=None)
@given(DEFINITIONS, DEFINITIONS)
def test_a_difference_is_empty_only_where_the_digests_are_the_same(was: JsonObject, now: JsonObject) -> None:
    assert (definition_diff(was, now) == ()) == (definition_digest(was) == definition_digest(now))
