"""Code that takes too much, and a sandbox that says nonsense: both are ended, and the host is well."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from pml.core.code.sandbox import Ended, Ending, Reply, Turn
from pml.install.package_managers import find_deno
from pml.sandbox.deno.limits import Limits
from pml.sandbox.deno.sandbox import DenoSandbox
from tests.promises import promise
from tests.sandbox.deno_rig import (
    BARE,
    BOTH,
    NOON_MS,
    WAIT_S,
    deno_process,
    deno_processes,
    deno_sandbox,
    of_process,
    opened,
    program,
    run,
    until,
    until_gone,
)

SMALL = Limits(
    turn_s=WAIT_S, heap_mb=64, memory_mb=160, log_bytes=2000, result_bytes=100_000, line_bytes=200_000
)


@pytest.fixture(params=BOTH)
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[DenoSandbox]:
    async with deno_sandbox(request.param, tmp_path / "code", limits=SMALL) as made:
        yield made


@pytest.fixture(params=BOTH)
async def hasty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[DenoSandbox]:
    """A sandbox in which a turn may last a second; on a busy machine a short one does, too."""
    async with deno_sandbox(request.param, tmp_path / "code", limits=replace(SMALL, turn_s=1.0)) as made:
        yield made


@pytest.mark.parametrize(
    "code",
    [
        "for (;;);",
        "const spin = async () => { for (;;) await 0 }; await spin()",
        "/^(a+)+$/.test('a'.repeat(60) + 'b')",
        "const again = () => queueMicrotask(again); again(); await mcp.a.b()",
        "return { get a() { for (;;); } }",
        "try { for (;;); } finally { for (;;); }",
        "console.log({ [Symbol.for('Deno.customInspect')]() { for (;;); } })",
        "throw { get name() { for (;;); }, __proto__: Error.prototype }",
    ],
)
@promise("code:bounded")
async def test_code_without_end_is_ended(hasty: DenoSandbox, code: str) -> None:
    execution = await opened(hasty, program(code))
    turn = await execution.begin()
    assert turn == Turn(
        ended=Ended(how=Ending.LIMIT, message="the code ran for 1 s without waiting for anything")
    )
    await until_gone(deno_processes())


async def test_a_module_that_never_finishes_loading_is_ended(hasty: DenoSandbox) -> None:
    ran = await run(hasty, "await new Promise(() => {}); export function run() {}", export="run")
    assert ran.ended.how is Ending.LIMIT


async def test_a_module_may_wait_while_it_loads(sandbox: DenoSandbox) -> None:
    code = """
