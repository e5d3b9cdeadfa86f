"""Python code in the sandbox: what it can do, what it gets, and how it ends."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.code.sandbox import CodeCall, Ended, Ending, Fault, Request, Sleep, Turn
from pml.core.errors import Invalid
from pml.core.values import Json
from pml.sandbox.monty.sandbox import MontySandbox
from tests.promises import promise
from tests.sandbox.monty_rig import (
    CONDITIONS,
    NOW,
    Answered,
    ended,
    logs,
    program,
    ran,
    reply,
    requests,
    sandbox_in,
    value,
)

DENIED = Fault(code="TOOL_DENIED", message="Tool fs:delete is denied by user config")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncGenerator[MontySandbox]:
    async with sandbox_in(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("1 + 1", 2),
        ("x = 1", None),
        ("", None),
        ("return {'a': (1, None, 'é', 1.5, True)}", {"a": [1, None, "é", 1.5, True]}),
        (
            "for x in [1, 2]:\n  try:\n    if x == 2:\n      return x\n  finally:\n    pass",
            2,
        ),
        ("with_args = args['n']\nwith_args * 2", 42),
        ("def f(n):\n    global seen\n    seen = n\n    return n\nf(3)\nseen", 3),
        ("async def f():\n    return 7\nf()", 7),
        ("2 ** 100", 2**100),
        ("{1: 'a'}", {"1": "a"}),
        ("f'{'nested'}'", "nested"),
        ("import json, math, re\njson.loads('[1]') + [math.floor(2.5), re.sub('a', 'b', 'a')]", [1, 2, "b"]),
    ],
)
async def test_the_last_expression_or_a_return_is_the_result(
    sandbox: MontySandbox, code: str, expected: Json
) -> None:
    assert await value(sandbox, code, args={"n": 21}) == expected


async def test_calls_take_keywords_or_one_dict_or_nothing_and_names_of_any_kind(
    sandbox: MontySandbox,
) -> None:
    turns = await ran(
        sandbox,
        'await mcp.fs.read(path="x")\nawait mcp.fs.write({"a": [1]})\nawait mcp["my-fs"]["do-it"]()\n'
        'act = mcp.fs.list\nawait act(**{"a-b": 1})\nawait getattr(mcp, "x.y").z()',
    )
    assert requests(turns) == [
        CodeCall(number=0, namespace="fs", action="read", arguments={"path": "x"}),
        CodeCall(number=1, namespace="fs", action="write", arguments={"a": [1]}),
        CodeCall(number=2, namespace="my-fs", action="do-it", arguments={}),
        CodeCall(number=3, namespace="fs", action="list", arguments={"a-b": 1}),
        CodeCall(number=4, namespace="x.y", action="z", arguments={}),
    ]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("mcp.fs.read('x')", "a tool takes keyword arguments, or one dict with them"),
        ("mcp.fs.read({}, x=1)", "a tool takes keyword arguments, or one dict with them"),
        ("mcp.fs()", "`mcp.fs` cannot be called: call `mcp.namespace.action(...)`"),
        ("mcp()", "`mcp` cannot be called: call `mcp.namespace.action(...)`"),
        ("mcp.fs.read(x=[{1}])", "the argument at ['x'][0] is of type `set`"),
        ("mcp.fs.read(x=mcp)", "the argument at ['x'] is of type `mcp`"),
        ("mcp.fs.read(x=float('nan'))", "the argument at ['x'] is nan"),
        ("mcp.fs.read({1: 2})", "the argument has a key of type `int`"),
        ("mcp.fs.read(x=lambda: 1)", "the argument at ['x'] is `<function"),
        ("mcp.fs.read(x=10**5000)", "the argument at ['x'] is an integer with thousands of digits"),
    ],
)
async def test_a_call_that_cannot_be_made_is_a_type_error_in_the_code(
    sandbox: MontySandbox, call: str, told: str
) -> None:
    code = f"try:\n    await {call}\nexcept TypeError as error:\n    caught = str(error)\ncaught"
    turns = await ran(sandbox, code)
    assert requests(turns) == []
    assert told in str(await value(sandbox, code))


async def test_an_await_that_was_forgotten_in_an_argument_is_named(sandbox: MontySandbox) -> None:
    found = await ended(sandbox, "await mcp.fs.write(text=mcp.fs.read())")
    assert "is an `await` missing?" in found.message
    assert (found.line, found.column) == (1, 7)


async def test_what_is_gathered_is_asked_for_in_one_turn_and_answered_in_any_order(
    sandbox: MontySandbox,
) -> None:
    code = (
        "import asyncio\n"
        "async def twice(n):\n"
        "    first = await mcp.a.first(n=n)\n"
        "    return [first, await mcp.a.second(n=n)]\n"
        "await asyncio.gather(asyncio.sleep(3), twice(1), twice(2))"
    )
    execution = await sandbox.open(program(code), CONDITIONS)
    assert await execution.begin() == Turn(
        requests=(
            Sleep(number=0, seconds=3.0),
            CodeCall(number=1, namespace="a", action="first", arguments={"n": 1}),
            CodeCall(number=2, namespace="a", action="first", arguments={"n": 2}),
        )
    )
    assert await execution.deliver(reply(2, "b1")) == Turn(
        requests=(CodeCall(number=3, namespace="a", action="second", arguments={"n": 2}),)
    )
    assert await execution.deliver(reply(0)) == Turn()
    assert await execution.deliver(reply(1, "a1")) == Turn(
        requests=(CodeCall(number=4, namespace="a", action="second", arguments={"n": 1}),)
    )
    assert await execution.deliver(reply(3, "b2")) == Turn()
    last = await execution.deliver(reply(4, "a2"))
    assert last == Turn(ended=Ended(how=Ending.RETURNED, value=b'[null,["a1","a2"],["b1","b2"]]'))


async def test_a_call_that_is_not_awaited_is_made_all_the_same(sandbox: MontySandbox) -> None:
    execution = await sandbox.open(program("mcp.a.b(x=1)\n5"), CONDITIONS)
    call = CodeCall(number=0, namespace="a", action="b", arguments={"x": 1})
    done = Ended(how=Ending.RETURNED, value=b"5")
    assert await execution.begin() == Turn(requests=(call,), ended=done)


async def test_a_reply_that_nobody_waits_for_moves_only_the_time(sandbox: MontySandbox) -> None:
    code = "import time\nmcp.a.b()\nawait mcp.a.c()\nreturn time.time()"
    execution = await sandbox.open(program(code), CONDITIONS)
    await execution.begin()
    assert await execution.deliver(reply(0, 1, at_ms=NOW + 1000)) == Turn()
    last = await execution.deliver(reply(1, 1, at_ms=NOW + 2500))
    assert last.ended == Ended(how=Ending.RETURNED, value=b"1700000002.5")


@promise("sandbox:python-denials-are-errors")
async def test_a_fault_is_an_error_that_the_code_can_catch_and_go_on(sandbox: MontySandbox) -> None:
    def answer(request: Request) -> Answered:
        return DENIED if isinstance(request, CodeCall) and request.action == "delete" else "fine"

    code = (
        "try:\n    await mcp.fs.delete(path='x')\nexcept Exception as error:\n    print(str(error))\n"
        "await mcp.fs.read()"
    )
    turns = await ran(sandbox, code, answer)
    assert logs(turns) == ["TOOL_DENIED: Tool fs:delete is denied by user config"]
    assert turns[-1].ended == Ended(how=Ending.RETURNED, value=b'"fine"')


async def test_a_fault_that_is_not_caught_ends_the_run_with_its_code_and_place(sandbox: MontySandbox) -> None:
    found = await ended(sandbox, "x = 1\nx = await mcp.fs.delete()", lambda _: DENIED)
    assert found == Ended(how=Ending.RAISED, message=DENIED.message, code=DENIED.code, line=2, column=5)


async def test_an_error_of_the_code_that_looks_like_a_fault_has_no_code(sandbox: MontySandbox) -> None:
    found = await ended(sandbox, "raise RuntimeError('TOOL_DENIED: made up')")
    assert found.code is None
    assert found.message == "RuntimeError: TOOL_DENIED: made up"


@pytest.mark.parametrize(
    ("code", "line", "column", "message"),
    [
        ("x = 1\n1 / 0", 2, 1, "ZeroDivisionError: division by zero"),
        ('s = """\n  a\n"""\nreturn f"""\n é {1 / 0}"""', 5, 5, "ZeroDivisionError: division by zero"),
        ("def f():\n    return {}['a']\nreturn f()", 2, 12, "KeyError: a"),
        ("return mcp['a']['b'](x=1, y=1 / 0)", 1, 29, "ZeroDivisionError: division by zero"),
        ("nope(1)", 1, 1, "NameError: name 'nope' is not defined"),
        ("x = [\n  nope]", 2, 3, "NameError: name 'nope' is not defined"),
        ("raise SystemExit('bye')", 1, 7, "SystemExit: bye"),
        ("exit()", 1, 1, "NameError: name 'exit' is not defined"),
    ],
)
async def test_an_error_is_told_with_its_place_in_the_code_as_given(
    sandbox: MontySandbox, code: str, line: int, column: int, message: str
) -> None:
    found = await ended(sandbox, code)
    assert found == Ended(how=Ending.RAISED, message=message, line=line, column=column)


@pytest.mark.parametrize(
    ("code", "line", "column", "message"),
    [
        ("x = 1\nx = (", 2, 6, "unexpected EOF while parsing"),
        ("def f(:\n  pass", 1, 7, "Expected a parameter"),
        ("class A:\n    pass\nclass B(A):\n    pass", 3, 1, "not available in this Python"),
        ("def f():\n    yield 1", 2, 5, "not available in this Python"),
        ("x = 1\ndel x", 2, 1, "not available in this Python"),
        ("async with x:\n    pass", 1, 1, "not available in this Python"),
    ],
)
async def test_what_is_no_python_here_is_told_with_line_and_column(
    sandbox: MontySandbox, code: str, line: int, column: int, message: str
) -> None:
    found = await ended(sandbox, code)
    assert (found.how, found.line, found.column) == (Ending.SYNTAX, line, column)
    assert message in found.message


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("async def search(args, mcp):\n    return [args, await mcp.a.b()]", [{"q": 1}, {"action": "b"}]),
        ("def search(args, mcp):\n    return args['q']", 1),
        ("async def run(args, mcp):\n    return 'fallback'", "fallback"),
        ("def run(args, mcp):\n    return 1\ndef search(args, mcp):\n    return mcp.a.b()", {"action": "b"}),
        ("LIMIT = 3\ndef half(n):\n    return n / 2\ndef search(args, mcp):\n    return half(LIMIT)", 1.5),
    ],
)
async def test_a_module_answers_with_the_function_that_is_meant_or_run(
    sandbox: MontySandbox, code: str, expected: Json
) -> None:
    assert await value(sandbox, code, export="search", args={"q": 1}) == expected


@pytest.mark.parametrize("export", ["search", "do-it", "class"])
async def test_a_module_without_the_function_says_so(sandbox: MontySandbox, export: str) -> None:
    found = await ended(sandbox, "def other(args, mcp):\n    return 1", export=export)
    assert found == Ended(how=Ending.MISSING, message=f"Method {export} not found in capability")


async def test_a_module_has_its_errors_at_their_place_and_no_return_outside_of_functions(
    sandbox: MontySandbox,
) -> None:
    raised = await ended(
        sandbox, "x = 1\nasync def run(args, mcp):\n    return mcp['a'].b(x=1 / 0)", export="run"
    )
    assert (raised.how, raised.line, raised.column) == (Ending.RAISED, 3, 25)
    returned = await ended(sandbox, "x = 1\nreturn x", export="run")
    assert (returned.how, returned.line, returned.column) == (Ending.SYNTAX, 2, 1)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("lambda: 1", "the result is of type `function`"),
        ("{'a': [1, print]}", "the result at ['a'][1] is of type `builtin_function_or_method`"),
        ("class A:\n    pass\n[A()]", "the result at [0] is of type `A`"),
        ("class A:\n    pass\nA", "the result is of type `type`"),
        ("{1, 2}", "the result is of type `set`"),
        ("b'x'", "the result is of type `bytes`"),
        ("mcp", "the result is of type `mcp`"),
        ("x = [1]\nx.append(x)\nx", "the result contains itself"),
        ("{'a': float('nan')}", "the result at ['a'] is not a finite number"),
        ("-float('inf')", "the result is not a finite number"),
        ("{(1, 2): 3}", "keys must be"),
        ("{1: 2, '1': 3}", "the key '1' twice"),
        ("10 ** 5000", "4300 digits"),
        ("x = []\nfor i in range(300):\n    x = [x]\nx", "nested deeper than 256 levels"),
        ("x = []\nfor i in range(100000):\n    x = [x]\nx", "nested too deeply"),
        ("async def __pml_result(value):\n    return 'no JSON'\n5", "not JSON"),
        ("async def __pml_result(value):\n    return 5\n5", "packed by something else"),
    ],
)
async def test_a_result_that_is_no_data_is_refused_and_the_place_is_named(
    sandbox: MontySandbox, code: str, told: str
) -> None:
    found = await ended(sandbox, code)
    assert found.how is Ending.VALUE
    assert told in found.message


async def test_strings_that_look_like_functions_or_cycles_are_a_fine_result(sandbox: MontySandbox) -> None:
    strings: Json = ["<function 'f' at 0xc>", "[...]", "<coroutine object f>"]
    assert await value(sandbox, f"{strings}") == strings


async def test_what_is_printed_is_told_by_lines_in_the_turn_it_was_printed(sandbox: MontySandbox) -> None:
    code = (
        "print('a', end='')\nprint('b')\nprint()\nprint('c', end='')\nawait mcp.a.b()\nprint('d\\ne', end='')"
    )
    assert [turn.logs for turn in await ran(sandbox, code)] == [("ab", ""), ("cd", "e")]


async def test_time_stands_still_in_a_turn_and_is_that_of_the_latest_reply(sandbox: MontySandbox) -> None:
    code = (
        "import time\nfrom datetime import date, datetime, timezone\n"
        "def now():\n"
        "    return [time.time(), time.monotonic(), datetime.now().isoformat(),\n"
        "            datetime.now(timezone.utc).isoformat(), date.today().isoformat()]\n"
        "first = now()\nassert first == now()\nawait mcp.a.b()\nreturn first, now()"
    )
    assert await value(sandbox, code) == [
        [NOW / 1000, NOW / 1000, "2023-11-14T22:13:20", "2023-11-14T22:13:20+00:00", "2023-11-14"],
        [NOW / 1000 + 1, NOW / 1000 + 1, "2023-11-14T22:13:21", "2023-11-14T22:13:21+00:00", "2023-11-14"],
    ]


async def test_a_sleep_is_a_request_and_its_reply_brings_the_time(sandbox: MontySandbox) -> None:
    code = (
        "import asyncio, time\ntime.sleep(2)\na = time.time()\n"
        "await asyncio.sleep(0.5)\nawait asyncio.sleep(0)\na"
    )
    turns = await ran(sandbox, code)
    assert requests(turns) == [Sleep(number=0, seconds=2.0), Sleep(number=1, seconds=0.5)]
    assert turns[-1].ended == Ended(how=Ending.RETURNED, value=b"1700000001.0")


async def test_replies_that_come_while_the_code_sleeps_wait_for_it_in_order(sandbox: MontySandbox) -> None:
    code = (
        "import asyncio, time\n"
        "async def one(n):\n    print(await mcp.a.b(n=n))\n"
        "async def two():\n    time.sleep(5)\n"
        "await asyncio.gather(one(0), one(1), two())"
    )
    execution = await sandbox.open(program(code), CONDITIONS)
    first = await execution.begin()
    assert [request.number for request in first.requests] == [0, 1, 2]
    assert await execution.deliver(reply(1, "one")) == Turn()
    assert await execution.deliver(reply(0, "zero")) == Turn()
    last = await execution.deliver(reply(2))
    assert last.logs == ("one", "zero")
    assert last.ended is not None


async def test_a_reply_to_something_that_was_never_asked_is_refused(sandbox: MontySandbox) -> None:
    execution = await sandbox.open(program("await mcp.a.b()"), CONDITIONS)
    await execution.begin()
    with pytest.raises(Invalid, match="request 7 of the code is not open"):
        await execution.deliver(reply(7))
