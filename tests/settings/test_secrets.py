"""Stored secrets: private, never lost, never shown; and a keyring that fails in any way harms nothing."""

import json
import os
import select
import signal
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pml.core.errors import Changed, Invalid, NotFound, PmlError, Unavailable
from pml.settings.keyrings import SystemKeyring
from pml.settings.secrets import MAX_VALUE_BYTES, Secrets, Stored, Where
from tests.promises import promise

SECRET = "hunter2-%s-ключ"
HERE = Path(__file__).parent
TIMEOUT_S = 60.0


class FakeKeyring:
    """Keeps in memory, unless it is `broken`; knows whether it was asked."""

    def __init__(self, *, broken: bool = False) -> None:
        self.entries: dict[str, str] = {}
        self.broken = broken
        self.asked = 0

    def get(self, names: Sequence[str]) -> dict[str, str]:
        self._ask()
        return {name: self.entries[name] for name in names if name in self.entries}

    def set(self, name: str, value: str) -> None:
        self._ask()
        self.entries[name] = value

    def delete(self, name: str) -> None:
        self._ask()
        self.entries.pop(name, None)

    def _ask(self) -> None:
        self.asked += 1
        if self.broken:
            raise Unavailable("the keyring is locked")


@pytest.fixture
def pml_home(home: Path) -> Path:
    return home / ".pml"


@pytest.fixture
def keyring() -> FakeKeyring:
    return FakeKeyring()


@pytest.fixture
def secrets(pml_home: Path, keyring: FakeKeyring) -> Secrets:
    return Secrets(pml_home, keyring)


@pytest.fixture
def in_file(pml_home: Path) -> Secrets:
    return Secrets(pml_home, FakeKeyring(broken=True))


def system_keyring(
    home: Path, backend: str, *, path: Path | None = None, wait_s: float = 60
) -> SystemKeyring:
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(HERE), "", ".", os.environ.get("PYTHONPATH", "")]),
        "PYTHON_KEYRING_BACKEND": backend if "." in backend else f"keyring_backends.{backend}",
        "KEYRING_PROPERTY_PATH": str(path or home / "entries.json"),
    }
    return SystemKeyring(home / ".pml", environ, wait_s=wait_s)


# --- where a value is


def test_a_value_goes_to_the_keyring_and_the_file_only_names_it(
    secrets: Secrets, keyring: FakeKeyring
) -> None:
    assert secrets.store("TOKEN", SECRET) == Stored(where=Where.KEYRING)
    assert keyring.entries == {"TOKEN": SECRET}
    assert json.loads(secrets.path.read_text()) == {"version": 1, "secrets": {"TOKEN": {"in": "keyring"}}}
    assert (secrets.names(), secrets.values(["TOKEN"])) == ({"TOKEN": Where.KEYRING}, {"TOKEN": SECRET})


def test_where_the_keyring_fails_a_value_goes_to_the_file_and_the_reason_is_told(in_file: Secrets) -> None:
    assert in_file.store("TOKEN", SECRET) == Stored(where=Where.FILE, problem="the keyring is locked")
    assert (in_file.names(), in_file.values(["TOKEN"])) == ({"TOKEN": Where.FILE}, {"TOKEN": SECRET})


def test_a_value_that_is_set_anew_is_only_where_it_went_last(secrets: Secrets, keyring: FakeKeyring) -> None:
    keyring.broken = True
    secrets.store("TOKEN", "old")
    keyring.broken = False
    secrets.store("TOKEN", SECRET)
    assert "old" not in secrets.path.read_text()
    keyring.broken = True
    secrets.store("TOKEN", "newest")
    assert secrets.values(["TOKEN"]) == {"TOKEN": "newest"}


def test_for_a_name_that_nobody_stored_no_keyring_is_asked_and_none_is_imported(
    secrets: Secrets, in_file: Secrets, keyring: FakeKeyring
) -> None:
    assert secrets.values(["TOKEN"]) == {}
    in_file.store("TOKEN", SECRET)
    assert secrets.values(["TOKEN", "OTHER"]) == {"TOKEN": SECRET}
    assert keyring.asked == 0
    code = "import sys, pml.settings.variables; sys.exit('keyring' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=TIMEOUT_S).returncode == 0


