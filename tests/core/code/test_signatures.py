"""Signatures from schemas: what a model and a type checker are told, and that any JSON gives one."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.code.signatures import declarations, signature
from pml.core.names import ToolName, parse_tool
from pml.core.text import has_hidden
from pml.core.values import Json, JsonObject

TOOL = parse_tool("github:create_issue")


def arguments(schema: Json) -> str:
    line = signature(
        TOOL, {"name": "create_issue", "inputSchema": {"type": "object", "properties": {"x": schema}}}
    )
    start, end = "mcp.github.create_issue(args?: { x?: ", " }): Promise<string>"
    assert line.startswith(start)
    assert line.endswith(end)
    return line[len(start) : -len(end)]


def test_a_tool_is_told_in_one_line() -> None:
    definition: JsonObject = {
        "name": "create_issue",
        "description": "not in the line",
        "inputSchema": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "nor this"},
                "body": {"type": "string"},
                "labels": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["title"],
        },
    }
    assert signature(TOOL, definition) == (
        "mcp.github.create_issue(args: { title: string; body?: string; labels?: string[] }): Promise<string>"
    )


@pytest.mark.parametrize(
    ("definition", "line"),
    [
        ({}, "(args?: Record<string, unknown>): Promise<string>"),
        ({"inputSchema": {"type": "object"}}, "(args?: Record<string, unknown>): Promise<string>"),
        (
            {"inputSchema": {"type": "object", "additionalProperties": False}},
            "(args?: Record<string, never>): Promise<string>",
        ),
        (
            {"inputSchema": {"type": "object", "required": ["b", "a"]}},
            "(args: { a: unknown; b: unknown }): Promise<string>",
        ),
        (
            {"outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
            "(args?: Record<string, unknown>): Promise<{ n: number }>",
        ),
        ({"outputSchema": {}}, "(args?: Record<string, unknown>): Promise<unknown>"),
        (
            {"inputSchema": {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"type": "null"}}}}}},
            "(args: { a?: null }): Promise<string>",
        ),
    ],
)
def test_arguments_and_result_follow_from_the_definition(definition: JsonObject, line: str) -> None:
    assert signature(TOOL, definition) == f"mcp.github.create_issue{line}"


def test_a_name_that_no_dot_can_have_is_quoted() -> None:
    assert signature(parse_tool("a-b:c/d"), {}).startswith('mcp["a-b"]["c/d"](')


TYPES: Sequence[tuple[Json, str]] = [
    ({"type": "integer"}, "number"),
    ({"type": "string", "format": "date-time"}, "string"),
    ({"type": ["string", "null"]}, "string | null"),
    ({"type": "string", "nullable": True}, "string | null"),
    ({"enum": ["a", 'b"', 3, 1.5, True, None]}, r'"a" | "b\"" | 3 | 1.5 | true | null'),
    ({"enum": ["\u202e"]}, r'"\u202e"'),
    ({"enum": [[1], {"a": 1}, 10**400]}, "unknown[] | Record<string, unknown> | number"),
    ({"enum": list(range(41))}, "number"),
    ({"const": "x"}, '"x"'),
    ({"const": "x" * 81}, "string"),
    ({"type": "array"}, "unknown[]"),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
    ({"items": {"type": "object", "properties": {"a|b": True}}}, '{ "a|b"?: unknown }[]'),
    ({"prefixItems": [{"type": "string"}, {"type": "number"}], "items": False}, "[string, number]"),
    ({"items": [{"type": "string"}], "additionalItems": {"type": "null"}}, "[string, ...null[]]"),
    ({"type": "object", "additionalProperties": {"type": "number"}}, "Record<string, number>"),
    (
        {"properties": {"a": {"type": "number"}}, "additionalProperties": True},
        "{ a?: number; [key: string]: unknown }",
    ),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
    ({"oneOf": [{"type": "string"}, {"type": "string"}]}, "string"),
    ({"anyOf": [{"type": "string"}, {}]}, "unknown"),
    (
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "{ a?: string }",
    ),
    (
        {"allOf": [{"properties": {"a": {}}}, {"anyOf": [{"type": "null"}, {"type": "string"}]}]},
        "{ a?: unknown } & (null | string)",
    ),
    (True, "unknown"),
    (False, "never"),
    (None, "unknown"),
    ("string", "unknown"),
    ({"type": "odd"}, "unknown"),
    ({"type": [3, "string"]}, "unknown"),
    ({"$ref": "https://example.com/schema"}, "unknown"),
    ({"$ref": "#/nowhere/at/all"}, "unknown"),
    (
        {"type": "object", "properties": {"": {}, "a b": {}, "é": {}, "$a1": {}}},
        '{ ""?: unknown; "a b"?: unknown; "é"?: unknown; $a1?: unknown }',
    ),
]


@pytest.mark.parametrize(("schema", "text"), TYPES)
def test_a_schema_gives_its_type(schema: Json, text: str) -> None:
    assert arguments(schema) == text


def test_references_are_followed_until_they_return() -> None:
    schema: JsonObject = {
        "properties": {"node": {"$ref": "#/definitions/a~1b"}},
        "definitions": {
            "a/b": {"properties": {"name": {"type": "string"}, "next": {"$ref": "#/definitions/a~1b"}}}
        },
    }
    line = signature(TOOL, {"inputSchema": schema})
    assert "(args?: { node?: { name?: string; next?: unknown } })" in line


def test_what_grows_without_end_is_cut() -> None:
    doubling: dict[str, Json] = {
        f"d{n}": {"properties": {side: {"$ref": f"#/$defs/d{n + 1}"} for side in "abcdef"}} for n in range(30)
    }
    wide: dict[str, Json] = {f"property_{n}": {"type": "string"} for n in range(10_000)}
    deep: Json = {}
    for _ in range(200):
        deep = {"allOf": [{"properties": {"a": deep}}]}
    for schema in ({"$ref": "#/$defs/d0", "$defs": doubling}, {"properties": wide}, deep):
        line = signature(TOOL, {"inputSchema": schema, "outputSchema": schema})
        assert len(line) < 3_200
        assert "unknown" in line


def test_declarations_are_a_module_with_all_tools_and_what_is_said_of_them() -> None:
    tools: Mapping[ToolName, JsonObject] = {
        parse_tool("github:create_issue"): {
            "description": "Create it.\n\nDo */ alert() /*, and \u202e.",
            "inputSchema": {
                "properties": {"title": {"type": "string", "description": "its\ntitle"}},
                "required": ["title"],
            },
        },
        parse_tool("a-b:c/d"): {},
        parse_tool("github:list"): {"outputSchema": {"type": "object"}},
    }
    assert declarations(tools) == (
        "// Made by `pml capability types`, and written anew by it: do not edit.\n"
        "\n"
        "/** What a capability gets beside its arguments: "
        "`export async function run(args, { mcp }: Context)`. */\n"
        "export interface Context {\n"
        "  mcp: Mcp;\n"
        "}\n"
        "\n"
        "declare global {\n"
        "  /** What a call that failed throws: `code` tells why, such as `user_denied`. */\n"
        "  class ToolError extends Error {\n"
        "    readonly code: string;\n"
        "  }\n"
        "}\n"
        "\n"
        "export interface Mcp {\n"
        "  github: {\n"
        "    /**\n"
        "     * Create it.\n"
        "     *\n"
        "     * Do * / alert() /*, and \\u{202e}.\n"
        "     * @param args.title its title\n"
        "     */\n"
        "    create_issue(args: { title: string }): Promise<string>;\n"
        "    list(args?: Record<string, unknown>): Promise<Record<string, unknown>>;\n"
        "  };\n"
        '  "a-b": {\n'
        '    "c/d"(args?: Record<string, unknown>): Promise<string>;\n'
        "  };\n"
        "}\n"
    )


KEYS = [
    *("type", "properties", "required", "items", "prefixItems", "additionalItems", "additionalProperties"),
    *("anyOf", "oneOf", "allOf", "$ref", "$defs", "enum", "const", "nullable", "description"),
    *("inputSchema", "outputSchema"),
]
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["object", "array", "string", "#", "#/", "#/$defs/a", "#/inputSchema", "*/", "\ud800"])
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=5)
    ),
    max_leaves=40,
)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(), anything, max_size=6))
def test_any_json_gives_one_line_and_declarations_that_hold_together(definition: JsonObject) -> None:
    line = signature(TOOL, definition)
    assert not has_hidden(line)
    assert len(line) < 3_200
    text = declarations({TOOL: definition})
    assert text.count("*/") == text.count("/**")
    assert not any(has_hidden(each) for each in text.split("\n"))
