"""Where the value of a declared variable comes from, and that nothing but the value's user ever sees it."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pml.core.errors import Unavailable
from pml.core.ports.loader import Variables
from pml.settings.variables import DiskVariables
from tests.promises import promise

SECRET = "hunter2"


class OneKeyring:
    """Has one secret, until it is locked."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.is_locked = False

    def get(self, names: Sequence[str]) -> dict[str, str]:
        if self.is_locked:
            raise Unavailable("the keyring is locked")
        return {name: self.entries[name] for name in names if name in self.entries}

    def set(self, name: str, value: str) -> None:
        if self.is_locked:
            raise Unavailable("the keyring is locked")
        self.entries[name] = value

    def delete(self, name: str) -> None:
        self.entries.pop(name, None)


@pytest.fixture
def pml_home(home: Path) -> Path:
    place = home / ".pml"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def keyring() -> OneKeyring:
    return OneKeyring()


@pytest.fixture
def environ() -> dict[str, str]:
    return {}


@pytest.fixture
def variables(pml_home: Path, environ: dict[str, str], keyring: OneKeyring) -> DiskVariables:
    return DiskVariables(pml_home, environ, keyring=keyring)


def write(folder: Path, text: str) -> Path:
    path = folder / ".env"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_the_first_place_that_has_a_value_gives_it_and_each_is_read_anew(
    variables: DiskVariables, pml_home: Path, workspace: Path, environ: dict[str, str]
) -> None:
    port: Variables = variables
    found: list[tuple[object, object]] = []

    def look() -> None:
        values = port.values(["TOKEN", "OTHER"], workspace=str(workspace))
        found.append((dict(values), variables.where("TOKEN", workspace=str(workspace))))

    look()
    write(pml_home, "TOKEN=4")
    look()
    variables.secrets.store("TOKEN", "3")
    look()
    write(workspace, "TOKEN=2")
    look()
    environ["TOKEN"] = "1"
    look()
    assert found == [
        ({}, None),
        ({"TOKEN": "4"}, str(pml_home / ".env")),
        ({"TOKEN": "3"}, "the keyring"),
        ({"TOKEN": "2"}, str(workspace / ".env")),
        ({"TOKEN": "1"}, "the environment"),
    ]


@promise("env:workspace-needs-trust")
def test_the_file_of_a_workspace_counts_only_where_the_workspace_is_named(
    variables: DiskVariables, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(workspace, "TOKEN=hunter2\n?")
    monkeypatch.chdir(workspace)
    assert variables.values(["TOKEN"], workspace=None) == {}
    assert variables.where("TOKEN", workspace=None) is None
    assert variables.problems(workspace=None) == []
    assert variables.values(["TOKEN"], workspace=str(workspace)) == {"TOKEN": SECRET}


def test_only_the_names_that_were_asked_for_are_given(
    variables: DiskVariables, workspace: Path, environ: dict[str, str]
) -> None:
    environ["AWS_KEY"] = "a"
    write(workspace, "TOKEN=1\nOTHER=2")
    assert variables.values(["TOKEN"], workspace=str(workspace)) == {"TOKEN": "1"}


def test_an_empty_value_is_none_and_the_next_place_is_asked(
    variables: DiskVariables, pml_home: Path, workspace: Path, environ: dict[str, str]
) -> None:
    environ["TOKEN"] = ""
    write(workspace, "TOKEN=''")
    assert variables.values(["TOKEN"], workspace=str(workspace)) == {}
    write(pml_home, "TOKEN=4")
    assert variables.values(["TOKEN"], workspace=str(workspace)) == {"TOKEN": "4"}


@promise("env:no-other-code")
def test_a_variable_that_changes_which_code_runs_comes_from_nowhere(
    variables: DiskVariables, pml_home: Path, workspace: Path, environ: dict[str, str]
) -> None:
    names = ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "A-B"]
    environ |= dict.fromkeys(names, "x")
    for folder in (pml_home, workspace):
        write(folder, "".join(f"{name}=x\n" for name in names))
    (pml_home / "secrets.json").write_text(
        '{"version": 1, "secrets": {"LD_PRELOAD": {"in": "file", "value": "x"}}}'
    )
    assert variables.values(names, workspace=str(workspace)) == {}