def test_a_removed_value_is_gone_from_both(secrets: Secrets, keyring: FakeKeyring) -> None:
    secrets.store("TOKEN", SECRET)
    keyring.broken = True
    secrets.store("OTHER", SECRET)
    keyring.broken = False
    assert (secrets.remove("TOKEN"), secrets.remove("OTHER")) == (None, None)
    assert (keyring.entries, secrets.names()) == ({}, {})
    assert SECRET not in secrets.path.read_text()
    with pytest.raises(NotFound):
        secrets.remove("TOKEN")


def test_a_removed_value_is_not_used_also_if_the_keyring_does_not_let_go_of_it(
    secrets: Secrets, keyring: FakeKeyring
) -> None:
    secrets.store("TOKEN", SECRET)
    keyring.broken = True
    assert secrets.remove("TOKEN") == "the keyring is locked"
    keyring.broken = False
    assert secrets.values(["TOKEN"]) == {}


# --- the file


@promise("secrets:private-file")
def test_the_file_is_its_users_alone_whatever_the_umask_and_the_mode_before(
    in_file: Secrets, pml_home: Path
) -> None:
    before = os.umask(0)
    try:
        in_file.store("TOKEN", SECRET)
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (pml_home, in_file.path)]
        assert modes == [0o700, 0o600]
        in_file.path.chmod(0o644)
        assert in_file.problem() == f"{in_file.path} can be read by others: chmod 600 it"
        in_file.store("OTHER", SECRET)
        assert stat.S_IMODE(in_file.path.stat().st_mode) == 0o600
        assert in_file.problem() is None
    finally:
        os.umask(before)


BROKEN = [
    b"",
    b"{",
    b'{"version": 1, "secrets": {"A": "hunter2"}}',
    b'{"version": 1, "secrets": {"A": {"in": "hunter2"}}}',
    b'{"version": 1, "secrets": {"A": {"in": "file"}}}',
    b'{"version": 1, "secrets": {"A": {"in": "file", "value": "hunter2", "note": "mine"}}}',
    b'{"version": 1, "secrets": {"hunter2 ": {"in": "keyring"}}}',
    b'{"version": 2, "secrets": {}}',
    b'{"version": 1, "secrets": {}, "more": "hunter2"}',
    b'{"version": 1, "secrets": {"A": {"in": "file", "value": "hunter2\xff"}}}',
    b"A=hunter2",
]


@promise("config:never-overwritten-unparsed")
@promise("secrets:never-shown")
@pytest.mark.parametrize("content", BROKEN)
def test_a_file_that_cannot_be_understood_stays_and_nothing_of_it_is_told(
    secrets: Secrets, keyring: FakeKeyring, pml_home: Path, content: bytes
) -> None:
    pml_home.mkdir()
    secrets.path.write_bytes(content)
    uses: list[Callable[[], object]] = [
        lambda: secrets.store("TOKEN", SECRET),
        lambda: secrets.remove("A"),
        lambda: secrets.values(["A"]),
        secrets.names,
    ]
    for use in uses:
        with pytest.raises(Invalid) as caught:
            use()
        assert "is left alone" in caught.value.message
        assert "hunter2" not in told(caught.value)
    assert "is left alone" in (secrets.problem() or "")
    assert (secrets.path.read_bytes(), keyring.asked) == (content, 0)


