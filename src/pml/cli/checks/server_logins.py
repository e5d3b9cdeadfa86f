"""The checks of `pml doctor` on logins to remote servers: who needs one, and where they are kept."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pml.cli.checks.setup import Check, Status
from pml.core.config.merged import Settings
from pml.core.errors import PmlError
from pml.core.servers.remote_target import RemoteTarget
from pml.core.text import visible
from pml.host.private import too_open

if TYPE_CHECKING:
    from pml.app import Place


def check_logins(settings: Settings, place: "Place") -> Iterator[Check]:
    """Yield how it stands with the login of each remote server that wants one, and with the file."""
    from pml.app import open_server_logins

    logins = open_server_logins(place)
    try:
        for name, spec in sorted(settings.servers.items()):
            if not isinstance(spec.target, RemoteTarget):
                continue
            login = logins.facts(name, spec.target.url)
            if login is not None and login.is_logged_in and login.wants is None:
                told = f"logged in at {visible(login.issuer)}"
                yield Check(name=f"login {name}", status=Status.OK, message=told)
            elif login is not None or spec.target.oauth is not None:
                told = f"server {name} needs a login"
                yield Check(
                    name=f"login {name}", status=Status.WARN, message=told, hint=f"`pml login {name}`"
                )
        if logins.path.exists() and too_open(logins.path):
            told = f"{visible(str(logins.path))} can be read by others"
            yield Check(name="logins", status=Status.WARN, message=told, hint="chmod 600 it")
    except (PmlError, OSError) as exc:
        told = exc.message if isinstance(exc, PmlError) else f"{logins.path}: {exc.strerror}"
        hint = exc.hint if isinstance(exc, PmlError) else None
        yield Check(name="logins", status=Status.FAIL, message=visible(told), hint=hint)
