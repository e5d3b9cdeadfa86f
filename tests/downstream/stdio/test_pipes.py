"""Real descriptors, in this process and in others: pipes, files, terminals, and clients that do not read."""

import asyncio
import json
import os
import pty
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pml.downstream.stdio import pipes as module
from pml.downstream.stdio.pipes import CONGESTED_BYTES, RELIEVED_BYTES, Pipes, open_pipes
from tests.promises import promise

SOON_S = 60

# A server that echoes; what it prints, and what its children print, must not reach the client.
SERVER = """
import asyncio, os, subprocess, sys
print("printed before")
from pml.downstream.stdio.pipes import claim_stdout, open_pipes
from pml.downstream.stdio.stdio import PipeConnection

async def answer(exchange):
    print("printed while answering")
    os.write(1, b"written to descriptor 1\\n")
    subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
    return b'{"echo":' + str(exchange.request.id).encode() + b"}"

async def main(stdout):
    with open_pipes(stdin=0, stdout=stdout) as pipes:
        connection = PipeConnection(
            outlet=pipes.outlet, answer=answer, notice=lambda _: None, batches=lambda _: False, debug=True
        )
        pipes.start(connection.feed, connection.ended)
        await connection.run()

claimed = claim_stdout()
assert not os.get_inheritable(claimed)
assert sys.stdout is sys.stderr
asyncio.run(main(claimed))
print("printed after")
"""
REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"echo"}\n'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"echo":1}}\n'


class UnwatchingLoop(asyncio.SelectorEventLoop):
    """A loop that watches no descriptors, as on Windows."""

    def _refuse(self, *args: object) -> NoReturn:
        raise NotImplementedError

    add_reader = remove_reader = add_writer = remove_writer = _refuse  # pyright: ignore


class Client:
    """The client's ends of two pipes, and what came through them on the other side."""

    def __init__(self, pipes: Pipes, write: int, read: int) -> None:
        self.pipes = pipes
        self.outlet = pipes.outlet
        self.write_fd = write
        self.read_fd = read
        self.received = b""
        self.ends = 0
        self._changed = asyncio.Condition()
        self._noting: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self.pipes.start(self._received, self._ended)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON_S), self._changed:
            await self._changed.wait_for(condition)

    def _received(self, data: bytes) -> None:
        self.received += data
        self._note()

    def _ended(self) -> None:
        self.ends += 1
        self._note()

    def _note(self) -> None:
        async def note() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.get_running_loop().create_task(note())
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    def read(self, most: int = 1 << 20) -> bytes:
        """Return what there is to read, waiting for some."""
        ready, _, _ = select.select([self.read_fd], [], [], SOON_S)
        assert ready
        return os.read(self.read_fd, most)


@contextmanager
def connected(*, stdin: int | None = None) -> Generator[Client]:
    """Open both pipes; requests may come from another descriptor."""
    piped, write = os.pipe()
    read, stdout = os.pipe()
    try:
        with open_pipes(stdin=piped if stdin is None else stdin, stdout=stdout) as pipes:
            yield Client(pipes, write, read)
    finally:
        for fd in (piped, write, read, stdout):
            with suppress(OSError):  # the test may have closed it
                os.close(fd)


def on_any_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[bool], None]:
    """Run the test on a loop that can watch descriptors, and on one that cannot."""

    @pytest.mark.parametrize("watching", [True, False])
    def run(watching: bool) -> None:
        factory = asyncio.SelectorEventLoop if watching else UnwatchingLoop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test())

    run.__name__ = test.__name__
    return run


@on_any_loop
async def test_what_the_client_sends_arrives_and_its_end_is_told_once() -> None:
    with connected() as client:
        client.start()
        os.write(client.write_fd, b"hello ")
        await client.until(lambda: client.received == b"hello ")
        os.write(client.write_fd, b"again")
        os.close(client.write_fd)
        await client.until(lambda: client.ends == 1)
        os.close(client.read_fd)
        client.outlet.write(b"too late")
        await client.outlet.flush(SOON_S)

        assert (client.received, client.ends, client.outlet.gone) == (b"hello again", 1, True)


@on_any_loop
async def test_lines_arrive_in_order_and_whole_however_many_turns_they_take() -> None:
    with connected() as client:
        client.start()
        expected = b"".join(b"%d-%b\n" % (number, b"x" * 3000) for number in range(300))
        found = b""
        for number in range(300):
            client.outlet.write(b"%d-%b" % (number, b"x" * 3000))
            if number % 10 == 0:
                await asyncio.sleep(0)
        while len(found) < len(expected):
            found += await asyncio.to_thread(client.read, 50_000)

        assert found == expected
        await client.outlet.flush(SOON_S)
        assert select.select([client.read_fd], [], [], 0)[0] == []