await new Promise((done) => setTimeout(done, 5));
const START = Date.now();
export const run = () => Date.now() - START;
"""
    assert (await run(sandbox, code, export="run")).value == 0


@pytest.mark.parametrize(
    "code",
    [
        "const all = []; for (;;) all.push(new Array(1000).fill(1.5))",
        "let text = 'x'; for (;;) text += text + Math.random()",
        "const all = []; for (;;) all.push(new Uint8Array(1 << 22).fill(1))",
        "const all = []; for (;;) all.push(new ArrayBuffer(1 << 26))",
        "const all = new Map(); for (let i = 0;; i++) all.set(i, { i })",
        "return 'x'.repeat(2 ** 29 - 24).split('')",
        "structuredClone(new Array(5e7).fill(1))",
    ],
)
@promise("code:bounded")
async def test_code_that_takes_all_memory_is_ended(hasty: DenoSandbox, code: str) -> None:
    ended = (await run(hasty, code)).ended
    told = "memory" in ended.message or "without waiting" in ended.message
    # An allocation that the kernel refuses is an error in the code, as in any JavaScript.
    refused = ended.how is Ending.RAISED and "RangeError" in ended.message
    assert refused or (ended.how is Ending.LIMIT and told), ended
    await until_gone(deno_processes())


async def test_array_buffers_count_as_memory(tmp_path: Path) -> None:
    code = "const all = []; for (let i = 0; i < 100; i++) all.push(new Uint8Array(1 << 24).fill(1)); return 1"
    for kind in BOTH:
        async with deno_sandbox(kind, tmp_path, limits=Limits(heap_mb=64, memory_mb=160)) as sandbox:
            assert (await run(sandbox, code)).ended.how in (Ending.LIMIT, Ending.RAISED)


@pytest.mark.parametrize("kind", BOTH)
@promise("code:bounded")
async def test_memory_that_the_kernel_lets_pass_is_watched(kind: str, tmp_path: Path) -> None:
    code = "const all = new Uint8Array(40 << 20).fill(1); for (;;) all[0]++"
    async with deno_sandbox(kind, tmp_path, limits=Limits(memory_mb=64, turn_s=WAIT_S)) as sandbox:
        ended = (await run(sandbox, code)).ended
    assert ended == Ended(how=Ending.LIMIT, message="the code used more than 64 MB of memory")


async def test_recursion_without_end_is_an_error_of_the_code(sandbox: DenoSandbox) -> None:
    ended = (await run(sandbox, "const f = (): number => f() + 1; return f()")).ended
    assert (ended.how, ended.message) == (Ending.RAISED, "RangeError: Maximum call stack size exceeded")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "for (let i = 0; i < 100_000; i++) mcp.a.b({ i })",
            "more than 1000 calls and timers are open at once",
        ),
        (
            "for (let i = 0; i < 100_000; i++) try { mcp.a.b().catch(() => {}) } catch {}",
            "more than 1000 calls",
        ),
        (
            "setInterval(() => {}, 0); for (;;) setTimeout(() => {}, 0)",
            "more than 1000 calls and timers are open",
        ),
        (
            "for (let i = 0; i < 9; i++) mcp.a.b({ text: 'x'.repeat(50_000) })",
            "the calls of one turn are larger",
        ),
        ("mcp.a.b({ text: 'x'.repeat(250_000) })", "the arguments of mcp.a.b are larger than 200000 bytes"),
        ("return 'x'.repeat(50_000_000)", "the result is larger than 100000 bytes"),
        ("return new Array(60_000).fill(1)", "the result is larger than 100000 bytes"),
        ("return '\u20ac'.repeat(40_000)", "the result is larger than 100,000 bytes"),
    ],
)
@promise("code:bounded")
async def test_a_flood_ends_the_run_and_none_of_its_calls_is_told(
    sandbox: DenoSandbox, code: str, message: str
) -> None:
    ran = await run(sandbox, code)
    assert ran.requests == []
    assert ran.ended.how is Ending.LIMIT
    assert ran.ended.message.startswith(message)


async def test_a_run_makes_only_so_many_calls_in_all(tmp_path: Path) -> None:
    async with deno_sandbox(BARE, tmp_path, limits=Limits(requests=5)) as sandbox:
        ran = await run(sandbox, "for (let i = 0; i < 9; i++) await mcp.a.b()")
        assert len(ran.requests) == 5
        assert ran.ended == Ended(how=Ending.LIMIT, message="more than 5 calls and timers in one run")


async def test_too_long_a_sleep_is_an_error_of_the_code(sandbox: DenoSandbox) -> None:
    ran = await run(sandbox, "try { setTimeout(() => {}, 1e12) } catch (e) { return `${e}` }")
    assert (ran.requests, ran.value) == ([], "RangeError: a timer lasts at most 86400 s")


async def test_a_flood_of_lines_is_cut_and_says_so(sandbox: DenoSandbox) -> None:
    code = """
for (let i = 0; i < 1e5; i++) console.log("line", i);
console.log("x".repeat(1e8));
for (let i = 0; i < 1000; i++) Promise.reject(new Error("nobody waits"));
await mcp.a.b();
return 1;
"""
    ran = await run(sandbox, code)
    assert ran.value == 1
    assert ran.logs[0] == "line 0"
    assert ran.logs[-1] == "the rest was cut: more than 2000 bytes were printed"
    assert sum(map(len, ran.logs)) < 2200


async def test_a_result_of_a_call_that_is_too_large_is_an_error_of_that_call(sandbox: DenoSandbox) -> None:
    execution = await opened(sandbox, program("return await mcp.a.b().catch((e) => [e.code, e.message])"))
    await execution.begin()
    turn = await execution.deliver(Reply(number=0, value=b'"' + b"x" * 50_000_000 + b'"', at_ms=NOON_MS))
    assert turn.ended == Ended(
        how=Ending.RETURNED, value=b'["TOO_LARGE","the result is larger than 200,000 bytes"]'
    )


async def test_code_that_is_too_large_is_not_begun(sandbox: DenoSandbox) -> None:
    ended = (await run(sandbox, "//" + "x" * 200_000)).ended
    assert ended == Ended(how=Ending.LIMIT, message="the code is larger than 200,000 bytes")


@promise("code:bounded")
async def test_the_kernel_holds_the_process_to_its_limits(sandbox: DenoSandbox) -> None:
    execution = await opened(sandbox, program("await mcp.a.b()"))
    await execution.begin()
    limits: dict[str, str] = {}
    for line in of_process(deno_process(), "limits").decode().splitlines()[1:]:
        limits[line[:26].strip()] = line[26:].split()[1]
    assert limits["Max file size"] == limits["Max core file size"] == "0"
    assert (limits["Max open files"], limits["Max cpu time"]) == ("64", "61")
    assert int(limits["Max data size"]) < 900 * 1024**2
    await execution.close()


@promise("code:bounded")
async def test_cpu_time_is_bounded_by_the_kernel(tmp_path: Path) -> None:
    async with deno_sandbox(BARE, tmp_path, limits=Limits(cpu_s=1, turn_s=WAIT_S)) as sandbox:
        ended = (await run(sandbox, "for (;;);")).ended
    assert (ended.how, ended.message[:35]) == (Ending.LIMIT, "the code used more than 1 s of CPU,")


READY = '{"ready":true}'
TURN = '{"requests":[],"logs":[]}'
CALL = '{"requests":[{"type":"call","namespace":"a","action":"b","arguments":{},"number":0}],"logs":[]}'


def fake_deno(folder: Path, *answers: str) -> Path:
    """Return a program that translates as Deno does, and runs code by giving these answers."""
    path = folder / "deno"
    told = "\n".join(f"read -r line; printf '%b' '{answer}'" for answer in answers)
    path.write_text(
        f"""#!/bin/sh
