"""A registry with capabilities in both languages, in a folder or served by `pml cloud`."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.commands import Ran
from tests.e2e.code_rig import SERVERS
from tests.e2e.installed import ROOT, bare_environment

PREFIX: Final = "acme.tools"
CLOUD_S: Final = 30.0  # only ever reached by a cloud that hangs
SUFFIX: Final = {"deno": ".ts", "python": ".py"}

CATALOG: Final = ROOT / "src" / "pml" / "registry" / "bundled"

HOUR: Final[Mapping[str, str]] = {
    "deno": """
        export async function hour(args, { mcp }) {
            const now = await mcp.time.get_current_time({ timezone: args.zone });
            await mcp.ledger.open({ what: now.timezone });
            return { zone: now.timezone };
        }
    """,
    "python": """
async def hour(args, mcp):
    now = await mcp.time.get_current_time(timezone=args["zone"])
    await mcp.ledger.open(what=now["timezone"])
    return {"zone": now["timezone"]}
""",
}
BOTH: Final = """
import asyncio

async def both(args, mcp):
    return await asyncio.gather(mcp.clock.hour(zone="UTC"), mcp.clock.hour(zone="Asia/Tokyo"))
"""
SETTLE: Final[Mapping[str, str]] = {  # the second tool is not named in plain sight
    "deno": """
        export async function settle(args, { mcp }) {
            const opened = await mcp.ledger.open(args);
            const all = mcp;
            const paid = await all.ledger.pay(args);
            return [opened, paid, await mcp.ledger.shut(args)];
        }
    """,
    "python": """
async def settle(args, mcp):
    opened = await mcp.ledger.open(args)
    everything = mcp
    paid = await everything.ledger.pay(args)
    return [opened, paid, await mcp.ledger.shut(args)]
""",
}
RING: Final[Mapping[str, str]] = {
    "left": "export async function left(args, { mcp }) { return await mcp.ring.right({}) }",
    "right": "export async function right(args, { mcp }) { return await mcp.ring.left({}) }",
}


def time_server() -> dict[str, Any]:
    """The catalog's server `time`, with all that it consists of, as a capability brings it along."""
    [dependency] = json.loads((CATALOG / "time.json").read_text())["mcp_deps"]
    return {**dependency, "lock": json.loads((CATALOG / "locks" / "time.json").read_text())}


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A folder of entries."""

    folder: Path

    def add(self, name: str, kind: str, code: str, **more: object) -> None:
        """Add the capability `acme.tools.NAME`."""
        fqdn = f"{PREFIX}.{name}"
        action = name.rpartition(".")[2]
        metadata = {"fqdn": fqdn, "type": kind, "routing": "client", "tools": [action], **more}
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{fqdn}.json").write_text(json.dumps(metadata))
        (self.folder / f"{fqdn}{SUFFIX[kind]}").write_text(code)

    def add_hour(self, kind: str) -> None:
        """Add `clock:hour`, which brings a server along."""
        self.add("clock.hour", kind, HOUR[kind], mcp_deps=[time_server()])


@dataclass(kw_only=True)
class Cloud:
    """A `pml cloud` that serves a folder, in a home of its own."""

    place: Path
    options: tuple[str, ...]
    url: str = ""
    _process: "subprocess.Popen[str] | None" = field(default=None)

    def start(self) -> None:
        with open(self.place / "cloud.err", "a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pml", "cloud", *self.options],
                cwd=self.place,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(self._process.stdout.readline())
            assert lines[-1], "the cloud ended before it listened"
        self.url = json.loads("".join(lines))["url"]

    @property
    def environment(self) -> dict[str, str]:
        home = self.place / ".pml"
        return {**bare_environment(self.place), "PML_HOME": str(home), "PML_LOG": "debug"}

    @property
    def calls(self) -> int:
        """How often it was asked to run something."""
        return (self.place / "cloud.err").read_text().count("POST /mcp/tools/call")

    def rule(self, **lists: Sequence[str]) -> None:
        """Give it these rules, and the ledger."""
        home = self.place / ".pml"
        home.mkdir(mode=0o700, exist_ok=True)
        permissions = {"allow": [], "deny": [], "ask": ["*"], **lists}
        (home / "config.json").write_text(json.dumps({"permissions": permissions, "mcpServers": SERVERS}))

    def pml(self, *argv: str) -> Ran:
        """Run a command as the cloud's operator."""
        ran = subprocess.run(
            [sys.executable, "-m", "pml", *argv],
            cwd=self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLOUD_S,
        )
        return Ran(code=ran.returncode, out=ran.stdout, err=ran.stderr)

    def key(self) -> str:
        """Return a key for somebody who may have tools run."""
        ran = self.pml("token", "create", "--role", "session", "--name", "bob", "--json")
        assert ran.code == 0, ran.err
        return ran.json["token"]

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=CLOUD_S)
            self._process = None


@contextmanager
def cloud_of(folder: Path, place: Path, *options: str) -> Generator[Cloud]:
    """Serve the folder until the end, or until the test stops it."""
    place.mkdir(mode=0o700, exist_ok=True)
    given = ("--folder", str(folder), "--port", "0", "--json")
    cloud = Cloud(place=place, options=(*given, *options))
    cloud.start()
    try:
        yield cloud
    finally:
        cloud.stop()
