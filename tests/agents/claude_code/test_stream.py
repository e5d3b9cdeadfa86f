"""Reading what Claude Code prints: every kind of line, in any pieces, and what is none."""

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.agents.claude_code.stream_json import MAX_LINE, MAX_USE, Counted, Ended, News, Said, StreamReader
from pml.core.sessions.agent import MessageKind


def _assistant(*blocks: dict[str, Any], identity: str = "m1", **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": identity, "content": list(blocks)}, **more}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _use(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": arguments}


RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "done",
    "num_turns": 3,
    "total_cost_usd": 0.25,
}


def _lines(*events: object) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def _read(data: bytes, *, pieces: Iterable[bytes] | None = None) -> list[News]:
    reader = StreamReader()
    news = [each for piece in (pieces or [data]) for each in reader.feed(piece)]
    return [*news, *reader.close()]


def test_a_run_is_read_as_what_was_said_and_used_with_turns_cost_and_the_last_word() -> None:
    data = _lines(
        {"type": "system", "subtype": "init"},
        _assistant(_text("I look."), _use("Bash", command="ls -l", description="look")),
        _assistant(_use("Read", file_path="/a/b"), identity="m2"),
        RESULT,
    )
    assert _read(data) == [
        Counted(turns=1, cost_usd=0.0),
        Said(kind=MessageKind.TEXT, text="I look."),
        Said(kind=MessageKind.TOOL, text="Bash: ls -l"),
        Counted(turns=2, cost_usd=0.0),
        Said(kind=MessageKind.TOOL, text="Read: /a/b"),
        Counted(turns=3, cost_usd=0.25),
        Said(kind=MessageKind.RESULT, text="done"),
        Ended(result="done", is_error=False, line=json.dumps(RESULT).encode()),
    ]


@given(cuts=st.lists(st.integers(min_value=0, max_value=600), max_size=8))
def test_it_does_not_matter_in_which_pieces_the_stream_comes(cuts: list[int]) -> None:
    data = _lines(_assistant(_text("ein Wörtchen …")), "garbage", RESULT)
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(places)]
    assert _read(data, pieces=pieces) == _read(data)


def test_a_last_line_without_its_end_counts() -> None:
    assert _read(json.dumps(RESULT).encode())[-1] == Ended(
        result="done", is_error=False, line=json.dumps(RESULT).encode()
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no json",
        b"\xff\xfe",
        b"[1, 2]",
        b'{"type": "of tomorrow"}',
        b'{"type": "assistant"}',
        b'{"type": "assistant", "message": 3}',
        b'{"type": "assistant", "message": {"content": "text"}}',
        b'{"type": "assistant", "message": {"content": [3, {"type": "text"}, {"type": "tool_use"}]}}',
        b"[" * 100_000,
        b'{"type":',
    ],
    ids=range(11),
)
def test_what_is_unknown_or_broken_is_passed_over(line: bytes) -> None:
    assert _read(line + b"\n" + _lines(_assistant(_text("on")))) == [
        Counted(turns=1, cost_usd=0.0),
        Said(kind=MessageKind.TEXT, text="on"),
    ]


def test_a_line_of_sixteen_megabytes_is_read_and_a_longer_one_passed_over() -> None:
    room = MAX_LINE - len(json.dumps(_assistant(_text(""))))
    fits, too_long = (_lines(_assistant(_text("x" * size))) for size in (room, room + 1))
    assert len(_read(fits)) == 2
    pieces = [too_long[at : at + 65_536] for at in range(0, len(too_long), 65_536)]
    assert _read(b"", pieces=[*pieces, _lines(_assistant(_text("on")))]) == [
        Counted(turns=1, cost_usd=0.0),
        Said(kind=MessageKind.TEXT, text="on"),
    ]


def test_a_tools_use_is_one_short_visible_line() -> None:
    [_, hidden] = _read(_lines(_assistant(_use("Bash", command="rm\n-rf \u202e/"))))
    assert hidden == Said(kind=MessageKind.TOOL, text=r"Bash: rm\n-rf \u{202e}/")
    [_, long] = _read(_lines(_assistant(_use("Bash", command="x" * 5000))))
    assert isinstance(long, Said)
    assert len(long.text) == MAX_USE + 1
    [_, other] = _read(_lines(_assistant(_use("mcp__plexus__call", tool="a:b"))))
    assert other == Said(kind=MessageKind.TOOL, text='mcp__plexus__call: {"tool": "a:b"}')
    [_, bare] = _read(_lines(_assistant(_use("ListAgents"))))
    assert bare == Said(kind=MessageKind.TOOL, text="ListAgents")


def test_half_of_a_surrogate_pair_does_not_reach_the_store() -> None:
    [_, said] = _read(_lines(_assistant(_text("cut \ud83d"))))
    assert said == Said(kind=MessageKind.TEXT, text="cut ?")


def test_what_a_helper_of_the_agent_says_is_no_turn_of_its_own() -> None:
    news = _read(_lines(_assistant(_text("from below"), parent_tool_use_id="toolu_1")))
    assert news == [Said(kind=MessageKind.TEXT, text="from below")]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            {"subtype": "error_max_turns", "is_error": True, "errors": ["Reached the maximum"]},
            "Reached the maximum",
        ),
        ({"subtype": "success", "is_error": True, "result": "API Error: 500"}, "API Error: 500"),
        ({"subtype": "error_during_execution"}, "error_during_execution"),
        ({}, "no result"),
    ],
)
def test_a_run_that_failed_says_why(result: dict[str, Any], text: str) -> None:
    event = {"type": "result", **result}
    assert _read(_lines(event))[1:] == [
        Said(kind=MessageKind.ERROR, text=text),
        Ended(result=text, is_error=True, line=json.dumps(event).encode()),
    ]


@pytest.mark.parametrize("cost", [-1, "7", None, True, 1e300, float("nan")])
def test_a_cost_that_makes_no_sense_is_not_counted(cost: object) -> None:
    [counted, *_] = _read(_lines({**RESULT, "total_cost_usd": cost, "num_turns": cost}))
    assert counted == Counted(turns=0, cost_usd=0.0)
