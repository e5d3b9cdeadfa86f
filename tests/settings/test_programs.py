"""Which programs of a server lie in the workspace, and what tells that one has changed."""

import os
import sys
from pathlib import Path

import pytest

from pml.core.servers.process_launch import ProcessLaunch
from pml.settings.programs import programs_in


def names(workspace: Path, command: str, *args: str, cwd: Path | None = None) -> list[str]:
    """Return the programs, by their path in the workspace or else whole."""
    return sorted(os.path.relpath(path, workspace) for path in hashes(workspace, command, *args, cwd=cwd))


def hashes(workspace: Path, command: str, *args: str, cwd: Path | None = None) -> dict[str, str]:
    launch = ProcessLaunch(command=command, args=args, cwd=cwd and str(cwd))
    return dict(programs_in(str(workspace), launch))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "shop"
    (place / "bin").mkdir(parents=True)
    (place / "pkg").mkdir()
    (place / "data").mkdir()
    for name in ("srv.sh", "srv.py", "srv.js", "bin/srv", "srv", "data.db", "notes.json", "pkg/__main__.py"):
        (place / name).write_text(f"this is {name}")
    return place


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["./srv.sh"], ["srv.sh"]),
        (["bin/srv", "--data", "./data", "data.db", "--db=data.db", "notes.json"], ["bin/srv"]),
        (["python3", "srv.py", "data.db"], ["srv.py"]),
        (["python3.12", "-u", "srv", "data.db"], ["srv"]),
        (["bash", "-x", "./srv.sh"], ["srv.sh"]),
        (["node", "--require=./srv.js", "/usr/lib/x.js"], ["srv.js"]),
        (["uv", "run", "--script", "srv.py"], ["srv.py"]),
        (["env", "A=b", "bin/srv"], ["bin/srv"]),
        (["deno", "run", "-A", "gone.ts"], ["gone.ts"]),
        (["npx", "-y", "@scope/server", "./data", "notes.json"], []),
        (["/bin/sh", "/opt/srv.sh", "data.db"], []),
    ],
)
def test_the_command_and_the_scripts_in_the_workspace_are_found(
    workspace: Path, line: list[str], expected: list[str]
) -> None:
    assert names(workspace, *line) == sorted(expected)


def test_modules_that_are_run_where_the_server_starts_are_found_also_before_they_are_there(
    workspace: Path,
) -> None:
    found = hashes(workspace, "python3", "-m", "pkg")
    assert found[str(workspace / "pkg" / "__main__.py")].startswith("sha256:")
    assert found[str(workspace / "pkg.py")] == "-"


def test_a_program_is_found_by_where_it_lies_and_by_the_link_that_leads_out(workspace: Path) -> None:
    (workspace.parent / "out").symlink_to(workspace / "srv.sh")
    (workspace / "python").symlink_to(sys.executable)
    assert len(hashes(workspace, str(workspace.parent / "out"))) == 1
    assert names(workspace, "./python", "/opt/srv.py") == ["python"]
    assert names(workspace, "./srv.sh", cwd=workspace.parent) == []


def test_another_content_link_or_kind_has_another_hash(workspace: Path) -> None:
    (path, before), *_ = hashes(workspace, "./srv.sh").items()
    program = Path(path)
    program.write_text("something else")
    changed = hashes(workspace, "./srv.sh")[path]
    program.unlink()
    gone = hashes(workspace, "./srv.sh")[path]
    os.mkfifo(program)
    pipe = hashes(workspace, "./srv.sh")[path]
    program.unlink()
    program.symlink_to("srv.py")
    assert len({before, changed, gone, pipe, hashes(workspace, "./srv.sh")[path]}) == 5
