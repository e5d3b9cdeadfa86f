"""`pml call` of a tool whose server is not installed: the question, its answers, the bar, what is left."""

import contextlib
import hashlib
import json
import os
import sys
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Final

from pml.host.locks import open_lock_file, try_lock
from tests.cli.offering import SERVER, Registry
from tests.cli.terminals import on_terminal
from tests.commands import Pml
from tests.e2e.claude import Screen
from tests.install.python_index import make_wheel
from tests.promises import promise
from tests.tools import need

OK, FAILED, DENIED, PENDING, INTERRUPTED = 0, 1, 3, 4, 130
PROMPT: Final = "answer [c/a/b]: "
ADA: Final = '{"name": "Ada"}'
CALL: Final = ("call", "greeter:greet", ADA)
GREETED: Final = "hello Ada\n"


@contextlib.contextmanager
def another_install(home: Path) -> Generator[None]:
    """Hold what an install of `greeter` by another process holds."""
    (home / "locks").mkdir(mode=0o700)
    lock = open_lock_file(str(home / "locks" / "install-greeter.lock"), create=True)
    try:
        assert try_lock(lock)
        yield
    finally:
        os.close(lock)


# --- on a terminal


@promise("load:asked-before-installed")
def test_a_person_is_shown_what_would_be_installed_and_is_not_asked_for_the_same_tool_again(
    pml: Pml, registry: Registry
) -> None:
    pml.ask("a:b", session="robot")  # so that the session lasts as long as this process
    with on_terminal(*CALL, "--session", "robot") as terminal:
        card = terminal.until(PROMPT)
        for fact in (
            "Approval required to install greeter@1.0",
            "package   uvx greeter-server==1.0",
            f"hash      {registry.integrity}",
            "workspace: none",
            "packages  1 package,",
            "from      ",
            'call      greeter:greet {"name": "Ada"}',
            'would add "greeter:greet" to',
            "c  continue  install exactly this; allows every greeter:greet until the\n"
            "               session ends\n",
            "b  abort ",
        ):
            assert fact in card, fact
        assert registry.leftovers == []
        terminal.type("c\n")
        assert terminal.end() == (OK, GREETED)
    assert registry.leftovers == ["greeter"]

    with on_terminal("call", "greeter:greet", '{"name": "Bob"}', "--session", "robot") as terminal:
        assert (*terminal.end(), terminal.screen) == (OK, "hello Bob\n", "")


@promise("always:only-what-was-shown")
def test_always_installs_and_writes_the_entry_that_was_shown(
    pml: Pml, registry: Registry, workspace: Path
) -> None:
    registry.offer(lock=registry.locked())
    with on_terminal(*CALL) as terminal:
        terminal.until('add "greeter:greet" to .pml.json')
        terminal.until(PROMPT)
        terminal.type("a\n")
        assert terminal.end() == (OK, GREETED)
    settings = json.loads((workspace / ".pml.json").read_text())
    assert settings["permissions"]["allow"] == ["greeter:greet"]
    assert pml(*CALL, "--session", "other").out == GREETED


@promise("load:asked-before-installed")
def test_abort_installs_nothing(registry: Registry) -> None:
    registry.offer(lock=registry.locked())
    with on_terminal(*CALL) as terminal:
        terminal.until(PROMPT)
        terminal.type("b\n")
        terminal.until("Dependency greeter required but not approved")
        assert terminal.end() == (DENIED, "")
    assert (registry.was_downloaded, registry.leftovers) == (False, [])


@promise("install:atomic")
def test_ctrl_c_while_it_installs_leaves_nothing_behind(registry: Registry) -> None:
    registry.offer(lock=registry.locked())
    registry.index.endless.add(registry.file)
    with on_terminal(*CALL) as terminal:
        terminal.until(PROMPT)
        before = terminal.modes()
        terminal.type("c\n")
        registry.wait_for_download()
        terminal.type("\x03")
        terminal.until("interrupted")
        assert terminal.end() == (INTERRUPTED, "")
        assert terminal.modes() == before
        assert "Traceback" not in terminal.screen
    assert registry.leftovers == []

    registry.index.endless.clear()
    with on_terminal(*CALL) as terminal:  # and what was interrupted is asked anew
        terminal.until(PROMPT)
        terminal.type("c\n")
        assert terminal.end() == (OK, GREETED)


