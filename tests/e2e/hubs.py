"""`pml serve` as a process, and around it what people and agents do: commands, launched and connected agents.

Everything runs in an empty environment with a home of its own, and every agent's model is the scripted one. A
room is the workspace of one test: its files, its questions, its agents.
"""

import itertools
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from pml.agents.claude_code.configs import config_root, folder_of
from pml.core.approvals.record import SessionId
from tests.agents.launching import offline
from tests.commands import Ran
from tests.e2e.claude import binary
from tests.e2e.installed import bare_environment
from tests.e2e.messages_api import MessagesApi, Use, scripted
from tests.tools import need

STATE_S: Final = 90.0  # only ever reached by what never happens
LOOK_EVERY_S: Final = 0.05
READING_S: Final = 1.0  # after which a client that asked reads its stream, also on a busy machine
PERMIT: Final = "mcp__plexus__loopback_permit"
T = TypeVar("T")


def until(look: Callable[[], T | None], what: str) -> T:
    """Return what `look` finds, once it finds something."""
    end = time.monotonic() + STATE_S
    while not (found := look()):
        assert time.monotonic() < end, f"it never came to this: {what}"
        time.sleep(LOOK_EVERY_S)
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def bash(command: str) -> Use:
    return Use(tool="Bash", arguments={"command": command, "description": "a step of the task"})


def plexus(tool: str, **arguments: object) -> Use:
    """The use of a tool of the hub."""
    return Use(tool=f"mcp__plexus__{tool}", arguments=arguments)


class Agent:
    """A process that runs an agent."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def finish(self) -> Ran:
        """Wait for its end."""
        out, err = self._process.communicate(timeout=STATE_S)
        return Ran(code=self._process.returncode, out=out, err=err)

    def kill(self) -> None:
        self._process.kill()

    def child(self, command: str) -> int:
        """Return the process that it started with that command line."""
        words = [need("pgrep"), "-P", str(self._process.pid), "-f", command]
        return int(subprocess.run(words, capture_output=True, text=True, timeout=STATE_S).stdout)

    def close(self) -> None:
        """End it, if the test did not come to its end."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate(timeout=STATE_S)