def test_a_link_that_leads_out_of_the_workspace_is_ignored_and_one_within_is_not(
    variables: DiskVariables, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "w2"
    outside.mkdir()
    (outside / "credentials").write_text("TOKEN=hunter2")
    link = workspace / ".env"
    link.symlink_to(outside / "credentials")
    assert variables.values(["TOKEN"], workspace=str(workspace)) == {}
    assert variables.problems(workspace=str(workspace)) == [
        f"{link}: ignored: it is a link that leads out of the workspace"
    ]
    link.unlink()
    (workspace / ".env.local").write_text("TOKEN=1")
    link.symlink_to(".env.local")
    assert variables.values(["TOKEN"], workspace=str(workspace)) == {"TOKEN": "1"}


@pytest.mark.parametrize("kind", ["folder", "fifo", "circle"])
def test_what_is_no_regular_file_is_ignored_and_nobody_waits_for_it(
    variables: DiskVariables, workspace: Path, pml_home: Path, kind: str
) -> None:
    path = workspace / ".env"
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.symlink_to(".env")
    write(pml_home, "TOKEN=4")
    assert variables.values(["TOKEN"], workspace=str(workspace)) == {"TOKEN": "4"}
    (problem,) = variables.problems(workspace=str(workspace))
    assert problem.startswith(f"{path}: ignored: it ")


def test_a_file_that_cannot_be_read_is_told_and_the_other_places_count(
    variables: DiskVariables, workspace: Path, pml_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(workspace, "TOKEN=2")
    write(pml_home, "TOKEN=4")
    real_open = os.open

    def refuse(opened: str, flags: int) -> int:  # the superuser can read every file
        if opened == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", opened)
        return real_open(opened, flags)

    monkeypatch.setattr(os, "open", refuse)
    assert variables.values(["TOKEN"], workspace=str(workspace)) == {"TOKEN": "4"}
    assert variables.problems(workspace=str(workspace)) == [
        f"{path}: ignored: it cannot be read: Permission denied"
    ]


def test_a_locked_keyring_or_a_broken_file_hides_no_other_place(
    variables: DiskVariables, keyring: OneKeyring, pml_home: Path
) -> None:
    variables.secrets.store("LOCKED", "1")
    keyring.is_locked = True
    variables.secrets.store("TOKEN", "2")
    write(pml_home, "LOCKED=4\nTOKEN=4")
    names = ["LOCKED", "TOKEN"]
    assert variables.values(names, workspace=None) == {"LOCKED": "4", "TOKEN": "2"}
    variables.secrets.path.write_text("{")
    assert variables.values(names, workspace=None) == {"LOCKED": "4", "TOKEN": "4"}
    assert variables.problems(workspace=None) == [
        f"{variables.secrets.path} is not as PML writes it, and is left alone"
    ]


@promise("secrets:private-file")
def test_a_file_of_the_user_that_others_can_read_is_told(variables: DiskVariables, pml_home: Path) -> None:
    path = write(pml_home, "TOKEN=hunter2")
    assert variables.problems(workspace=None) == []
    path.chmod(0o644)
    assert variables.problems(workspace=None) == [f"{path} can be read by others: chmod 600 it"]


@promise("secrets:never-shown")
def test_neither_the_problems_nor_any_object_shows_a_value(
    variables: DiskVariables, pml_home: Path, workspace: Path
) -> None:
    from rich.pretty import pretty_repr

    write(pml_home, "hunter2\nTOKEN='hunter2\nOTHER=hunter2")
    write(workspace, "TOKEN=hunter2")
    variables.secrets.store("THIRD", SECRET)
    found = vars(DiskVariables)["_find"](variables, ["TOKEN", "OTHER", "THIRD"], workspace=str(workspace))
    assert [each.value for each in found.values()] == [SECRET] * 3
    problems = variables.problems(workspace=str(workspace))
    assert [problem.partition(": ")[2] for problem in problems] == [
        "line 1 is not `NAME=value`",
        "line 2 has a quote that is not closed in the line",
    ]
    for each in (variables, variables.secrets, found, problems):
        assert SECRET not in repr(each) + pretty_repr(each)
