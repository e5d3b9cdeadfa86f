"""Trials: a server is started once, asked what it offers, and ended, before it is kept."""

from typing import TYPE_CHECKING, Final

from pml.cli.terminal.output import say
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.servers.manifest import Manifest
    from pml.core.servers.spec import ServerSpec
    from pml.service.context import Context

_SHOWN_TOOLS: Final = 100  # a server may list thousands
_SHOWN_CHARS: Final = 300


async def try_server(context: "Context", place: "Place", spec: "ServerSpec") -> "Manifest":
    """Return what the server offers. Raises: ServerFailed, EnvMissing, LoginRequired, Unavailable."""
    from pml.app import open_fleet
    from pml.service.calls.absent_client import Nobody

    fleet = open_fleet(context, place, Nobody(str(place.workspace)))
    try:
        return await fleet.manifest(spec)
    finally:
        await fleet.close()


def show_tools(manifest: "Manifest") -> None:
    """Say which tools the server offers, in its own words."""
    say(f"it offers {len(manifest.tools)} tools:" if manifest.tools else "it offers no tools")
    for tool in manifest.tools[:_SHOWN_TOOLS]:
        about = visible(str(tool.get("description") or "").strip().split("\n")[0][:_SHOWN_CHARS])
        say(f"  {visible(str(tool['name'])[:_SHOWN_CHARS])}{f': {about}' if about else ''}")
    if len(manifest.tools) > _SHOWN_TOOLS:
        say(f"  and {len(manifest.tools) - _SHOWN_TOOLS} more")
