"""Python code reaches nothing of the machine, and its processes have little to reach."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.code.sandbox import Ending
from pml.sandbox.monty import box as monty_box
from pml.sandbox.monty.sandbox import MontySandbox
from tests.promises import promise
from tests.sandbox.monty_rig import (
    CONDITIONS,
    ended,
    listed,
    program,
    ran,
    requests,
    sandbox_in,
    seen,
    workers,
)

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncGenerator[MontySandbox]:
    async with sandbox_in(tmp_path / "home") as made:
        yield made


@promise("sandbox:python-nothing-but-mcp")
@pytest.mark.parametrize(
    "code",
    [
        "open('{file}').read()",
        "open('{file}', 'w').write('gone')",
        "from pathlib import Path\nPath('{file}').read_text()",
        "from pathlib import Path\nPath('{file}').write_text('gone')",
        "from pathlib import Path\nPath('{file}').unlink()",
        "from pathlib import Path\nlist(Path('/').iterdir())",
        "import os\nos.listdir('/')",
        "import os\nos.remove('{file}')",
        "import os\nos.system('touch {file}.new')",
        "import os\nos.environ['HOME']",
        "import os\ndict(os.environ)",
        "import os\nos.getenv('HOME')",
        "import os\nos.fork()",
        "import socket",
        "import subprocess",
        "import ctypes",
        "import urllib.request",
        "import http.client",
        "import multiprocessing",
        "import threading",
        "import importlib",
        "import builtins",
        "import gc",
        "import inspect",
        "import pickle",
        "import pml",
        "__import__('socket')",
        "__builtins__",
        "globals()",
        "input()",
        "breakpoint()",
        "().__class__.__base__.__subclasses__()",
        "print.__self__",
        "(lambda: 0).__globals__",
        "mcp.__class__.__init__",
        "mcp.__dict__",
        "mcp.fs.__reduce__()",
        "eval(\"__import__('os').system('id')\")",
        "exec(\"open('{file}')\")",
    ],
)
async def test_nothing_of_the_machine_can_be_reached(
    sandbox: MontySandbox, tmp_path: Path, code: str
) -> None:
    file = tmp_path / "secret"
    file.write_text("secret")
    turns = await ran(sandbox, code.replace("{file}", str(file)))
    done = turns[-1].ended
    assert done is not None
    assert done.how in (Ending.RAISED, Ending.VALUE)
    assert "secret" not in str(turns).replace(str(file), "")
    assert requests(turns) == []
    assert listed(tmp_path) == ["home", "secret"]
    assert file.read_text() == "secret"


async def test_a_module_that_is_not_there_is_said_to_be_missing_from_this_python(
    sandbox: MontySandbox,
) -> None:
    found = await ended(sandbox, "import uuid")
    assert found.message == "ModuleNotFoundError: No module named 'uuid': it is not available in this Python"


@needs_linux
async def test_its_processes_have_no_environment(
    sandbox: MontySandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PML_TEST_SECRET", "hidden")
    before = workers()
    execution = await sandbox.open(program("await mcp.a.b()"), CONDITIONS)
    await execution.begin()
    found = {pid: seen(pid, "environ") for pid in workers() - before}
    assert found
    names = {
        entry.partition(b"=")[0] for entries in found.values() for entry in entries.split(b"\0") if entry
    }
    assert names <= {b"PWD"}


def boxes_work() -> bool:
    tried = subprocess.run(
        ["bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"],
        capture_output=True,
        timeout=30,
        check=False,
    )
    return tried.returncode == 0


@needs_linux
async def test_in_a_box_a_broken_interpreter_would_find_no_files_and_no_network(
    sandbox: MontySandbox,
) -> None:
    if shutil.which("bwrap") is None or not boxes_work():
        assert not os.environ.get("CI"), "bubblewrap must work where CI runs"
        pytest.skip("install bubblewrap to see Python's processes boxed")
    before = workers()
    execution = await sandbox.open(program("await mcp.a.b()"), CONDITIONS)
    await execution.begin()
    innermost = max(workers() - before)
    assert seen(innermost, "cmdline").startswith(b"/monty\0")
    assert set(listed(f"/proc/{innermost}/root")) <= {
        *("monty", "usr", "lib", "lib32", "lib64", "etc", "nix")
    }
    assert listed(str(Path("/proc", str(innermost), "root", "etc"))) in ([], ["ld.so.cache"])
    for kind in ("net", "pid", "ipc", "mnt", "user"):
        assert os.readlink(f"/proc/{innermost}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
    limits = seen(innermost, "limits")
    assert b"Max data size             %d " % (4 * 256 * 1024 * 1024) in limits
    assert b"Max file size             0 " in limits


@needs_linux
async def test_without_a_working_box_the_interpreter_runs_all_the_same_with_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monty_box, "_BOX", ("--no-such-option",))
    before = workers()
    async with sandbox_in(tmp_path) as sandbox:
        execution = await sandbox.open(program("await mcp.a.b()"), CONDITIONS)
        await execution.begin()
        (worker,) = workers() - before
        assert b"Max file size             0 " in seen(worker, "limits")
        assert seen(worker, "environ") == b""
