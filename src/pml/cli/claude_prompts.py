"""The checks of `pml doctor` on who asks for the tools behind PML: one of the two, and never nobody."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.agents.form_hooks import config_folder, settings_files
from pml.agents.gateway_name import SERVER, gateway_names
from pml.agents.settings import allowed_in, read_settings
from pml.cli.checks import Check, Status
from pml.cli.claude_gateway import is_this_pml, own_gateway, own_server
from pml.cli.claude_init import asks_itself
from pml.core.errors import PmlError
from pml.core.text import visible
from pml.core.values import Json

if TYPE_CHECKING:
    from pml.app import Place

_NAME: Final = "claude prompts"
_ANEW: Final = "`pml init --claude-code` writes it anew"


def check_left(place: "Place") -> Iterator[Check]:
    """Yield what is to be said where settings let the tools of a gateway run without Claude Code asking."""
    names = gateway_names(place.home, str(place.workspace))
    for path in settings_files(config_folder(os.environ, place.user_home), [place.workspace]):
        for name in _left_in(path, names):
            yield _check(place, name, f"{visible(str(path))} lets the tools of `{name}` run unasked")


def _check(place: "Place", name: str, shown: str) -> Check:
    if not asks_itself(place):
        message = f"{shown}, and PML leaves unlisted tools to the client or does not ask: nobody does"
        hint = "`pml init --claude-code` takes it out; or remove `approval.unlisted` from your config.json"
        return Check(name=_NAME, status=Status.FAIL, message=message, hint=hint)
    if name == SERVER:
        message = f"{shown}: a project's .mcp.json can give that name to another server"
        return Check(name=_NAME, status=Status.WARN, message=message, hint=_ANEW)
    own = own_server(place)
    if own is None or not is_this_pml(own):
        message = f"{shown}, but that name does not start this PML"
        return Check(name=_NAME, status=Status.FAIL, message=message, hint=_ANEW)
    message = f"one question a call: Claude Code leaves the tools of `{name}` to PML"
    return Check(name=_NAME, status=Status.OK, message=message)


def _left_in(path: Path, names: Sequence[str]) -> list[str]:
    """Return which of these servers the settings let run unasked; a broken file is told of elsewhere."""
    try:
        text = read_settings(path)
        allowed = [] if text is None else allowed_in(text, path)
    except PmlError:
        return []
    return [name for name in names if any(_covers(entry, name) for entry in allowed)]


def _covers(entry: Json, name: str) -> bool:
    return isinstance(entry, str) and (entry == f"mcp__{name}" or entry.startswith(f"mcp__{name}__"))


def check_name(place: "Place") -> Iterator[Check]:
    """Yield whether the client itself, asked for PML's name, starts this PML."""
    own = own_server(place)
    gateway = None if own is None or not is_this_pml(own) else own_gateway(place)
    if gateway is None:  # what is not this PML is not started
        return
    try:
        problem = gateway.problem()
    except PmlError as exc:
        problem = exc.message
    if problem is not None:
        yield Check(name="claude name", status=Status.FAIL, message=visible(problem), hint=_ANEW)
        return
    message = f"proven: Claude Code starts this PML as `{gateway.name}`, whatever the project's files name so"
    yield Check(name="claude name", status=Status.OK, message=message)
