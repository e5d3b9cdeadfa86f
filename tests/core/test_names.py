"""A tool's four names: what is a name, what converts without fail, and what stays apart."""

import ast
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pml.core.errors import Invalid
from pml.core.names import (
    Fqdn,
    ToolName,
    code_of,
    fqdn_of,
    parse_code,
    parse_fqdn,
    parse_tool,
    tool_of,
    wire_of,
)
from pml.core.text import has_hidden
from tests.promises import promise

words = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
actions = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="*?"), min_size=1, max_size=200
).filter(lambda text: not has_hidden(text))
tools = st.builds(ToolName, namespace=words, action=actions)
fqdns = st.builds(Fqdn, org=words, project=words, namespace=words, action=st.none() | words)
# Few letters, so that tables meet the same and nearly the same names often.
near_tools = st.builds(
    ToolName,
    namespace=st.text("ab_", min_size=1, max_size=4),
    action=st.text("ab_./", min_size=1, max_size=4) | st.text("ab", min_size=60, max_size=70),
)


def test_a_tool_is_split_at_its_first_colon() -> None:
    assert parse_tool("github:create_issue") == ToolName(namespace="github", action="create_issue")
    assert parse_tool("fs:a:b/c.d") == ToolName(namespace="fs", action="a:b/c.d")
    assert str(parse_tool("fs:a:b/c.d")) == "fs:a:b/c.d"


def test_a_name_without_a_colon_is_a_clients_own_tool() -> None:
    assert parse_tool("Bash") == ToolName(namespace=None, action="Bash")
    assert str(parse_tool("Bash")) == "Bash"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "tool ``: the action must have 1 to 200 characters"),
        ("github:", "tool `github:`: the action must have 1 to 200 characters"),
        (":x", "tool `:x`: the namespace must be 1 to 64 of `A-Z a-z 0-9 _ -`"),
        ("git.hub:x", "tool `git.hub:x`: the namespace must be 1 to 64 of `A-Z a-z 0-9 _ -`"),
        ("gıthub:x", "tool `gıthub:x`: the namespace must be 1 to 64 of `A-Z a-z 0-9 _ -`"),
        ("github\n:x", r"tool `github\n:x`: the namespace must be 1 to 64 of `A-Z a-z 0-9 _ -`"),
        ("n" * 65 + ":x", f"tool `{'n' * 65}:x`: the namespace must be 1 to 64 of `A-Z a-z 0-9 _ -`"),
        ("a:" + "x" * 201, f"tool `a:{'x' * 78}…`: the action must have 1 to 200 characters"),
        ("a:b c", "tool `a:b c`: the action must not have blanks or hidden characters"),
        ("a:b\u202ec", r"tool `a:b\u{202e}c`: the action must not have blanks or hidden characters"),
        ("a:b\u3164", r"tool `a:b\u{3164}`: the action must not have blanks or hidden characters"),
        ("a:b\ud800", r"tool `a:b\u{d800}`: the action must not have blanks or hidden characters"),
        ("a:b*", "tool `a:b*`: `*` and `?` belong to patterns, not to names"),
        ("Bas?", "tool `Bas?`: `*` and `?` belong to patterns, not to names"),
    ],
)
@promise("names:never-a-pattern")
def test_what_is_no_tool_name_is_refused_with_what_was_expected(text: str, problem: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_tool(text)
    assert refusal.value.message == problem


def test_a_tool_name_cannot_be_built_around_its_rules() -> None:
    with pytest.raises(Invalid, match="has a `:` but no namespace"):
        ToolName(namespace=None, action="a:b")
    with pytest.raises(Invalid):
        ToolName(namespace="a:b", action="c")


@given(tools)
def test_every_tool_name_reads_back_as_itself(tool: ToolName) -> None:
    assert parse_tool(str(tool)) == tool


@given(st.text())
def test_any_text_is_a_tool_name_that_reads_back_or_is_refused(text: str) -> None:
    try:
        tool = parse_tool(text)
    except Invalid:
        return
    assert str(tool) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a.b",
        "a.b.c.d.e",
        "a..c",
        ".b.c",
        "a.b.c.",
        "a.b.c d",
        "a.b.c:d",
        "a.b.ç",
        "a.b.*",
        f"a.b.{'c' * 65}",
    ],
)
def test_what_is_no_fqdn_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="FQDN"):
        parse_fqdn(text)


@given(fqdns)
def test_every_fqdn_reads_back_as_itself(fqdn: Fqdn) -> None:
    assert parse_fqdn(str(fqdn)) == fqdn


