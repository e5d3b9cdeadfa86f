"""Variables of entries that are stored as secrets: filled in at the start, deciding nothing before it."""

import json

import pytest

from pml.core.config.file import FileKind, parse_config
from pml.core.errors import Invalid
from pml.core.servers.expansion import Environment
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.servers.remote_target import RemoteTarget
from pml.core.servers.spec import Target
from tests.core.judging import FakePaths
from tests.promises import promise


def target(entry: dict[str, object], **environ: str) -> Target:
    """Return what the entry means where `TOK` and `PROG` are stored."""
    file = parse_config(
        json.dumps({"mcpServers": {"x": entry}}),
        path="u.json",
        kind=FileKind.USER,
        base_dir="/w",
        paths=FakePaths(),
        environ=Environment(environ, stored=("TOK", "PROG")),
    )
    return file.servers["x"].target


@promise("secrets:decide-no-program")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "${PROG}"},
        {"command": "x", "env": {"PATH": "${PROG}"}},
        {"url": "https://${PROG}/mcp"},
        {"url": "${PROG}/mcp"},
        {"url": "https://x.test:${PROG}/mcp", "headers": {"A": "${PROG}"}},
    ],
)
def test_a_stored_value_decides_neither_the_program_nor_the_host(entry: dict[str, object]) -> None:
    found = target(entry)
    assert (found.unset, found.later) == (("PROG",), ())


def test_a_stored_value_goes_into_arguments_and_variables_at_the_start_only() -> None:
    found = target({"command": "x", "args": ["--key=${TOK}"], "env": {"A": "${TOK}", "B": "${TOK:-d}"}})
    assert isinstance(found, ProcessLaunch)
    assert (found.args, found.unset, found.later) == (("--key=${TOK}",), (), ("TOK",))
    filled = found.filled({"TOK": "v"})
    assert (filled.args, filled.env) == (("--key=v",), {"A": "v", "B": "v"})
    assert filled.digest() == found.digest()
    assert filled.secrets["TOK"] == "v"


def test_the_environment_comes_before_what_is_stored() -> None:
    found = target({"command": "x", "args": ["${TOK}"]}, TOK="mine")
    assert isinstance(found, ProcessLaunch)
    assert (found.args, found.later) == (("mine",), ())


def test_a_stored_value_goes_into_headers_and_must_be_fit_for_them() -> None:
    found = target({"url": "https://x.test/mcp?k=${TOK}", "headers": {"A": "Bearer ${TOK}"}})
    assert isinstance(found, RemoteTarget)
    assert (found.unset, found.later) == ((), ("TOK",))
    filled = found.filled({"TOK": "v"})
    assert (filled.url, filled.headers) == ("https://x.test/mcp?k=v", {"A": "Bearer v"})
    assert (filled.digest(), filled.line) == (found.digest(), found.line)
    for odd in ("a\nb", "ä"):
        with pytest.raises(Invalid):
            found.filled({"TOK": odd})
