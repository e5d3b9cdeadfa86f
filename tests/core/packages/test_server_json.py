"""`server.json` of the official registry: what is offered, what is asked for, what is refused and why."""

from typing import Any

import pytest

from pml.core.errors import Invalid
from pml.core.packages.capability import McpDependency, Status
from pml.core.packages.offer import Missing, dependency_of, entry_of, inputs_of, suggested_name
from pml.core.packages.package import Ecosystem
from pml.core.packages.permissions import Access
from pml.core.packages.server_json import ListedServer, listed_fqdn, listed_name, parse_listed
from tests.promises import promise
from tests.registry.official import META, package, server_json

MCPB: dict[str, Any] = {
    "registryType": "mcpb",
    "identifier": "https://files.example/weather.mcpb",
    "fileSha256": "ab" * 32,
    "transport": {"type": "stdio"},
}


def parsed(**more: Any) -> ListedServer:
    return parse_listed(server_json(**more), what="it")


def dependency(*, answers: dict[str, str] | None = None, **more: Any) -> McpDependency:
    server = parsed(packages=[package(**more)])
    assert server.refused == ()
    return dependency_of(server, server.packages[0], name="weather", answers=answers)


def refused(**more: Any) -> str:
    [only] = parsed(packages=[package(**more)]).refused
    return only.why


def test_arguments_and_variables_are_filled_in_as_the_file_says() -> None:
    found = dependency(
        packageArguments=[
            {"type": "positional", "value": "serve"},
            {"type": "named", "name": "--port", "default": "80", "format": "number"},
            {"type": "named", "name": "--verbose", "format": "boolean"},
            {"type": "positional", "valueHint": "folder", "isRequired": True},
            {"type": "named", "name": "--url", "value": "https://{host}/x", "variables": {"host": {}}},
        ],
        environmentVariables=[
            {"name": "KEY", "isRequired": True, "isSecret": True},
            {"name": "OPTIONAL_KEY", "isSecret": True},
            {"name": "MODE", "value": "fast"},
            {"name": "UNITS", "default": "metric", "choices": ["metric", "us"]},
            {"name": "NOTHING"},
        ],
        answers={"folder": "/srv", "--verbose": "true", "--url.host": "{port}"},
    )
    assert found.args == ("serve", "--port", "80", "--verbose", "/srv", "--url", "https://{port}/x")
    assert found.env_required == ("KEY",)
    assert dict(found.env) == {"MODE": "fast", "UNITS": "metric"}
    assert (found.permissions.net, found.permissions.workspace) == (True, Access.NONE)


def test_what_is_required_is_asked_for_and_a_secret_is_not() -> None:
    server = parsed(
        packages=[
            package(
                packageArguments=[{"type": "positional", "valueHint": "folder", "isRequired": True}],
                environmentVariables=[{"name": "KEY", "isRequired": True, "isSecret": True}],
            )
        ]
    )
    assert [(each.key, each.is_secret) for each in inputs_of(server.packages[0])] == [
        ("KEY", True),
        ("folder", False),
    ]
    with pytest.raises(Missing) as caught:
        dependency_of(server, server.packages[0], name="weather")
    assert [each.key for each in caught.value.inputs] == ["folder"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"registryType": "oci"}, "PML starts no containers"),
        ({"registryType": "nuget"}, "a .NET package"),
        ({"registryType": "cargo"}, "a build runs code that nobody proved"),
        ({"registryType": "conda"}, "must be `npm`, `pypi` or `mcpb`"),
        ({"version": "latest"}, "must be one exact version"),
        ({"version": "^1.0.0"}, "must be one exact version"),
        ({"version": None}, "must be one exact version"),
        ({"identifier": "../evil"}, "must be a name of a package of npm"),
        (
            {"transport": {"type": "streamable-http", "url": "http://x"}},
            "does not start servers that then listen",
        ),
        ({**MCPB, "fileSha256": None}, "`packages[0].fileSha256` is missing"),
        ({**MCPB, "fileSha256": "x"}, "must be 64 hex digits"),
        ({**MCPB, "identifier": "http://files.example/a.mcpb"}, "the https URL of a `.mcpb` file"),
        ({"packageArguments": [{"type": "positional", "value": "a\u202eb"}]}, "hidden characters"),
    ],
)
@promise("registry:refusals-have-reasons")
def test_what_cannot_be_proven_is_refused_with_the_reason(more: dict[str, Any], said: str) -> None:
    assert said in refused(**more)


@promise("registry:runtime-is-pmls")
@pytest.mark.parametrize(
    ("argument", "is_taken"),
    [
        ({"type": "positional", "value": "-y"}, True),
        ({"type": "named", "name": "-y"}, True),
        ({"type": "named", "name": "--yes"}, True),
        ({"type": "named", "name": "--registry", "value": "https://evil.example"}, False),
        ({"type": "named", "name": "--require", "value": "./x.js"}, False),
        ({"type": "positional", "value": "--with"}, False),
        ({"type": "named", "name": "-y", "value": "other"}, False),
    ],
)
def test_no_argument_steers_the_runtime(argument: dict[str, Any], is_taken: bool) -> None:
    server = parsed(packages=[package(runtimeArguments=[argument])])
    assert bool(server.packages) is is_taken
    if not is_taken:
        assert "it would steer the runtime" in server.refused[0].why


