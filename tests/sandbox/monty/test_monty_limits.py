"""What Python code may use is bounded, and it ends with a word on what it used up."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pml.core.code.sandbox import Ended, Ending
from pml.core.errors import Unavailable
from pml.sandbox.monty.limits import MontyLimits
from pml.sandbox.monty.sandbox import MontySandbox
from pml.sandbox.monty.state import MontyLogs
from tests.promises import promise
from tests.sandbox.monty_rig import CONDITIONS, ended, logs, program, ran, requests, sandbox_in, value

MB = 1024 * 1024
LIMITS = MontyLimits(
    turn_s=60.0,
    memory_bytes=64 * MB,
    open_requests=20,
    requests=50,
    arguments_bytes=MB,
    result_bytes=MB,
    logs_bytes=1000,
    sleep_s=60.0,
    code_bytes=500_000,
    names=40,
    random_bytes=5000,
)
OVER_TIME = "the code runs longer than 0.5 s without waiting"
OVER_MEMORY = "the code needs more than 64 MB of memory"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncGenerator[MontySandbox]:
    async with sandbox_in(tmp_path, LIMITS) as made:
        yield made


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncGenerator[MontySandbox]:
    """A sandbox in which a turn may last half a second; on a busy machine a short one does, too."""
    async with sandbox_in(tmp_path / "hasty", replace(LIMITS, turn_s=0.5)) as made:
        yield made


@promise("sandbox:python-limits")
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("while True:\n    pass", OVER_TIME),
        (
            "try:\n    while True:\n        pass\nexcept BaseException:\n    pass\nfinally:\n    x = 1",
            OVER_TIME,
        ),
        ("while True:\n    mcp.a", OVER_TIME),
        ("import time\nwhile True:\n    time.time()", OVER_TIME),
        ("import asyncio\nwhile True:\n    await asyncio.sleep(0)", OVER_TIME),
        ("sum(range(10 ** 12))", OVER_TIME),
        ("while True:\n    print('x' * 100)", OVER_TIME),
        ("x = []\nwhile True:\n    x.append('a' * 100_000)", OVER_MEMORY),
        ("x = 'a'\nwhile True:\n    x = x + x", OVER_MEMORY),
        ("'a' * 10 ** 10", OVER_MEMORY),
        ("9 ** 9 ** 9", OVER_MEMORY),
        ("list(range(10 ** 9))", OVER_MEMORY),
        ("try:\n    'a' * 10 ** 10\nexcept ValueError:\n    pass", OVER_MEMORY),
        ("def f():\n    return f()\nf()", "the functions of the code call each other too deeply"),
        ("for i in range(100_000):\n    mcp.a.b(i=i)", "the code has more than 20 calls open"),
        ("while True:\n    await mcp.a.b()", "the code makes more than 50 calls"),
        ("await mcp.a.b(x='x' * 1_100_000)", "the calls of the code carry more than 1,048,576 bytes at once"),
        ("for i in range(9):\n    mcp.a.b(x='x' * 200_000)", "carry more than 1,048,576 bytes at once"),
        ("for i in range(100):\n    getattr(mcp, str(i))", "the code reads more than 40 names off `mcp`"),
        ("'x' * 1_100_000", "the result has 1,100,002 bytes, more than 1,048,576"),
        ("import time\ntime.sleep(61)", "the code sleeps longer than 60 s"),
        ("import asyncio\nawait asyncio.sleep(float('inf'))", "the code sleeps longer than 60 s"),
        ("x = 1\n" * 100_000, "the code has more than 500,000 bytes"),
    ],
)
async def test_what_uses_too_much_is_ended_and_says_of_what(
    sandbox: MontySandbox, hasty: MontySandbox, code: str, told: str
) -> None:
    turns = await ran(hasty if told is OVER_TIME else sandbox, code)
    done = turns[-1].ended
    assert done is not None
    assert done.how is Ending.LIMIT
    assert told in done.message
    assert turns[-1].requests == ()
    assert await value(sandbox, "'next'") == "next"


async def test_a_flood_of_calls_in_one_turn_makes_none_of_them(sandbox: MontySandbox) -> None:
    turns = await ran(sandbox, "for i in range(100_000):\n    mcp.a.b(i=i)")
    assert requests(turns) == []


async def test_a_regular_expression_that_explodes_fails_or_ends_in_time(sandbox: MontySandbox) -> None:
    found = await ended(sandbox, "import re\nre.match(r'(a*)*\\1b', 'a' * 40)")
    assert found.how in (Ending.RAISED, Ending.LIMIT)


async def test_an_error_with_a_huge_message_is_told_shortly(sandbox: MontySandbox) -> None:
    found = await ended(sandbox, "raise ValueError('x' * 10 ** 7)")
    assert found.how is Ending.RAISED
    assert found.message.startswith("ValueError: xxx")
    assert len(found.message) < 5000


@pytest.mark.parametrize(
    "code",
    ["(" * 100_000, "-" * 100_000 + "1", "1" + "+1" * 100_000, "a" + ".b" * 100_000, "not " * 50_000 + "1"],
)
async def test_code_that_is_nested_endlessly_is_a_syntax_error(sandbox: MontySandbox, code: str) -> None:
    assert (await ended(sandbox, code)).how is Ending.SYNTAX


async def test_output_beyond_the_limit_is_cut_with_a_line_that_says_so(sandbox: MontySandbox) -> None:
    turns = await ran(sandbox, "for i in range(100):\n    print('x' * 99)\nawait mcp.a.b()\nprint('more')")
    told = logs(turns)
    assert told[:-1] == ["x" * 99] * len(told[:-1])
    assert told[-1] == "… output is cut: more than 1,000 bytes were printed"
    assert sum(len(line) + 1 for line in told[:-1]) <= LIMITS.logs_bytes
    assert turns[-1].logs == ()


def test_output_is_cut_in_the_middle_of_a_line_and_among_empty_ones_too() -> None:
    long = MontyLogs(most_bytes=10)
    long.printed("abc")
    long.printed("é" * 10)
    assert long.new(is_end=True) == ["abc", "… output is cut: more than 10 bytes were printed"]
    empty = MontyLogs(most_bytes=10)
    for _ in range(11):
        empty.printed("\n")
    assert empty.new(is_end=True) == [*[""] * 10, "… output is cut: more than 10 bytes were printed"]


async def test_chance_is_bounded_and_comes_from_the_seed_alone(sandbox: MontySandbox) -> None:
    code = "import os, random\n[random.random(), random.Random().randint(0, 10 ** 9), list(os.urandom(4))]"
    first = await value(sandbox, code)
    assert await value(sandbox, code) == first
    assert first != await value(sandbox, "import os\nos.urandom(1)\n" + code)
    assert (await ended(sandbox, "import os\nos.urandom(5001)")).message == (
        "ValueError: os.urandom gives at most 5,000 bytes at once"
    )


async def test_the_time_of_each_turn_counts_anew(hasty: MontySandbox) -> None:
    code = "for i in range(8):\n    sum(range(1_500_000))\n    await mcp.a.b()\n'done'"
    done = Ended(how=Ending.RETURNED, value=msgspec.json.encode("done"))
    for _ in range(20):  # a busy machine may hold up one turn for that long
        if await ended(hasty, code) == done:
            return
    raise AssertionError("no run had time for all of its turns")


async def test_more_runs_at_once_than_may_be_are_refused_and_later_ones_are_not(tmp_path: Path) -> None:
    async with sandbox_in(tmp_path, MontyLimits(runs=2)) as sandbox:
        opened = [await sandbox.open(program("await mcp.a.b()"), CONDITIONS) for _ in range(2)]
        with pytest.raises(Unavailable, match="2 Python programs run already"):
            await sandbox.open(program("1"), CONDITIONS)
        await opened[0].close()
        assert await value(sandbox, "1") == 1
