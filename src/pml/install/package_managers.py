"""The programs that install: where they are, and running one so that it ends, whole, within its bounds.

A program gets a process group of its own, no input, an environment that is handed in, and limits on time,
output, the size of a file and the size of what it unpacks. It ends with us, also when we are killed.
What it installs is not known here.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import Final, cast

import msgspec

from pml.core.errors import Invalid, Unavailable
from pml.core.text import quote
from pml.host.folders import absolute_only
from pml.host.processes import SystemProcesses
from pml.host.watched import watchdog, watched

DISK_BYTES: Final = 2 * 1024**3  # the largest servers in use unpack to a few hundred megabytes
DISK_ENTRIES: Final = 250_000  # files and folders; a folder of nothing but names fills a disk too
FILE_BYTES: Final = 1024**3  # one file, also between two looks at the disk
MEMORY_BYTES: Final = 4 * 1024**3  # a body without end is kept in memory; Deno maps 0.5 GiB for itself
OUTPUT_BYTES: Final = 8 * 1024**2  # the list of a closure with all its hashes is far smaller
LAST_WORDS_BYTES: Final = 64 * 1024  # of what it complains about, the end tells why
LINE_BYTES: Final = 64 * 1024  # a line that never ends is not progress
_LOOK_S: Final = 0.25  # between two looks at the disk: what fits in between is bounded by its speed
_END_S: Final = 5.0  # for the system to end what was killed
_DRAIN_S: Final = 2.0  # for the last output of a program that has ended, if another holds its pipes


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended: `code` is negative for a signal, `errors` the end of what it complained about."""

    code: int
    stdout: bytes
    errors: str

    @property
    def last_words(self) -> str:
        """The last lines it complained with, in one line."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return " / ".join(lines[-3:]) or "it said nothing"


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that a program fills, and how much may be in all of them together."""

    folders: tuple[Path, ...]
    cap_bytes: int = DISK_BYTES
    cap_entries: int = DISK_ENTRIES

    def check(self) -> None:
        """Raises: Invalid if there is more than may be."""
        size, entries = _measure(self.folders, self)
        if size > self.cap_bytes:
            raise Invalid(
                f"the package unpacks to more than {self.cap_bytes / 1024**2:,.0f} MiB",
                hint="nothing was installed",
            )
        if entries > self.cap_entries:
            raise Invalid(
                f"the package has more than {self.cap_entries:,} files", hint="nothing was installed"
            )


def find_deno() -> str:
    """Return the path of the `deno` program. Raises: Unavailable."""
    return _find("deno")


def find_uv() -> str:
    """Return the path of the `uv` program. Raises: Unavailable."""
    return _find("uv")


def find_program(name: str, *, path: str) -> str | None:
    """Return the program in the folders of `path` that are absolute: others lie where the user works."""
    found = which(name, path=absolute_only(path))
    return found if found is not None and os.path.isabs(found) else None


async def run_tool(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    told_line: Callable[[str], None] | None = None,
    disk: Disk | None = None,
) -> Output:
    """Run a program to its end; `told_line` hears each line that it writes to its standard error.

    Raises: Unavailable if it cannot be started or takes longer than `timeout_s`; Invalid if it fills the
    disk beyond `disk`. It and its group are gone then, and also when this is cancelled.
    """
    name = Path(argv[0]).name
    hearing = _Hearing(told_line)
    watchdog().start()  # before what it shall watch
    transport = await _spawn(argv, hearing, cwd=cwd, env=env)
    try:
        _limit(transport.get_pid())
        with watched(SystemProcesses().find(transport.get_pid())):
            async with asyncio.timeout(timeout_s):
                await _wait(hearing, disk)
    except TimeoutError:
        raise Unavailable(
            f"`{name}` did not finish within {timeout_s:g} s",
            hint="check the network and its proxy settings, then try again",
        ) from None
    finally:
        await _end(transport, hearing)
    return Output(code=hearing.code, stdout=bytes(hearing.output), errors=hearing.last_words())


