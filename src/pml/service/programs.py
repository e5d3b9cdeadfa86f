"""Programs in the workspace: those of a server are pinned when it is trusted or first started.

They are looked at before each start. A server whose programs have changed since is not started before a
person accepts them, for the agent may have changed them.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from pml.core.approvals import Decider
from pml.core.digest import digest
from pml.core.errors import Conflict, ProgramChanged
from pml.core.manifests import launch_digest
from pml.core.ports import Pin
from pml.core.servers import ServerSpec
from pml.service.desk import Desk

_PROGRAMS: Final = "programs in "  # no tool's name has a blank: no pin of a tool is taken for one of these


async def pin_programs(desk: Desk, workspace: str, spec: ServerSpec) -> Pin | None:
    """Pin the programs as they are now, unless they are pinned; return the pin, None if there are none."""
    programs = await _programs_now(desk, workspace, spec)
    key = (spec.name, launch_digest(spec), _PROGRAMS + workspace)
    pin = await desk.store.pins.get(*key)
    if pin is None and programs:
        pin = _pin(desk, workspace, spec, programs)
        with contextlib.suppress(Conflict):  # another process was first
            await desk.store.pins.put(pin, by=None)
        pin = await desk.store.pins.get(*key)
    return pin


async def prove_programs(desk: Desk, workspace: str, spec: ServerSpec) -> None:
    """Return if the programs of the server are those that were pinned. Raises: ProgramChanged."""
    pin = await pin_programs(desk, workspace, spec)
    if pin is None:
        return
    now = await _programs_now(desk, workspace, spec)
    changed = sorted(path for path in {*pin.definition, *now} if pin.definition.get(path) != now.get(path))
    if changed:
        raise ProgramChanged(spec.name, files=tuple(changed), programs=now, was=pin.digest, now=digest(now))


async def are_accepted(desk: Desk, workspace: str, spec: ServerSpec, changed: ProgramChanged) -> bool:
    """Tell whether the changed programs are the pinned ones by now."""
    pin = await desk.store.pins.get(spec.name, launch_digest(spec), _PROGRAMS + workspace)
    return pin is not None and pin.digest == changed.tree


async def accept_programs(
    desk: Desk, workspace: str, spec: ServerSpec, changed: ProgramChanged, *, by: Decider | None
) -> None:
    """Pin the changed programs, as a person saw that they are."""
    await desk.store.pins.put(_pin(desk, workspace, spec, changed.programs), by=by)


async def _programs_now(desk: Desk, workspace: str, spec: ServerSpec) -> Mapping[str, str]:
    return await asyncio.to_thread(desk.configs.of(workspace).programs, spec)


def _pin(desk: Desk, workspace: str, spec: ServerSpec, programs: Mapping[str, str]) -> Pin:
    return Pin(
        server=spec.name,
        launch=launch_digest(spec),
        action=_PROGRAMS + workspace,
        definition=dict(programs),
        digest=digest(dict(programs)),
        pinned_at=desk.clock.now(),
    )
