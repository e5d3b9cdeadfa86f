"""`deps.json`: what others wrote is kept, what cannot be understood is located, and nothing leads outside."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pml.core.errors import Changed, ConfigInvalid, Invalid, Unavailable
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.ports.loader import Accepted, Installed
from pml.host import replace as replacing
from pml.install.deps import Deps
from tests.install.makers import make_dependency
from tests.promises import promise

ROOT = Path(__file__).parents[2]
EDIT = """
import sys
from pathlib import Path
from tests.install.test_deps import make_installed
from pml.install.deps import Deps

home, number = Path(sys.argv[1]), sys.argv[2]
for n in range(5):
    Deps(home).record(make_installed(home, name=f"server-{number}-{n}"))
"""


@pytest.fixture
def deps(tmp_path: Path) -> Deps:
    return Deps(tmp_path)


def make_installed(home: Path, *, name: str = "memory", lock: str = "sha256:lock") -> Installed:
    permissions = Permissions(net=("example.org",), workspace=Access.READ)
    return Installed(
        dependency=make_dependency(
            name=name, integrity="sha512-x", lock=lock, env={"A": "${state}"}, permissions=permissions
        ),
        lock=lock,
        terms="sha256:terms",
        tree="sha256:tree",
        path=str(home / "servers" / name / "1.2.3-abc"),
        entry="index.js",
        runtime="deno",
        containment=Containment.LANDLOCK,
        installed_at=datetime(2026, 11, 3, 12, tzinfo=UTC),
    )


def document(deps: Deps) -> dict[str, Any]:
    return json.loads(deps.path.read_bytes())


def rewrite(deps: Deps, change: Callable[[dict[str, Any]], object]) -> bytes:
    value = document(deps)
    change(value)
    deps.path.write_text(json.dumps(value, indent=2))
    return deps.path.read_bytes()


def test_without_a_file_nothing_is_installed_and_none_is_made(deps: Deps) -> None:
    assert (deps.read().installed, deps.read().accepted) == ({}, {})
    assert not deps.path.exists()


def test_what_was_recorded_is_read_back_whole(deps: Deps, tmp_path: Path) -> None:
    installed = make_installed(tmp_path)
    deps.record(installed)
    assert Deps(tmp_path).read().installed == {"memory": installed}
    assert stat.S_IMODE(deps.path.stat().st_mode) == 0o600


def test_the_file_has_the_shape_that_other_programs_rely_on(deps: Deps, tmp_path: Path) -> None:
    deps.record(make_installed(tmp_path))
    value = document(deps)
    entry = value["installed"]["memory"]
    assert value["version"] == 1
    assert {
        key: entry[key] for key in ("version", "integrity", "installedAt", "installCommand", "lock", "tree")
    } == {
        "version": "1.2.3",
        "integrity": "sha512-x",
        "installedAt": "2026-11-03T12:00:00+00:00",
        "installCommand": "npx server-memory@1.2.3",
        "lock": "sha256:lock",
        "tree": "sha256:tree",
    }
    assert entry["path"] == str(tmp_path / "servers/memory/1.2.3-abc")


def test_what_was_last_consented_to_stays_also_after_its_removal(deps: Deps, tmp_path: Path) -> None:
    deps.record(make_installed(tmp_path, lock="sha256:first"))
    second = msgspec.structs.replace(make_installed(tmp_path, lock="sha256:second"), terms="sha256:moved")
    deps.record(second)
    assert document(deps)["accepted"] == {"memory": {"lock": "sha256:second", "terms": "sha256:moved"}}
    deps.forget("memory")
    accepted = {"memory": Accepted(lock="sha256:second", terms="sha256:moved")}
    assert (deps.read().installed, deps.read().accepted) == ({}, accepted)


def test_of_two_names_that_differ_only_in_case_one_is_recorded(deps: Deps, tmp_path: Path) -> None:
    deps.record(make_installed(tmp_path))
    with pytest.raises(Invalid, match="`Memory` differs only in case from `memory`"):
        deps.record(make_installed(tmp_path, name="Memory"))
    assert list(deps.read().installed) == ["memory"]


def test_keys_of_others_are_kept(deps: Deps, tmp_path: Path) -> None:
    deps.record(make_installed(tmp_path))

    def add(value: dict[str, Any]) -> None:
        value["note"] = {"by": "someone"}
        value["installed"]["memory"]["pinned"] = True

    rewrite(deps, add)
    deps.record(make_installed(tmp_path, name="time"))
    deps.record(make_installed(tmp_path))
    assert document(deps)["note"] == {"by": "someone"}
    assert document(deps)["installed"]["memory"]["pinned"] is True


def test_a_change_by_another_process_is_noticed(deps: Deps, tmp_path: Path) -> None:
    deps.record(make_installed(tmp_path))
    os.utime(deps.path, (1, 1))
    assert set(deps.read().installed) == {"memory"}
    Deps(tmp_path).forget("memory")
    assert deps.read().installed == {}


def test_an_unchanged_file_is_not_read_again(
    deps: Deps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps.record(make_installed(tmp_path))
    later = deps.path.stat().st_ctime_ns + 3_000_000_000
    monkeypatch.setattr("time.time_ns", lambda: later)
    assert deps.read() is deps.read()


UNREADABLE = [
    '{"version": 1,',
    "[]",
    "",
    '{"installed": {}}',
    '{"version": true}',
    '{"version": 1, "version": 1}',
]


@promise("deps:never-overwritten-unparsed")
@pytest.mark.parametrize("text", UNREADABLE)
def test_a_file_that_is_not_understood_is_located_and_never_written_over(
    deps: Deps, tmp_path: Path, text: str
) -> None:
    deps.path.write_text(text)
    for attempt in (deps.read, lambda: deps.record(make_installed(tmp_path)), lambda: deps.forget("memory")):
        with pytest.raises(ConfigInvalid, match=r"deps\.json:1:\d+: "):
            attempt()
    assert deps.path.read_text() == text


@promise("deps:never-overwritten-unparsed")
def test_a_file_of_a_newer_pml_is_refused_and_kept(deps: Deps, tmp_path: Path) -> None:
    deps.path.write_text('{"version": 2, "installed": []}')
    with pytest.raises(ConfigInvalid, match="`version` is 2, and this PML knows 1"):
        deps.record(make_installed(tmp_path))
    assert deps.path.read_text() == '{"version": 2, "installed": []}'


@promise("deps:never-overwritten-unparsed")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[
            (key, None)
            for key in ("lock", "terms", "tree", "path", "entry", "runtime", "containment", "dependency")
        ],
        ("containment", "steel"),
        ("installedAt", "yesterday"),
        ("installedAt", "2026-11-03T12:00:00"),
        ("accepted", "yes"),
        ("version", "9.9.9"),
        ("dependency", {"name": "memory"}),
    ],
)
def test_an_entry_that_lacks_or_mistakes_something_is_located(
    deps: Deps, tmp_path: Path, key: str, value: object
) -> None:
    deps.record(make_installed(tmp_path))

    def change(top: dict[str, Any]) -> None:
        entry = top["installed"]["memory"]
        if value is None:
            del entry[key]
        else:
            entry[key] = value

    text = rewrite(deps, change)
    with pytest.raises(ConfigInvalid, match=r"`installed\.memory"):
        deps.forget("memory")
    assert deps.path.read_bytes() == text


@promise("deps:only-beneath-home")
@pytest.mark.parametrize(
    "path",
    [
        "/usr/lib/evil",
        "servers/memory/x",
        "{home}/servers/memory/../../evil",
        "{home}/servers/memory/..",
        "{home}/servers/other/x",
        "{home}/servers/memory",
        "{home}/servers/memory/x/y",
        "{home}/servers/../servers/memory/x",
    ],
)
def test_a_path_outside_the_servers_own_folder_is_refused(deps: Deps, tmp_path: Path, path: str) -> None:
    deps.record(make_installed(tmp_path))
    rewrite(deps, lambda top: top["installed"]["memory"].update(path=path.replace("{home}", str(tmp_path))))
    with pytest.raises(ConfigInvalid, match=r"`installed.memory.path` must be a folder in"):
        deps.read()


@promise("deps:only-beneath-home")
@pytest.mark.parametrize("entry", ["/bin/sh", "../x", "a/../../x", "..", "a//b"])
def test_an_entry_outside_the_tree_is_refused(deps: Deps, tmp_path: Path, entry: str) -> None:
    deps.record(make_installed(tmp_path))
    rewrite(deps, lambda top: top["installed"]["memory"].update(entry=entry))
    with pytest.raises(ConfigInvalid, match="must lie beneath `path`"):
        deps.read()


@promise("deps:only-beneath-home")
def test_a_name_that_is_no_folder_is_refused(deps: Deps, tmp_path: Path) -> None:
    deps.record(make_installed(tmp_path))
    rewrite(deps, lambda top: top["installed"].update({"../x": top["installed"]["memory"]}))
    with pytest.raises(ConfigInvalid, match="not a name for a server"):
        deps.read()


def test_a_fifo_in_its_place_is_told_and_not_waited_for(deps: Deps) -> None:
    os.mkfifo(deps.path)
    with pytest.raises(ConfigInvalid, match="not a regular file"):
        deps.read()


def test_an_edit_that_another_program_overtook_writes_nothing(
    deps: Deps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps.record(make_installed(tmp_path))
    real = os.fsync

    def overtake(fd: int) -> None:
        real(fd)
        deps.path.write_text("{}")

    monkeypatch.setattr(replacing.os, "fsync", overtake)
    with pytest.raises(Changed, match="another program changed"):
        deps.forget("memory")
    assert deps.path.read_text() == "{}"


def test_a_disk_that_is_full_is_told_with_what_to_do(
    deps: Deps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps.record(make_installed(tmp_path))
    before = deps.path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replacing.os, "fsync", full)
    with pytest.raises(Unavailable, match=r"cannot write `deps\.json`: .*the disk is full") as caught:
        deps.forget("memory")
    assert caught.value.hint == "free some space on that disk, then try again"
    assert deps.path.read_bytes() == before


def test_edits_by_several_processes_at_once_are_all_kept(tmp_path: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", EDIT, str(tmp_path), str(n)], cwd=ROOT) for n in range(3)
    ]
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0, 0]
    names = {f"server-{number}-{n}" for number in range(3) for n in range(5)}
    assert set(Deps(tmp_path).read().installed) == names


def test_an_unverified_install_is_recorded_without_integrity(deps: Deps, tmp_path: Path) -> None:
    made = make_installed(tmp_path)
    unverified = msgspec.structs.replace(
        made, dependency=msgspec.structs.replace(made.dependency, integrity=None)
    )
    deps.record(unverified)
    assert document(deps)["installed"]["memory"]["integrity"] is None
    assert deps.read().installed == {"memory": unverified}
