"""`make run` shows two agents that really wait for a person, to its last line, whatever is answered."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, cast

import pytest
from playwright.sync_api import expect

from tests.e2e.hubs import until
from tests.e2e.inbox_rig import Inbox, browser_running
from tests.e2e.inbox_tab import Tab, opened_in
from tests.e2e.installed import ROOT, bare_environment, network_settings
from tests.promises import promise

SCRIPT: Final = ROOT / "scripts" / "first-look"
PML: Final = Path(sys.executable).with_name("pml")
BOUND_S: Final = 60.0
LAST: Final = "launch --loopback -- claude -p 'tidy up this folder'"
WAITING: Final = f"""#!{sys.executable}
import signal
try:
    print("waiting", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("Stopped.")
"""
QUESTIONS: Final = {("writer", "Call Edit"), ("planner", "Install time"), ("writer", "Call Bash")}


class Person:
    """A user of this machine who has never used PML."""

    def __init__(self, home: Path) -> None:
        bare = bare_environment(home)
        self.home = home
        self.environment = bare | network_settings() | {"PATH": f"{PML.parent}:{bare['PATH']}"}

    @contextlib.contextmanager
    def started(self, *command: str) -> Generator[subprocess.Popen[str]]:
        with subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=BOUND_S)

    def pml(self, *argv: str) -> Any:
        ran = subprocess.run(
            [str(PML), *argv, "--json"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=True,
        )
        return json.loads(ran.stdout)

    def waiting(self) -> dict[tuple[str, str], str]:
        """What waits for an answer: whose question it is and its first words, with its id."""
        found = self.pml("approvals", "list")["approvals"]
        return {(each["session_name"], each["title"].partition("@")[0]): each["id"] for each in found}

    def answer_all(self, verb: str) -> None:
        """Answer every question as it comes, by a command."""
        answered: set[tuple[str, str]] = set()

        def answer() -> bool:
            for question, approval_id in self.waiting().items():
                self.pml("approvals", verb, approval_id)
                answered.add(question)
            return answered == QUESTIONS

        until(answer, "every question was asked")

    def allow_all_on_the_page(self, link: str) -> None:
        """Open the link, and allow every question as it comes."""
        with browser_running(self.home) as browser:
            tab = opened_in(browser.new_context(), cast("Inbox", None))  # the hub is not one of the tests'
            tab.page.goto(link)
            tab.is_in()
            for _ in QUESTIONS:
                self._allow_first(tab)
            expect(tab.cards).to_have_count(0)
            assert tab.faults == [], tab.faults

    def _allow_first(self, tab: Tab) -> None:
        expect(tab.cards).not_to_have_count(0)
        approval_id = tab.cards.first.get_attribute("data-card")  # another may be the first a moment later
        assert approval_id is not None
        is_install = "Install" in tab.card(approval_id).inner_text()

        def clicked() -> bool:
            """Click, as somebody does who is told that another question has only just come above it."""
            tab.look_at_id(approval_id)
            tab.card(approval_id).locator("[data-action=allow]").click()
            return tab.card(approval_id).get_attribute("data-state") != "waiting"

        until(clicked, "the click is taken")
        for text in ("Installing: ", "Installed") if is_install else ("You allowed it",):
            tab.is_over(approval_id, text)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def read(look: subprocess.Popen[str], *, up_to: str) -> str:
    """Return what is printed up to the line in which `up_to` stands."""
    assert look.stdout is not None
    text = ""
    while up_to not in text:
        line = look.stdout.readline()
        assert line, text
        text += line
    return text


def by_command(person: Person, link: str) -> None:
    person.answer_all("allow")


@promise("first-look:to-its-end")
@pytest.mark.parametrize(
    ("beside", "allow_all"),
    [
        pytest.param(False, Person.allow_all_on_the_page, id="alone, on the page"),
        pytest.param(True, by_command, id="beside another hub, by command"),
    ],
)
def test_what_is_allowed_is_done_and_the_last_line_is_reached(
    person: Person, beside: bool, allow_all: Callable[[Person, str], None]
) -> None:
    with contextlib.ExitStack() as stack:
        if beside:
            hub = stack.enter_context(person.started(str(PML), "serve", "--port", "0", "--json"))
            read(hub, up_to="{")
        look = stack.enter_context(person.started(sys.executable, str(SCRIPT)))
        text = read(look, up_to="#login=pml_")
        [link] = re.findall(r"http://\S+", text)

        allow_all(person, link)

        text += read(look, up_to=LAST)
    if "check the network" in text:
        pytest.skip(f"needs a Python package index, which cannot be reached: {text}")
    assert "writer: edited notes.md" in text
    assert "writer: ran it: 10 sorted.md" in text
    assert '"timezone": "UTC"' in text
    assert person.waiting() == {}


@promise("first-look:to-its-end")
def test_what_is_denied_is_not_done_nor_asked_again(person: Person) -> None:
    with person.started(sys.executable, str(SCRIPT)) as look:
        person.answer_all("deny")

        text = read(look, up_to=LAST)
        assert person.waiting() == {}
    assert text.count("writer: did not do it: Tool execution denied by user") == 2
    assert "planner: is told: Dependency time required but not approved. Nothing has run. Do not " in text


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_ctrl_c_ends_make_run_without_a_complaint_of_make(tmp_path: Path) -> None:
    """What make prints depends on who its recipe leaves to take the signal, not on what runs."""
    script = tmp_path / "scripts" / "first-look"
    script.parent.mkdir()
    script.write_text(WAITING)
    script.chmod(0o755)
    ready = tmp_path / ".venv" / ".run"
    ready.parent.mkdir()
    for name in ("pyproject.toml", "constraints.txt", "Makefile"):
        shutil.copy(ROOT / name, tmp_path)
    ready.touch()
    with subprocess.Popen(
        ["make", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as make:
        read(make, up_to="waiting")
        os.killpg(make.pid, signal.SIGINT)  # as the terminal does
        said, _ = make.communicate(timeout=BOUND_S)
    assert said == "Stopped.\n"


def test_what_was_not_answered_waits_no_longer_once_it_is_stopped(person: Person) -> None:
    with person.started(sys.executable, str(SCRIPT)):
        until(lambda: len(person.waiting()) == 2, "both wait")
    assert [name for name, _ in person.waiting() if name == "writer"] == []
