"""What must hold before a server's process is spawned, and what is executed then.

An installed server is contained as was approved, has the values it requires, and its files are proven: that
last, so that little can change after. So are programs in the workspace that make up a configured one. Where
one of these fails nothing is spawned, and that is no crash.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pml.core.effective import unset_text
from pml.core.errors import Changed, EnvMissing, ServerFailed
from pml.core.loading import Variables
from pml.core.permissions import Containment
from pml.core.ports import Manifests
from pml.core.servers import ServerSpec
from pml.core.serving import Client
from pml.upstream.board import Board
from pml.upstream.containment import Held, contain, held
from pml.upstream.environment import environment_of
from pml.upstream.limits import Limits
from pml.upstream.process import Launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What every server of a gateway is given."""

    workspace: str
    client: Client
    manifests: Manifests
    idle_s: Callable[[], float]
    home: Path
    user_home: Path
    board: Board
    environ: Mapping[str, str]
    limits: Limits
    prove: Callable[[ServerSpec], Awaitable[None]]
    variables: Variables
    env_workspace: Callable[[], str | None]
    containment: Callable[[], Containment]


def what_holds(spec: ServerSpec, around: Surroundings) -> Held:
    """Return what will hold the server. Raises: ServerFailed if its permissions cannot be held to."""
    return held(
        around.containment(),
        spec,
        home=around.home,
        user_home=around.user_home,
        workspace=around.workspace,
    )


async def prepare(spec: ServerSpec, around: Surroundings, now: Held) -> Mapping[str, str]:
    """Return the values that the server requires; `now` is what will hold it.

    Raises: Changed if that is less than was approved; EnvMissing; ArtefactChanged; ServerFailed.
    """
    artefact = spec.artefact
    if spec.unset:
        hint = "set it where PML is started, or give a default: `${NAME:-default}`"
        raise ServerFailed(unset_text(spec), hint=hint)
    if artefact is None:
        await around.prove(spec)
        return {}
    if now.kind.is_weaker_than(artefact.containment):
        raise Changed(
            f"server `{spec.name}` was approved to run contained by {artefact.containment}, "
            f"and would be {now.words}",
            hint="`pml doctor` says why; or approve it as it would run now",
        )
    names = artefact.env_required
    workspace = around.env_workspace()
    # in a thread: a keyring may wait for its user
    values = await asyncio.to_thread(around.variables.values, names, workspace=workspace)
    missing = tuple(name for name in names if name not in values)
    if missing:
        raise EnvMissing(spec.name, missing)
    await around.prove(spec)
    return values


def launch_of(spec: ServerSpec, around: Surroundings, values: Mapping[str, str], kind: Containment) -> Launch:
    """Return what is executed. Raises: ServerFailed if it cannot be contained so."""
    launch = Launch(
        server=spec.name,
        command=spec.command,
        args=spec.args,
        cwd=spec.cwd or around.workspace,
        environment=environment_of(spec, around.environ, values=values),
    )
    return contain(
        launch,
        spec,
        home=around.home,
        user_home=around.user_home,
        workspace=around.workspace,
        kind=kind,
    )
