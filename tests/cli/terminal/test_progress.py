"""The bar of an install: it runs as long as the work, and one line of it stays."""

import io
import re

import pytest

from pml.cli.terminal.progress import InstallBar
from pml.core.ports.loader import Progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Let standard error be a terminal; within the test, for pytest puts its own there before each."""
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def step(message: str, done: int, total: int | None) -> Progress:
    return Progress(done=done, total=total, message=message)


def shown(screen: Screen) -> str:
    """Return what was drawn, without what moves the cursor and gives colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


def test_a_last_step_that_is_done_goes_on_as_a_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    with InstallBar() as bar:
        bar(step("downloading packages", 1, 3))
        bar(step("unpacked memory@1", 3, 3))
        assert bar.is_shown
        bar(step("proving its files", 0, None))
        assert bar.is_shown
    assert not bar.is_shown
    drawn = shown(screen)
    assert "downloading packages" in drawn
    assert "3/3" not in drawn


def test_a_step_without_words_is_called_preparing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    with InstallBar() as bar:
        bar(step("", 0, None))
    assert "preparing" in shown(screen)


def test_the_line_that_tells_what_was_installed_stays_and_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    with InstallBar() as bar:
        bar(step("downloading packages", 1, 3))
        for _ in range(2):
            bar(step("installed memory@1 (allowed by a rule)", 1, 1))
        assert not bar.is_shown
    assert shown(screen).count("installed memory@1 (allowed by a rule)\n") == 1


def test_elsewhere_than_on_a_terminal_each_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with InstallBar() as bar:
        for done in range(3):
            bar(step("downloading packages", done, 3))
        bar(step("unpacked \x1b[31m", 3, 3))
        bar(step("installed memory@1", 1, 1))
    assert capsys.readouterr().err == "downloading packages\nunpacked \\u{1b}[31m\ninstalled memory@1\n"
