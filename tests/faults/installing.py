"""Installs by real processes: one that is killed at every step in turn, and several that install at once.

Run as `python -m tests.faults.installing TASK FOLDER`.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pml.core.ports.loader import Installed
from tests.install.makers import FakeEcosystem, ignore, make_installer, make_plan

ROOT = Path(__file__).parents[2]
STEPS = (
    "mkdir",
    "open",
    "write",
    "chmod",
    "fsync",
    "rename",
    "replace",
    "unlink",
    "rmdir",
    "close",
    "symlink",
)
MOST = 2000


def spawn(task: str, folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.installing", task, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def install(home: Path, ecosystem: FakeEcosystem) -> Installed:
    return asyncio.run(make_installer(home, ecosystem).install(make_plan(), told=ignore))


def die_at(step: int) -> None:
    """Let this process be killed just before its `step`th call that changes the disk."""
    count = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **more)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))


def at_every_step(folder: Path) -> None:
    """Install into `folder/<n>` and be killed at step n, until an install needs no more steps than that."""
    for step in range(1, MOST):
        child = os.fork()
        if child == 0:
            ecosystem = FakeEcosystem()
            ecosystem.links["link"] = "index.js"
            die_at(step)
            install(folder / str(step), ecosystem)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            print(step, os.waitstatus_to_exitcode(status), flush=True)
            return


def at_once(folder: Path) -> None:
    """Install when told to."""
    print("ready", flush=True)
    sys.stdin.readline()
    install(folder / "home", FakeEcosystem(log=folder / "log"))


if __name__ == "__main__":
    {"at-every-step": at_every_step, "at-once": at_once}[sys.argv[1]](Path(sys.argv[2]))
