"""Metadata of a registry is read whole or refused at the field that is wrong."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.errors import Invalid
from pml.core.names import Fqdn
from pml.core.packages.capability import (
    MAX_DESCRIPTION,
    MAX_TOOLS,
    CapabilityMetadata,
    CapabilityType,
    McpDependency,
    Routing,
    dependency_json,
    metadata_json,
    parse_dependency,
    parse_metadata,
)
from pml.core.packages.install_line import parse_install
from pml.core.packages.lock import Ecosystem, Lock, Locked, lock_json
from pml.core.packages.package import Package
from pml.core.packages.permissions import NO_REACH, Access, Permissions
from pml.core.text import has_hidden
from tests.promises import promise

HASH = f"sha512-{base64.b64encode(b'1' * 64).decode()}"
CODE_HASH = f"sha256-{base64.b64encode(b'2' * 32).decode()}"
DIGEST = "sha256:" + "0a" * 32
LOCK = Lock(
    ecosystem=Ecosystem.NPM,
    name="@scope/memory",
    version="1.2.3",
    root="@scope/memory@1.2.3",
    packages=(
        Locked(key="@scope/memory@1.2.3", name="@scope/memory", version="1.2.3", integrity=(HASH,)),
        Locked(key="inner@2.0.0", name="inner", version="2.0.0", integrity=(HASH,)),
    ),
)
DEPENDENCY: dict[str, Any] = {
    "name": "memory",
    "type": "stdio",
    "install": "npx -y @scope/memory@1.2.3 --from-line",
    "version": "1.2.3",
    "integrity": HASH,
    "env_required": ["API_KEY"],
    "env": {"MEMORY_FILE": "${state}/memory.json"},
    "lock": lock_json(LOCK),
    "args": ["${workspace}", ""],
    "permissions": {"net": ["api.x.test"], "workspace": "read"},
}
METADATA: dict[str, Any] = {
    "fqdn": "acme.tools.memory.recall",
    "type": "deno",
    "routing": "client",
    "code_url": "code/recall.ts",
    "code_integrity": f"sha256-{(b'2' * 32).hex()}",
    "description": "Recalls.",
    "tools": ["recall", {"name": "memory/add", "inputSchema": {"type": "object"}}],
    "mcp_deps": [DEPENDENCY],
}
MEMORY = McpDependency(
    name="memory",
    install="npx -y @scope/memory@1.2.3 --from-line",
    package=Package(ecosystem=Ecosystem.NPM, name="@scope/memory", version="1.2.3", args=("--from-line",)),
    integrity=HASH,
    env_required=("API_KEY",),
    env={"MEMORY_FILE": "${state}/memory.json"},
    lock=LOCK,
    args=("${workspace}", ""),
    permissions=Permissions(net=("api.x.test",), workspace=Access.READ),
)


def read(value: Any) -> CapabilityMetadata:
    return parse_metadata(json.dumps(value).encode(), what="metadata")


def refusal(value: Any) -> str:
    with pytest.raises(Invalid) as caught:
        read(value)
    assert "\n" not in caught.value.message
    return caught.value.message


def with_dependency(**values: Any) -> dict[str, Any]:
    return {**METADATA, "mcp_deps": [{**DEPENDENCY, **values}]}


def test_every_field_is_read_into_its_type() -> None:
    assert read(METADATA) == CapabilityMetadata(
        fqdn=Fqdn(org="acme", project="tools", namespace="memory", action="recall"),
        type=CapabilityType.DENO,
        routing=Routing.CLIENT,
        code_url="code/recall.ts",
        code_integrity=CODE_HASH,
        description="Recalls.",
        tools=({"name": "recall"}, {"name": "memory/add", "inputSchema": {"type": "object"}}),
        mcp_deps=(MEMORY,),
    )
    assert read(METADATA).dependency("memory") == MEMORY
    assert read(METADATA).dependency("other") is None
    assert MEMORY.title == "memory@1.2.3"


def test_what_may_be_missing_may_also_be_null_and_what_is_unknown_is_passed_over() -> None:
    least = {"fqdn": "acme.tools.memory", "type": "server"}
    expected = CapabilityMetadata(
        fqdn=Fqdn(org="acme", project="tools", namespace="memory", action=None), type=CapabilityType.SERVER
    )
    keys = ("routing", "code_url", "code_integrity", "description", "tools", "mcp_deps")
    assert read(least) == read({**least, **dict.fromkeys(keys), "later": {"x": 1}}) == expected

    bare = {"name": "memory", "type": "stdio", "install": "npx memory@1.2.3"}
    optional = ("version", "integrity", "env_required", "env", "lock", "args", "permissions")
    dependency = McpDependency(
        name="memory",
        install="npx memory@1.2.3",
        package=Package(ecosystem=Ecosystem.NPM, name="memory", version="1.2.3"),
        permissions=NO_REACH,
        says_workspace=False,
    )
    assert parse_dependency(bare, what="it") == dependency
    assert parse_dependency({**bare, **dict.fromkeys(optional), "later": 1}, what="it") == dependency


WORDS = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8).filter(
    lambda text: not set(text) & set("$*?:") and not has_hidden(text)
)
INSTALLS = st.sampled_from(
    [
        "npx -y a@1.2.3",
        "npx @a/b@1.0.0-rc.1 'x y'",
        "uvx a==1.2 z",
        "uvx --from a==1.2 b",
        "pip install a==1.2",
    ]
)


@st.composite
def dependencies(draw: st.DrawFn) -> McpDependency:
    install = draw(INSTALLS)
    names = draw(st.lists(st.from_regex(r"X_[A-Z0-9]{1,6}", fullmatch=True), unique=True, max_size=4))
    half = len(names) // 2
    workspace = draw(st.none() | st.sampled_from(Access))
    return McpDependency(
        name=draw(WORDS.filter(lambda name: name not in ("pml", "plexus"))),
        install=install,
        package=parse_install(install),
        integrity=draw(st.none() | st.just(HASH)),
        env_required=tuple(names[:half]),
        env={name: draw(st.just("") | TEXTS | st.just("${state}/x")) for name in names[half:]},
        lock=draw(st.none() | st.just(DIGEST)),
        args=tuple(draw(st.lists(TEXTS | st.just(""), max_size=2))),
        permissions=Permissions(
            net=draw(st.booleans() | st.just(("x.test",))),
            workspace=workspace or Access.NONE,
            read=draw(st.sampled_from([(), ("/a", "~/b")])),
            run=draw(st.sampled_from([(), ("git",)])),
        ),
        says_workspace=workspace is not None,
    )


@st.composite
def metadatas(draw: st.DrawFn) -> CapabilityMetadata:
    tools = draw(st.lists(TEXTS, unique=True, max_size=3))
    return CapabilityMetadata(
        fqdn=draw(st.builds(Fqdn, org=WORDS, project=WORDS, namespace=WORDS, action=st.none() | WORDS)),
        type=draw(st.sampled_from(CapabilityType)),
        routing=draw(st.sampled_from(Routing)),
        code_url=draw(st.sampled_from([None, "a/b.ts", "/a.ts", "https://x.test/a.ts?b=1"])),
        code_integrity=draw(st.sampled_from([None, HASH, CODE_HASH])),
        description=draw(st.none() | TEXTS),
        tools=tuple({"name": name, "inputSchema": {"type": "object"}} for name in tools),
        mcp_deps=tuple(draw(st.lists(dependencies(), unique_by=lambda each: each.name, max_size=2))),
    )


@given(metadata=metadatas())
def test_metadata_is_read_back_from_its_json(metadata: CapabilityMetadata) -> None:
    assert read(metadata_json(metadata)) == metadata


@promise("registry:names-as-people-write-them")
@pytest.mark.parametrize(
    ("fqdn", "tools", "actions"),
    [
        ("acme.tools.greet.hello", ["greet:hello"], ["hello"]),
        ("acme.tools.greet.hello", ["hello", "greet:bye"], ["hello", "bye"]),
        ("acme.tools.greet", [{"name": "greet:hello", "title": "Hello"}], ["hello"]),
        ("casys.pml.smartSearch", ["smartSearch:run"], ["run"]),
        ("acme.tools.db", ["sql:query"], ["sql:query"]),  # an action may have a colon of its own
    ],
)
def test_tools_are_named_with_or_without_their_namespace(
    fqdn: str, tools: list[Any], actions: list[str]
) -> None:
    found = read({"fqdn": fqdn, "type": "deno", "tools": tools})

    assert [tool["name"] for tool in found.tools] == actions


def test_a_tool_that_is_named_in_both_ways_is_there_twice() -> None:
    with pytest.raises(Invalid, match=r"`tools\[1\]` must be a tool that is not there before, not `hello`"):
        read({"fqdn": "acme.tools.greet", "type": "deno", "tools": ["hello", "greet:hello"]})


def test_a_dependency_with_its_whole_lock_is_read_back_from_its_json() -> None:
    assert parse_dependency(json.loads(json.dumps(dependency_json(MEMORY))), what="it") == MEMORY


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"fqdn": None}, "`fqdn` is missing: expected `org.project.namespace.action` or `org.project.name`"),
        (
            {"fqdn": "a.b"},
            "`fqdn`: FQDN `a.b`: expected `org.project.namespace.action` or `org.project.name`",
        ),
        ({"fqdn": 7}, "`fqdn` must be a string, not `7`"),
        ({"type": None}, '`type` is missing: expected `"deno"`, `"python"` or `"server"`'),
        ({"type": "wasm"}, '`type` must be `"deno"` or `"python"` or `"server"`, not `wasm`'),
        ({"routing": "cloud"}, '`routing` must be `"client"` or `"server"`, not `cloud`'),
        ({"description": ""}, "`description` must not be empty"),
        (
            {"description": "x" * (MAX_DESCRIPTION + 1)},
            "`description` has 10,001 characters, more than 10,000",
        ),
        ({"tools": "recall"}, "`tools` must be an array, not `recall`"),
        (
            {"tools": [str(n) for n in range(MAX_TOOLS + 1)]},
            "`tools` must be an array of at most 1,000, not of 1,001",
        ),
        ({"tools": [1]}, "`tools[0]` must be the name of a tool, or an object with its `name`, not `1`"),
        (
            {"tools": [{"title": "x"}]},
            '`tools[0]` must be the name of a tool, or an object with its `name`, not `{"title": "x"}`',
        ),
        (
            {"tools": ["a", "b*"]},
            "`tools[1]`: tool `memory:b*`: `*` and `?` belong to patterns, not to names",
        ),
        ({"tools": ["a", {"name": "a"}]}, "`tools[1]` must be a tool that is not there before, not `a`"),
        ({"mcp_deps": {}}, "`mcp_deps` must be an array, not `{}`"),
        ({"mcp_deps": ["x"]}, "`mcp_deps[0]` must be an object, not `x`"),
        (
            {"mcp_deps": [DEPENDENCY, {**DEPENDENCY, "name": "Memory"}]},
            "`mcp_deps[1].name` must be a name that is not there before, not `Memory`",
        ),
        (
            {"code_integrity": "md5-x"},
            "`code_integrity` must be `sha512-<base64>`, `sha256-<base64>` or `sha256-<hex>` of the artefact"
            ", not `md5-x`",
        ),
    ],
)
def test_a_field_that_is_wrong_is_refused_with_its_value_and_what_was_expected(
    values: dict[str, Any], expected: str
) -> None:
    assert refusal({**METADATA, **values}) == f"metadata: {expected}"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "file:///etc/passwd",
            "data:text/plain,x",
            "javascript:x",
            "ftp://x.test/a",
            "//x.test/a",
            "../a.ts",
        ),
        *(
            "a/../../b",
            "a\\b",
            "a%2e%2e/b",
            "http:///a",
            "https://",
            "https://u:p@x.test/a",
            "http://0x7f.1/",
            "a b",
        ),
        *("C:/a", "a\u202eb", "https://x.test/\n"),
    ],
)
def test_code_comes_from_below_the_registry_or_over_http_and_from_nowhere_else(url: str) -> None:
    assert "`code_url` must be an `https:` or `http:` URL, or a path below the registry's, not `" in (
        refusal({**METADATA, "code_url": url})
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"name": None}, "`mcp_deps[0].name` is missing: expected the namespace of the server's tools"),
        (
            {"name": "../x"},
            "`mcp_deps[0].name`: `../x` is not a name for a server: 1 to 64 of `A-Z a-z 0-9 _ -`",
        ),
        ({"name": "PML"}, "`mcp_deps[0].name`: `PML` is not a name for a server: PML uses it for itself"),
        ({"type": "sse"}, '`mcp_deps[0].type` must be `"stdio"`, not `sse`'),
        (
            {"install": None},
            "`mcp_deps[0].install` is missing: expected a line like `npx name@1.2.3` or `uvx name==1.2.3`",
        ),
        (
            {"install": "npx a@1.2.3; id"},
            "`mcp_deps[0].install`: install line `npx a@1.2.3; id`: it has `;` at `; id`: "
            "that is for a shell, and none runs it",
        ),
        (
            {"version": "1.2.4"},
            "`mcp_deps[0].install`: install line `npx -y @scope/memory@1.2.3 --from-line`: "
            "it says version `1.2.3` of `@scope/memory`, but `version` says `1.2.4`",
        ),
        ({"env_required": "API_KEY"}, "`mcp_deps[0].env_required` must be an array, not `API_KEY`"),
        (
            {"env_required": ["A", "B-C"]},
            "`mcp_deps[0].env_required[1]`: `B-C` is not a name for a variable",
        ),
        ({"env_required": ["A", "A"]}, "`mcp_deps[0].env_required[1]`: `A` is named twice"),
        ({"env_required": ["A"], "env": {"A": "1"}}, "`mcp_deps[0].env.A`: `A` is named twice"),
        ({"env": {"A": 1}}, "`mcp_deps[0].env.A` must be a string, not `1`"),
        ({"env": {"A": "a\u202e"}}, "`mcp_deps[0].env.A` has hidden characters: `a\\u{202e}`"),
        (
            {"env": {"A": "${HOME}"}},
            "`mcp_deps[0].env.A`: `${HOME}` has a placeholder that is none of "
            "`${workspace}`, `${state}`, `${tree}`",
        ),
        ({"args": ["a", "b\n"]}, "`mcp_deps[0].args[1]` has hidden characters: `b\\n`"),
        ({"args": ["a\0"]}, "`mcp_deps[0].args[0]` must not have a NUL character"),
        (
            {"args": ["${x}"]},
            "`mcp_deps[0].args[0]`: `${x}` has a placeholder that is none of "
            "`${workspace}`, `${state}`, `${tree}`",
        ),
        (
            {"permissions": {"ffi": True}},
            "`mcp_deps[0].permissions.ffi` must be one of "
            "`net`, `workspace`, `read`, `write`, `run`, not `true`",
        ),
        (
            {"lock": "sha256:0a"},
            "`mcp_deps[0].lock` must be an object, or `sha256:` and 64 hex digits, not `sha256:0a`",
        ),
        ({"lock": 7}, "`mcp_deps[0].lock` must be an object, not `7`"),
        (
            {"lock": lock_json(msgspec.structs.replace(LOCK, root="x"))},
            "`mcp_deps[0].lock`: the lock has no package with the key `x`, which is its `root`",
        ),
        (
            {"install": "npx other@1.2.3"},
            "`mcp_deps[0].lock`: the lock is of `@scope/memory@1.2.3` from npm, "
            "not of `other@1.2.3` from npm",
        ),
    ],
)
def test_a_dependency_that_is_wrong_is_refused_at_its_field(values: dict[str, Any], expected: str) -> None:
    assert refusal(with_dependency(**values)) == f"metadata: {expected}"


@promise("install:no-loader-variables")
@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "ld_preload", "DYLD_INSERT_LIBRARIES", "NODE_OPTIONS", "PYTHONPATH", "BASH_ENV"),
        *("PATH", "HOME", "PML_HOME", "DENO_PERMISSION_BROKER_PATH", "NODE_EXTRA_CA_CERTS", "UV_INDEX_URL"),
    ],
)
def test_a_variable_that_changes_what_runs_is_neither_required_nor_given(name: str) -> None:
    refused = (f"`{name}` changes which code the server runs", f"`{name}` steers how PML starts the server")
    for values in ({"env_required": [name]}, {"env": {name: "x"}}):
        assert any(reason in refusal(with_dependency(**values)) for reason in refused)


@promise("lock:every-package-hashed")
def test_a_dependency_whose_lock_has_a_package_without_a_hash_is_refused() -> None:
    inner = msgspec.structs.replace(LOCK.packages[1], integrity=())
    lock = lock_json(msgspec.structs.replace(LOCK, packages=(LOCK.packages[0], inner)))
    expected = "metadata: `mcp_deps[0].lock`: `inner@2.0.0` has no hash in the lock: it cannot be verified"
    assert refusal(with_dependency(lock=lock)) == expected


@promise("integrity:no-weak-proof")
@pytest.mark.parametrize(
    "values",
    [
        {"integrity": f"package.json:{HASH}"},
        {"integrity": {"file": "package.json", "hash": HASH}},
        {"integrity_of": "package.json"},
        {"integritySource": ["x" * 200, "./Package.json"]},
    ],
)
def test_a_hash_that_is_said_to_be_of_package_json_alone_is_refused(values: dict[str, Any]) -> None:
    assert refusal(with_dependency(**values)).endswith(": a hash of package.json alone is not a proof")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"<html>", "metadata is not JSON: line 1, column 1: expecting value"),
        (b"[]", "metadata must be a JSON object, not an array"),
        (b'{"fqdn": "a.b.c", "fqdn": "a.b.d"}', "metadata has the key 'fqdn' twice in one object"),
        (b"\xff", "metadata is not UTF-8: byte 0"),
    ],
)
def test_bytes_that_are_no_metadata_are_refused(data: bytes, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_metadata(data, what="metadata")
    assert caught.value.message == expected


@pytest.mark.parametrize(
    "values",
    [
        {"name": "other"},
        {"integrity": None},
        {"env_required": ("OTHER",)},
        {"env": {}},
        {"args": ()},
        {"permissions": Permissions()},
        {"package": msgspec.structs.replace(MEMORY.package, args=())},
        {"package": msgspec.structs.replace(MEMORY.package, tool="other")},
    ],
)
def test_an_approval_to_install_binds_all_that_the_server_is_started_with(values: dict[str, Any]) -> None:
    assert msgspec.structs.replace(MEMORY, **values).terms(LOCK.digest) != MEMORY.terms(LOCK.digest)
    assert MEMORY.terms(msgspec.structs.replace(LOCK, root="inner@2.0.0").digest) != MEMORY.terms(LOCK.digest)


def test_a_server_is_started_with_the_arguments_of_its_line_and_then_its_own() -> None:
    assert MEMORY.argv == ("--from-line", "${workspace}", "")
