"""`pml serve` as a process: it says where it is, lets in who has a token, and ends cleanly."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pml.app import find_place, open_context
from pml.cli.main import main
from pml.core.approvals.record import SessionId
from pml.core.sessions.agent import Order, Run
from pml.host.processes import SystemProcesses, identify
from pml.hub.presence import running_hub
from pml.service.context import Context
from pml.service.session_tree import start_session
from pml.web.http_server import listen
from tests.commands import TIMEOUT_S, Pml, spawn
from tests.promises import promise


@contextmanager
def hub(*words: str) -> Generator[subprocess.Popen[str]]:
    with spawn(["serve", "--port", "0", *words]) as process:
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


def get(url: str, token: str | None = None, *, tls: ssl.SSLContext | None = None) -> tuple[int, Any]:
    """Return status and JSON of what is at `url`."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    request = urllib.request.Request(url)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.load(exc)


LEFT = """
import os, subprocess, sys
from pathlib import Path
from pml.core.approvals.record import OwnerId
from pml.upstream.board import RunBoard
from pml.host.processes import identify

server = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True)
RunBoard(Path(sys.argv[1]), workspace="/repo", owner=OwnerId("gone")).post(
    "left", target_digest="sha256:1", state="running", process=identify(server.pid), restarts=0,
    last_error=None
)
print(server.pid, flush=True)
os._exit(0)
"""


@promise("process:ends-with-pml")
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_what_a_gateway_that_is_gone_left_running_ends_when_the_hub_starts(pml: Pml, pml_home: Path) -> None:
    pml("version")
    pml_home.mkdir(mode=0o700, exist_ok=True)
    made = subprocess.run(
        [sys.executable, "-c", LEFT, str(pml_home)], stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True
    )
    left = identify(int(made.stdout))
    try:
        with hub("--json") as process:
            ready(process)

            assert not SystemProcesses().running(left)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(left.pid, signal.SIGKILL)


@promise("hub:token-required")
def test_it_answers_whoever_has_a_token_and_a_question_outlives_it(pml: Pml, pml_home: Path) -> None:
    asked = pml.ask("github:create_issue")
    token = pml("token", "create", "--role", "person", "--json").json["token"]
    with hub("--json") as process:
        told = ready(process)
        assert (told["pid"], told["home"], told["mcp"]) == (process.pid, str(pml_home), f"{told['url']}/mcp")
        assert get(f"{told['url']}/health")[1]["name"] == "pml"
        assert get(f"{told['url']}/api/approvals")[0] == 401
        status, listed = get(f"{told['url']}/api/approvals", token)
        assert (status, [each["id"] for each in listed["approvals"]]) == (200, [asked])
        assert get(f"{told['url']}/api/servers", token) == (200, {"servers": []})
        present = running_hub(pml_home)
        assert present is not None
        assert (present.url, present.pid) == (told["url"], process.pid)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert running_hub(pml_home) is None
    assert pml.status(asked) == "pending"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_cleanly(workspace: Path, number: signal.Signals) -> None:
    with hub("--json") as process:
        ready(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (0, "", "")


async def _launched(context: Context, name: str) -> None:
    """Write down an agent that another terminal runs: this process."""
    now = context.clock.now()
    await start_session(
        context,
        session_id=SessionId(name),
        name=name,
        principal=f"session:{name}",
        workspace="/",
        process=None,
        is_agent=True,
    )
    order = Order(prompt="go", cwd="/")
    await context.store.runs.add(
        Run(session_id=SessionId(name), order=order, owner=context.owners.me, started_at=now)
    )


def test_when_it_stops_it_tells_which_agents_of_other_terminals_are_left(workspace: Path) -> None:
    async def stop(process: subprocess.Popen[str]) -> str:
        async with open_context(find_place()) as context:
            await _launched(context, "tidy")
            process.send_signal(signal.SIGTERM)
            return (await asyncio.to_thread(process.communicate, timeout=TIMEOUT_S))[1]

    with hub("--json") as process:
        ready(process)
        err = asyncio.run(stop(process))
    assert err == (
        "pml: stopped; 1 agent (tidy) still runs and can use no tool until a hub runs on this port again\n"
    )


def test_an_agent_that_was_launched_before_it_may_have_its_own_hub_and_is_not_named(workspace: Path) -> None:
    async def serve_and_stop() -> str:
        async with open_context(find_place()) as context:
            await _launched(context, "tidy")
            with hub("--json") as process:
                await asyncio.to_thread(ready, process)
                process.send_signal(signal.SIGTERM)
                return (await asyncio.to_thread(process.communicate, timeout=TIMEOUT_S))[1]

    assert asyncio.run(serve_and_stop()) == ""


def test_a_broken_file_is_told_in_one_line(workspace: Path) -> None:
    (workspace / ".pml.json").write_text("{")
    with hub("--json") as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT_S)
    (line,) = err.splitlines()
    assert line.startswith("warning: ")
    assert ".pml.json" in line


