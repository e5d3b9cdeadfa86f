"""One hub for each home, told by a lock; and who has the port that it wanted."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pml.core.errors import Conflict, Unavailable
from pml.hub.listeners import find_listener, is_hub, listen_as_hub
from pml.hub.presence import Presence, running_hub, sole_hub
from pml.web.http_server import listen
from tests.builders import NOW
from tests.promises import promise

HERE = Presence(url="http://127.0.0.1:4445", pid=os.getpid(), started_at=NOW)
HOLD = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from pml.hub.presence import Presence, sole_hub
with sole_hub(Path(sys.argv[1])) as announce:
    announce(Presence(url="http://127.0.0.1:1", pid=os.getpid(), started_at=datetime.now(UTC)))
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def another_hub(home: Path) -> Generator[subprocess.Popen[bytes]]:
    """Let another process be the hub of `home`."""
    command = [sys.executable, "-c", HOLD, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def test_a_hub_is_told_only_while_it_runs(tmp_path: Path) -> None:
    home = tmp_path / ".pml"
    assert running_hub(home) is None
    with sole_hub(home) as announce:
        assert running_hub(home) is None  # it has not said yet where it is
        announce(HERE)
        assert running_hub(home) == HERE
        assert stat.S_IMODE((home / "run" / "hub.json").stat().st_mode) == 0o600
    assert running_hub(home) is None
    assert not (home / "run" / "hub.json").exists()


@promise("hub:one-per-home")
def test_a_second_hub_on_one_home_learns_who_and_where_the_first_is(tmp_path: Path) -> None:
    with another_hub(tmp_path) as first:
        with pytest.raises(Conflict) as caught, sole_hub(tmp_path):
            pass
        assert f"process {first.pid} serves at http://127.0.0.1:1" in caught.value.message
        found = running_hub(tmp_path)
        assert found is not None
        assert found.pid == first.pid
        with sole_hub(tmp_path / "other"):
            pass


@promise("hub:one-per-home")
def test_a_killed_hub_holds_nobody_up_and_is_not_taken_for_running(tmp_path: Path) -> None:
    with another_hub(tmp_path) as first:
        first.kill()
        first.wait()
        assert (tmp_path / "run" / "hub.json").exists()
        assert running_hub(tmp_path) is None
        with sole_hub(tmp_path) as announce:
            assert not (tmp_path / "run" / "hub.json").exists()
            announce(HERE)
            assert running_hub(tmp_path) == HERE


def test_a_home_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no directory")
    with pytest.raises(Unavailable), sole_hub(tmp_path):
        pass


def test_a_taken_port_is_told_with_the_process_that_has_it() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable) as caught:
            listen_as_hub("127.0.0.1", port)
    assert caught.value.message.startswith(
        f"port {port} is taken by another program: process {os.getpid()} (`"
    )
    assert caught.value.hint is not None
    assert "--port" in caught.value.hint


def test_a_port_that_a_hub_has_is_told_so() -> None:
    with answering(b'{"status": "ok", "name": "pml"}') as port:
        assert is_hub("127.0.0.1", port)
        assert is_hub("0.0.0.0", port)
        with pytest.raises(Unavailable, match="another hub, of another PML_HOME: process"):
            listen_as_hub("127.0.0.1", port)


@pytest.mark.parametrize("body", [b"", b"hello", b"[]", b'{"name": "other"}', b" " * 10_000])
def test_whatever_else_answers_is_no_hub(body: bytes) -> None:
    with answering(body) as port:
        assert not is_hub("127.0.0.1", port)


def test_a_program_that_never_answers_is_not_waited_for() -> None:
    with listen("127.0.0.1", 0) as silent:
        assert not is_hub("127.0.0.1", silent.getsockname()[1])


def test_other_reasons_why_nobody_can_listen_stay_as_they_are() -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on `192\.0\.2\.1`"):
        listen_as_hub("192.0.2.1", 0)


def test_a_port_that_nobody_has_has_no_listener() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert find_listener(bound.getsockname()[1]) is None


@contextlib.contextmanager
def answering(body: bytes) -> Generator[int]:
    """Answer every request with `body`, on the port that is yielded."""

    class Fixed(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):  # it was not read to its end
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Fixed) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
