"""Installed servers that try what they may not, and what they were able to do."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pml.core.packages.permissions import Containment, Permissions
from pml.core.rules.ruleset import Source
from pml.core.servers.process_launch import Artefact, ProcessLaunch
from pml.core.servers.spec import ServerSpec
from pml.upstream.containment import landlock
from pml.upstream.containment.box import available
from pml.upstream.fleet import Fleet
from tests.upstream.fleets import ODD, Harbour, use

RUNTIME = tuple(dict.fromkeys((sys.prefix, sys.base_prefix)))


def need(kind: Containment) -> None:
    """Skip a test of what this machine cannot do."""
    if kind is Containment.BUBBLEWRAP and available() is not kind:
        pytest.skip("bwrap is not installed or makes no boxes here: install the package `bubblewrap`")
    if kind is Containment.LANDLOCK and (sys.platform != "linux" or landlock.abi() == 0):
        pytest.skip("this system has no Landlock: Linux has it since 5.13")


def installed(
    harbour: Harbour,
    *options: str,
    permissions: Permissions | None = None,
    env_required: Sequence[str] = (),
    containment: Containment = Containment.NONE,
    home: Path | None = None,
) -> ServerSpec:
    """Return the odd server as if it were installed beneath `home`."""
    home = home or harbour.home
    path, state = home / "servers" / "odd", home / "state" / "odd"
    for folder in (path, state):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ODD, path / "odd.py")
    return ServerSpec(
        name="odd",
        target=ProcessLaunch(
            command=sys.executable,
            args=(str(path / "odd.py"), *options),
            env={},
            permissions=permissions or Permissions(),
            artefact=Artefact(
                version="1.0.0",
                terms=f"sha256:{'-'.join(options)}",
                path=str(path),
                tree="sha256:tree",
                state=str(state),
                needs=RUNTIME,
                env_required=tuple(env_required),
                containment=containment,
                is_accepted=False,
            ),
        ),
        source=Source(file="catalog", line=1),
    )


class Prisoner:
    """A server in a box, and what it can do there."""

    def __init__(self, fleet: Fleet, spec: ServerSpec) -> None:
        self._fleet = fleet
        self._spec = spec

    async def run(self, *argv: str) -> tuple[bool, str]:
        ran: dict[str, Any] = await use(self._fleet, self._spec, "sh", argv=argv)
        return ran["code"] == 0, ran["said"]

    async def sh(self, command: str) -> tuple[bool, str]:
        return await self.run("/bin/sh", "-c", command)

    async def can(self, command: str) -> bool:
        return (await self.sh(command))[0]

    async def reads(self, path: Path) -> bool:
        return (await self.run("/bin/cat", str(path)))[0]

    async def writes(self, path: Path) -> bool:
        return await self.can(f"echo written > '{path}'")

    async def connects(self, port: int) -> bool:
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)"
        return (await self.run(sys.executable, "-c", code))[0]


def box(harbour: Harbour, kind: Containment, spec: ServerSpec) -> Prisoner:
    return Prisoner(harbour.fleet(containment=kind), spec)
