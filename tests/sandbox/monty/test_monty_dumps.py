"""A paused run goes on in another process, and only from a dump that this home has sealed."""

import asyncio
import base64
import os
import stat
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from pml.core.code.sandbox import CodeCall, Ended, Ending, Execution, Fault, Language, Program, Sleep, Turn
from pml.core.values import Json
from pml.sandbox.monty import state as monty_state
from pml.sandbox.monty.limits import MontyLimits
from pml.sandbox.monty.sandbox import MontySandbox
from pml.sandbox.monty.state import new_state
from tests.promises import promise
from tests.sandbox.monty_rig import CONDITIONS, NOW, WAIT_S, driven, listed, program, reply, sandbox_in

CODE = """\
import asyncio, os, random, time
def chance():
    return [random.random(), os.urandom(2)[0], time.time()]
print("begun")
tool = mcp["my-fs"]
first = chance()
async def one(n):
    got = await tool.read(n=n)
    print("got", n)
    return got
both = await asyncio.gather(one(1), one(2), asyncio.sleep(9))
last = await mcp.other.write(first=first, both=both)
try:
    await mcp.other.delete()
except RuntimeError as error:
    print(error)
return [first, chance(), both, last]
"""
DENIED = Fault(code="user_denied", message="no")
PAUSED = program(CODE, args={"a": [1]})


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncGenerator[MontySandbox]:
    async with sandbox_in(tmp_path) as made:
        yield made


async def paused(sandbox: MontySandbox) -> Execution:
    """Return the run with the first of its three requests answered."""
    execution = await sandbox.open(PAUSED, CONDITIONS)
    await execution.begin()
    await execution.deliver(reply(1, "b", at_ms=NOW + 500))
    return execution


async def finished(execution: Execution) -> list[Turn]:
    """Answer what is left, in an order of its own."""
    return [
        await execution.deliver(reply(2, at_ms=NOW + 1000)),
        await execution.deliver(reply(0, "a", at_ms=NOW + 2000)),
        await execution.deliver(reply(3, {"ok": 1}, at_ms=NOW + 3000)),
        await execution.deliver(reply(4, DENIED, at_ms=NOW + 4000)),
    ]


async def dumped(sandbox: MontySandbox) -> bytes:
    execution = await paused(sandbox)
    dump = await execution.dump()
    await execution.close()
    assert dump is not None
    return dump


@promise("sandbox:python-resumes")
async def test_a_dumped_run_goes_on_as_if_nothing_had_been(sandbox: MontySandbox, tmp_path: Path) -> None:
    straight = await paused(sandbox)
    expected = await finished(straight)
    dump = await dumped(sandbox)
    async with sandbox_in(tmp_path) as another:
        loaded = await another.load(PAUSED, dump)
        assert loaded is not None
        assert await loaded.begin() == Turn(
            requests=(
                Sleep(number=0, seconds=9.0),
                CodeCall(number=2, namespace="my-fs", action="read", arguments={"n": 2}),
            ),
            logs=("begun", "got 1"),
        )
        assert await finished(loaded) == expected
    done = expected[-1].ended
    assert done is not None
    assert done.how is Ending.RETURNED


SCRIPT = """\
import asyncio, base64, sys
from pathlib import Path
from tests.sandbox.monty import test_monty_dumps as here
from tests.sandbox.monty_rig import CONDITIONS, sandbox_in

async def main():
    async with sandbox_in(Path(sys.argv[1])) as sandbox:
        if sys.argv[2] == "load":
            run = await sandbox.load(here.PAUSED, base64.b64decode(sys.stdin.read()))
            turns = [await run.begin(), *await here.finished(run)]
        else:
            run = await here.paused(sandbox)
            turns = await here.finished(run)
        print(turns)

asyncio.run(main())
"""


async def in_another_process(home: Path, what: str, dump: bytes = b"") -> str:
    root = Path(__file__).parents[3]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRIPT, str(home), what),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=root,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{root}:{root / 'src'}", "PYTHONHASHSEED": "7"},
    )
    async with asyncio.timeout(WAIT_S):
        said, _ = await child.communicate(base64.b64encode(dump))
    assert child.returncode == 0
    return said.decode().strip()


