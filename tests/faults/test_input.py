"""Bad and huge input: refused with a clear message, or stored exactly and shown whole."""

import io
import json
import sys
from typing import Any

import pytest

from pml.core.approvals.bounds import MAX_INPUT_BYTES
from pml.core.text import visible_json
from pml.core.values import MAX_BYTES
from tests.commands import Pml
from tests.promises import promise

EXIT_USAGE = 2
EXIT_PENDING = 4
HIDDEN = "a\u202eb\u200bc\u2066d\x1b[31me\u00adf\x07"


@pytest.fixture
def pml(capsys: pytest.CaptureFixture[str]) -> Pml:
    return Pml(capsys)


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Let commands read `content` from stdin."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def nested(levels: int) -> str:
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


REFUSED = [
    pytest.param(nested(1000), "nested deeper than 256 levels", id="1,000 levels"),
    pytest.param(nested(100_000), "nested deeper than 256 levels", id="100,000 levels"),
    pytest.param('{"a": "\\ud800"}', "half of a surrogate pair (U+D800)", id="lone surrogate"),
    pytest.param('{"\\udfff": 1}', "half of a surrogate pair (U+DFFF)", id="lone surrogate in a key"),
    pytest.param('{"a": "\udcff"}', "half of a surrogate pair (U+DCFF)", id="bytes that are not UTF-8"),
    pytest.param('{"a": 1, "a": 2}', "the key 'a' twice", id="duplicate keys"),
    pytest.param('{"x": {"a": 1, "\\u0061": 2}}', "the key 'a' twice", id="duplicate keys, escaped"),
    pytest.param('{"a": NaN}', "not a JSON number", id="NaN"),
    pytest.param('{"a": 1e999}', "beyond the range", id="infinite"),
    pytest.param('{"a": 1} {"b": 2}', "not JSON: line 1, column 10", id="two values"),
    pytest.param("[1]", "must be a JSON object, not an array", id="no object"),
    pytest.param("", "not JSON", id="nothing"),
]


@promise("approval:exact-arguments")
@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_arguments_that_two_readers_could_read_differently_are_refused(
    pml: Pml, text: str, told: str
) -> None:
    ran = pml("approvals", "ask", "a:b", text)

    assert (ran.code, ran.out) == (EXIT_USAGE, "")
    message, *hints = ran.err.splitlines()
    assert told in message
    assert all(hint.startswith("  → ") for hint in hints)
    assert pml("approvals", "list", "--all", "--json").json == {"approvals": []}


@promise("approval:exact-arguments")
@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_edited_arguments_are_read_as_strictly_and_decide_nothing(pml: Pml, text: str, told: str) -> None:
    asked = pml.ask("a:b")

    ran = pml("approvals", "allow", asked, "--input", text)

    assert ran.code == EXIT_USAGE
    assert told in ran.err
    assert pml.status(asked) == "pending"


def test_input_on_stdin_that_is_not_utf_8_is_refused(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b'{"a": "\xff"}')

    ran = pml("approvals", "ask", "a:b", "-")

    assert (ran.code, ran.out) == (EXIT_USAGE, "")
    assert "not UTF-8: byte 7" in ran.err


def test_more_than_the_bound_is_refused(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b'{"a": "' + b"x" * MAX_BYTES + b'"}')

    ran = pml("approvals", "ask", "a:b", "-")

    assert (ran.code, ran.out) == (EXIT_USAGE, "")
    assert f"more than {MAX_BYTES:,}" in ran.err


STORED: list[dict[str, Any]] = [
    {"nul": "a\0b", "\0": 1},
    {"hidden": HIDDEN, HIDDEN: "key"},
    {"big": 2**70, "small": 5e-324, "whole": 1.0, "one": 1, "yes": True, "minus": -0.0},
    json.loads(nested(256)),
    {"letters": "žluťoučký 漢字 👩‍👩‍👧"},
    {"*": "[draft]", "": None},
]


@promise("approval:exact-arguments")
@pytest.mark.parametrize("arguments", STORED)
def test_odd_arguments_are_stored_exactly(pml: Pml, arguments: dict[str, Any]) -> None:
    asked = pml.ask("a:b", json.dumps(arguments))

    shown = pml("approvals", "show", asked, "--json").json["input"]

    assert json.dumps(shown, sort_keys=True) == json.dumps(arguments, sort_keys=True)


@promise("approval:exact-arguments")
def test_a_megabyte_of_arguments_is_stored_exactly(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"text": "x" * (MAX_INPUT_BYTES - len('{"text":"","end":"here"}')), "end": "here"}
    pipe(monkeypatch, json.dumps(arguments).encode())
    asked = pml("approvals", "ask", "a:b", "-", "--json")

    shown = pml("approvals", "show", asked.json["approval"]["id"], "--json")

    assert asked.code == EXIT_PENDING
    assert shown.json["input"] == arguments


@promise("show:nothing-hidden")
def test_show_prints_all_of_a_megabyte(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"text": "0123456789" * 100_000, "list": list(range(2000)), "end": "the last word"}
    pipe(monkeypatch, json.dumps(arguments).encode())
    asked = pml("approvals", "ask", "a:b", "-", "--json").json["approval"]["id"]

    ran = pml("approvals", "show", asked)

    printed = "\n".join(line[12:] for line in ran.out.splitlines())
    assert ran.code == 0
    assert visible_json(arguments) in printed


@promise("show:nothing-hidden")
def test_show_makes_hidden_characters_visible(pml: Pml) -> None:
    asked = pml.ask("a:b", json.dumps({"text": HIDDEN, HIDDEN: 1}), session=HIDDEN)

    for command in (["show", asked], ["list"]):
        ran = pml("approvals", *command)
        assert not {char for char in ran.out + ran.err if not char.isprintable() and char != "\n"}
        for escape in (r"\u202e", r"\u200b", r"\u2066", r"\u001b", r"\u00ad", r"\u0007"):
            assert escape in ran.out or command == ["list"]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["ask", "a b:c"], "tool"),
        (["ask", "a:b\x1b[31m"], "tool"),
        (["ask", ""], "tool"),
        (["ask", "a:b", "--session", "\udcff"], "half of a surrogate pair (U+DCFF)"),
        (["list", "--session", "\udcff"], "half of a surrogate pair (U+DCFF)"),
        (["show", "\udcff"], "half of a surrogate pair (U+DCFF)"),
        (["ask", "a:b", "--tool-use-id", "\udcff"], "the tool use id"),
        (["show", ""], "an empty id"),
        (["allow", ""], "an empty id"),
    ],
)
def test_names_that_cannot_be_stored_or_found_exactly_are_refused(
    pml: Pml, argv: list[str], told: str
) -> None:
    asked = pml.ask("a:b")

    ran = pml("approvals", *argv)

    assert (ran.code, ran.out) == (EXIT_USAGE, "")
    assert told in ran.err
    assert "\x1b" not in ran.err
    assert pml.status(asked) == "pending"


def test_a_message_that_cannot_be_stored_exactly_decides_nothing(pml: Pml) -> None:
    asked = pml.ask("a:b")

    ran = pml("approvals", "deny", asked, "--message", "\udcff")

    assert ran.code == EXIT_USAGE
    assert "the message" in ran.err
    assert pml.status(asked) == "pending"
