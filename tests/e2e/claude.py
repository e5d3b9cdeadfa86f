"""Claude Code itself: headless, and on its own screen, which tests read and press keys on.

It runs in an empty environment with a home of its own, and talks to a scripted Messages API on loopback. What
it is shown of PML comes from the MCP configuration that the test gives it.
"""

import json
import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.installed import PACKAGES, Server, bare_environment, need_clients
from tests.e2e.messages_api import MessagesApi
from tests.tools import need

KEY: Final = "fake-key"
RUN_S: Final = 200.0  # only ever reached by a client that hangs
SCREEN_S: Final = 90.0  # a loaded machine takes seconds to draw the first screen
READS_S: Final = 1.0  # an answer that is quicker than a person can read decides nothing
KEY_S: Final = 0.5  # after which a key that changed nothing is pressed again
LOOK_EVERY_S: Final = 0.05
COLUMNS, ROWS = "150", "60"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where one Claude Code runs: its model, its MCP server `pml`, its home and its working directory."""

    api: MessagesApi
    server: Server
    home: Path
    workspace: Path

    def environment(self) -> dict[str, str]:
        return {
            **bare_environment(self.home),
            "TERM": "xterm-256color",
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": KEY,
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def argv(self, *arguments: str) -> list[str]:
        config = self.home / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"pml": self.server.as_config()}}))
        # The client's own question for each tool is not what is tested: `pml` is allowed there as a whole.
        allowed = ["--allowedTools", "mcp__pml"]
        return [binary(), *arguments, "--mcp-config", str(config), "--strict-mcp-config", *allowed]


def binary() -> str:
    need_clients()
    found = sorted(PACKAGES.glob("@anthropic-ai/claude-code-*/claude*"))
    assert found, "npm installed no binary of Claude Code for this system"
    return str(found[0])


def run_headless(
    setting: Setting, prompt: str = "go on", *, with_settings: bool = False
) -> list[dict[str, Any]]:
    """Run `claude -p` to its end and return the messages it streamed; `with_settings`: its own apply."""
    bare = [] if with_settings else ["--bare"]
    arguments = ["-p", prompt, *bare, "--output-format", "stream-json", "--verbose"]
    ran = subprocess.run(
        setting.argv(*arguments),
        cwd=setting.workspace,
        env=setting.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return [json.loads(line) for line in ran.stdout.splitlines()]


class Screen:
    """The terminal that a person would sit at."""

    def __init__(self, tmux: str, name: str) -> None:
        self._tmux = (tmux, "-L", name, "-f", "/dev/null")

    def open(self, argv: list[str], environment: dict[str, str], cwd: Path) -> None:
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = shlex.join(["env", "-i", *variables, *argv])
        size = ("-x", COLUMNS, "-y", ROWS, "-c", str(cwd))
        self._run("new-session", "-d", *size, command, ";", "set", "remain-on-exit", "on")

    def read(self) -> str:
        return self._run("capture-pane", "-p")

    @property
    def is_over(self) -> bool:
        """Whether what was run there has ended."""
        return self._run("display-message", "-p", "#{pane_dead}").strip() == "1"

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def accept(self) -> None:
        """Read the form that is shown, and take Accept."""
        time.sleep(READS_S)
        self.press_until("Down", lambda screen: "❯ Accept" in screen)
        self.press_until("Enter", lambda screen: "❯ Accept" not in screen)

    def decline(self) -> None:
        """Read the form that is shown, and take Decline."""
        time.sleep(READS_S)
        self.press_until("Down", lambda screen: "❯ Accept" in screen)
        self.press_until("Right", lambda screen: "❯ Decline" in screen)
        self.press_until("Enter", lambda screen: "❯ Decline" not in screen)

    def choose(self, title: str) -> None:
        """Open the choices of the form that is shown, and take the one whose title begins so."""
        self.press_until("Right", lambda screen: f"◯ {title}" in screen)
        self.press_until("Down", lambda screen: f"❯ ◯ {title}" in screen)
        self.press_until("Space", lambda screen: f"▸ {title}" in screen)

    def wait(self, *texts: str) -> str:
        """Return the screen once it shows every text; fail with the screen if it does not in time."""
        screen = self._look(lambda screen: all(text in screen for text in texts), for_s=SCREEN_S)
        assert screen is not None, f"the screen did not show {' and '.join(texts)}:\n{self.read()}"
        return screen

    def wait_any(self, *texts: str) -> str:
        """Return the screen once it shows one of the texts; fail with the screen if it does not in time."""
        screen = self._look(lambda screen: any(text in screen for text in texts), for_s=SCREEN_S)
        assert screen is not None, f"the screen did not show {' or '.join(texts)}:\n{self.read()}"
        return screen

    def press_until(self, key: str, done: Callable[[str], bool]) -> str:
        """Press a key until the screen says that it counted: a dialog that is being drawn ignores keys."""
        end = time.monotonic() + SCREEN_S
        while time.monotonic() < end:
            self.press(key)
            screen = self._look(done, for_s=KEY_S)
            if screen is not None:
                return screen
        raise AssertionError(f"pressing {key} did nothing:\n{self.read()}")

    def _look(self, shown: Callable[[str], bool], *, for_s: float) -> str | None:
        end = time.monotonic() + for_s
        while not shown(screen := self.read()):
            if time.monotonic() > end:
                return None
            time.sleep(LOOK_EVERY_S)
        return screen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=RUN_S, check=False)

    def _run(self, *command: str) -> str:
        ran = subprocess.run([*self._tmux, *command], capture_output=True, text=True, timeout=RUN_S)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@contextmanager
def interactive(setting: Setting, prompt: str = "go on") -> Generator[Screen]:
    """Run Claude Code on a screen of its own, with `prompt` already sent."""
    get_known(setting.home, setting.workspace)
    with on_screen(setting, setting.argv("--permission-mode", "default"), prompt) as screen:
        yield screen


@contextmanager
def on_screen(setting: Setting, argv: list[str], prompt: str = "go on") -> Generator[Screen]:
    """Run that command line of Claude Code's on a screen of its own."""
    screen = Screen(need("tmux"), f"pml-{uuid.uuid4().hex}")
    try:
        screen.open([*argv, "--", prompt], setting.environment(), setting.workspace)
        yield screen
    finally:
        screen.close()


def get_known(home: Path, workspace: Path) -> None:
    """Have Claude Code know its user and the folder, so that it asks nothing of its own at the start."""
    (home / ".claude.json").write_text(json.dumps(_known(workspace)))


def _known(workspace: Path) -> dict[str, Any]:
    """What Claude Code writes down after its first start, so that it asks nothing of its own."""
    project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    return {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {str(workspace): project},
    }