for last; do :; done
case "$last" in *stripper.js) exec {find_deno()} "$@";; esac
echo '{READY}'
{told}
while read -r line; do :; done
"""
    )
    path.chmod(0o700)
    return path


@pytest.mark.parametrize(
    "answer",
    [
        "nonsense\\n",
        "{}\\n",
        "[]\\n",
        f"{TURN}\\n{TURN}\\n",
        f"{TURN}\\nhalf a line",
        f"{CALL.replace(':0', ':1')}\\n",
        f"{CALL.replace('{}', '[]')}\\n",
        CALL.replace("{}", '{"x":"\\\\ud800"}') + "\\n",
        f"{CALL.replace('call', 'exec')}\\n",
        '{"requests":[{"type":"sleep","seconds":-1,"number":0}],"logs":[]}\\n',
        '{"requests":[{"type":"sleep","seconds":1e9,"number":0}],"logs":[]}\\n',
        '{"requests":[],"logs":[1]}\\n',
        '{"requests":[],"logs":[],"ended":{"how":"won"}}\\n',
        '{"requests":[],"logs":[],"ended":{"how":"returned","value":}}\\n',
        '{"requests":[],"logs":[],"ended":{"how":"returned","value":"\\0377"}}\\n',
        "\\0377\\n",
    ],
)
async def test_a_sandbox_that_says_nonsense_is_ended(tmp_path: Path, answer: str) -> None:
    deno = str(fake_deno(tmp_path, answer))
    sandbox = DenoSandbox(deno=lambda: deno, bwrap=lambda: None, cache=tmp_path / "code", ready=0)
    try:
        turn = await (await opened(sandbox, program("1"))).begin()
        assert (turn.requests, turn.ended is not None and turn.ended.how) == ((), Ending.BROKEN)
        await until_gone(deno_processes())
    finally:
        await sandbox.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [("x" * 30_000, "the code said more than 10,000 bytes in one turn"), ("x", "the code ran for 1 s")],
)
async def test_a_sandbox_that_floods_or_stays_silent_is_ended(
    tmp_path: Path, answer: str, message: str
) -> None:
    limits = Limits(turn_s=1, line_bytes=10_000, result_bytes=10_000)
    deno = str(fake_deno(tmp_path, answer))
    sandbox = DenoSandbox(deno=lambda: deno, bwrap=lambda: None, cache=tmp_path, limits=limits, ready=0)
    turn = await (await opened(sandbox, program("1"))).begin()
    assert turn.ended is not None
    assert turn.ended.how is Ending.LIMIT
    assert turn.ended.message.startswith(message)
    await sandbox.close()


async def test_a_sandbox_that_speaks_between_two_turns_is_ended(tmp_path: Path) -> None:
    deno = fake_deno(tmp_path, f"{CALL}\\n")
    unasked = f"while [ ! -e {tmp_path}/go ]; do :; done; echo {TURN!r}; : > {tmp_path}/gone\nwhile read"
    deno.write_text(deno.read_text().replace("while read", unasked))
    sandbox = DenoSandbox(deno=lambda: str(deno), bwrap=lambda: None, cache=tmp_path / "code", ready=0)
    execution = await opened(sandbox, program("1"))
    assert len((await execution.begin()).requests) == 1
    (tmp_path / "go").touch()
    await until((tmp_path / "gone").exists)
    await asyncio.to_thread(os.getpid)  # the loop looks at its pipes meanwhile
    turn = await execution.deliver(Reply(number=0, at_ms=NOON_MS))
    assert turn.ended == Ended(how=Ending.BROKEN, message="the sandbox spoke without being asked")
    await sandbox.close()


async def test_a_process_that_is_killed_while_code_waits_is_noticed(sandbox: DenoSandbox) -> None:
    execution = await opened(sandbox, program("await mcp.a.b()"))
    await execution.begin()
    for pid in deno_processes():
        with contextlib.suppress(ProcessLookupError):  # it ended with the one before
            os.kill(pid, signal.SIGKILL)
    turn = await execution.deliver(Reply(number=0, at_ms=NOON_MS))
    assert turn.ended is not None
    assert turn.ended.how in (Ending.LIMIT, Ending.BROKEN)
