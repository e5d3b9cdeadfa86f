"""An MCP client that only measures: one thread, blocking pipes, no loop, so that it is never what is slow.

It speaks 2025-11-25, declares nothing, ignores what it did not ask for, and checks every answer it counts.
"""

import os
import select
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

ANSWER_TIMEOUT_S = 60  # the slowest peer starts in seconds, also on a busy machine
READ_BYTES = 64 * 1024  # what a pipe holds; a larger buffer is mapped and unmapped at every read
EXIT_TIMEOUT_S = 10  # a gateway has its servers to stop; after that it is killed
INITIALIZE = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    }
)


class Text(msgspec.Struct):
    text: str


class Result(msgspec.Struct):
    content: list[Text] = []
    isError: bool = False


class Answer(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    result: Result | None = None
    error: msgspec.Raw = msgspec.Raw()


class Wrong(Exception):
    """A gateway answered something else than the server did, or nothing."""


class Caller:
    """One running server or gateway, and the requests under way to it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._in = process.stdin.fileno()
        self._out = process.stdout.fileno()
        self._ready = select.poll()
        self._ready.register(self._out, select.POLLIN | select.POLLHUP)
        self._decode = msgspec.json.Decoder(Answer).decode
        self._rest: list[bytes] = []
        self._next_id = 1

    def initialize(self) -> None:
        """Shake hands, as far as the first answer. Raises: Wrong."""
        self._send(INITIALIZE)
        self._collect(1)

    def initialized(self) -> None:
        self._send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def call(self, params: bytes, *, expected: str) -> float:
        """Make one call and return how many seconds it took. Raises: Wrong."""
        start = time.perf_counter()
        self._request(params)
        (found,) = self._collect(1)
        took = time.perf_counter() - start
        _check(found, expected)
        return took

    def flood(self, params: bytes, *, expected: str, for_s: float, in_flight: int) -> float:
        """Keep `in_flight` calls under way for so long, and return how many a second. Raises: Wrong."""
        start = time.perf_counter()
        until = start + for_s
        self._request(params, times=in_flight)
        answered, waiting = 0, in_flight
        while waiting:
            found = self._collect(1)
            waiting -= len(found)
            if time.perf_counter() < until:
                self._request(params, times=len(found))
                waiting += len(found)
            for one in found:
                _check(one, expected)
            answered += len(found)
        return answered / (time.perf_counter() - start)

    def rss_mb(self) -> float:
        """Return what the process itself holds in memory, without its children."""
        shown = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True, check=True
        )
        return int(shown.stdout) / 1024

    def _request(self, params: bytes, *, times: int = 1) -> None:
        first = self._next_id
        self._next_id += times
        self._send(
            b"\n".join(
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}' % (number, params)
                for number in range(first, first + times)
            )
        )

    def _send(self, lines: bytes) -> None:
        os.write(self._in, lines + b"\n")

    def _collect(self, least: int) -> list[Answer]:
        """Return the answers that have come, at least so many. Raises: Wrong."""
        found: list[Answer] = []
        while len(found) < least:
            if not self._ready.poll(ANSWER_TIMEOUT_S * 1000):
                raise Wrong(f"no answer within {ANSWER_TIMEOUT_S} s")
            chunk = os.read(self._out, READ_BYTES)
            if not chunk:
                raise Wrong(f"it ended with exit code {self.process.wait(EXIT_TIMEOUT_S)}")
            head, newline, tail = chunk.rpartition(b"\n")
            if not newline:
                self._rest.append(tail)
                continue
            lines = b"".join((*self._rest, head)).split(b"\n")
            self._rest = [tail]
            answers = (self._decode(line) for line in lines if line)
            found += [one for one in answers if one.method is None]
        return found


def _check(found: Answer, expected: str) -> None:
    result = found.result
    if result is None or result.isError or not result.content or result.content[-1].text != expected:
        said = bytes(found.error).decode() or str(result)
        raise Wrong(f"not what the server answered: {said[:500]}")


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Generator[Caller]:
    """Start a server or gateway; at the end close its input, and kill it if that does not end it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(env),
        cwd=cwd,
        bufsize=0,
    )
    with process:
        try:
            yield Caller(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
