"""Processes of this machine, identified by number and start, so that a reused number is not mistaken.

On Linux the start is the kernel's own count, which no change of the clock moves. psutil serves elsewhere.
"""

import os
import sys
from typing import Final

from pml.core.sessions.process import Process

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh", "fish", "csh", "tcsh"})
_LAUNCHERS: Final = frozenset(
    {
        *("env", "uv", "uvx", "pipx", "npm", "npx", "make", "nice", "timeout", "nohup", "stdbuf", "setsid"),
        *("xargs", "sudo", "doas", "direnv", "mise", "op", "tini", "dumb-init"),
    }
)
_TAKES_VALUE: Final = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
# Sessions of people run beneath these: none of them is an agent.
_HOSTS: Final = frozenset({"init", "systemd", "login", "sshd", "sshd-session", "tmux", "screen"})
# A process whose parent has ended becomes a child of one of these, or of the first of all.
_REAPERS: Final = frozenset({"init", "systemd", "launchd", "tini", "docker-init", "dumb-init", "catatonit"})


class SystemProcesses:
    def running(self, process: Process) -> bool:
        """Tell whether this very process still runs."""
        found = _look_up(process.pid)
        return found is not None and found[0] == process

    def find(self, pid: int) -> Process | None:
        """Return the running process with this number."""
        found = _look_up(pid)
        return None if found is None else found[0]

    def ancestors(self) -> list[Process]:
        """Return this process and all above it, nearest first."""
        above: list[Process] = []
        pid = os.getpid()
        while pid and (found := _look_up(pid)) is not None:
            process, pid = found
            if process in above:
                break
            above.append(process)
        return above

    def client(self) -> Process:
        """Return the nearest process above this one that is not a launcher (`sh -c`, `uv run`)."""
        above = self.ancestors()
        chosen, *higher = above[1:] or above
        for process in higher:
            if not _launches(_words(chosen.pid)) or _hosts_people(process.pid):
                break
            chosen = process
        return chosen

    def feeds(self, process: Process) -> bool:
        """Tell whether `process` holds the other end of this one's standard input.

        True where that cannot be told: of a socket, and on systems other than Linux.
        """
        return _feeds(process.pid)

    def leader(self) -> Process:
        """Return the leader of the terminal or job that this process belongs to; else its parent."""
        found = None if sys.platform == "win32" else _look_up(os.getsid(0))
        above = self.ancestors()
        return found[0] if found is not None else above[min(1, len(above) - 1)]

    def is_detached(self) -> bool:
        """Tell whether this process has no terminal and nothing above it but the system itself.

        What only launches it is passed over. Where the system is its parent and in its own session, that is
        the first process of a container, at work. False on Windows, where neither can be told.
        """
        if sys.platform == "win32" or _has_terminal():
            return False
        pid = os.getpid()
        while (found := _look_up(pid)) is not None and (parent := found[1]) != 0:
            if parent == 1 or _name(_words(parent)) in _REAPERS:
                return _session_of(pid) != _session_of(parent)
            if not _launches(_words(parent)):
                return False
            pid = parent
        return False


def identify(pid: int) -> Process:
    """Return the process of this number, told apart from a later one by when it started."""
    return SystemProcesses().find(pid) or Process(pid=pid, started=0.0)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid) if sys.platform != "win32" else None
    except OSError:
        return None


def _name(words: list[str]) -> str:
    first = words[0].split()[0] if words and words[0].split() else ""  # some write all of it into one word
    return os.path.basename(first).lower().removesuffix(".exe").rstrip(":")


def _launches(words: list[str]) -> bool:
    """Tell whether a command line only starts another: a launcher, or a shell that was given what to run."""
    name = _name(words)
    if name not in _SHELLS:
        return name in _LAUNCHERS
    rest = iter(words[1:])
    for word in rest:
        if word in _TAKES_VALUE:
            next(rest, None)
        elif not word.startswith(("-", "+")) or ("c" in word and not word.startswith("--")):
            return True
    return False


def _hosts_people(pid: int) -> bool:
    """Tell whether people's own sessions run beneath the process: it is the system's, or a terminal's."""
    return pid == 1 or _name(_words(pid)) in _HOSTS


if sys.platform == "linux":

    def _feeds(pid: int) -> bool:
        try:
            ours = os.readlink("/proc/self/fd/0")
            if ours.startswith("socket:"):
                return True
            folder = f"/proc/{pid}/fd"
            return ours.startswith("pipe:") and ours in {_link(f"{folder}/{fd}") for fd in os.listdir(folder)}
        except OSError:
            return False

    def _link(path: str) -> str:
        try:
            return os.readlink(path)
        except OSError:  # closed meanwhile
            return ""

    def _words(pid: int) -> list[str]:
        """Return the command line of the process."""
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return [os.fsdecode(word) for word in file.read().split(b"\0") if word]
        except OSError:
            return []

    def _look_up(pid: int) -> tuple[Process, int] | None:
        """Return the running process and the number of its parent, or None."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()  # a name in front may hold anything
        except OSError:
            return None
        if fields[0] in (b"Z", b"X"):
            return None
        return Process(pid=pid, started=float(fields[19])), int(fields[1])
else:

    def _feeds(pid: int) -> bool:
        return True

    def _words(pid: int) -> list[str]:
        """Return the command line of the process."""
        import psutil

        try:
            return psutil.Process(pid).cmdline()
        except psutil.Error:
            return []

    def _look_up(pid: int) -> tuple[Process, int] | None:
        """Return the running process and the number of its parent, or None."""
        import psutil

        try:
            found = psutil.Process(pid)
            if found.status() == psutil.STATUS_ZOMBIE:
                return None
            return Process(pid=pid, started=found.create_time()), found.ppid()
        except psutil.Error:
            return None
