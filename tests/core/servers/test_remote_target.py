"""Entries of servers that are reached by URL: what they mean, what is refused, and what of them is shown."""

import json
from typing import Any

import msgspec
import pytest

from pml.core.config.file import FileKind, parse_config
from pml.core.config.merged import loosening
from pml.core.config.trust_facts import launch_lines
from pml.core.servers.expansion import Environment
from pml.core.servers.remote_target import OAuthSettings, RemoteKind, RemoteTarget
from pml.core.servers.spec import Unusable
from tests.core.judging import FakePaths
from tests.promises import promise

URL = "https://x.test/mcp"
ENVIRON = {"TOKEN": "s3cret-token", "HOST": "x.test", "BREAK": "a\nb"}


def parsed(entry: dict[str, Any], environ: dict[str, str] = ENVIRON) -> RemoteTarget | Unusable:
    text = json.dumps({"mcpServers": {"x": entry}})
    kind = FileKind.USER
    config = parse_config(text, path="c.json", kind=kind, base_dir="/w", paths=FakePaths(), environ=environ)
    if "x" in config.unusable:
        return config.unusable["x"]
    target = config.servers["x"].target
    assert isinstance(target, RemoteTarget)
    return target


def remote(entry: dict[str, Any], environ: dict[str, str] = ENVIRON) -> RemoteTarget:
    target = parsed(entry, environ)
    assert isinstance(target, RemoteTarget), target
    return target


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, RemoteKind.AUTO),
        ("http", RemoteKind.HTTP),
        ("streamable-http", RemoteKind.HTTP),
        ("sse", RemoteKind.SSE),
    ],
)
def test_a_url_is_a_remote_server_with_a_type_or_without(kind: str | None, expected: RemoteKind) -> None:
    entry = {"url": URL} if kind is None else {"type": kind, "url": URL}
    assert remote(entry) == RemoteTarget(url=URL, kind=expected)


def test_oauth_settings_are_read() -> None:
    given = {"client_id": "c", "callback_port": 7777, "scopes": ["a", "b"], "client_metadata_url": URL}
    assert remote({"url": URL, "oauth": given}).oauth == OAuthSettings(
        client_id="c", callback_port=7777, scopes=("a", "b"), client_metadata_url=URL
    )


@pytest.mark.parametrize(
    ("entry", "problem", "hint"),
    [
        ({"type": "http"}, "`mcpServers.x` has no `url`", None),
        ({"serverUrl": URL}, "`mcpServers.x` has no `url`", "`serverUrl`"),
        ({"httpUrl": URL}, "`mcpServers.x` has no `url`", "`httpUrl`"),
        ({"url": URL, "command": "x"}, "`mcpServers.x` has both `command` and `url`", "remove"),
        ({"url": URL, "type": "stdio"}, '`mcpServers.x.type` `"stdio"` does not have a `url`', None),
        ({"url": URL, "type": "ws"}, "`mcpServers.x.type` cannot be `ws`", "Streamable HTTP"),
        ({"url": "ws://x.test"}, "`mcpServers.x.url` must be an http or https URL", None),
        ({"url": "https://u:p@x.test"}, "`mcpServers.x.url` must not have a user or password", None),
        ({"url": "https://x.test/#a"}, "`mcpServers.x.url` must not have a fragment", None),
        (
            {"url": "http://x.test/"},
            "`mcpServers.x.url` is plain http to another machine",
            '"insecure": true',
        ),
        ({"url": "http://localhost.x.test/"}, "`mcpServers.x.url` is plain http", '"insecure": true'),
        ({"url": "https://x.test\\@y.test/"}, "`mcpServers.x.url` must be an http or https URL", None),
        ({"url": "${env:URL}"}, "`mcpServers.x.url` has `${env:…}`", None),
        ({"url": URL, "headers": {"Host": "y"}}, "`mcpServers.x.headers.Host` is a header that PML", None),
        ({"url": URL, "headers": {"A b": "y"}}, "`mcpServers.x.headers.A b` is not a name", None),
        ({"url": URL, "headers": {"A": "1", "a": "2"}}, "`mcpServers.x.headers.a` is there twice", None),
        (
            {"url": URL, "headers": {"A": "${BREAK}"}},
            "`mcpServers.x.headers.A` has a value that",
            None,
        ),
        ({"url": URL, "headers": {"A": 1}}, "`mcpServers.x.headers.A` must be a string", None),
        ({"url": URL, "insecure": "yes"}, "`mcpServers.x.insecure` must be true or false", None),
        ({"url": URL, "oauth": {"callback_port": 0}}, "`mcpServers.x.oauth.callback_port` must be", None),
        ({"url": URL, "oauth": {"scopes": ["a b"]}}, "`mcpServers.x.oauth.scopes[0]` is not a scope", None),
        (
            {"url": URL, "oauth": {"client_metadata_url": "http://x.test/c"}},
            "`mcpServers.x.oauth.client_metadata_url` must be an https URL",
            None,
        ),
    ],
)
def test_an_entry_that_cannot_be_used_says_where_and_why(
    entry: dict[str, Any], problem: str, hint: str | None
) -> None:
    found = parsed(entry)
    assert isinstance(found, Unusable)
    assert problem in found.why
    assert "c.json:1" in found.why
    assert hint is None or hint in str(found.hint)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/mcp", "http://[::1]:1/", "http://localhost:1/"])