async def _spawn(
    argv: Sequence[str], hearing: "_Hearing", *, cwd: Path, env: Mapping[str, str]
) -> asyncio.SubprocessTransport:
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: hearing,
            *argv,
            stdin=none,
            stdout=pipe,
            stderr=pipe,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as exc:
        reason = (exc.strerror or "it cannot be executed").lower()
        raise Unavailable(f"{quote(argv[0])} cannot be started: {reason}") from exc
    return transport


async def _wait(hearing: "_Hearing", disk: Disk | None) -> None:
    """Wait for the end, looking at the disk meanwhile and once more when nothing can change it."""
    has_ended = False
    while not has_ended:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if disk is None else _LOOK_S):
                await hearing.exited.wait()
        has_ended = hearing.exited.is_set()
        if disk is not None:
            await asyncio.to_thread(disk.check)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            await hearing.silent.wait()


async def _end(transport: asyncio.SubprocessTransport, hearing: "_Hearing") -> None:
    """Kill what is left of the group, wait for its end, and give its pipes back."""
    if not hearing.exited.is_set() or not hearing.silent.is_set():
        _kill_group(transport.get_pid())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await hearing.exited.wait()
    transport.close()
    await asyncio.sleep(0)  # the event loop closes the descriptors in its next turn


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):  # it is gone
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL)


def _limit(pid: int) -> None:
    """Bound each file and the memory of the process, where that can be done from outside (Linux)."""
    if sys.platform == "linux":
        import resource

        limits = {resource.RLIMIT_FSIZE: FILE_BYTES, resource.RLIMIT_DATA: MEMORY_BYTES}
        for kind, most in limits.items():
            with contextlib.suppress(OSError, ValueError):  # it has ended, or has a lower limit already
                resource.prlimit(pid, kind, (most, most))


class _Hearing(asyncio.SubprocessProtocol):
    """What a program says, within bounds: the beginning of its output, the end of its complaints."""

    def __init__(self, told_line: Callable[[str], None] | None) -> None:
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()
        self.output = bytearray()
        self.code = 0
        self._errors = bytearray()
        self._line = bytearray()
        self._told_line = told_line
        self._open = {1, 2}
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.output += data[: max(0, OUTPUT_BYTES - len(self.output))]
            return
        self._errors += data
        del self._errors[:-LAST_WORDS_BYTES]
        if self._told_line is not None:
            self._tell(data, self._told_line)

    def _tell(self, data: bytes, told_line: Callable[[str], None]) -> None:
        *whole, rest = (bytes(self._line) + data).split(b"\n")
        self._line = bytearray(rest[:LINE_BYTES])
        for line in whole:
            told_line(line.decode(errors="replace").rstrip())

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self.silent.set()

    def process_exited(self) -> None:
        code = self._transport.get_returncode() if self._transport is not None else None
        self.code = -1 if code is None else code
        self.exited.set()

    def last_words(self) -> str:
        return self._errors.decode(errors="replace")


def _measure(folders: Iterable[Path], most: Disk) -> tuple[int, int]:
    """Return bytes and entries beneath `folders`; stops counting once there is too much."""
    size = entries = 0
    linked: set[tuple[int, int]] = set()
    todo = [str(folder) for folder in folders]
    while todo and size <= most.cap_bytes and entries <= most.cap_entries:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as found:  # it comes and goes as we look
            for entry in found:
                entries += 1
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                    continue
                seen = entry.stat(follow_symlinks=False)
                if seen.st_nlink > 1:
                    if (seen.st_dev, seen.st_ino) in linked:
                        continue
                    linked.add((seen.st_dev, seen.st_ino))
                size += seen.st_size
    return size, entries


def _find(name: str) -> str:
    beside = Path(sys.executable).parent / (f"{name}.exe" if sys.platform == "win32" else name)
    found = str(beside) if beside.is_file() else _from_wheel(name)
    found = found or find_program(name, path=os.environ.get("PATH", ""))
    if found is None:
        raise Unavailable(f"the program `{name}` was not found", hint=f"install it with `pip install {name}`")
    return found


def _from_wheel(name: str) -> str | None:
    """Return where the wheel of that name says that its program is."""
    try:
        return str(getattr(import_module(name), f"find_{name}_bin")())
    except (ImportError, AttributeError, FileNotFoundError):
        return None