@on_any_loop
async def test_a_client_that_does_not_read_is_not_read_until_it_has_caught_up() -> None:
    with connected() as client:
        client.start()
        outlet = client.outlet
        outlet.write(b"x" * CONGESTED_BYTES)
        assert outlet.congested
        os.write(client.write_fd, b"more work")
        await outlet.flush(0.05)
        assert outlet.congested
        received_while_congested = client.received

        left = CONGESTED_BYTES + 1
        while left:
            left -= len(await asyncio.to_thread(client.read, 10_000))
        await client.until(lambda: not outlet.congested)
        await client.until(lambda: client.received == b"more work")

        assert received_while_congested == b""
        assert not outlet.congested


@promise("stdio:end-noticed")
@pytest.mark.parametrize("watching", [True, False])
@pytest.mark.parametrize("left", [b"", b"left unread"])
def test_a_client_that_goes_while_its_answers_are_unread_is_noticed(
    monkeypatch: pytest.MonkeyPatch, watching: bool, left: bytes
) -> None:
    async def go_while_congested() -> None:
        with connected() as client:
            client.start()
            client.outlet.write(b"x" * CONGESTED_BYTES)
            await client.outlet.flush(0.05)
            os.write(client.write_fd, left)
            await client.outlet.flush(0.05)
            assert (client.outlet.congested, client.received, client.ends) == (True, b"", 0)
            os.close(client.write_fd)
            await client.until(lambda: client.ends == 1)

            assert (client.outlet.congested, client.received) == (True, left)

    monkeypatch.setattr(module, "LOOK_S", 0.01)
    factory = asyncio.SelectorEventLoop if watching else UnwatchingLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(go_while_congested())


def test_a_thread_that_reads_notices_the_end_also_where_nothing_else_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go_while_congested() -> None:
        with connected() as client:
            client.start()
            client.outlet.write(b"x" * CONGESTED_BYTES)
            os.close(client.write_fd)
            await client.until(lambda: client.ends == 1)

            assert client.outlet.congested

    def cannot_tell(fd: int) -> bool:
        return False

    monkeypatch.setattr(module, "_has_hung_up", cannot_tell)
    with asyncio.Runner(loop_factory=UnwatchingLoop) as runner:
        runner.run(go_while_congested())


