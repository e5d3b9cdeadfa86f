"""Programs that install: they are found, and they end, whole, within their bounds."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pml.core.errors import Invalid, Unavailable
from pml.install import package_managers
from pml.install.package_managers import Disk, Output, find_deno, find_program, find_uv, run_tool

WAIT_S = 60.0
HOLDER = """
import os, subprocess, sys, time
hold = '''
import os, socket, sys, time
held = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
os.write(int(sys.argv[2]), b'1')
time.sleep(600)
'''
ready, tell = os.pipe()
subprocess.Popen([sys.executable, "-c", hold, sys.argv[1], str(tell)], pass_fds=[tell])
os.read(ready, 1)
"""

ENDLESS = "time.sleep(600)"
INSTALLING = """
import asyncio, sys
from pathlib import Path
from pml.install.package_managers import run_tool
hold = '''
import socket, sys, time
held = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
print("held", file=sys.stderr, flush=True)
time.sleep(600)
'''
tell = lambda line: print(line, flush=True)  # it is heard from, so it is watched
argv = [sys.executable, "-c", hold, sys.argv[1]]
asyncio.run(run_tool(argv, cwd=Path("."), env={}, timeout_s=600, told_line=tell))
"""


async def run(
    code: str, folder: Path, *args: str, timeout_s: float = WAIT_S, disk: Disk | None = None
) -> Output:
    return await run_tool(
        [sys.executable, "-c", code, *args], cwd=folder, env={}, timeout_s=timeout_s, disk=disk
    )


class Held:
    """A connection that a grandchild holds open for as long as it lives."""

    def __init__(self) -> None:
        self.port = 0
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begun.set()
        await reader.read()
        self.ended.set()
        writer.close()


@asynccontextmanager
async def held() -> AsyncGenerator[Held]:
    it = Held()
    async with await asyncio.start_server(it.hear, "127.0.0.1", 0) as server:
        it.port = server.sockets[0].getsockname()[1]
        yield it


async def test_a_program_is_heard_and_its_code_is_told(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import sys; print('out'); print('one\\ntwo', file=sys.stderr); sys.exit(3)"
    output = await run_tool(
        [sys.executable, "-c", code], cwd=tmp_path, env={}, timeout_s=WAIT_S, told_line=lines.append
    )
    assert output == Output(code=3, stdout=b"out\n", errors="one\ntwo\n")
    assert lines == ["one", "two"]
    assert output.last_words == "one / two"


async def test_a_program_gets_no_input_and_only_the_environment_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    code = "import os, sys; print([sys.stdin.read(), sorted(os.environ), os.getcwd()])"
    output = await run_tool(
        [sys.executable, "-c", code], cwd=tmp_path, env={"ONE": "1", "LC_CTYPE": "C"}, timeout_s=WAIT_S
    )
    assert output.stdout.decode().strip() == str(["", ["LC_CTYPE", "ONE"], str(tmp_path)])


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="`/no/such/program` cannot be started: no such file"):
        await run_tool(["/no/such/program"], cwd=tmp_path, env={}, timeout_s=WAIT_S)


async def test_what_a_program_says_is_kept_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_managers, "OUTPUT_BYTES", 10)
    monkeypatch.setattr(package_managers, "LAST_WORDS_BYTES", 10)
    output = await run(
        "import sys; sys.stdout.write('a' * 99999); sys.stderr.write('b' * 99999 + 'end')", tmp_path
    )
    assert output == Output(code=0, stdout=b"a" * 10, errors="b" * 7 + "end")


async def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    async with held() as it, asyncio.timeout(WAIT_S):
        with pytest.raises(Unavailable, match="did not finish within 2 s"):
            await run(HOLDER + ENDLESS, tmp_path, str(it.port), timeout_s=2)
        assert it.begun.is_set()
        await it.ended.wait()


async def test_a_cancelled_run_leaves_no_process(tmp_path: Path) -> None:
    async with held() as it, asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        running = group.create_task(run(HOLDER + ENDLESS, tmp_path, str(it.port)))
        await it.begun.wait()
        running.cancel()
        await it.ended.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_a_program_ends_with_a_pml_that_is_killed(tmp_path: Path) -> None:
    async with held() as it, asyncio.timeout(WAIT_S):
        pml = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            INSTALLING,
            str(it.port),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert pml.stdout is not None
        assert await pml.stdout.readline() == b"held\n"
        pml.kill()
        await pml.wait()
        await it.ended.wait()


async def test_a_child_that_outlives_the_program_and_holds_its_output_is_killed(tmp_path: Path) -> None:
    async with held() as it, asyncio.timeout(WAIT_S):
        assert (await run(HOLDER, tmp_path, str(it.port))).code == 0
        await it.ended.wait()


async def test_a_program_that_fills_the_disk_is_killed_while_it_runs(tmp_path: Path) -> None:
    code = """
