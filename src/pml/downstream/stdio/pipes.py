"""The two ends of a client's pipe on the event loop: reading that can pause, writing that never blocks.

Standard output is claimed for the protocol alone: whatever else prints, prints on standard error. What is
read and written is not known here.
"""

import asyncio
import os
import select
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from pml.core.errors import Unavailable

READ_BYTES: Final = 64 * 1024  # what a pipe holds; a larger buffer is mapped and unmapped at every read
CONGESTED_BYTES: Final = 1024 * 1024  # unread answers beyond this: the client is not reading
RELIEVED_BYTES: Final = CONGESTED_BYTES // 4
LOOK_S: Final = 0.1  # between looks whether a client that is not read is still there; all ends within 5 s


def claim_stdout() -> int:
    """Return a private descriptor of standard output, and let descriptor 1 lead to standard error.

    Raises: Unavailable.
    """
    try:
        os.fstat(1)
    except OSError as exc:
        raise Unavailable("standard output is closed") from exc
    _fill_standard_descriptors()
    claimed = os.dup(1)
    os.dup2(2, 1)  # also for what is still in the buffer of `sys.stdout`
    sys.stdout = sys.stderr
    return claimed


def _fill_standard_descriptors() -> None:
    """Let those that are closed lead nowhere; else the next file opened would take their place."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(null, True)
    os.close(null)


@contextmanager
def open_pipes(*, stdin: int, stdout: int) -> "Generator[Pipes]":
    """Put both descriptors on the running loop. At the end they are as they were, and still open."""
    pipes = Pipes(stdin, stdout)
    try:
        yield pipes
    finally:
        pipes.outlet.close()
        pipes.inlet.close()


class Pipes:
    """A client's two pipes. While the client does not read its answers, its requests are not read.

    Its end is noticed all the same.
    """

    def __init__(self, stdin: int, stdout: int) -> None:
        self._ended: Callable[[], None] | None = None
        # The outlet first: where both are one, it is the outlet that sees to the flags, to its very end.
        self.outlet = Outlet(stdout, pressed=self._balance, broken=self._end)
        self.inlet = Inlet(stdin)

    def start(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        """Begin to read. `ended` is called once, when the client closes either of its ends."""
        self._ended = ended
        self.inlet.start(received, self._end)
        self._balance()
        if self.outlet.gone:
            self._end()

    def _balance(self) -> None:
        if self.outlet.congested:
            self.inlet.pause()
        else:
            self.inlet.resume()

    def _end(self) -> None:
        self.inlet.close()
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()


class Inlet:
    """What the client sends, in pieces as they come. A thread reads what the loop cannot watch: a file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._received: Callable[[bytes], None] | None = None
        self._ended: Callable[[], None] | None = None
        self._paused = False
        self._looking: asyncio.TimerHandle | None = None
        self._held: bytes | None = None  # what a thread read before it knew of the pause
        self._turn: threading.Event | None = None  # set when the thread may read the next piece
        self._reading = False  # the thread has its turn; it gets one at a time
        self._blocks = False  # whether the descriptor is to block again

    def start(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        """Begin to read. `ended` is called once, at the end of what there is."""
        self._received = received
        self._ended = ended
        try:
            self._loop.add_reader(self._fd, self._read)
        except (OSError, NotImplementedError):
            self._turn = threading.Event()
            threading.Thread(target=self._read_in_thread, args=(self._turn,), daemon=True).start()
            self._go_on()
        else:
            self._blocks = _stop_blocking(self._fd)

    def pause(self) -> None:
        """Leave unread what comes, as long as the client is there."""
        if self._received is not None and not self._paused:
            self._paused = True
            self._looking = self._loop.call_later(LOOK_S, self._look)
            if self._turn is None:
                self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if self._received is None or not self._paused:
            return
        self._paused = False
        self._stop_looking()
        if self._held is None:
            self._go_on()
        else:
            held, self._held = self._held, None
            self._loop.call_soon(self._take_in_turn, held)

    def close(self) -> None:
        """Read no more. The descriptor blocks again, if it did."""
        if self._received is None:
            return
        self._received = None
        self._stop_looking()
        if self._turn is not None:
            self._turn.set()
            return
        self._loop.remove_reader(self._fd)
        if self._blocks:
            os.set_blocking(self._fd, True)

    def _look(self) -> None:
        if _has_hung_up(self._fd):
            self.resume()  # all that is left fits in the pipe
        else:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _go_on(self) -> None:
        if self._turn is None:
            self._loop.add_reader(self._fd, self._read)
        elif not self._reading:
            self._reading = True
            self._turn.set()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # a reset socket, a terminal that hung up
            data = b""
        self._take(data)

    def _take(self, data: bytes) -> None:
        if self._received is None:
            return
        if data:
            self._received(data)
            return
        self.close()
        if self._ended is not None:
            self._ended()

    def _read_in_thread(self, turn: threading.Event) -> None:
        """Hand over a piece at a time, so that a slow loop is not flooded."""
        data = b"-"
        while data:
            turn.wait()
            turn.clear()
            if self._received is None:
                return
            try:
                data = os.read(self._fd, READ_BYTES)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._take_in_turn, data)
            except RuntimeError:  # the loop has ended
                return

    def _take_in_turn(self, data: bytes) -> None:
        self._reading = False
        if self._paused and data:
            self._held = data
            return
        self._take(data)
        if self._received is not None and not self._paused:
            self._go_on()