@dataclass(kw_only=True)
class Hub:
    """The hub of one home, and the model of all its agents."""

    place: Path
    api: MessagesApi
    environment: dict[str, str]
    url: str = ""
    login_url: str = ""
    _process: "subprocess.Popen[str] | None" = None
    _person: str = ""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        """Start it, on the port that it had before, if it had one."""
        port = self.url.rpartition(":")[2] or "0"
        with open(self.place / "hub.err", "a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pml", "serve", "--port", port, "--json"],
                cwd=self.place,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        told = _told(self._process)
        self.url, self.login_url = told["url"], told["login_url"]

    def kill(self) -> None:
        """End it as by `kill -9`."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=STATE_S)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=STATE_S)

    def pml(self, *argv: str, cwd: Path | None = None) -> Ran:
        """Run a command as a person in another terminal."""
        ran = subprocess.run(
            [sys.executable, "-m", "pml", *argv],
            cwd=cwd or self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STATE_S,
        )
        return Ran(code=ran.returncode, out=ran.stdout, err=ran.stderr)

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Return what the API answers a person; a body is posted."""
        if not self._person:
            self._person = self.token("person")
        request = urllib.request.Request(f"{self.url}{path}")
        request.add_header("Authorization", f"Bearer {self._person}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=STATE_S) as answer:
            return json.load(answer)

    def token(self, role: str, *options: str, cwd: Path | None = None) -> str:
        ran = self.pml("token", "create", "--role", role, *options, "--json", cwd=cwd)
        assert ran.code == 0, ran.err
        return ran.json["token"]

    def has_live_token(self, session_id: str) -> bool:
        """Whether a token of that session counts still."""
        tokens = self.pml("token", "list", "--all", "--json").json["tokens"]
        own = [each["revoked_at"] is None for each in tokens if each["session"] == session_id]
        assert own, "it never had one"
        return any(own)

    def new_file(self, text: str) -> Path:
        path = self.place / f"file{next(self._numbers)}.json"
        path.write_text(text)
        return path

    def config_of(self, session_id: str) -> list[str]:
        """The configuration files of the agent of that session which are there."""
        folder = folder_of(config_root(Path(self.environment["PML_HOME"])), SessionId(session_id))
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def room(self) -> "Room":
        """Return a workspace that nobody has used."""
        path = self.place / f"room{next(self._numbers)}"
        path.mkdir()
        return Room(hub=self, path=path.resolve())


@dataclass(frozen=True, kw_only=True)
class Room:
    """A workspace of the hub."""

    hub: Hub
    path: Path

    def pml(self, *argv: str) -> Ran:
        return self.hub.pml(*argv, cwd=self.path)

    def settle(self, settings: Mapping[str, object]) -> None:
        """Give the workspace its file, and trust it."""
        (self.path / ".pml.json").write_text(json.dumps({"version": "0.1.0", **settings}, indent=2))
        ran = self.pml("trust", "--yes")
        assert ran.code == 0, ran.err

    @contextmanager
    def launched(self, prompt: str, *options: str, claude: tuple[str, ...] = ()) -> Generator[Agent]:
        """Run `pml launch --loopback -- claude -p PROMPT`."""
        launch = (sys.executable, "-m", "pml", "launch", "--loopback", *options)
        with self._running([*launch, "--", "claude", "-p", prompt, *claude], {}) as agent:
            yield agent

    @contextmanager
    def connected(
        self,
        prompt: str,
        server: Mapping[str, object],
        *arguments: str,
        settings: Mapping[str, str] | None = None,
    ) -> Generator[Agent]:
        """Run Claude Code with `server` as its `plexus`, as a person would connect it themselves."""
        config = self.hub.new_file(json.dumps({"mcpServers": {"plexus": dict(server)}}))
        given = ("--mcp-config", str(config), "--strict-mcp-config", "--setting-sources", "")
        argv = [binary(), "-p", prompt, "--output-format", "json", *given, *arguments]
        own = {"ENABLE_TOOL_SEARCH": "false", **(settings or {})}
        with self._running(argv, own) as agent:
            yield agent

    @contextmanager
    def _running(self, argv: list[str], settings: Mapping[str, str]) -> Generator[Agent]:
        agent = Agent(
            subprocess.Popen(
                argv,
                cwd=self.path,
                env={**self.hub.environment, **settings},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        try:
            yield agent
        finally:
            agent.close()

    def over_http(self, token: str) -> dict[str, object]:
        """The hub as an MCP server, for whoever has the token."""
        return {
            "type": "http",
            "url": f"{self.hub.url}/mcp",
            "headers": {"Authorization": f"Bearer {token}"},
        }

    def over_stdio(self) -> dict[str, object]:
        """`pml stdio` as an MCP server."""
        environment = {name: self.hub.environment[name] for name in ("HOME", "PML_HOME", "PATH", "LANG")}
        return {"command": sys.executable, "args": ["-m", "pml", "stdio"], "env": environment}

    def pending(self) -> list[dict[str, Any]]:
        """What waits in this room, oldest first."""
        found = self.hub.ask("/api/approvals")["approvals"]
        return [each for each in found if each["workspace"] == str(self.path)]

    def question(self) -> dict[str, Any]:
        """Return the one thing that waits, once it does."""
        [asked] = self.questions(1)
        return asked

    def questions(self, count: int) -> list[dict[str, Any]]:
        """Return what waits, once there is so much of it."""
        return until(lambda: found if len(found := self.pending()) >= count else None, f"{count} questions")

    def waited(self, count: int = 1) -> list[dict[str, Any]]:
        """Return what waits, once every client has surely begun to read the answer that does not come.

        Nothing shows that from outside. Until then, some milliseconds, a hub that dies costs it the call.
        """
        self.questions(count)

        def old() -> list[dict[str, Any]] | None:
            since = datetime.now(UTC) - timedelta(seconds=READING_S)
            found = self.pending()
            return (
                found if all(datetime.fromisoformat(each["created_at"]) < since for each in found) else None
            )

        return until(old, f"{count} questions have waited")

    def asked(self) -> list[dict[str, Any]]:
        """All that was ever asked in this room, oldest first."""
        found = self.hub.ask("/api/approvals?all=true&limit=500")["approvals"]
        return [each for each in found if each["workspace"] == str(self.path)]

    def session(self, name: str) -> dict[str, Any]:
        """The session of that name in this room."""
        found = self.hub.ask("/api/sessions?limit=500")["sessions"]
        [own] = [each for each in found if each["workspace"] == str(self.path) and each["name"] == name]
        return own

    def assert_over(self, session: Mapping[str, Any], *, state: str) -> None:
        """Assert that the session ends, and that nothing is left of it but what was written down."""
        until(lambda: self.session(session["name"])["ended_at"], f"{session['name']} ends")
        until(lambda: self.session(session["name"])["state"] == state, f"{session['name']} is {state}")
        until(lambda: not is_running(session["pid"]), "its process ends")
        assert [each["status"] for each in self.asked() if each["session"] == session["id"]] == ["cancelled"]
        assert not self.hub.has_live_token(session["id"])
        assert self.hub.config_of(session["id"]) == []
        assert self.marks() == []

    def allow(self, asked: Mapping[str, Any], *options: str) -> None:
        ran = self.pml("approvals", "allow", asked["id"], *options)
        assert ran.code == 0, ran.err

    def deny(self, asked: Mapping[str, Any], *options: str) -> None:
        ran = self.pml("approvals", "deny", asked["id"], *options)
        assert ran.code == 0, ran.err

    def marks(self) -> list[str]:
        """The files that commands have left here."""
        return sorted(path.name for path in self.path.iterdir() if path.suffix == ".mark")


@contextmanager
def hub_running(place: Path) -> Generator[Hub]:
    """Run a hub whose agents speak as the rooms' tests say."""
    found = place / "bin"
    found.mkdir()
    (found / "claude").symlink_to(binary())
    home, runtime = place / "home", place / "run"
    home.mkdir(mode=0o700)
    runtime.mkdir(mode=0o700)
    with scripted() as api:
        bare = bare_environment(home)
        own = {
            "PATH": f"{found}{os.pathsep}{bare['PATH']}",
            "PML_HOME": str(home / ".pml"),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        hub = Hub(place=place, api=api, environment={**bare, **offline(api), **own})
        hub.start()
        try:
            yield hub
        finally:
            hub.stop()


def _told(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return the object that is printed when it listens."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "}\n":
        lines.append(process.stdout.readline())
        assert lines[-1], "the hub ended before it listened"
    return json.loads("".join(lines))
