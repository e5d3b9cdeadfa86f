"""The inbox on a real terminal: what is shown there, and that its answer reaches whoever waits."""

import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.commands import TIMEOUT_S, spawn
from tests.promises import promise

_LOOK_S = 0.1
_BETWEEN_S = 2.0  # longer than the inbox takes a key for one that is held down
_TRIES = 20


class Tmux:
    """A terminal that can be read as a picture of text."""

    def __init__(self, folder: Path, *, columns: int, rows: int) -> None:
        self._base = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self._size = ["-x", str(columns), "-y", str(rows)]

    def start(self, *argv: str) -> None:
        """Run a command in a shell, which tells when it has the terminal again, and stays."""
        keep = [f"{name}={os.environ[name]}" for name in ("HOME", "PATH") if name in os.environ]
        shell = ["sh", "-c", '"$@"; echo "back in the shell: $?"; read -r _', "sh"]
        command = ["env", "-i", *keep, "TERM=screen", "LANG=C.UTF-8", *shell, *argv]
        self._run("new-session", "-d", "-s", "inbox", *self._size, *command)

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-t", "inbox")

    def until(self, *texts: str) -> str:
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            shown = self.screen()
            if all(text in shown for text in texts):
                return shown
            time.sleep(_LOOK_S)
        raise AssertionError(f"not shown: {texts}\n{self.screen()}")

    def press_until(self, key: str, text: str) -> str:
        """Press the key as a person does who is told that it came too soon."""
        for _ in range(_TRIES):
            self.press(key)
            until = time.monotonic() + _BETWEEN_S
            while time.monotonic() < until:
                if text in (shown := self.screen()):
                    return shown
                time.sleep(_LOOK_S)
        raise AssertionError(f"not shown: {text}\n{self.screen()}")

    def press(self, *keys: str) -> None:
        self._run("send-keys", "-t", "inbox", *keys)

    def resize(self, *, columns: int, rows: int) -> None:
        self._run("resize-window", "-t", "inbox", "-x", str(columns), "-y", str(rows))

    def end(self) -> None:
        subprocess.run([*self._base, "kill-server"], capture_output=True, timeout=TIMEOUT_S, check=False)

    def _run(self, *argv: str) -> str:
        done = subprocess.run(
            [*self._base, *argv], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        return done.stdout


@pytest.fixture(params=[(80, 24), (140, 40)], ids=["80x24", "140x40"])
def tmux(request: pytest.FixtureRequest, near: Path) -> Generator[Tmux]:
    if shutil.which("tmux") is None:
        if os.environ.get("CI"):
            pytest.fail("tmux is not installed")
        pytest.skip("tmux is not installed: it is the terminal that the inbox is shown on")
    columns, rows = request.param
    terminal = Tmux(near, columns=columns, rows=rows)
    yield terminal
    terminal.end()


def test_return_on_a_real_terminal_answers_whoever_waits_and_half_an_arrow_does_not(
    tmux: Tmux, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "shop"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    asked = ["approvals", "ask", "deploy:prod", '{"version": "1.4"}', "--wait", "--json"]
    with spawn([*asked, "--workspace", str(workspace)]) as asker:
        try:
            tmux.start(sys.executable, "-m", "pml", "inbox", "--workspace", str(workspace))
            shown = tmux.until("1 waiting", "deploy:prod", '"version": "1.4"', "Allow")
            assert "\x1b" not in shown
            tmux.press("Escape")
            tmux.press("-l", "[A")  # a process later: the link was slow
            tmux.press_until("Enter", "allowed deploy:prod")
            out, _ = asker.communicate(timeout=TIMEOUT_S)
        finally:
            asker.kill()
    assert json.loads(out)["answer"] == "allowed"
    after = tmux.press_until("q", "back in the shell: 0")
    assert "deploy:prod" not in after, "what was there before the inbox is there again"


@promise("screen:denial-held")
@pytest.mark.parametrize("tmux", [(80, 24)], indirect=True)
def test_a_denial_that_is_held_is_sent_when_the_inbox_is_left(
    tmux: Tmux, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["approvals", "ask", "deploy:prod", '{"version": "1.4"}', "--wait", "--json"]
    with spawn([*asked, "--workspace", str(tmp_path)]) as asker:
        try:
            tmux.start(sys.executable, "-m", "pml", "inbox", "--workspace", str(tmp_path))
            tmux.until("1 waiting", "deploy:prod", "Allow")
            tmux.press_until("Escape", "denied deploy:prod")
            tmux.press_until("q", "back in the shell: 0")
            out, _ = asker.communicate(timeout=TIMEOUT_S)
        finally:
            asker.kill()
    assert json.loads(out)["answer"] == "denied"


@promise("screen:denial-held")
@pytest.mark.parametrize("how", ["closed", "hangup", "terminate"])
def test_a_denial_that_is_held_is_sent_when_the_terminal_closes_or_the_inbox_is_told_to_end(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ["--workspace", str(tmp_path)]
    asked = ["approvals", "ask", "deploy:prod", '{"version": "1.4"}', "--wait", "--json"]
    with spawn([*asked, *place]) as asker, _inbox(place) as (ours, process, shown):
        try:
            shown.until(b"deploy:prod")
            shown.until(b"Allow")
            for _ in range(_TRIES):  # the first may come too soon after the request was shown
                os.write(ours, b"\x1b")
                if shown.came(b"denied deploy:prod", within_s=_BETWEEN_S):
                    break
            if how == "closed":
                with open(os.devnull, "rb") as nothing:
                    os.dup2(nothing.fileno(), ours)  # nobody holds the other end any more
            else:
                process.send_signal(signal.SIGHUP if how == "hangup" else signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 130
            out, _ = asker.communicate(timeout=TIMEOUT_S)
        finally:
            asker.kill()
    assert json.loads(out)["answer"] == "denied"


@pytest.mark.parametrize("tmux", [(80, 24)], indirect=True)
def test_a_terminal_that_was_made_wider_shows_nothing_of_the_inbox_once_it_is_left(
    tmux: Tmux, home: Path, tmp_path: Path
) -> None:
    tmux.start(sys.executable, "-m", "pml", "inbox", "--workspace", str(tmp_path))
    tmux.until("PML inbox", "Nothing waits", "─" * 80)
    tmux.resize(columns=120, rows=40)
    tmux.until("PML inbox", "Nothing waits", "─" * 120)
    assert "PML inbox" not in tmux.press_until("q", "back in the shell: 0")


class Bytes:
    """All that is written to a terminal, until one looks for something in it."""

    def __init__(self, ours: int) -> None:
        self._ours = ours
        self._rest = b""

    def until(self, sought: bytes) -> None:
        came = self.came(sought, within_s=TIMEOUT_S)
        assert came, f"never written: {sought!r}; the last was {self._rest[-500:]!r}"

    def came(self, sought: bytes, *, within_s: float) -> bool:
        end = time.monotonic() + within_s
        while sought not in self._rest:
            left_s = end - time.monotonic()
            if left_s <= 0:
                return False
            if select.select([self._ours], [], [], left_s)[0]:
                self._rest += os.read(self._ours, 65536)
        self._rest = self._rest.partition(sought)[2]
        return True


def _stopped(process: "subprocess.Popen[bytes]") -> bool:
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
        if pid:
            return os.WIFSTOPPED(status)
        time.sleep(_LOOK_S)
    return False


@contextlib.contextmanager
def _inbox(place: list[str]) -> Generator[tuple[int, "subprocess.Popen[bytes]", Bytes]]:
    """Run the inbox on a terminal of our own: where to type, the process, what it writes."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pml", "inbox", *place],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that it hears when the terminal closes
    )
    os.close(theirs)
    try:
        yield ours, process, Bytes(ours)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        os.close(ours)


@pytest.mark.parametrize("by_key", [True, False], ids=["ctrl-z", "kill"])
def test_the_shell_has_the_terminal_as_it_was_while_the_inbox_is_suspended(
    home: Path, tmp_path: Path, by_key: bool
) -> None:
    with _inbox(["--workspace", str(tmp_path)]) as (ours, process, shown):
        shown.until(b"\x1b[8l")
        shown.until(b"Nothing waits")
        if by_key:
            os.write(ours, b"\x1a")
        else:
            process.send_signal(signal.SIGTSTP)
        shown.until(b"\x1b[8h")
        assert _stopped(process)
        process.send_signal(signal.SIGCONT)
        shown.until(b"\x1b[8l")
        os.write(ours, b"q")
        shown.until(b"\x1b[8h")
        assert process.wait(TIMEOUT_S) == 0


@promise("screen:typed-order")
def test_bytes_that_come_in_one_write_are_typed_in_their_order(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ["--workspace", str(tmp_path)]
    asked = ["approvals", "ask", "deploy:prod", '{"version": "1.4"}', "--wait", "--json"]
    with spawn([*asked, *place]) as asker, _inbox(place) as (ours, _, shown):
        try:
            shown.until(b"deploy:prod")
            shown.until(b"Allow")
            os.write(ours, b"e")
            shown.until(b"Ctrl+S")
            os.write(ours, b"\x1b[C" * 5 + b"@b" + b"\x1b[D" + b"\x1b[200~pp\x1b[201~" + b"\x1b[Dq")
            for _ in range(_TRIES):  # the first may come too soon after the editor was opened
                os.write(ours, b"\x13")
                if shown.came(b"allowed deploy:prod", within_s=_BETWEEN_S):
                    break
            out, _ = asker.communicate(timeout=TIMEOUT_S)
        finally:
            asker.kill()
    assert '"@pqpbversion"' in out, out


def test_the_inbox_says_where_to_look_if_there_is_no_terminal(home: Path, tmp_path: Path) -> None:
    with spawn(["inbox", "--workspace", str(tmp_path)]) as process:
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert "the inbox needs a terminal" in err
    assert "pml approvals list" in err


def test_the_inbox_is_not_drawn_into_a_file(home: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pml", "inbox", "--workspace", str(tmp_path)],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        os.close(theirs)
        os.close(ours)
    assert (done.returncode, "the inbox needs a terminal" in done.stderr) == (2, True)