async def test_another_process_loads_the_dump_and_makes_the_same_of_it(
    sandbox: MontySandbox, tmp_path: Path
) -> None:
    said = await in_another_process(tmp_path, "load", await dumped(sandbox))
    again = await sandbox.load(PAUSED, await dumped(sandbox))
    assert again is not None
    assert said == str([await again.begin(), *await finished(again)])


@promise("sandbox:python-replays")
async def test_the_same_replies_make_the_same_run_in_another_process(
    sandbox: MontySandbox, tmp_path: Path
) -> None:
    assert await in_another_process(tmp_path, "run") == str(await finished(await paused(sandbox)))


async def test_a_run_that_sleeps_is_dumped_with_the_replies_that_wait_for_it(sandbox: MontySandbox) -> None:
    code = (
        "import asyncio, time\n"
        "async def one():\n    return await mcp.a.b()\n"
        "async def two():\n    time.sleep(5)\n    return time.time()\n"
        "await asyncio.gather(one(), two())"
    )
    execution = await sandbox.open(program(code), CONDITIONS)
    await execution.begin()
    await execution.deliver(reply(0, "held"))
    dump = await execution.dump()
    assert dump is not None
    loaded = await sandbox.load(program(code), dump)
    assert loaded is not None
    assert await loaded.begin() == Turn(requests=(Sleep(number=1, seconds=5.0),))
    last = await loaded.deliver(reply(1, at_ms=NOW + 5000))
    assert last == Turn(ended=Ended(how=Ending.RETURNED, value=b'["held",1700000005.0]'))


async def test_a_loaded_run_is_dumped_again_with_nothing_lost(sandbox: MontySandbox) -> None:
    expected = await finished(await paused(sandbox))
    first = await sandbox.load(PAUSED, await dumped(sandbox))
    assert first is not None
    told = await first.begin()
    dump = await first.dump()
    assert dump is not None
    second = await sandbox.load(PAUSED, dump)
    assert second is not None
    assert await second.begin() == told
    assert await finished(second) == expected


async def test_a_module_goes_on_from_its_dump(sandbox: MontySandbox) -> None:
    code = "async def search(args, mcp):\n    got = await mcp.a.b()\n    return got + args['n'] / 0"
    one = program(code, args={"n": 1}, export="search")
    execution = await sandbox.open(one, CONDITIONS)
    await execution.begin()
    dump = await execution.dump()
    assert dump is not None
    loaded = await sandbox.load(one, dump)
    assert loaded is not None
    (_, last) = await driven(loaded, lambda _: 5)
    assert last.ended == Ended(
        how=Ending.RAISED, message="ZeroDivisionError: division by zero", line=3, column=18
    )


async def test_a_fault_from_before_the_dump_still_has_its_code_after_it(sandbox: MontySandbox) -> None:
    code = (
        "try:\n    await mcp.a.b()\nexcept RuntimeError as error:\n    kept = error\n"
        "await mcp.a.c()\nraise kept"
    )
    execution = await sandbox.open(program(code), CONDITIONS)
    await execution.begin()
    await execution.deliver(reply(0, DENIED))
    dump = await execution.dump()
    assert dump is not None
    loaded = await sandbox.load(program(code), dump)
    assert loaded is not None
    last = await loaded.deliver(reply(1))
    assert last.ended is not None
    assert (last.ended.code, last.ended.message) == (DENIED.code, DENIED.message)