def test_a_bar_tells_how_the_install_goes_and_is_gone_afterwards(
    registry: Registry, tmp_path: Path, workspace: Path
) -> None:
    registry.offer(lock=registry.locked())
    screen, out = Screen(need("tmux"), f"pml-{uuid.uuid4().hex}"), tmp_path / "out"
    kept = ("HOME", "PML_HOME", "PATH", "UV_DEFAULT_INDEX")
    environment = {name: os.environ[name] for name in kept} | {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
    command = ["sh", "-c", '"$@" >"$OUT"; echo "ended with $?"', "sh", sys.executable, "-m", "pml", *CALL]
    try:
        with another_install(registry.home):
            screen.open(command, {**environment, "OUT": str(out)}, workspace)
            screen.wait(PROMPT.strip())
            screen.press("c", "Enter")
            assert "━" in screen.wait("waiting for another install of greeter")
        screen.wait("installed greeter@1.0")
        ended = screen.wait("ended with 0")
    finally:
        screen.close()
    assert "━" not in ended
    assert "waiting for another install" not in ended
    assert out.read_text() == GREETED


def test_an_install_that_a_rule_covers_is_told_once(pml: Pml, registry: Registry) -> None:
    registry.offer(lock=registry.locked())
    assert pml("rules", "allow", "greeter:*", "--user").code == OK
    with on_terminal(*CALL) as terminal:
        assert terminal.end() == (OK, GREETED)
    assert terminal.screen.count("installed greeter@1.0") == 1
    assert "Approval required" not in terminal.screen


# --- without a terminal


@promise("load:asked-before-installed")
def test_without_a_terminal_nothing_is_installed_until_somebody_allows_it_elsewhere(
    pml: Pml, registry: Registry
) -> None:
    ran = pml(*CALL)
    assert (ran.code, ran.out) == (PENDING, "")
    assert "Approval required to install greeter@1.0: nothing has run\n" in ran.err
    assert "run the same command again" in ran.err

    shape = pml(*CALL, "--json").json
    asked = shape["approval"]
    assert shape["approval_required"] is True
    assert (asked["subject"], asked["tool"], asked["may_allow"]) == (
        "dependency_install",
        "greeter:greet",
        ["person"],
    )
    assert asked["input"]["call"] == {"tool": "greeter:greet", "arguments": {"name": "Ada"}}
    told = asked["input"]["dependency"]
    assert (told["install"], told["integrity"]) == ("uvx greeter-server==1.0", registry.integrity)
    assert f"pml approvals allow {asked['id'][:8]}" in ran.err
    assert registry.leftovers == []

    assert pml("approvals", "allow", asked["id"]).code == OK
    ran = pml(*CALL)
    assert (ran.code, ran.out) == (OK, GREETED)
    assert "installed greeter@1.0\n" in ran.err
    assert pml.status(asked["id"]) == "completed"


@promise("install:only-proven-bytes")
def test_bytes_that_are_not_those_of_the_lock_are_told_with_both_hashes_and_not_kept(
    registry: Registry,
) -> None:
    registry.offer(lock=registry.locked())
    files, scripts = {"greeter.py": SERVER + "# and more\n"}, {"greeter-server": "greeter:main"}
    other = make_wheel("greeter-server", "1.0", files=files, scripts=scripts)
    registry.index.bodies[registry.file] = other
    registry.index.claims[registry.file] = hashlib.sha256(other).hexdigest()  # the index vouches for them
    with on_terminal(*CALL) as terminal:
        terminal.until(PROMPT)
        terminal.type("c\n")
        terminal.until("Integrity check failed for greeter")
        terminal.until("Expected")
        code, out = terminal.end()
    assert (code, out, registry.leftovers) == (FAILED, "", [])
