"""Agents as processes: what of PML they see, and that ending them ends all that they started."""

import asyncio
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pml.core.errors import Unavailable
from pml.core.packages.permissions import Containment
from pml.host.processes import SystemProcesses
from pml.host.watchdog import end_tree
from pml.upstream.containment.agents import AgentBox, AgentProcess
from tests.promises import promise
from tests.upstream.boxes import need as need_box
from tests.upstream.fleets import all_beneath, runs

WAIT_S = 60.0  # only ever reached by something that hangs
KINDS = [Containment.BUBBLEWRAP, Containment.LANDLOCK, Containment.NONE]
STUBBORN = "trap '' TERM HUP; echo pid=$$; while :; do sleep 0.1; done"


class Yard:
    """A home of PML, a workspace, and what agents there print."""

    def __init__(self, home: Path, workspace: Path) -> None:
        self.home = home
        self.workspace = workspace
        self.own = home / "run" / "agents" / "own"
        self.heard = bytearray()
        self.complained = bytearray()

    async def start(self, script: str, kind: Containment, *, cwd: str | None = None) -> AgentProcess:
        box = AgentBox(home=self.home, user_home=self.home.parent, kind=kind)
        return await box.start(
            ("/bin/sh", "-c", script),
            cwd=cwd or str(self.workspace),
            environment={"PATH": "/usr/bin:/bin"},
            own=str(self.own),
            heard=self.heard.extend,
            complained=self.complained.extend,
        )

    async def said(self, text: bytes) -> None:
        await wait_for(lambda: text in self.heard)


async def wait_for(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not look():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has just ended
        return ""


@pytest.fixture
def yard(home: Path, tmp_path: Path) -> Yard:
    pml_home, workspace = home / ".pml", tmp_path / "shop"
    pml_home.mkdir(mode=0o700)
    (pml_home / "secret").write_text("of PML")
    for name in ("own", "other"):
        folder = pml_home / "run" / "agents" / name
        folder.mkdir(parents=True)
        (folder / "mcp.json").write_text(f"token of {name}\n")
    (workspace / "sub").mkdir(parents=True)
    (workspace / ".pml.json").write_text("as it was\n")
    return Yard(pml_home, workspace)


@promise("contain:home-hidden")
@pytest.mark.parametrize("kind", [Containment.BUBBLEWRAP, Containment.LANDLOCK])
async def test_an_agent_reads_its_own_token_and_no_other(yard: Yard, kind: Containment) -> None:
    need_box(kind)
    script = f"cat {yard.own}/mcp.json; cat {yard.own.parent}/*/mcp.json; ls {yard.own.parent}; echo done"
    process = await yard.start(script, kind)
    await process.finished()
    await process.stop()
    assert b"token of own" in yard.heard
    assert b"done" in yard.heard
    assert b"token of other" not in yard.heard


@pytest.mark.parametrize("kind", [Containment.BUBBLEWRAP, Containment.LANDLOCK])
async def test_an_agent_does_not_see_pmls_home(yard: Yard, kind: Containment) -> None:
    need_box(kind)
    process = await yard.start(f"cat {yard.home}/secret; echo done", kind)
    assert await asyncio.wait_for(process.finished(), WAIT_S) == 0
    await process.stop()
    assert bytes(yard.heard) == b"done\n"


@pytest.mark.parametrize("cwd", [".", "sub"])
async def test_an_agent_cannot_change_its_workspaces_rules(yard: Yard, cwd: str) -> None:
    need_box(Containment.BUBBLEWRAP)
    script = f"echo changed > {yard.workspace}/.pml.json; echo done"
    process = await yard.start(script, Containment.BUBBLEWRAP, cwd=str(yard.workspace / cwd))
    await asyncio.wait_for(process.finished(), WAIT_S)
    await process.stop()
    assert b"done" in yard.heard
    assert (yard.workspace / ".pml.json").read_text() == "as it was\n"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_is_fed_heard_and_tells_how_it_ended(yard: Yard, kind: Containment) -> None:
    need_box(kind)
    process = await yard.start("cat; echo trouble >&2; exit 7", kind)
    assert SystemProcesses().running(process.process)
    process.feed(b"x" * 3_000_000)
    await asyncio.wait_for(process.fed(), WAIT_S)
    process.close_input()
    assert await asyncio.wait_for(process.finished(), WAIT_S) == 7
    await process.stop()
    assert (len(yard.heard), bytes(yard.complained)) == (3_000_000, b"trouble\n")


@pytest.mark.parametrize("kind", KINDS)
async def test_stopping_ends_what_left_the_group_and_ignores_signals(yard: Yard, kind: Containment) -> None:
    need_box(kind)
    process = await yard.start(f"setsid sh -c {shlex.quote(STUBBORN)} & wait", kind)
    await yard.said(b"\n")
    started = all_beneath(process.process.pid)
    assert len(started) >= 2
    await asyncio.wait_for(process.stop(), WAIT_S)
    await wait_for(lambda: not any(map(runs, started)))
    assert not SystemProcesses().running(process.process)


async def test_another_process_of_the_same_number_is_left_alone(yard: Yard) -> None:
    process = await yard.start("echo up; cat", Containment.NONE)
    await yard.said(b"up")
    assert end_tree(process.process.pid, process.process.started - 1, signal.SIGKILL) == []
    assert SystemProcesses().running(process.process)
    await process.stop()


async def test_an_agent_that_cannot_be_started_says_why_and_not_as_a_server(yard: Yard) -> None:
    with pytest.raises(Unavailable, match=r"^the agent cannot be started: ") as failed:
        await yard.start("true", Containment.NONE, cwd=str(yard.workspace / "gone"))
    assert "server" not in failed.value.message


@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_at_the_terminal_shares_it_and_is_known_by_its_own_process(
    yard: Yard, kind: Containment
) -> None:
    need_box(kind)
    box = AgentBox(home=yard.home, user_home=yard.home.parent, kind=kind)
    go = yard.workspace / "go"
    started = await box.start_here(
        ("/bin/sh", "-c", f"until test -e {go}; do sleep 0.01; done"),
        cwd=str(yard.workspace),
        environment={"PATH": "/usr/bin:/bin"},
        own=str(yard.own),
    )
    pid = started.process.pid
    assert (os.getpgid(pid), os.getsid(pid)) == (os.getpgid(0), os.getsid(0))
    await wait_for(lambda: "sh" in map(name_of, all_beneath(pid)))
    go.touch()
    assert await asyncio.wait_for(started.finished(), WAIT_S) == 0
    await started.stop()
