"""What holds for every test: no test touches the real home, and where `CI` is set no test is skipped."""

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pml.agents.known import KNOWN
from pml.host.processes import SystemProcesses

# Its assertions say what they compared, as those of a test do.
pytest.register_assert_rewrite("tests.e2e.agent_rig")

_numbers = itertools.count()

# Neither a busy machine nor what an earlier run found decides whether a property holds.
settings.register_profile(
    "anywhere",
    max_examples=50,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("anywhere")


def _is_watched(_: SystemProcesses) -> bool:
    """Tell that this process is not detached, whatever started the tests."""
    return False


def pytest_configure() -> None:
    # Hundreds of processes are started: compiling all of PML in each would take longer than they do.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    os.environ.setdefault("TEXTUAL_FPS", "10")  # nobody watches
    # A job in the background inherits an ignored Ctrl-C, and so would the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home of its own, with no PML settings from outside. `PML_HOME` does not exist yet."""
    # Not `mktemp`, and short: a Unix socket beneath it must fit 107 bytes.
    place = tmp_path_factory.getbasetemp() / f"h{next(_numbers)}"
    place.mkdir(mode=0o700)
    # Tests may run beneath an agent, or in a job that nobody watches: those that are about it say so.
    for name in [name for name in os.environ if name.startswith("PML_") or name in KNOWN.marks]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(SystemProcesses, "is_detached", _is_watched)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("PML_HOME", str(place / ".pml"))
    return place


@pytest.fixture
def near() -> Generator[Path]:
    """A folder near the root, with a path of one length: a socket in it fits, and rows end where they end."""
    with tempfile.TemporaryDirectory(prefix="pml", dir="/tmp") as folder:
        yield Path(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped where CI is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if os.environ.get("CI") and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped where CI is set: {report.longrepr}"
    return report
