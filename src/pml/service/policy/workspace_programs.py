"""Programs in the workspace: those of a server are pinned when it is trusted or first started.

They are looked at before each start. A server whose programs have changed since is not started before a
person accepts them, for the agent may have changed them.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from pml.core.approvals.record import Decider
from pml.core.digest import digest
from pml.core.errors import Conflict, ProgramChanged
from pml.core.ports.records import Pin
from pml.core.servers.spec import ServerSpec
from pml.service.context import Context

_PROGRAMS: Final = "programs in "  # no tool's name has a blank: no pin of a tool is taken for one of these


async def pin_programs(context: Context, workspace: str, spec: ServerSpec) -> Pin:
    """Pin the programs as they are now, unless they are pinned; return the pin.

    That there are none is pinned too: a program that an agent writes after trust is a changed one.
    """
    key = (spec.name, spec.target_digest, _PROGRAMS + workspace)
    pin = await context.store.pins.get(*key)
    if pin is None:
        pin = _pin(context, workspace, spec, await _programs_now(context, workspace, spec))
        with contextlib.suppress(Conflict):  # another process was first
            await context.store.pins.put(pin, by=None)
        pin = await context.store.pins.get(*key) or pin
    return pin


async def prove_programs(context: Context, workspace: str, spec: ServerSpec) -> None:
    """Return if the programs of the server are those that were pinned. Raises: ProgramChanged."""
    pin = await pin_programs(context, workspace, spec)
    now = await _programs_now(context, workspace, spec)
    changed = sorted(path for path in {*pin.definition, *now} if pin.definition.get(path) != now.get(path))
    if changed:
        raise ProgramChanged(spec.name, files=tuple(changed), programs=now, was=pin.digest, now=digest(now))


async def are_accepted(context: Context, workspace: str, spec: ServerSpec, changed: ProgramChanged) -> bool:
    """Tell whether the changed programs are the pinned ones by now."""
    pin = await context.store.pins.get(spec.name, spec.target_digest, _PROGRAMS + workspace)
    return pin is not None and pin.digest == changed.tree


async def accept_programs(
    context: Context, workspace: str, spec: ServerSpec, changed: ProgramChanged, *, by: Decider | None
) -> None:
    """Pin the changed programs, as a person saw that they are."""
    await context.store.pins.put(_pin(context, workspace, spec, changed.programs), by=by)


async def _programs_now(context: Context, workspace: str, spec: ServerSpec) -> Mapping[str, str]:
    return await asyncio.to_thread(context.configs.of(workspace).programs, spec)


def _pin(context: Context, workspace: str, spec: ServerSpec, programs: Mapping[str, str]) -> Pin:
    return Pin(
        server=spec.name,
        target_digest=spec.target_digest,
        action=_PROGRAMS + workspace,
        definition=dict(programs),
        digest=digest(dict(programs)),
        pinned_at=context.clock.now(),
    )