class Outlet:
    """Lines on their way to the client, in order. What one turn of the loop writes leaves in one piece."""

    def __init__(self, fd: int, *, pressed: Callable[[], None], broken: Callable[[], None]) -> None:
        """`pressed` is called when `congested` changes, `broken` when the client has closed its end."""
        self._fd = fd
        self._pressed = pressed
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._piece = memoryview(b"")
        self._waiting: list[bytes] = []
        self._size = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.congested = False  # whether the client leaves more unread than it should
        self._watching = False
        self._threaded = not _can_watch(self._loop, fd)
        self._blocks = not self._threaded and _stop_blocking(fd)
        self.gone = False

    def write(self, line: bytes, *, alone: bool = False, lasting: bool = True) -> None:
        """Take a line without its newline; never blocks. `alone`: it waits for no other to join it."""
        if self.gone:
            return
        self._waiting += (line, b"\n")
        self._size += len(line) + 1
        if self._idle.is_set():
            self._idle.clear()
            self._push() if alone else self._loop.call_soon(self._push)
        if self._size > CONGESTED_BYTES and not self.congested:
            self.congested = True
            self._pressed()

    async def flush(self, timeout_s: float) -> None:
        """Return when everything is written, the client is gone, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    def close(self) -> None:
        """Stop writing; what is not written yet is lost. The descriptor blocks again, if it did."""
        self._give_up()
        if self._blocks:
            os.set_blocking(self._fd, True)

    def _push(self) -> None:
        if self.gone:
            return
        if not self._piece:
            self._piece = memoryview(b"".join(self._waiting))
            self._waiting.clear()
        if self._threaded:
            threading.Thread(target=self._push_in_thread, args=(self._piece,), daemon=True).start()
        else:
            self._pushed(_write(self._fd, self._piece))

    def _push_in_thread(self, piece: memoryview) -> None:
        count = _write(self._fd, piece)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._pushed, count)

    def _pushed(self, count: int | None) -> None:
        if self.gone:
            return
        if count is None:
            self._give_up()
            self._broken()
            return
        self._piece = self._piece[count:]
        self._size -= count
        if not self._size:
            self._idle.set()
            self._unwatch()
        elif self._threaded:
            self._push()
        else:
            self._watch()
        if self.congested and self._size <= RELIEVED_BYTES:
            self.congested = False
            self._pressed()

    def _watch(self) -> None:
        if self._watching:
            return
        try:
            self._loop.add_writer(self._fd, self._push)
            self._watching = True
        except OSError:  # a file, which takes all at once until the disk is full
            self._loop.call_soon(self._push)

    def _unwatch(self) -> None:
        if self._watching:
            self._loop.remove_writer(self._fd)
            self._watching = False

    def _give_up(self) -> None:
        self.gone = True
        self._unwatch()
        self._waiting.clear()
        self._idle.set()
        self.congested = False


def _has_hung_up(fd: int) -> bool:
    """Tell whether nobody will write any more, though there may be something left to read.

    Never of a file, nor on Windows, where only a read that is under way tells.
    """
    if sys.platform == "win32":
        return False
    half_closed = getattr(select, "POLLRDHUP", 0)  # a socket's; on Linux alone
    poll = select.poll()
    poll.register(fd, select.POLLIN | half_closed)
    return any(event & ~select.POLLIN for _, event in poll.poll(0))


def _write(fd: int, piece: memoryview) -> int | None:
    """Return how much the descriptor took; None if it has no reader any more."""
    try:
        return os.write(fd, piece)
    except BlockingIOError:
        return 0
    except OSError:
        return None


def _can_watch(loop: asyncio.AbstractEventLoop, fd: int) -> bool:
    """Tell whether the loop offers to watch descriptors at all, as it does not on Windows."""
    try:
        loop.remove_writer(fd)
    except NotImplementedError:
        return False
    return True


def _stop_blocking(fd: int) -> bool:
    """Make the descriptor not block and tell whether it did; others may share it, so it is put back."""
    blocks = os.get_blocking(fd)
    os.set_blocking(fd, False)
    return blocks