def test_an_fqdn_names_a_tool_and_without_an_action_the_export_run() -> None:
    assert tool_of(parse_fqdn("acme.tools.github.create_issue")) == parse_tool("github:create_issue")
    assert tool_of(parse_fqdn("acme.tools.summarize")) == parse_tool("summarize:run")


@given(fqdns)
def test_from_fqdn_to_tool_to_code_nothing_fails_or_is_lost(fqdn: Fqdn) -> None:
    tool = tool_of(fqdn)
    assert parse_code(code_of(tool)) == tool
    assume(fqdn.action is not None)
    assert fqdn_of(tool, f"{fqdn.org}.{fqdn.project}") == fqdn


@given(tools)
def test_every_tool_with_a_namespace_has_a_code_name_that_reads_back(tool: ToolName) -> None:
    assert parse_code(code_of(tool)) == tool


@given(tools)
def test_every_code_name_is_one_expression_of_python_for_that_tool(tool: ToolName) -> None:
    outer = ast.parse(code_of(tool), mode="eval").body
    inner = outer.value if isinstance(outer, ast.Attribute | ast.Subscript) else None
    assert [_member_of(inner), _member_of(outer)] == [tool.namespace, tool.action]


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ("github:create_issue", "mcp.github.create_issue"),
        ("a-b:c/d", 'mcp["a-b"]["c/d"]'),
        ("1st:x", 'mcp["1st"].x'),
        ("lib:import", 'mcp.lib["import"]'),
        ("lib:then", 'mcp.lib["then"]'),
        ("lib:__class__", 'mcp.lib["__class__"]'),
        ('lib:say"hi"\\', r'mcp.lib["say\"hi\"\\"]'),
        ("lib:größe", 'mcp.lib["größe"]'),
    ],
)
def test_code_uses_brackets_where_a_dot_would_not_do(tool: str, code: str) -> None:
    assert code_of(parse_tool(tool)) == code
    assert parse_code(code) == parse_tool(tool)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mcp",
        "mcp.github",
        "mcp.a.b.c",
        "mcp.a.b()",
        "xmcp.a.b",
        "mcp.a-b.c",
        'mcp["a"]["b*"]',
        'mcp["a"]["\\x41"]',
        'mcp["a"]["\\ud800"]',
        'mcp["a.b"].c',
        'mcp[""].c',
        "mcp.a.b\n",
    ],
)
def test_what_is_no_code_name_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_code(text)


def test_a_clients_own_tool_has_no_code_registry_or_wire_name() -> None:
    bash = parse_tool("Bash")
    with pytest.raises(Invalid, match="tool `Bash` is a client's own"):
        code_of(bash)
    with pytest.raises(Invalid, match="tool `Bash` is a client's own"):
        fqdn_of(bash, "acme.tools")
    with pytest.raises(Invalid, match="tool `Bash` is a client's own"):
        wire_of(bash)


def test_a_tool_that_does_not_fit_the_registry_is_refused() -> None:
    with pytest.raises(Invalid, match=r"`acme.tools.fs.a/b`: `a/b` must be 1 to 64"):
        fqdn_of(parse_tool("fs:a/b"), "acme.tools")
    with pytest.raises(Invalid, match=r"registry prefix `acme`: expected `org.project`"):
        fqdn_of(parse_tool("fs:a"), "acme")


def test_a_wire_name_is_plain_where_it_can_be_and_hashed_where_it_cannot() -> None:
    assert wire_of(parse_tool("github:create_issue")) == "github__create_issue"
    assert wire_of(parse_tool("fs:read.file")) == "fs__read_file_312b0c02"
    assert wire_of(parse_tool("fs:" + "x" * 60)) == "fs__" + "x" * 60
    assert wire_of(parse_tool("fs:" + "x" * 61)) == "fs__" + "x" * 51 + "_1c289579"


@given(tools)
@promise("names:wire-fits")
def test_every_wire_name_fits_what_clients_accept(tool: ToolName) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wire_of(tool))


def test_names_that_differ_only_in_replaced_or_cut_characters_stay_different() -> None:
    long = "x" * 100
    tools = [parse_tool(f"fs:{action}") for action in ("a.b", "a/b", "a_b", long, long + "y", long + "z")]
    assert len({wire_of(tool) for tool in tools}) == len(tools)


def _member_of(node: ast.expr | None) -> str | None:
    match node:
        case ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case _:
            return None
