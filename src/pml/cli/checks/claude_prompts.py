"""The checks of `pml doctor` on who asks for the tools behind PML: PML, the client, or both."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.agents.allowances import allowances
from pml.agents.claude_code.form_hooks import config_folder, settings_files
from pml.agents.claude_code.gateway_name import SERVER, gateway_names
from pml.cli.checks.setup import Check, Status
from pml.cli.claude_code.init import asks_itself, project_settings
from pml.cli.claude_code.registration import is_this_pml, own_gateway, own_server
from pml.core.errors import PmlError
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.app import Place

_NAME: Final = "claude prompts"
_OR: Final = "or set `approval.unlisted` to `every_call`, and `approval.enabled` to true, in your config.json"
_ANEW: Final = "`pml init --claude-code` writes it anew"


def check_left(place: "Place") -> Iterator[Check]:
    """Yield what is to be said where settings let the tools of a gateway run without Claude Code asking."""
    names = gateway_names(place.home, str(place.workspace))
    for path in settings_files(config_folder(os.environ, place.user_home), [place.workspace]):
        entries: dict[str, str] = dict(reversed(allowances(path, names)))
        for name, entry in entries.items():
            yield _check(place, name, entry, path)


def _check(place: "Place", name: str, entry: str, path: Path) -> Check:
    shown = f"{visible(str(path))} lets the tools of `{name}` run unasked"
    if not asks_itself(place):
        message = f"{shown}, and PML leaves unlisted tools to the client or does not ask: nobody does"
        is_inits = path == project_settings(place) and entry == f"mcp__{name}" and name != SERVER
        where = f"--workspace {shlex.quote(str(place.workspace))}"
        removal = f"`pml init --claude-code {where}`" if is_inits else f"remove `{visible(entry)}` from it"
        hint = f"run {removal} now" if is_inits else removal
        return Check(name=_NAME, status=Status.FAIL, message=message, hint=f"{hint}; {_OR}")
    if name == SERVER:
        message = f"{shown}: a project's .mcp.json can give that name to another server"
        return Check(name=_NAME, status=Status.WARN, message=message, hint=_ANEW)
    own = own_server(place)
    if own is None or not is_this_pml(own):
        message = f"{shown}, but that name does not start this PML"
        return Check(name=_NAME, status=Status.FAIL, message=message, hint=_ANEW)
    message = f"one question a call: Claude Code leaves the tools of `{name}` to PML"
    return Check(name=_NAME, status=Status.OK, message=message)


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
