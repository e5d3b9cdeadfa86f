"""`pml cloud` as a process: it says where it is, answers, and ends cleanly."""

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pml.cli.main import main
from tests.commands import TIMEOUT_S, Pml, spawn
from tests.promises import promise
from tests.registry.places import CODE, GREET, Reader, fill


@contextmanager
def cloud(*words: str) -> Generator[subprocess.Popen[str]]:
    with spawn(["cloud", "--port", "0", *words]) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the object that is printed when it listens."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "}\n":
        lines.append(process.stdout.readline())
        assert lines[-1], "it ended"
    return json.loads("".join(lines))


@promise("registry:second-call-silent")
async def test_a_client_uses_what_it_serves(workspace: Path, home: Path) -> None:
    fill(workspace / "registry")
    reader = Reader(home / ".pml")
    with cloud("--folder", "registry", "--json") as process:
        told = ready(process)
        assert (told["folder"], told["entries"]) == (str(workspace / "registry"), 1)
        assert await reader.find(told["url"]) == GREET
        assert await reader.code(told["url"]) == CODE
    reader.fresh()
    assert await reader.find(told["url"]) == GREET


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_cleanly(workspace: Path, number: signal.Signals) -> None:
    fill(workspace / "registry")
    with cloud("--folder", "registry", "--json") as process:
        ready(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (0, "", "")


def test_it_says_where_it_is_how_to_use_it_and_what_it_does_not_serve(workspace: Path) -> None:
    fill(workspace / "registry")
    (workspace / "registry" / "acme.tools.broken.json").write_text("{}")
    with cloud("--folder", "registry") as process:
        assert process.stdout is not None
        first, second, third = (process.stdout.readline() for _ in range(3))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    url = first.rsplit(" ", 1)[1].strip()
    assert first.startswith("serving 1 entry of ")
    assert f'"registry": "{url}"' in second
    assert "Ctrl-C" in third
    assert "not served" in err
    assert "acme.tools.broken" in err


def test_requests_are_logged_for_who_debugs(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PML_LOG", "debug")
    fill(workspace / "registry")
    with cloud("--folder", "registry", "--json") as process:
        url = ready(process)["url"]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}/mcp/{GREET}", timeout=TIMEOUT_S) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(f"{url}/mcp/..%2fsecret", timeout=TIMEOUT_S)
        caught.value.close()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert f"GET /mcp/{GREET} 200" in err
    assert "404" in err


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["--folder", "none"], 5, "no folder"),
        ([], 2, "--folder"),
        (["--folder", ".", "--port", "70000"], 2, "--port: must be a port number from 0 to 65535"),
        (["--folder", ".", "--port", "abc"], 2, "--port: must be a port number from 0 to 65535"),
        (["--folder", ".", "--port", "0", "--host", "a..b"], 1, "cannot listen on `a..b`"),
        (["--folder", ".", "--port", "0", "--host", "192.0.2.1"], 1, "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_told(pml: Pml, words: list[str], code: int, problem: str) -> None:
    ran = pml("cloud", *words)
    assert ran.code == code
    assert problem in ran.err


def test_its_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "cloud"]) == 0
    assert "pml cloud --folder" in capsys.readouterr().out