@promise("registry:own-package-registries")
def test_another_package_registry_is_only_the_users_own() -> None:
    server = parsed(packages=[package(registryBaseUrl="https://npm.evil.example")])
    with pytest.raises(Invalid, match="which is not a registry of yours"):
        dependency_of(server, server.packages[0], name="weather")
    own = ("https://npm.evil.example",)
    assert dependency_of(server, server.packages[0], name="weather", own_registries=own).name == "weather"


@promise("registry:no-secret-arguments")
def test_a_secret_is_never_an_argument() -> None:
    secret = {"type": "named", "name": "--key", "isSecret": True}
    assert dependency(packageArguments=[secret]).args == ()
    with pytest.raises(Invalid, match="as an argument"):
        dependency(packageArguments=[{**secret, "isRequired": True}])


@pytest.mark.parametrize(
    ("argument", "answer", "said"),
    [
        ({"choices": ["a", "b"]}, "c", "must be `a`, `b`, not `c`"),
        ({"format": "number"}, "x", "must be a number"),
        ({"format": "boolean"}, "x", "must be a boolean"),
        ({}, "${HOME}", "placeholder"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(argument: dict[str, Any], answer: str, said: str) -> None:
    wanted = {"type": "positional", "valueHint": "it", **argument}
    with pytest.raises(Invalid, match=said):
        dependency(packageArguments=[wanted], answers={"it": answer})


def test_a_variable_that_changes_what_runs_is_refused() -> None:
    with pytest.raises(Invalid, match="NODE_OPTIONS"):
        dependency(environmentVariables=[{"name": "NODE_OPTIONS", "value": "--require x"}])


def test_a_remote_becomes_an_entry_with_its_secrets_named() -> None:
    server = parsed(
        packages=[],
        remotes=[
            {
                "type": "streamable-http",
                "url": "https://{region}.api.example.com/mcp",
                "variables": {"region": {"isRequired": True, "choices": ["eu", "us"]}},
                "headers": [
                    {
                        "name": "Authorization",
                        "value": "Bearer {token}",
                        "variables": {"token": {"isSecret": True, "isRequired": True}},
                    },
                    {"name": "X-Key", "isSecret": True, "isRequired": True},
                    {"name": "X-Mode", "default": "fast"},
                    {"name": "X-Nothing"},
                ],
            }
        ],
    )
    entry, secrets = entry_of(server, server.remotes[0], answers={"region": "eu"})
    assert entry == {
        "type": "http",
        "url": "https://eu.api.example.com/mcp",
        "headers": {
            "Authorization": "Bearer ${IO_GITHUB_ACME_WEATHER_TOKEN}",
            "X-Key": "${IO_GITHUB_ACME_WEATHER_X_KEY}",
            "X-Mode": "fast",
        },
    }
    assert secrets == ("IO_GITHUB_ACME_WEATHER_TOKEN", "IO_GITHUB_ACME_WEATHER_X_KEY")


@promise("registry:remote-host-is-listed")
@pytest.mark.parametrize("answer", ["evil.example/", "eu@evil", "a/../b", "x#", "x:1"])
def test_no_answer_leads_to_another_host(answer: str) -> None:
    remote: dict[str, Any] = {
        "type": "sse",
        "url": "https://{region}.api.example.com/mcp",
        "variables": {"region": {}},
    }
    server = parsed(remotes=[remote])
    with pytest.raises(Invalid, match="has other characters"):
        entry_of(server, server.remotes[0], answers={"region": answer})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://{host}/mcp", "nobody knows its host"),
        ("https://api.{zone}/mcp", "nobody knows its host"),
        ("http://api.example.com/mcp", "must be an https URL"),
        ("file:///etc/passwd", "must be an https URL"),
    ],
)
def test_a_remote_without_a_host_of_its_own_is_refused(url: str, said: str) -> None:
    server = parsed(remotes=[{"type": "sse", "url": url}])
    assert said in server.refused[0].why


def test_names_lead_to_fqdns_and_back() -> None:
    name = "io.github.acme/weather"
    fqdn = listed_fqdn(name)
    assert str(fqdn) == "mcp.io_github_acme.weather"
    assert listed_name(fqdn.project, fqdn.namespace) == name


@pytest.mark.parametrize(
    ("name", "suggested"),
    [("com.notion/mcp", "notion"), ("io.github.acme/weather", "weather"), ("io.x/my.server", "my-server")],
)
def test_a_name_is_suggested_that_tells_something(name: str, suggested: str) -> None:
    assert suggested_name(parse_listed(server_json(name), what="it")) == suggested


def test_the_status_is_what_the_registry_adds() -> None:
    wrapped = {"server": server_json(), "_meta": {META: {"status": "deprecated", "statusMessage": "use x"}}}
    server = parse_listed(wrapped, what="it")
    assert (server.status, server.status_message) == (Status.DEPRECATED, "use x")
    with pytest.raises(Invalid, match="status"):
        parse_listed({"server": server_json(), "_meta": {META: {"status": "gone"}}}, what="it")


def test_a_bundle_is_listed_by_its_hash() -> None:
    [only] = parsed(packages=[MCPB]).packages
    assert only.ecosystem is Ecosystem.MCPB
    assert only.sha256 is not None
    assert only.sha256.hex == "ab" * 32