@promise("secrets:concurrent-writes-lose-nothing")
def test_two_processes_that_store_at_once_lose_none(pml_home: Path, home: Path, in_file: Secrets) -> None:
    code = """
import sys
from pathlib import Path
from pml.core.errors import Unavailable
from pml.settings.secrets import Secrets

class NoKeyring:
    def get(self, names): return {}
    def set(self, name, value): raise Unavailable("none")
    def delete(self, name): pass

for number in range(50):
    Secrets(Path(sys.argv[1]), NoKeyring()).store(f"{sys.argv[2]}_{number}", "x")
"""
    running = [subprocess.Popen([sys.executable, "-c", code, str(pml_home), name]) for name in ("ONE", "TWO")]
    try:
        assert [process.wait(timeout=TIMEOUT_S) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert len(in_file.names()) == 100
    assert [path.name for path in pml_home.iterdir() if "secrets" in path.name] == ["secrets.json"]


def test_a_kill_before_the_file_is_replaced_leaves_the_old_one_and_no_lock(
    in_file: Secrets, pml_home: Path
) -> None:
    in_file.store("TOKEN", "old")
    before = in_file.path.read_bytes()
    code = """
import os, signal, sys
from pathlib import Path
from pml.core.errors import Unavailable
from pml.settings.secrets import Secrets

class NoKeyring:
    def set(self, name, value): raise Unavailable("none")

os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Secrets(Path(sys.argv[1]), NoKeyring()).store("TOKEN", "new")
"""
    killed = subprocess.run([sys.executable, "-c", code, str(pml_home)], check=False, timeout=TIMEOUT_S)
    assert killed.returncode == -signal.SIGKILL
    assert in_file.path.read_bytes() == before
    in_file.store("OTHER", SECRET)
    assert in_file.values(["TOKEN", "OTHER"]) == {"TOKEN": "old", "OTHER": SECRET}


def test_what_another_program_wrote_meanwhile_is_not_overwritten(pml_home: Path) -> None:
    class Meddling(FakeKeyring):
        def set(self, name: str, value: str) -> None:
            (pml_home / "secrets.json").write_text('{"version": 1, "secrets": {}}')

    with pytest.raises(Changed):
        Secrets(pml_home, Meddling()).store("TOKEN", SECRET)
    assert (pml_home / "secrets.json").read_text() == '{"version": 1, "secrets": {}}'


def test_the_users_own_link_is_followed_and_stays_one(
    in_file: Secrets, pml_home: Path, tmp_path: Path
) -> None:
    pml_home.mkdir()
    target = tmp_path / "elsewhere.json"
    target.write_text('{"version": 1, "secrets": {}}')
    in_file.path.symlink_to(target)
    in_file.store("TOKEN", SECRET)
    assert (in_file.path.is_symlink(), in_file.values(["TOKEN"])) == (True, {"TOKEN": SECRET})
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


# --- what is refused


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=b", "sk-hunter2", "Ä", "A\n", "A" * 200])
def test_what_is_no_name_is_refused_without_repeating_it(secrets: Secrets, name: str) -> None:
    for use in (lambda: secrets.store(name, SECRET), lambda: secrets.remove(name)):
        with pytest.raises(Invalid) as caught:
            use()
        assert "hunter2" not in told(caught.value)
    assert not secrets.path.exists()


@promise("env:no-other-code")
@pytest.mark.parametrize("name", ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "Git_Ssh_Command"])
def test_a_variable_that_changes_which_code_runs_is_not_stored(secrets: Secrets, name: str) -> None:
    with pytest.raises(Invalid, match="changes which code the server runs"):
        secrets.store(name, SECRET)


@promise("secrets:never-shown")
@pytest.mark.parametrize(
    "value",
    ["", "hunter2\nx", "hunter2\0", "hunter2\r", "hunter2\ud800", "hunter2" + "x" * MAX_VALUE_BYTES],
)
def test_what_is_no_value_is_refused_without_repeating_it(secrets: Secrets, value: str) -> None:
    with pytest.raises(Invalid) as caught:
        secrets.store("TOKEN", value)
    assert "hunter2" not in told(caught.value)
    assert not secrets.path.exists()


# --- keyrings, each in a process of its own


@pytest.mark.parametrize("backend", ["Keeping", "Printing"])
def test_a_keyring_of_the_system_keeps_gives_and_deletes(home: Path, backend: str) -> None:
    keyring = system_keyring(home, backend)
    keyring.set("TOKEN", SECRET)
    keyring.set("OTHER", "x")
    assert keyring.get(["TOKEN", "OTHER", "NEVER"]) == {"TOKEN": SECRET, "OTHER": "x"}
    keyring.delete("TOKEN")
    keyring.delete("NEVER")
    assert keyring.get(["TOKEN", "OTHER"]) == {"OTHER": "x"}


def test_two_homes_of_pml_do_not_share_an_entry(home: Path) -> None:
    environ = {
        "PYTHONPATH": os.pathsep.join([str(HERE), "", ".", os.environ.get("PYTHONPATH", "")]),
        "PYTHON_KEYRING_BACKEND": "keyring_backends.Keeping",
        "KEYRING_PROPERTY_PATH": str(home / "entries.json"),
    }
    SystemKeyring(home / "one", environ).set("TOKEN", SECRET)
    assert SystemKeyring(home / "two", environ).get(["TOKEN"]) == {}


