"""`pml login` and `pml logout` as a person runs them, and what they say where it does not work."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pml.core.values import JsonObject
from tests.commands import Pml
from tests.oauth.rig import Issuer, consent
from tests.promises import promise

BOUND_S = 60.0


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "shop"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def pml(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Pml:
    return Pml(capsys)


@pytest.fixture(autouse=True)
def configured(home: Path, workspace: Path, protected: str, issuer: Issuer) -> Path:
    """The user's file, with the server; no keyring serves."""
    file = home / ".pml" / "config.json"
    file.parent.mkdir(mode=0o700)
    servers: JsonObject = {
        "vault": {"type": "http", "url": protected},
        "local": {"command": "some-server"},
    }
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


@contextmanager
def logging_in(*argv: str, **environment: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Start `pml login vault` and yield it with the page that it names."""
    with subprocess.Popen(
        [sys.executable, "-m", "pml", "login", "vault", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring", **environment},
    ) as process:
        assert process.stderr is not None
        try:
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if "/auth?" in line:
                    break
            else:
                raise AssertionError("".join(lines))
            yield process, lines[-1].strip()
        finally:
            process.kill()


def tokens_in(home: Path) -> list[str]:
    [row] = json.loads((home / ".pml" / "logins.json").read_text())["logins"]
    return [value for name, value in row["tokens"].items() if name.endswith("_token") and value]


@promise("login:tokens-shown-nowhere")
def test_a_person_logs_in_looks_and_logs_out(home: Path, pml: Pml, protected: str, issuer: Issuer) -> None:
    before = pml("servers", "status", "vault")
    with logging_in("--no-browser") as (process, page):
        consent(page)
        out, err = process.communicate(timeout=BOUND_S)
    tokens = tokens_in(home)
    status = pml("servers", "status", "vault")
    as_json = pml("servers", "status", "vault", "--json")
    logged_out = pml("logout", "vault", "--json")

    assert process.returncode == 0, err
    assert f"logged in to vault at `{issuer.url}`" in out
    assert len(tokens) == 2
    assert "logged in" not in before.out
    assert "logged in until" in status.out
    assert as_json.json["servers"][0]["login"]["issuer"] == issuer.url
    assert (logged_out.code, logged_out.json["problems"]) == (0, [])
    said = out + err + status.out + as_json.out + logged_out.out + logged_out.err
    assert not any(token in said for token in tokens)
    answer = httpx2.post(
        protected, json={}, headers={"authorization": f"Bearer {tokens[0]}"}, trust_env=False
    )
    assert answer.status_code == 401
    assert json.loads((home / ".pml" / "logins.json").read_text())["logins"] == []
    assert pml("logout", "vault").code == 5


def test_over_ssh_the_address_is_pasted(home: Path) -> None:
    with logging_in("--paste", SSH_CONNECTION="1 2 3 4") as (process, page):
        ended_at = consent(page, visit_last=False)
        assert process.stdin is not None
        process.stdin.write("nonsense\n")
        process.stdin.write(f"{ended_at}\n")
        process.stdin.flush()
        out, err = process.communicate(timeout=BOUND_S)

    assert process.returncode == 0, err
    assert "not the address" in err
    assert "logged in to vault" in out
    assert len(tokens_in(home)) == 2


def test_ctrl_c_gives_up_and_leaves_nothing(home: Path) -> None:
    with logging_in("--no-browser") as (process, page):
        port = int(page.split("127.0.0.1%3A")[1].split("%2F")[0])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=BOUND_S)

    assert process.returncode == 130
    assert not (home / ".pml" / "logins.json").exists()
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_the_port_is_fixed_by_option_and_one_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = subprocess.run(
            [sys.executable, "-m", "pml", "login", "vault", "--callback-port", str(port), "--no-browser"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
    assert ran.returncode == 1
    assert f"port {port} of this machine cannot be opened" in ran.stderr
    with logging_in("--callback-port", str(port), "--no-browser") as (_, page):
        assert f"127.0.0.1%3A{port}%2Fcallback" in page


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["login", "vaul"], 5, "did you mean `vault`?"),
        (["login", "local"], 2, "nothing to log in to"),
        (["login", "vault", "--callback-port", "80"], 2, "from 1024 to 65535"),
        (["logout", "vault"], 5, "not logged in"),
    ],
)
def test_what_cannot_be_is_said_with_what_to_do(pml: Pml, argv: list[str], code: int, said: str) -> None:
    ran = pml(*argv)

    assert (ran.code, said in ran.err) == (code, True), ran.err


def test_a_server_of_a_file_that_nobody_trusts_is_not_logged_in_to(
    pml: Pml, workspace: Path, protected: str
) -> None:
    entry = {"mcpServers": {"evil": {"type": "http", "url": protected}}}
    (workspace / ".pml.json").write_text(json.dumps(entry))

    ran = pml("login", "evil")

    assert (ran.code, "is not trusted" in ran.err) == (5, True)


@promise("login:never-an-agents")
def test_beneath_an_agent_nobody_logs_in(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")

    ran = pml("login", "vault")

    assert ran.code != 0
    assert "agent" in ran.err or "CLAUDECODE" in ran.err


def test_doctor_says_who_needs_a_login_and_that_the_file_is_open(
    home: Path, pml: Pml, configured: Path
) -> None:
    config: Any = json.loads(configured.read_text())
    config["mcpServers"]["vault"]["oauth"] = {}
    configured.write_text(json.dumps(config))
    checks = {check["name"]: check for check in pml("doctor", "--quick", "--json").json["checks"]}
    with logging_in("--no-browser") as (process, page):
        consent(page)
        process.communicate(timeout=BOUND_S)
    (home / ".pml" / "logins.json").chmod(0o644)
    after = [check for check in pml("doctor", "--quick", "--json").json["checks"] if "login" in check["name"]]

    assert (checks["login vault"]["status"], checks["login vault"]["hint"]) == (
        "warn",
        "`pml login vault`",
    )
    assert [(check["name"], check["status"]) for check in after] == [
        ("login vault", "ok"),
        ("logins", "warn"),
    ]