@promise("stdio:end-noticed")
@pytest.mark.parametrize("whole", [True, False])
async def test_a_socket_that_is_closed_while_answers_are_unread_is_noticed(
    monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs, connected(stdin=ours.fileno()) as client:
        client.start()
        client.outlet.write(b"x" * CONGESTED_BYTES)
        theirs.send(b"left unread")
        theirs.close() if whole else theirs.shutdown(socket.SHUT_WR)
        await client.until(lambda: client.ends == 1)

        assert (client.outlet.congested, client.received) == (True, b"left unread")


async def test_congestion_ends_when_little_is_left_and_not_before() -> None:
    with connected() as client:
        client.start()
        client.outlet.write(b"x" * CONGESTED_BYTES)
        left = CONGESTED_BYTES + 1
        await asyncio.sleep(0)
        while client.outlet.congested:
            assert left > RELIEVED_BYTES
            left -= len(client.read(10_000))
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        assert left > 0


@on_any_loop
async def test_a_client_that_closed_its_end_ends_the_connection() -> None:
    with connected() as client:
        client.start()
        os.close(client.read_fd)
        client.outlet.write(b"x" * (2 * CONGESTED_BYTES))
        await client.until(lambda: client.ends == 1)
        client.outlet.write(b"never mind")
        async with asyncio.timeout(SOON_S):
            await client.outlet.flush(SOON_S)
        assert not client.outlet.congested
        os.close(client.write_fd)
        await asyncio.sleep(0)

        assert (client.outlet.gone, client.ends) == (True, 1)


async def test_a_client_that_closes_its_end_while_much_is_unread_ends_the_connection() -> None:
    with connected() as client:
        client.start()
        client.outlet.write(b"x" * (2 * CONGESTED_BYTES))
        await asyncio.sleep(0)
        client.read(1000)
        os.close(client.read_fd)
        await client.until(lambda: client.ends == 1)

        assert client.outlet.gone


@on_any_loop
async def test_what_happened_before_the_start_counts() -> None:
    with connected() as client:
        os.close(client.read_fd)
        client.outlet.write(b"x" * (2 * CONGESTED_BYTES))
        await client.outlet.flush(SOON_S)
        client.start()

        assert client.ends == 1

    with connected() as client:
        client.outlet.write(b"x" * (2 * CONGESTED_BYTES))
        os.write(client.write_fd, b"x")
        client.start()
        await client.outlet.flush(0.05)

        assert client.received == b""


async def test_pausing_and_resuming_while_a_thread_reads_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = iter((b"one ", b"two ", b"three", b""))
    allowed = threading.Semaphore(0)
    reading = threading.Event()

    def read_when_allowed(fd: int, most: int) -> bytes:
        reading.set()
        assert allowed.acquire(timeout=SOON_S)
        return next(pieces)

    (tmp_path / "requests").touch()
    with (tmp_path / "requests").open("rb") as file, connected(stdin=file.fileno()) as client:
        monkeypatch.setattr(module.os, "read", read_when_allowed)
        client.start()
        assert await asyncio.to_thread(reading.wait, SOON_S)
        client.pipes.inlet.pause()
        client.pipes.inlet.resume()
        allowed.release(4)
        client.pipes.inlet.pause()
        for _ in range(100):
            await asyncio.to_thread(len, b"")  # lets the reading thread go as far as it may
        received_while_paused = client.received
        client.pipes.inlet.resume()
        await client.until(lambda: client.ends == 1)

        assert (received_while_paused, client.received) == (b"", b"one two three")


async def test_flushing_to_a_client_that_does_not_read_takes_no_longer_than_told() -> None:
    with connected() as client:
        client.outlet.write(b"x" * CONGESTED_BYTES)
        async with asyncio.timeout(SOON_S):
            await client.outlet.flush(0.01)

        assert client.outlet.congested


async def test_a_wake_up_for_nothing_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    read = os.read

    def find_nothing_at_first(fd: int, most: int) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BlockingIOError
        return read(fd, most)

    with connected() as client:
        monkeypatch.setattr(module.os, "read", find_nothing_at_first)
        client.start()
        os.write(client.write_fd, b"hello")
        await client.until(lambda: client.received == b"hello")

        assert client.ends == 0


async def test_a_terminal_that_hung_up_is_an_end() -> None:
    master, slave = pty.openpty()
    ended = asyncio.Event()
    try:
        with open_pipes(stdin=master, stdout=master) as pipes:
            pipes.start(lambda _: None, ended.set)
            os.close(slave)
            async with asyncio.timeout(SOON_S):
                await ended.wait()
    finally:
        os.close(master)


async def test_what_one_turn_writes_leaves_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []
    write = os.write

    def record(fd: int, piece: memoryview) -> int:
        pieces.append(bytes(piece))
        return write(fd, piece)

    with connected() as client:
        monkeypatch.setattr(module.os, "write", record)
        for line in (b"one", b"two", b"three"):
            client.outlet.write(line)
        await client.outlet.flush(SOON_S)

        assert pieces == [b"one\ntwo\nthree\n"]


async def test_descriptors_block_again_afterwards_also_when_they_are_one_and_the_same() -> None:
    master, slave = pty.openpty()
    try:
        with open_pipes(stdin=slave, stdout=slave) as pipes:
            pipes.start(lambda _: None, lambda: None)
            assert not os.get_blocking(slave)
        assert os.get_blocking(slave)
    finally:
        os.close(master)
        os.close(slave)


async def test_a_shared_descriptor_does_not_block_while_answers_are_still_to_be_written() -> None:
    ours, theirs = socket.socketpair()
    ended = asyncio.Event()
    with ours, theirs:
        with open_pipes(stdin=ours.fileno(), stdout=ours.fileno()) as pipes:
            pipes.start(lambda _: None, ended.set)
            theirs.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(SOON_S):
                await ended.wait()
            assert not os.get_blocking(ours.fileno())
        assert os.get_blocking(ours.fileno())


@pytest.mark.parametrize("blocking", [(True, True), (False, True), (True, False)])
async def test_a_descriptor_blocks_afterwards_if_it_did_before(blocking: tuple[bool, bool]) -> None:
    read, write = os.pipe()
    try:
        for fd, blocks in zip((read, write), blocking, strict=True):
            os.set_blocking(fd, blocks)
        with open_pipes(stdin=read, stdout=write) as pipes:
            pipes.start(lambda _: None, lambda: None)
            assert (os.get_blocking(read), os.get_blocking(write)) == (False, False)
        assert (os.get_blocking(read), os.get_blocking(write)) == blocking
    finally:
        os.close(read)
        os.close(write)


async def test_a_file_is_read_a_piece_at_a_time_and_not_while_the_client_does_not_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "requests"
    path.write_bytes(b"x" * (3 * module.READ_BYTES + 5))
    with path.open("rb") as file, connected(stdin=file.fileno()) as client:
        client.start()
        client.outlet.write(b"x" * (2 * CONGESTED_BYTES))
        await client.outlet.flush(0.05)
        received_while_congested = len(client.received)
        left = 2 * CONGESTED_BYTES + 1
        while left:
            left -= len(await asyncio.to_thread(client.read))
        await client.until(lambda: client.ends == 1)

        assert received_while_congested == 0
        assert len(client.received) == 3 * module.READ_BYTES + 5


def serve(
    sent: bytes = b"",
    *,
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
    before: str = "",
    redirect: str = "",
) -> subprocess.CompletedProcess[bytes]:
    """Run the server to its end; `before` and `redirect` are a shell's."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'{before} exec "$0" -c "$1" {redirect}', sys.executable, SERVER],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath},  # without PYTHONUNBUFFERED: what is printed early waits in the buffer
    )
    with process:
        out, err = process.communicate(sent if stdin == subprocess.PIPE else None, timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@promise("stdio:stdout-clean")
def test_whatever_prints_prints_on_stderr_and_only_answers_reach_the_client() -> None:
    served = serve(REQUEST)

    assert (served.stdout, served.returncode) == (ANSWER, 0)
    assert sorted(served.stderr.decode().splitlines()) == [
        "printed after",
        "printed before",
        "printed by a child",
        "printed while answering",
        "written to descriptor 1",
    ]


@promise("stdio:stdout-clean")
def test_with_stderr_closed_what_is_printed_goes_nowhere() -> None:
    served = serve(REQUEST, redirect="2>&-")

    assert (served.stdout, served.returncode) == (ANSWER, 0)


def test_without_stdout_the_server_says_so() -> None:
    served = serve(REQUEST, redirect=">&-")

    assert served.returncode == 1
    assert b"Unavailable: standard output is closed" in served.stderr


def test_requests_can_come_from_a_file_and_answers_go_to_one(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(REQUEST.rstrip())
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        served = serve(stdin=stdin.fileno(), stdout=stdout.fileno())

    assert served.returncode == 0
    assert (tmp_path / "out").read_bytes() == ANSWER


def test_a_full_disk_ends_the_server_without_a_traceback(tmp_path: Path) -> None:
    wrong = b'{"jsonrpc":"2.0","id":"%b","method":1}\n' % (b"x" * 5000)
    with (tmp_path / "out").open("wb") as stdout:
        served = serve(wrong, stdout=stdout.fileno(), before="ulimit -f 1;")

    assert served.returncode == 0
    assert 0 < (tmp_path / "out").stat().st_size <= 1024
    assert b"Traceback" not in served.stderr


def test_an_empty_input_ends_the_server() -> None:
    served = serve(stdin=subprocess.DEVNULL)

    assert (served.stdout, served.returncode) == (b"", 0)


def test_a_client_that_closed_its_ends_leaves_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        served = serve(REQUEST, stdout=write)
    finally:
        os.close(write)

    assert served.returncode == 0
    assert b"Traceback" not in served.stderr


@promise("stdio:garbage-survived")
def test_a_server_that_was_sent_garbage_and_a_line_of_100_mb_still_answers() -> None:
    served = serve(b"garbage\n\xff\x00\n" + b"x" * 100_000_000 + b"\n" + REQUEST)
    *refusals, answer = served.stdout.splitlines(keepends=True)

    assert [json.loads(line)["error"]["code"] for line in refusals] == [-32700, -32700, -32600]
    assert (answer, served.returncode) == (ANSWER, 0)


def test_a_terminal_serves_as_well_and_blocks_again_afterwards() -> None:
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=slave, stdout=slave, stderr=subprocess.DEVNULL
        )
        os.write(master, REQUEST)
        found = b""
        while b'"result"' not in found:
            assert select.select([master], [], [], 60)[0]
            found += os.read(master, 1 << 16)
        os.write(master, b"\x04")
        assert process.wait(60) == 0
        assert os.get_blocking(slave)
    finally:
        os.close(master)
        os.close(slave)