@promise("sandbox:python-dumps-are-sealed")
async def test_a_dump_with_any_byte_changed_or_cut_is_not_loaded_nor_parsed(
    sandbox: MontySandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = await dumped(sandbox)

    def parsed(*_: object, **__: object) -> None:
        raise AssertionError("bytes without a seal were parsed")

    monkeypatch.setattr(msgspec.msgpack, "decode", parsed)
    for at in (*range(0, len(dump), 97), 31, 32, 33, len(dump) - 1):
        changed = bytearray(dump)
        changed[at] ^= 1
        assert await sandbox.load(PAUSED, bytes(changed)) is None
    for bad in (b"", b"x", dump[:31], dump[:32], dump[:-1], dump + b"x", dump[32:], bytes(len(dump))):
        assert await sandbox.load(PAUSED, bad) is None


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(PAUSED, code=CODE + " "),
        msgspec.structs.replace(PAUSED, args={"a": [2]}),
        msgspec.structs.replace(PAUSED, export="run"),
        msgspec.structs.replace(PAUSED, language=Language.TYPESCRIPT),
    ],
)
async def test_a_dump_of_one_program_is_not_loaded_for_another(sandbox: MontySandbox, other: Program) -> None:
    assert await sandbox.load(other, await dumped(sandbox)) is None


async def test_a_dump_of_another_interpreter_or_form_is_not_loaded(
    sandbox: MontySandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = await dumped(sandbox)
    with monkeypatch.context() as patched:
        patched.setattr(monty_state, "_FORMAT", 2)
        assert await sandbox.load(PAUSED, dump) is None
    with monkeypatch.context() as patched:
        patched.setattr("pydantic_monty.__version__", "1.4.1")
        assert await sandbox.load(PAUSED, dump) is None
    assert await sandbox.load(PAUSED, dump) is not None


async def test_a_dump_from_another_home_is_not_loaded(sandbox: MontySandbox, tmp_path: Path) -> None:
    async with sandbox_in(tmp_path / "other") as another:
        assert await another.load(PAUSED, await dumped(sandbox)) is None


async def test_a_sealed_snapshot_that_the_interpreter_refuses_is_not_loaded(tmp_path: Path) -> None:
    seal = monty_state.DumpSeal(tmp_path)
    dump = seal.seal(PAUSED, new_state(CONDITIONS, MontyLimits()), b"no snapshot")
    async with sandbox_in(tmp_path) as sandbox:
        assert await sandbox.load(PAUSED, dump) is None


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such modes")
async def test_the_key_is_made_when_first_needed_and_only_its_user_can_read_it(
    sandbox: MontySandbox, tmp_path: Path
) -> None:
    execution = await paused(sandbox)
    key = tmp_path / "keys" / "snapshots.key"
    assert "keys" not in listed(tmp_path)
    await execution.dump()
    found = os.stat(key)
    assert (stat.S_IMODE(found.st_mode), found.st_size) == (0o600, 32)
    assert stat.S_IMODE(os.stat(key.parent).st_mode) == 0o700


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such modes")
@pytest.mark.parametrize(("content", "mode"), [(b"short", 0o600), (b"x" * 32, 0o644), (b"", 0o600)])
async def test_with_a_key_that_is_short_or_open_to_others_nothing_is_dumped_or_loaded(
    sandbox: MontySandbox, tmp_path: Path, content: bytes, mode: int
) -> None:
    dump = await dumped(sandbox)
    home = tmp_path / "other"
    put_key(home, content, mode)
    async with sandbox_in(home) as another:
        assert await (await paused(another)).dump() is None
        assert await another.load(PAUSED, dump) is None


def put_key(home: Path, content: bytes, mode: int) -> None:
    key = home / "keys" / "snapshots.key"
    key.parent.mkdir(parents=True)
    key.write_bytes(content)
    key.chmod(mode)


async def test_a_run_is_not_dumped_before_it_began_nor_after_it_ended(sandbox: MontySandbox) -> None:
    execution = await sandbox.open(program("1"), CONDITIONS)
    assert await execution.dump() is None
    await execution.begin()
    assert await execution.dump() is None


async def test_a_run_that_holds_more_than_a_dump_may_have_is_not_dumped(tmp_path: Path) -> None:
    async with sandbox_in(tmp_path, MontyLimits(dump_bytes=100_000)) as sandbox:
        execution = await sandbox.open(program("x = 'x' * 200_000\nawait mcp.a.b()\nlen(x)"), CONDITIONS)
        await execution.begin()
        assert await execution.dump() is None
        value: Json = 200_000
        last = await execution.deliver(reply(0))
        assert last.ended == Ended(how=Ending.RETURNED, value=msgspec.json.encode(value))