NONE = "no usable keyring is on this system"
FAILING = [
    ("keyring.backends.fail.Keyring", NONE),
    ("keyring.backends.null.Keyring", NONE),
    ("Weak", NONE),
    ("EmptyChain", NONE),
    ("Forgetful", "the keyring did not keep the value"),
    ("Locked", "the keyring is locked"),
    ("Telling", "the keyring failed: ValueError"),
    ("Ending", "the keyring broke off before it answered"),
    ("no_such_module.Keyring", "the keyring failed: ModuleNotFoundError"),
]


@promise("secrets:never-shown")
@pytest.mark.parametrize(("backend", "problem"), FAILING)
def test_a_keyring_that_does_not_serve_is_told_and_the_file_takes_its_place(
    home: Path, backend: str, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    keyring = system_keyring(home, backend)
    with pytest.raises(Unavailable) as caught:
        keyring.set("TOKEN", SECRET)
    assert caught.value.message == problem
    assert SECRET not in told(caught.value)
    secrets = Secrets(home / ".pml", keyring)
    assert secrets.store("TOKEN", SECRET) == Stored(where=Where.FILE, problem=problem)
    assert secrets.values(["TOKEN"]) == {"TOKEN": SECRET}
    assert SECRET not in "".join(capfd.readouterr())


def test_a_keyring_that_hangs_is_ended_with_all_that_it_started(home: Path) -> None:
    fifo = home / "fifo"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        keyring = system_keyring(home, "Hanging", path=fifo, wait_s=3)
        with pytest.raises(Unavailable) as caught:
            keyring.set("TOKEN", SECRET)
        assert has_ended(reading)
    finally:
        os.close(reading)
    assert caught.value.message == "the keyring did not answer within 3 s"
    assert SECRET not in told(caught.value)


def test_a_keyring_of_the_workspace_is_never_imported(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("keyring.py", "msgspec.py", "pml.py", "keyring_backends.py"):
        (workspace / module).write_text(f"open({str(home / 'ran')!r}, 'w')")
    monkeypatch.chdir(workspace)
    keyring = system_keyring(home, "Keeping")
    keyring.set("TOKEN", SECRET)
    assert keyring.get(["TOKEN"]) == {"TOKEN": SECRET}
    assert not (home / "ran").exists()


def test_a_keyring_gets_nothing_of_the_environment_but_what_it_is_found_by(home: Path) -> None:
    keyring = SystemKeyring(home, {"AWS_SECRET_ACCESS_KEY": SECRET, "LD_PRELOAD": "x", "HOME": "/h"})
    assert vars(keyring)["_environ"] == {"HOME": "/h"}


# --- nothing is shown


@promise("secrets:never-shown")
def test_no_object_shows_a_value(home: Path, in_file: Secrets) -> None:
    from pml.settings import keyrings
    from pml.settings import secrets as module

    stored = in_file.store("TOKEN", SECRET)
    held = vars(module)["_parse"](in_file.path.read_bytes())
    request = vars(keyrings)["_Request"](verb="set", service="s", names=("TOKEN",), value=SECRET)
    reply = vars(keyrings)["_Reply"](values={"TOKEN": SECRET})
    assert held.secrets["TOKEN"].value == SECRET
    for each in (stored, in_file, in_file.names(), held, held.secrets, request, reply):
        assert SECRET not in shown(each)


def has_ended(fifo: int) -> bool:
    """Wait until nobody holds the other end."""
    try:
        return os.read(fifo, 1) == b""
    except BlockingIOError:
        return bool(select.select([fifo], [], [], TIMEOUT_S)[0]) and os.read(fifo, 1) == b""


def told(error: PmlError) -> str:
    """Return all that anybody could print of an error."""
    lines = [*traceback.format_exception(error), repr(error), error.message, str(error.hint)]
    return "\n".join([*lines, *(repr(each) for each in causes(error))])


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def shown(value: object) -> str:
    from rich.pretty import pretty_repr

    return "\n".join([repr(value), str(value), pretty_repr(value)])