import time
for number in range(200):
    open(f'file{number}', 'wb').write(bytes(100_000))
time.sleep(600)
"""
    disk = Disk(folders=(tmp_path,), cap_bytes=10 * 1024**2)
    with pytest.raises(Invalid, match="unpacks to more than 10 MiB"):
        await run(code, tmp_path, disk=disk)


async def test_a_program_that_makes_too_many_files_is_killed_while_it_runs(tmp_path: Path) -> None:
    code = "import os, time; [os.mkdir(str(n)) for n in range(300)]; time.sleep(600)"
    with pytest.raises(Invalid, match="has more than 200 files"):
        await run(code, tmp_path, disk=Disk(folders=(tmp_path,), cap_entries=200))


async def test_what_is_written_between_two_looks_is_seen_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(2000))
    with pytest.raises(Invalid, match="unpacks to more than"):
        await run("", tmp_path, disk=Disk(folders=(tmp_path,), cap_bytes=1000))


def test_a_file_with_two_names_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(800))
    os.link(tmp_path / "one", tmp_path / "two")
    Disk(folders=(tmp_path,), cap_bytes=1000).check()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process from outside")
async def test_no_file_grows_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_managers, "FILE_BYTES", 4096)
    code = """
import os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
while resource.getrlimit(resource.RLIMIT_FSIZE)[0] < 0: pass
os.write(os.open('file', os.O_CREAT | os.O_WRONLY), bytes(4096)); open('file', 'ab').write(b'1')
"""
    output = await run(code, tmp_path)
    assert output.code == -signal.SIGXFSZ
    assert (tmp_path / "file").stat().st_size == 4096


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process from outside")
async def test_no_program_takes_memory_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_managers, "MEMORY_BYTES", 256 * 1024**2)
    code = """
import resource
while resource.getrlimit(resource.RLIMIT_DATA)[0] < 0: pass
bytearray(512 * 1024**2)
"""
    output = await run(code, tmp_path)
    assert output.code == 1
    assert output.last_words.endswith("MemoryError")


@pytest.mark.parametrize("name", ["deno", "uv"])
def test_a_program_is_found_beside_python_then_by_its_wheel_then_on_the_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = find_deno if name == "deno" else find_uv
    beside, on_path = tmp_path / "beside", tmp_path / "path"
    for folder in (beside, on_path):
        folder.mkdir()
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(on_path))
    assert find() == str(beside / name)
    (beside / name).unlink()
    assert Path(find()).name.startswith(name)
    assert Path(find()).parent not in (beside, on_path)
    monkeypatch.setitem(sys.modules, name, None)
    assert find() == str(on_path / name)
    (on_path / name).unlink()
    with pytest.raises(Unavailable, match=f"`{name}` was not found") as caught:
        find()
    assert caught.value.hint == f"install it with `pip install {name}`"


def test_a_program_is_never_taken_from_where_the_user_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here / "bin", there):
        folder.mkdir(parents=True)
        (folder / "uv").touch(mode=0o755)
    (here / "uv").touch(mode=0o755)
    monkeypatch.chdir(here)
    for path in ("", ".", "bin", "./bin", f"{os.pathsep}bin"):
        assert find_program("uv", path=path) is None
    assert find_program("uv", path=os.pathsep.join([".", "bin", "", str(there)])) == str(there / "uv")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", os.pathsep.join([".", "bin"]))
    with pytest.raises(Unavailable, match="`uv` was not found"):
        find_uv()