def test_plain_http_reaches_this_machine(url: str) -> None:
    assert remote({"url": url}).url == url


def test_a_file_may_allow_plain_http() -> None:
    assert remote({"url": "http://x.test/", "insecure": True}).is_insecure


@promise("remote:values-never-shown")
def test_values_of_headers_and_of_secret_parameters_are_shown_nowhere() -> None:
    target = remote(
        {
            "url": "https://${HOST}/mcp?api_key=literal-key&team=a",
            "headers": {"Authorization": "Bearer ${TOKEN}", "X-Own": "literal-value"},
        }
    )
    told = target.facts("x")
    shown = [repr(target), target.line, repr(told), json.dumps(target.start_json("x"))]
    for text in shown:
        for secret in ("s3cret-token", "literal-key", "literal-value"):
            assert secret not in text
    assert target.line == "https://${HOST}/mcp?api_key=…&team=a"
    assert {"s3cret-token", "literal-key", "literal-value"} <= set(target.secrets.values())


@promise("remote:values-never-shown")
def test_a_refused_entry_shows_no_value_either() -> None:
    entry = {"url": "ftp://x.test/?token=s3cret", "headers": {"A": "s3cret"}}
    found = parsed(entry)
    assert isinstance(found, Unusable)
    assert "s3cret" not in f"{found.why} {found.hint}"


@promise("remote:bound-to-url")
@pytest.mark.parametrize(
    "other",
    [
        {"url": "https://y.test/mcp", "headers": {"A": "1"}},
        {"url": URL, "headers": {"A": "2"}},
        {"url": URL, "headers": {"A": "1", "B": "${TOKEN}"}},
        {"url": URL, "headers": {"A": "1"}, "insecure": True},
        {"url": URL, "headers": {"A": "1"}, "private": True},
        {"url": URL, "headers": {"A": "1"}, "oauth": {"client_id": "c"}},
        {"type": "sse", "url": URL, "headers": {"A": "1"}},
    ],
)
def test_another_address_or_header_is_another_server(other: dict[str, Any]) -> None:
    assert remote(other).digest() != remote({"url": URL, "headers": {"A": "1"}}).digest()


def test_the_value_of_a_variable_makes_no_other_server() -> None:
    entry = {"url": URL, "headers": {"A": "${TOKEN}"}}
    assert remote(entry).digest() == remote(entry, {"TOKEN": "other"}).digest()


def test_the_digest_of_an_entry_never_changes() -> None:
    expected = "sha256:539297382f8bc0f2c699c973e136d773f92a300646735855a0386ca881b57fba"
    assert remote({"type": "http", "url": URL, "headers": {"A": "1"}}).digest() == expected


def test_a_variable_that_is_not_set_is_told() -> None:
    target = remote({"url": "https://${NOPE}/", "headers": {"A": "${TOKEN}"}})
    assert (target.unset, target.variables) == (("NOPE",), ("NOPE", "TOKEN"))


@promise("remote:trust-says-elsewhere")
def test_trust_shows_that_it_runs_elsewhere_and_what_it_is_sent() -> None:
    text = json.dumps({"mcpServers": {"x": {"url": "https://${HOST}/", "headers": {"A": "Bearer ${TOKEN}"}}}})
    file = parse_config(
        text, path="w.json", kind=FileKind.WORKSPACE, base_dir="/w", paths=FakePaths(), environ=ENVIRON
    )
    found = loosening(file)
    assert found is not None

    assert launch_lines(msgspec.to_builtins(found.launches)) == [
        "x: https://${HOST}/",
        "  runs elsewhere: its code is not proven",
        "  it is now https://x.test:443",
        "  is sent the headers A",
        "  is sent HOST, TOKEN from your environment or `pml secrets`",
    ]


@promise("remote:bound-to-url")
@pytest.mark.parametrize(
    "url", ["https://${KEY}/mcp", "https://${KEY}.x.test", "${KEY}", "https://x.test${KEY}"]
)
def test_a_stored_secret_does_not_decide_where_requests_go(url: str) -> None:
    """Its value is known only when the server is reached: nobody could have been shown where that is."""
    environ = Environment(ENVIRON, stored=["KEY"])
    found = parsed({"url": url}, environ)
    assert isinstance(found, RemoteTarget)
    assert found.unset == ("KEY",)
    assert isinstance(parsed({"url": "https://x.test/${KEY}?k=${KEY}"}, environ), RemoteTarget)