def test_people_are_told_where_it_is_and_what_to_do_next(workspace: Path) -> None:
    with hub() as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
    assert " serves at http://127.0.0.1:" in lines[0]
    assert re.fullmatch(r"  inbox   http://127\.0\.0\.1:[0-9]+/#login=pml_\S+\n", lines[1])
    assert "once" in lines[2]
    assert "pml inbox --link" in lines[2]
    assert "pml launch" in lines[3]
    assert "pml inbox " in lines[4]
    assert "Ctrl-C" in lines[5]


@promise("agent:marked")
@pytest.mark.usefixtures("workspace")
def test_where_no_person_is_known_to_be_it_serves_and_prints_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    with hub("--json") as process:
        assert ready(process)["login_url"] is None
    with hub() as process:
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(5))
    assert "#login=" not in said
    assert "pml inbox --link" in said


@promise("hub:one-per-home")
def test_a_second_hub_on_one_home_says_who_serves_where(pml: Pml) -> None:
    with hub("--json") as first:
        told = ready(first)
        second = pml("serve", "--port", "0")
        assert second.code == 1
        assert f"process {first.pid} serves at {told['url']}" in second.err
        first.kill()
        first.wait(TIMEOUT_S)
        with hub("--json") as third:
            assert ready(third)["pid"] == third.pid


def test_a_taken_port_is_told_with_who_has_it(
    pml: Pml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub("--json") as first:
        port = ready(first)["url"].rpartition(":")[2]
        monkeypatch.setenv("PML_HOME", str(tmp_path / "other-home"))
        ran = pml("serve", "--port", port)
    assert ran.code == 1
    assert f"port {port} is taken by another hub, of another PML_HOME: process {first.pid} (`" in ran.err
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        ran = pml("serve", "--port", port)
    assert (ran.code, f"port {port} is taken by another program: process" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["--host", "0.0.0.0"], 2, "tokens would travel unencrypted"),
        (["--host", "192.0.2.1"], 2, "tokens would travel unencrypted"),
        (["--host", "192.0.2.1", "--insecure"], 1, "cannot listen"),
        (["--host", "::"], 2, "tokens would travel unencrypted"),
        (["--tls-cert", "a.pem"], 2, "go together"),
        (["--tls-cert", "a.pem", "--tls-key", "b.pem"], 1, "cannot use the certificate `a.pem`: No such"),
        (["--tls-cert", "a.pem", "--tls-key", "b.pem", "--insecure"], 2, "without a certificate"),
        (["--port", "70000"], 2, "--port: must be a port number"),
        (["--allow-host", "http://a"], 2, "is not a name of a host"),
        (["--host", "a..b", "--insecure"], 1, "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_told(pml: Pml, words: list[str], code: int, problem: str) -> None:
    port = [] if "--port" in words else ["--port", "0"]
    ran = pml("serve", *port, *words)
    assert ran.code == code
    assert problem in ran.err


def test_it_serves_https_with_a_certificate(pml: Pml, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no `openssl` here to make a certificate with")
    key, certificate = tmp_path / "hub.key", tmp_path / "hub.pem"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *made, *more], check=True, capture_output=True, timeout=TIMEOUT_S)
    for files, problem in (
        ((key, key), f"cannot use the certificate `{key}`"),
        ((certificate, tmp_path / "none"), f"cannot use the key `{tmp_path / 'none'}`: No such"),
        ((certificate, certificate), f"cannot use the key `{certificate}`"),
    ):
        refused = pml("serve", "--port", "0", "--tls-cert", str(files[0]), "--tls-key", str(files[1]))
        assert (refused.code, refused.out, problem in refused.err) == (1, "", True), refused.err
    token = pml("token", "create", "--role", "person", "--json").json["token"]
    with hub("--json", "--tls-cert", str(certificate), "--tls-key", str(key)) as process:
        url = ready(process)["url"]
        assert url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(certificate))
        assert get(f"{url}/api/grants", token, tls=trusting) == (200, {"grants": []})


@promise("agent:cannot-decide")
def test_an_agent_starts_no_hub(pml: Pml, agent: None, pml_home: Path) -> None:
    ran = pml("serve", "--port", "0")
    assert ran.code == 1
    assert "beneath the agent session" in ran.err
    assert running_hub(pml_home) is None


def test_its_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "serve"]) == 0
    assert "pml serve --port 0" in capsys.readouterr().out
